/**
 * The gate by itself for tests: its scripts over a real Redis, a segment on sale, and a way to see every key of it.
 *
 * No database and no activity: `open` does by the gate's own scripts what preheat and confirmation do. Each test gate has
 * a key prefix of its own, so that many share a server. `dump` shows every key of an activity, made by the gate or not.
 */
import { randomBytes } from 'node:crypto';
import { describe, inject } from 'vitest';
import type { Activity } from '../../src/domain/activity.ts';
import { must } from '../../src/domain/fault.ts';
import { formatMark, type Mark, type MarkStatus } from '../../src/domain/mark.ts';
import { GATE_CODES, type GateCode } from '../../src/domain/results.ts';
import { systemClock } from '../../src/platform/clock.ts';
import { makeLog } from '../../src/platform/log.ts';
import { makeKeys, shardOf, type Keys } from '../../src/platform/redis/keys.ts';
import { openRedis, type RedisLink } from '../../src/platform/redis/link.ts';
import { Gate, type GateReports } from '../../src/purchase/4-gate/gate.ts';
import {
  makeGateScripts,
  type Candidate,
  type GateChange,
  type GateScripts,
  type HoldReply,
  type Segment,
} from '../../src/purchase/4-gate/gate-scripts.ts';
import { RedisTime } from '../../src/purchase/4-gate/redis-time.ts';

/** Runs a suite on both of the run's servers: a cluster refuses a script whose keys are not all in one slot. */
export function onBothServers(suite: (redisUrl: string) => void): void {
  describe('on a plain Redis', () => suite(inject('redisUrl')));
  describe('on a one-node cluster', () => suite(inject('redisClusterUrl')));
}

/** How a segment is opened; by default 10 units, one shard, limit 5, on sale since a minute for an hour more. */
export type SegmentRules = {
  readonly units: number;
  readonly shards: number;
  readonly run: number;
  readonly perBuyerLimit: number;
  readonly state: GateChange['state'];
  /** milliseconds from now, by Redis' clock */
  readonly opensInMs: number;
  readonly endsInMs: number;
};

/** Keys by name: their type, what it holds, when it expires (epoch ms; −1 never). */
export type Dump = Readonly<
  Record<string, { readonly type: string; readonly holds: unknown; readonly expiresAt: number }>
>;

/** The gate's scripts over one server. */
export type TestGate = {
  readonly redis: RedisLink;
  readonly keys: Keys;
  readonly scripts: GateScripts;
  /** makes a segment's keys and brings it to a state */
  open(rules?: Partial<SegmentRules>): Promise<Segment>;
  /** brings it to another state, under the next version */
  change(segment: Segment, change: Partial<GateChange>): Promise<string>;
  /** every key that names the segment's activity */
  dump(segment: Segment): Promise<Dump>;
  close(): Promise<void>;
};

const HOUR_MS = 3_600_000;

/** Opens a test gate on a server. */
export async function openTestGate(
  redisUrl: string,
  options: { prefix?: string; commandTimeoutMs?: number } = {},
): Promise<TestGate> {
  const prefix = options.prefix ?? `t${randomBytes(6).toString('hex')}`;
  const redis = openRedis({
    url: redisUrl,
    name: 'test-gate',
    commandTimeoutMs: options.commandTimeoutMs ?? 10_000,
    connectTimeoutMs: 5_000,
    log: makeLog('silent'),
  });
  await redis.whenReady(10_000);
  const keys = makeKeys(prefix);
  const scripts = makeGateScripts(redis, keys);
  const rulesOf = new Map<string, { version: number } & Omit<GateChange, 'version'>>();

  function change(segment: Segment, changes: Partial<GateChange>): Promise<string> {
    const before = must(rulesOf.get(segment.activityId), 'opened here');
    const after = { ...before, version: before.version + 1, ...changes };
    rulesOf.set(segment.activityId, after);
    return scripts.change(segment, after);
  }

  return {
    redis,
    keys,
    scripts,
    async open(rules = {}) {
      const segment: Segment = {
        activityId: `act${randomBytes(6).toString('hex')}`,
        segment: 0,
        run: rules.run ?? 1,
        shards: rules.shards ?? 1,
      };
      const now = await scripts.time();
      const values = {
        version: 1,
        opensAt: now + (rules.opensInMs ?? -60_000),
        endsAt: now + (rules.endsInMs ?? HOUR_MS),
        perBuyerLimit: rules.perBuyerLimit ?? 5,
        expiresAt: now + 3 * HOUR_MS,
      };
      const made = await scripts.preheat(segment, 'write', { ...values, units: rules.units ?? 10 });
      if (made.kind !== 'written') throw new Error(`not preheated: ${JSON.stringify(made)}`);
      rulesOf.set(segment.activityId, { ...values, state: 'shut' });
      const state = rules.state ?? 'open';
      const opened = state === 'shut' ? 'done' : await change(segment, { state });
      if (opened !== 'done') throw new Error(`not opened: ${opened}`);
      return segment;
    },
    change,
    dump: ({ activityId }) => dumpOf(redis, `${prefix}:*${activityId}*`),
    async close() {
      await redis.close();
    },
  };
}

async function dumpOf(redis: RedisLink, pattern: string): Promise<Dump> {
  const names: string[] = [];
  for (let cursor = '0'; ;) {
    const [next, some] = (await redis.command('SCAN', cursor, 'MATCH', pattern, 'COUNT', 1_000)) as [string, string[]];
    names.push(...some);
    if (next === '0') break;
    cursor = next;
  }
  const entries = [...new Set(names)].sort().map(async (key) => {
    const type = String(await redis.command('TYPE', key));
    const [holds, expiresAt] = await Promise.all([contentOf(redis, key, type), redis.command('PEXPIRETIME', key)]);
    return [key, { type, holds, expiresAt: Number(expiresAt) }] as const;
  });
  return Object.fromEntries(await Promise.all(entries));
}

async function contentOf(redis: RedisLink, key: string, type: string): Promise<unknown> {
  switch (type) {
    case 'string':
      return redis.command('GET', key);
    case 'hash':
      return redis.command('HGETALL', key);
    case 'list':
      return redis.command('LRANGE', key, 0, -1);
    case 'set':
      return redis.command('SMEMBERS', key);
    case 'stream': {
      const [entries, info] = await Promise.all([
        redis.command('XRANGE', key, '-', '+'),
        redis.command('XINFO', 'STREAM', key) as Promise<unknown[]>,
      ]);
      const fact = (name: string): unknown => info[info.indexOf(name) + 1];
      return { entries, lastId: fact('last-generated-id'), added: fact('entries-added') };
    }
    default:
      return type;
  }
}

/** What stands at one segment, read as the gate keeps it. */
export type SegmentState = {
  readonly left: string;
  readonly meta: Readonly<Record<string, string>>;
  readonly marks: Readonly<Record<string, string>>;
  /** number and payload of each outbox entry */
  readonly entries: readonly { readonly number: string; readonly payload: string }[];
};

/** Reads a segment; its marks over all shards, without the guards. */
export async function stateOf(gate: TestGate, segment: Segment): Promise<SegmentState> {
  const { redis, keys } = gate;
  const shards = Array.from({ length: segment.shards }, (_, shard) =>
    redis.command('HGETALL', keys.buyers(segment, shard)),
  );
  const [left, meta, outbox, ...marks] = await Promise.all([
    redis.command('GET', keys.stock(segment)),
    redis.command('HGETALL', keys.meta(segment)),
    redis.command('XRANGE', keys.outbox(segment), '-', '+'),
    ...shards,
  ]);
  const all = Object.assign({}, ...marks) as Record<string, string>;
  delete all['#'];
  return {
    left: String(left),
    meta: meta as Record<string, string>,
    marks: all,
    entries: (outbox as [string, [string, string, string, string]][]).map(([, [, number, , payload]]) => ({
      number,
      payload,
    })),
  };
}

/** A purchase in short: buyer, request (any short name), quantity. */
export type Press = readonly [buyerId: string, request: string, quantity?: unknown];

let orderIdsGiven = 1_000_000;
/** Order ids that no other test process of the run needs to know. */
export const nextOrderId = (): string => String((orderIdsGiven += 1));

/** The request id behind a short name: the gate's marks carry at least eight characters. */
export const requestIdOf = (request: string): string => `request-${request}`;

/** A candidate with an order id of its own. The quantity is passed on as it is, also what no type allows. */
export function candidate([buyerId, request, quantity = 1]: Press): Candidate {
  return { buyerId, orderId: nextOrderId(), requestId: requestIdOf(request), quantity: quantity as number };
}

/** What was said of one purchase. */
export type Said = { readonly code: GateCode; readonly mark?: string };

const NAMES = new Map(Object.entries(GATE_CODES).map(([name, code]) => [code as number, name as GateCode]));

/** A reply of the script by purchase, with the mark that goes with it. Fails where nothing was decided. */
export function saidOf(reply: HoldReply): Said[] {
  if (reply.kind !== 'decided') throw new Error(`not ready: ${reply.reason}`);
  const marks = [...reply.marks];
  const said = reply.codes.map((number): Said => {
    const code = must(NAMES.get(number), `a known code, not ${number}`);
    return code === 'replayed' || code === 'already_bought' ? { code, mark: must(marks.shift(), 'a mark') } : { code };
  });
  if (marks.length > 0) throw new Error(`marks of nobody: ${marks.join(' ')}`);
  return said;
}

/** Asks the script about purchases in one batch, with time to spare. */
export async function hold(gate: TestGate, segment: Segment, presses: readonly Press[]): Promise<HoldReply> {
  return gate.scripts.hold(segment, presses.map(candidate), (await gate.scripts.time()) + 60_000);
}

/** The answers of one batch, in short. */
export const codesOf = async (gate: TestGate, segment: Segment, presses: readonly Press[]): Promise<GateCode[]> =>
  saidOf(await hold(gate, segment, presses)).map((one) => one.code);

/** A mark as text. */
export function markText(mark: {
  orderId: string;
  requestId: string;
  quantity?: number;
  run?: number;
  status?: MarkStatus;
}): string {
  return formatMark({ quantity: 1, run: 1, status: 'q', ...mark } satisfies Mark);
}

/** Ids of buyers of one shard, or of each of several: `perShard` for every shard, in order. */
export function buyersOfShards(shards: number, perShard: number): string[][] {
  const found: string[][] = Array.from({ length: shards }, () => []);
  for (let i = 0; found.some((some) => some.length < perShard); i++) {
    const buyer = `buyer${i}`;
    const some = found[shardOf(buyer, shards)]!;
    if (some.length < perShard) some.push(buyer);
  }
  return found;
}

/** Everything the gate reported. */
export type Reported = {
  readonly notReady: [activityId: string, reason: string][];
  readonly broken: [activityId: string, error: unknown][];
  readonly decided: [activityId: string, codes: readonly number[], left: number][];
};

/** A `Gate` over given scripts, knowing Redis' time already, with order ids from the tests' counter. */
export function makeTestGate(
  scripts: Pick<GateScripts, 'hold'>,
  options: Partial<{
    batchMax: number;
    pendingMax: number;
    timeoutMs: number;
    time: RedisTime;
    ids: ConstructorParameters<typeof Gate>[0]['ids'];
    onTurnEnd: (work: () => void) => void;
  }> = {},
): { readonly gate: Gate; readonly reported: Reported; readonly time: RedisTime } {
  const reported: Reported = { notReady: [], broken: [], decided: [] };
  const reports: GateReports = {
    notReady: (...what) => reported.notReady.push(what),
    broken: (...what) => reported.broken.push(what),
    decided: (...what) => reported.decided.push(what),
  };
  const time = options.time ?? new RedisTime(systemClock);
  // The servers run on this machine and by its clock.
  const at = systemClock.monotonic();
  if (options.time === undefined) time.learn({ redisMs: systemClock.now(), sentAt: at - 2, receivedAt: at + 2 });
  const take = (count: number): string[] => Array.from({ length: count }, nextOrderId);
  const gate = new Gate({
    scripts,
    ids: options.ids ?? { tryTake: take, take: (count) => Promise.resolve(take(count)) },
    time,
    clock: systemClock,
    reports,
    limits: {
      batchMax: options.batchMax ?? 128,
      pendingMax: options.pendingMax ?? 10_000,
      timeoutMs: options.timeoutMs ?? 10_000,
    },
    onTurnEnd: options.onTurnEnd ?? setImmediate,
  });
  return { gate, reported, time };
}

/** The activity that `Gate` needs for a segment; what the gate does not look at is filled in. */
export function activityOf(segment: Segment, more: Partial<Activity> = {}): Activity {
  const now = systemClock.now();
  return {
    id: segment.activityId,
    state: 'scheduled',
    paused: false,
    preheat: 'confirmed',
    itemName: '测试商品',
    imageUrl: undefined,
    priceMinor: 9_900,
    currency: 'CNY',
    total: 10,
    sold: 0,
    surplus: 0,
    perBuyerLimit: 5,
    opensAt: now - 60_000,
    endsAt: now + HOUR_MS,
    answerWhen: 'held',
    overshoot: 1,
    segments: 1,
    autoConfirm: true,
    run: segment.run,
    shards: segment.shards,
    runState: 'open',
    version: 2,
    ...more,
  };
}
