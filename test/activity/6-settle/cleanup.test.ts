/** Speaks for the quiet hours of `cleanup.ts`: what is an hour of the day where the shop is. */
import { describe, expect, test } from 'vitest';
import { parseHours, quietHour } from '../../../src/activity/6-settle/cleanup.ts';

describe('the setting', () => {
  test.each<[text: string, hours: { from: number; to: number } | undefined]>([
    ['02-06', { from: 2, to: 6 }],
    ['22-04', { from: 22, to: 4 }],
    ['00-24', { from: 0, to: 24 }],
    ['06-06', undefined],
    ['24-02', undefined],
    ['2-6', undefined],
    ['02:00-06:00', undefined],
    ['', undefined],
  ])('%s', (text, hours) => expect(parseHours(text)).toEqual(hours));
});

describe('an instant', () => {
  test.each<[hours: string, zone: string, instant: string, isQuiet: boolean]>([
    ['02-06', 'Asia/Shanghai', '2026-11-10T18:00:00Z', true], // 02:00
    ['02-06', 'Asia/Shanghai', '2026-11-10T17:59:59.999Z', false],
    ['02-06', 'Asia/Shanghai', '2026-11-10T21:59:59.999Z', true],
    ['02-06', 'Asia/Shanghai', '2026-11-10T22:00:00Z', false], // 06:00
    ['02-06', 'UTC', '2026-11-10T03:00:00Z', true],
    ['22-04', 'UTC', '2026-11-10T23:00:00Z', true],
    ['22-04', 'UTC', '2026-11-10T03:59:00Z', true],
    ['22-04', 'UTC', '2026-11-10T04:00:00Z', false],
    ['00-24', 'UTC', '2026-11-10T00:00:00Z', true],
    // New York, summer time ends on 1 November 2026: 01:30 comes twice, 02:00 once
    ['02-06', 'America/New_York', '2026-11-01T06:30:00Z', false], // 01:30 again
    ['02-06', 'America/New_York', '2026-11-01T07:00:00Z', true], // 02:00
    // and begins on 8 March 2026: after 01:59 comes 03:00
    ['02-03', 'America/New_York', '2026-03-08T07:00:00Z', false],
    ['02-06', 'America/New_York', '2026-03-08T07:00:00Z', true],
  ])('%s in %s at %s: %s', (hours, zone, instant, isQuiet) => {
    expect(quietHour({ ...parseHours(hours)!, zone })(Date.parse(instant))).toBe(isQuiet);
  });
});
