/** Speaks for `connection.ts`: URLs, waiting times, and a log that cannot be flooded. */
import { describe, expect, test } from 'vitest';
import { systemRandom } from '../../../src/platform/clock.ts';
import type { Log } from '../../../src/platform/log.ts';
import { connectionFaultLog, parseRedisUrl, retryDelayMs } from '../../../src/platform/redis/connection.ts';

describe('a Redis URL', () => {
  test.each([
    ['redis://localhost', { kind: 'single', address: { host: 'localhost', port: 6379 }, db: 0, tls: false }],
    ['redis://10.0.0.1:7000/3', { kind: 'single', address: { host: '10.0.0.1', port: 7000 }, db: 3, tls: false }],
    ['rediss://[::1]:7000/', { kind: 'single', address: { host: '::1', port: 7000 }, db: 0, tls: true }],
    [
      'redis://gate:p%40ss%2F@r:1',
      { kind: 'single', address: { host: 'r', port: 1 }, db: 0, tls: false, username: 'gate', password: 'p@ss/' },
    ],
    ['redis://:only@r:1', { kind: 'single', address: { host: 'r', port: 1 }, db: 0, tls: false, password: 'only' }],
    [
      'redis+sentinel://a:1,b,[::1]:3/shop',
      {
        kind: 'sentinel',
        sentinels: [
          { host: 'a', port: 1 },
          { host: 'b', port: 26379 },
          { host: '::1', port: 3 },
        ],
        masterName: 'shop',
      },
    ],
    [
      'redis+sentinel://u:p@a/shop-1',
      { kind: 'sentinel', sentinels: [{ host: 'a', port: 26379 }], masterName: 'shop-1', username: 'u', password: 'p' },
    ],
    [
      'redis+cluster://a:7001,b:7002',
      {
        kind: 'cluster',
        nodes: [
          { host: 'a', port: 7001 },
          { host: 'b', port: 7002 },
        ],
      },
    ],
    ['redis+cluster://a/', { kind: 'cluster', nodes: [{ host: 'a', port: 6379 }] }],
  ])('%s', (url, place) => {
    expect(parseRedisUrl(url)).toEqual(place);
  });

  test.each([
    '',
    'localhost:6379',
    'http://localhost:6379',
    'redis://',
    'redis://a:0',
    'redis://a:70000',
    'redis://a:port',
    'redis://a,b',
    'redis://a/shop',
    'redis://secret@a',
    'redis://u:%zz@a',
    'redis://a?enableOfflineQueue=true', // a setting in the URL would overrule ours
    'redis+sentinel://a:1',
    'redis+sentinel://a:1/',
    'redis+sentinel://a:1,/shop',
    'redis+cluster://a:1/2',
    'redis+cluster://:1',
  ])('%j is refused, without telling what it held', (url) => {
    expect(() => parseRedisUrl(url)).toThrow(expect.objectContaining({ code: 'settings_invalid', retryable: false }));
    expect(() => parseRedisUrl(url)).not.toThrow(/secret/);
  });
});

test('waiting before the next connection grows, is random and stays within 50 ms and 2 s', () => {
  const earliest = { ...systemRandom, fraction: () => 0 };
  const latest = { ...systemRandom, fraction: () => 0.999_999 };
  expect([1, 2, 3, 10, 1e9].map((attempt) => retryDelayMs(attempt, earliest))).toEqual([50, 50, 50, 50, 50]);
  expect([1, 2, 3, 4, 5, 6, 10, 1e9].map((attempt) => retryDelayMs(attempt, latest))).toEqual([
    99, 199, 399, 799, 1599, 1999, 1999, 1999,
  ]);
});

test('connection faults are logged once a second, and a line counts those it stands for', () => {
  let now = 0;
  const lines: object[] = [];
  const log = { warn: (fields: object) => void lines.push(fields) } as unknown as Log;
  const logFault = connectionFaultLog(log, 'gate', { now: () => 0, monotonic: () => now });
  for (now = 0; now <= 2_000; now += 100) logFault(new Error('ECONNREFUSED'));
  expect(lines).toEqual([
    { redis: 'gate', fault: 'ECONNREFUSED', count: 1 },
    { redis: 'gate', fault: 'ECONNREFUSED', count: 10 },
    { redis: 'gate', fault: 'ECONNREFUSED', count: 10 },
  ]);
});
