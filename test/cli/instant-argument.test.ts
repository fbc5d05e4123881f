/** Times as they are typed: RFC 3339 with a zone, or a span from the server's now. */
import { describe, expect, test } from 'vitest';
import { instantAt, parseInstant } from '../../src/cli/instant-argument.ts';

const NOW = Date.UTC(2026, 10, 11, 12, 0, 0);
const read = (text: string): string | undefined => {
  const argument = parseInstant(text);
  return argument === undefined ? undefined : new Date(instantAt(argument, NOW)).toISOString();
};

describe('times on the command line', () => {
  test.each([
    ['2026-11-11T20:00:00+08:00', '2026-11-11T12:00:00.000Z'],
    ['2026-11-11T12:00:00Z', '2026-11-11T12:00:00.000Z'],
    ['2026-11-11t12:00:00.25z', '2026-11-11T12:00:00.250Z'],
    ['2028-02-29T00:00:00Z', '2028-02-29T00:00:00.000Z'],
    ['+30s', '2026-11-11T12:00:30.000Z'],
    ['+10m', '2026-11-11T12:10:00.000Z'],
    ['+1.5h', '2026-11-11T13:30:00.000Z'],
    ['+2d', '2026-11-13T12:00:00.000Z'],
    ['+250ms', '2026-11-11T12:00:00.250Z'],
  ])('%s', (text, iso) => expect(read(text)).toBe(iso));

  test.each([
    '2026-11-11T20:00:00', // whose eight o'clock?
    '2026-11-11 20:00:00Z',
    '2026-11-11',
    '2026-02-29T00:00:00Z',
    '2026-04-31T00:00:00Z',
    '2026-13-01T00:00:00Z',
    '2026-11-11T24:00:00Z',
    '2026-11-11T12:60:00Z',
    '2026-11-11T12:00:60Z',
    '2026-11-11T12:00:00+99:00',
    '20:00',
    'tomorrow',
    '1794398400',
    '+30',
    '-30s',
    '30s',
    '+1w',
    '+s',
    '',
  ])('not %s', (text) => expect(read(text)).toBeUndefined());
});
