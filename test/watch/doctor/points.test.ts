/** Speaks for `points.ts`: a healthy reading has no open point, and each fault opens exactly its own. */
import { describe, expect, test } from 'vitest';
import type { ActivityRecord } from '../../../src/domain/activity.ts';
import {
  activityPoints,
  isAtLeast,
  postgresPoints,
  redisPoints,
  settingsPoints,
  type ActivityReading,
  type Point,
  type PostgresReading,
  type RedisReading,
  type SettingsReading,
} from '../../../src/watch/doctor/points.ts';

const HOUR_MS = 3_600_000;
const settings: SettingsReading = {
  processes: 3,
  redisConnectionsPerProcess: 3,
  databasePoolMax: 10,
  devIdentity: false,
  knowsBuyers: true,
  signsReceipts: true,
  hasOperators: true,
};
const redis: RedisReading = {
  kind: 'redis',
  version: '7.0.15',
  role: 'master',
  evictionPolicy: 'noeviction',
  appendOnly: true,
  slowLogMicros: 10_000,
  slowLogLength: 128,
  slowest: [],
  clients: 10,
  clientsMax: 10_000,
  replicas: 0,
  replicasToWriteMin: 0,
  clock: { offsetMs: 3, errorMs: 1 },
  roundTripMs: 0.2,
  keys: { looked: 7, all: true, endless: [] },
};
const postgres: PostgresReading = {
  versionNumber: 150_004,
  isStandby: false,
  fsync: 'on',
  fullPageWrites: 'on',
  synchronousCommit: 'on',
  isolation: 'read committed',
  connections: 12,
  connectionsMax: 97,
  clock: { offsetMs: -2, errorMs: 1 },
};
const activity: ActivityRecord = {
  id: 'act1',
  state: 'scheduled',
  paused: false,
  preheat: 'confirmed',
  itemName: '商品',
  imageUrl: undefined,
  priceMinor: 100,
  currency: 'CNY',
  total: 10,
  sold: 0,
  surplus: 2,
  perBuyerLimit: 1,
  opensAt: 10 * HOUR_MS,
  endsAt: 11 * HOUR_MS,
  answerWhen: 'ordered',
  overshoot: 1.2,
  segments: 1,
  autoConfirm: true,
  run: 1,
  shards: 1,
  runState: 'open',
  version: 3,
  createdBy: 'ann',
  editedBy: undefined,
  createdAt: 0,
  readAt: 9 * HOUR_MS,
};
const live: ActivityReading = {
  activity,
  gate: [{ run: '1', state: 'open', left: 12 }],
  keysEndAt: 13 * HOUR_MS,
  deadLetters: 0,
  gateChanges: 0,
  workerIsThere: true,
  now: 9 * HOUR_MS,
};
const open = (points: readonly Point[]): string[] => points.filter(({ holds }) => !holds).map(({ name }) => name);

test('a healthy house has no open point', () => {
  expect([
    ...open(redisPoints(redis, settings)),
    ...open(postgresPoints(postgres, settings)),
    ...open(settingsPoints(settings)),
    ...open(activityPoints(live)),
  ]).toEqual([]);
});

describe('Redis', () => {
  test.each<[what: string, change: Partial<RedisReading>, point: string]>([
    ['an old one', { version: '6.2.14' }, 'redis version'],
    ['an old Valkey', { kind: 'valkey', version: '7.0.1' }, 'redis version'],
    ['a replica', { role: 'slave' }, 'redis role'],
    ['one that evicts', { evictionPolicy: 'allkeys-lru' }, 'eviction policy'],
    ['one that evicts what has an end', { evictionPolicy: 'volatile-ttl' }, 'eviction policy'],
    ['one without a file', { appendOnly: false }, 'append-only file'],
    ['a deaf slow log', { slowLogMicros: 20_000 }, 'slow log threshold'],
    ['a slow log that is off', { slowLogMicros: -1 }, 'slow log threshold'],
    ['a short slow log', { slowLogLength: 10 }, 'slow log length'],
    ['slow commands', { slowest: [{ command: 'KEYS', micros: 90_000 }] }, 'slow commands'],
    ['a full house', { clients: 7_995 }, 'redis connections'],
    ['a primary that sells when cut off', { replicas: 1 }, 'redis replicas'],
    ['a wrong clock', { clock: { offsetMs: 400, errorMs: 1 } }, 'redis clock'],
    ['a wrong clock, behind', { clock: { offsetMs: -400, errorMs: 1 } }, 'redis clock'],
    ['one that is far away', { roundTripMs: 4 }, 'redis round trip'],
    ['a key without an end', { keys: { looked: 9, all: true, endless: ['sk:{a.0}:x'] } }, 'keys without an end'],
  ])('%s', (_, change, point) => expect(open(redisPoints({ ...redis, ...change }, settings))).toEqual([point]));

  test('what cannot be read is open, never taken for good', () => {
    const unread = Object.fromEntries(Object.keys(redis).map((name) => [name, undefined]));
    const points = redisPoints({ ...(unread as unknown as RedisReading), kind: 'redis' }, settings);
    expect(open(points)).toEqual(points.map(({ name }) => name));
    for (const { found } of points) expect(found).toBe('not known');
  });

  test('a clock that is read badly is not called wrong', () => {
    expect(open(redisPoints({ ...redis, clock: { offsetMs: 150, errorMs: 80 } }, settings))).toEqual([]);
  });
});

describe('PostgreSQL', () => {
  test.each<[what: string, change: Partial<PostgresReading>, point: string]>([
    ['an old one', { versionNumber: 140_011 }, 'postgres version'],
    ['a standby', { isStandby: true }, 'postgres role'],
    ['one that does not sync', { fsync: 'off' }, 'fsync'],
    ['torn pages', { fullPageWrites: 'off' }, 'full_page_writes'],
    ['commits told early', { synchronousCommit: 'off' }, 'synchronous_commit'],
    ['another isolation', { isolation: 'serializable' }, 'default isolation'],
    ['a full house', { connections: 60 }, 'postgres connections'],
    ['a wrong clock', { clock: { offsetMs: 900, errorMs: 5 } }, 'postgres clock'],
  ])('%s', (_, change, point) => expect(open(postgresPoints({ ...postgres, ...change }, settings))).toEqual([point]));
});

describe('the settings', () => {
  test.each<[change: Partial<SettingsReading>, point: string]>([
    [{ devIdentity: true }, 'development identity'],
    [{ knowsBuyers: false }, 'buyers’ tokens'],
    [{ signsReceipts: false }, 'receipts'],
    [{ hasOperators: false }, 'operators'],
  ])('%j', (change, point) => expect(open(settingsPoints({ ...settings, ...change }))).toEqual([point]));
});

describe('an activity', () => {
  const gate = live.gate[0]!;
  test.each<[what: string, change: Partial<ActivityReading>, points: string[]]>([
    ['there is none', { activity: undefined }, ['activity']],
    ['in review', { activity: { ...activity, state: 'in_review' } }, ['state', 'reviewed by another']],
    ['paused', { activity: { ...activity, paused: true } }, ['paused']],
    ['only verified', { activity: { ...activity, preheat: 'verified' } }, ['preheat']],
    ['nothing at the gate', { gate: [], keysEndAt: undefined }, ['gate', 'stock at the gate', 'keys outlive the sale']],
    ['another run at the gate', { gate: [{ ...gate, run: '2' }] }, ['gate']],
    ['a gate that is shut', { gate: [{ ...gate, state: 'shut' }] }, ['gate']],
    ['less than it should be', { gate: [{ ...gate, left: 11 }] }, ['stock at the gate']],
    ['more than it should be', { gate: [{ ...gate, left: 100 }] }, ['stock at the gate']],
    ['no stock that can be read', { gate: [{ ...gate, left: undefined }] }, ['stock at the gate']],
    ['keys that end too soon', { keysEndAt: 12 * HOUR_MS }, ['keys outlive the sale']],
    ['a change under way', { gateChanges: 1 }, ['changes under way']],
    ['a dead letter', { deadLetters: 2 }, ['dead letters']],
    ['nobody lands', { workerIsThere: false }, ['worker']],
  ])('%s', (_, change, points) => {
    expect(open(activityPoints({ ...live, ...change }))).toEqual(points);
  });
  test('one that sells has less than all', () => {
    const selling = { ...live, now: 10.5 * HOUR_MS, gate: [{ ...gate, left: 3 }] };
    expect(open(activityPoints(selling))).toEqual([]);
  });
});

test.each<[version: string, least: string, is: boolean]>([
  ['7.0.15', '7.0', true],
  ['7.2', '7.2', true],
  ['7.10.1', '7.2', true],
  ['6.9.9', '7.0', false],
  ['8', '7.2', true],
  ['7', '7.2', false],
])('%s at least %s: %s', (version, least, is) => expect(isAtLeast(version, least)).toBe(is));
