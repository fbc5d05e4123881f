/**
 * Speaks for `Gate` with stand-ins for the scripts: batches, bounds, and what is told when nothing was decided.
 * What the scripts decide is in `hold.redis.test.ts`; lost replies of a real server in `gate.redis.test.ts`.
 */
import { describe, expect, test } from 'vitest';
import { Bug, Fault } from '../../../src/domain/fault.ts';
import type { HoldRequest, HoldResult } from '../../../src/domain/results.ts';
import { systemClock } from '../../../src/platform/clock.ts';
import { segmentOf } from '../../../src/platform/redis/keys.ts';
import { faultOf, NotConnected } from '../../../src/platform/redis/refusals.ts';
import {
  makeGateScripts,
  type Candidate,
  type HoldReply,
  type Segment,
} from '../../../src/purchase/4-gate/gate-scripts.ts';
import { makeKeys } from '../../../src/platform/redis/keys.ts';
import { RedisTime } from '../../../src/purchase/4-gate/redis-time.ts';
import { activityOf, makeTestGate, markText } from '../../support/gate.ts';

const SEGMENT: Segment = { activityId: 'act1', segment: 0, run: 3, shards: 2 };
const activity = activityOf(SEGMENT);

type Call = { readonly segment: Segment; readonly batch: readonly Candidate[]; readonly notAfter: number };

/** Scripts that write down each call and answer as told; by default they hold everything. */
function recording(
  answer: (call: Call) => HoldReply | Promise<HoldReply> = ({ batch }) => decided(batch.map(() => 1)),
) {
  const calls: Call[] = [];
  return {
    calls,
    hold(segment: Segment, batch: readonly Candidate[], notAfter: number): Promise<HoldReply> {
      const call = { segment, batch, notAfter };
      calls.push(call);
      return Promise.resolve().then(() => answer(call));
    },
  };
}

const decided = (codes: readonly number[], more: { marks?: string[]; opensAt?: number } = {}): HoldReply => ({
  kind: 'decided',
  redisNow: systemClock.now(),
  left: 7,
  opensAt: 0,
  codes,
  marks: [],
  ...more,
});

const request = (buyerId: string, more: Partial<HoldRequest> = {}): HoldRequest => ({
  buyerId,
  requestId: `request-${buyerId}`,
  quantity: 1,
  ...more,
});
const buyers = (count: number): string[] => Array.from({ length: count }, (_, i) => `buyer${i}`);
const codes = (results: readonly HoldResult[]): string[] => results.map(({ code }) => code);

describe('batches', () => {
  test('the purchases of one turn share one call, in the order of their coming', async () => {
    const scripts = recording();
    const { gate } = makeTestGate(scripts);
    const results = await Promise.all(buyers(40).map((buyer) => gate.hold(activity, request(buyer))));
    expect(scripts.calls).toHaveLength(1);
    expect(scripts.calls[0]!.segment).toEqual(SEGMENT);
    expect(scripts.calls[0]!.batch.map(({ buyerId }) => buyerId)).toEqual(buyers(40));
    expect(codes(results)).toEqual(buyers(40).map(() => 'held'));
  });

  test('the next turn is another call', async () => {
    const scripts = recording();
    const { gate } = makeTestGate(scripts);
    await gate.hold(activity, request('ann'));
    await gate.hold(activity, request('bob'));
    expect(scripts.calls.map(({ batch }) => batch.length)).toEqual([1, 1]);
  });

  test.each([
    [127, [127]],
    [128, [128]],
    [129, [128, 1]],
    [300, [128, 128, 44]],
  ])('%i purchases of one turn go out as %j', async (count, sizes) => {
    const scripts = recording();
    const { gate } = makeTestGate(scripts);
    const results = await Promise.all(buyers(count).map((buyer) => gate.hold(activity, request(buyer))));
    expect(scripts.calls.map(({ batch }) => batch.length)).toEqual(sizes);
    expect(scripts.calls.flatMap(({ batch }) => batch.map(({ buyerId }) => buyerId))).toEqual(buyers(count));
    expect(codes(results)).toEqual(buyers(count).map(() => 'held'));
  });

  test('activities, runs and segments have batches of their own', async () => {
    const scripts = recording();
    const { gate } = makeTestGate(scripts);
    const split = activityOf({ ...SEGMENT, activityId: 'act2' }, { segments: 3 });
    await Promise.all([
      ...buyers(30).map((buyer) => gate.hold(activity, request(buyer))),
      ...buyers(30).map((buyer) => gate.hold(split, request(buyer))),
      gate.hold(activityOf({ ...SEGMENT, run: 4 }), request('ann')),
    ]);
    expect(scripts.calls).toHaveLength(5);
    for (const { segment, batch } of scripts.calls) {
      if (segment.activityId !== 'act2') continue;
      expect(batch.length).toBeGreaterThan(0);
      expect(new Set(batch.map(({ buyerId }) => segmentOf(buyerId, 3)))).toEqual(new Set([segment.segment]));
    }
  });

  test('each purchase has an order id of its own, and the answer names it', async () => {
    const scripts = recording();
    const { gate } = makeTestGate(scripts);
    const results = await Promise.all(buyers(5).map((buyer) => gate.hold(activity, request(buyer, { quantity: 2 }))));
    const orderIds = scripts.calls[0]!.batch.map(({ orderId }) => orderId);
    expect(new Set(orderIds).size).toBe(5);
    expect(results).toEqual(
      buyers(5).map((buyer, i) => ({
        code: 'held',
        mark: { orderId: orderIds[i], quantity: 2, run: 3, status: 'q', requestId: `request-${buyer}` },
      })),
    );
  });

  test('the call may start until one deadline after the latest that Redis’ clock can show', async () => {
    const scripts = recording();
    const { gate, time } = makeTestGate(scripts, { timeoutMs: 250 });
    const before = time.latest()!;
    await gate.hold(activity, request('ann'));
    const { notAfter } = scripts.calls[0]!;
    expect(Number.isInteger(notAfter)).toBe(true);
    expect(notAfter).toBeGreaterThanOrEqual(before + 250);
    expect(notAfter).toBeLessThanOrEqual(time.latest()! + 260);
  });
});

test('each answer goes to its purchase', async () => {
  const replayed = markText({ orderId: '11', requestId: 'request-b', status: 'o' });
  const other = markText({ orderId: '22', requestId: 'request-x', status: 'p' });
  const scripts = recording(() =>
    decided([1, 2, -2, -3, -4, -5, 0, -6, -7], { marks: [replayed, other], opensAt: 99 }),
  );
  const { gate, reported } = makeTestGate(scripts);
  const results = await Promise.all([...'abcdefghi'].map((buyer) => gate.hold(activity, request(buyer.repeat(8)))));
  expect(results).toMatchObject([
    { code: 'held' },
    { code: 'replayed', mark: { orderId: '11', status: 'o' } },
    { code: 'already_bought', mark: { orderId: '22', status: 'p' } },
    { code: 'not_open', opensAt: 99 },
    { code: 'paused' },
    { code: 'ended' },
    { code: 'sold_out' },
    { code: 'key_reused' },
    { code: 'invalid' },
  ]);
  expect(reported.decided).toEqual([['act1', [1, 2, -2, -3, -4, -5, 0, -6, -7], 7]]);
});

test('every purchase is answered exactly once, whatever the scripts do', async () => {
  let call = 0;
  const outcomes: (() => HoldReply)[] = [
    () => decided(Array.from({ length: 10 }, () => 0)),
    () => ({ kind: 'not_ready', reason: 'stock missing' }),
    () => {
      throw new Fault('redis_unknown', 'test', { retryable: true });
    },
    () => {
      throw new Fault('redis_refused', 'test', { retryable: true });
    },
    () => decided([1]),
    () => {
      throw new TypeError('test');
    },
  ];
  const { gate } = makeTestGate(
    recording(() => outcomes[call++ % outcomes.length]!()),
    { batchMax: 10 },
  );
  const answers = new Map<string, string[]>();
  await Promise.all(
    buyers(120).map(async (buyer) => {
      const { code } = await gate.hold(activity, request(buyer));
      answers.set(buyer, [...(answers.get(buyer) ?? []), code]);
    }),
  );
  expect(answers.size).toBe(120);
  expect([...answers.values()].every((codes) => codes.length === 1)).toBe(true);
  expect(gate.pending).toBe(0);
});

describe('at most `pendingMax` wait', () => {
  test('who comes then is told busy at once, and is not sent', async () => {
    let release = (): void => undefined;
    const released = new Promise<void>((resolve) => (release = resolve));
    const scripts = recording(async ({ batch }) => {
      await released;
      return decided(batch.map(() => 1));
    });
    const { gate } = makeTestGate(scripts, { pendingMax: 3 });
    const first = buyers(3).map((buyer) => gate.hold(activity, request(buyer)));
    expect(gate.pending).toBe(3);
    expect(await gate.hold(activity, request('late'))).toEqual({ code: 'busy' });
    release();
    expect(codes(await Promise.all(first))).toEqual(['held', 'held', 'held']);
    expect(gate.pending).toBe(0);
    expect(await gate.hold(activity, request('later'))).toMatchObject({ code: 'held' });
    expect(scripts.calls.flatMap(({ batch }) => batch).map(({ buyerId }) => buyerId)).not.toContain('late');
  });
});

describe('nothing is sent', () => {
  test('while no order ids are to be had: busy', async () => {
    const scripts = recording();
    const { gate, reported } = makeTestGate(scripts, {
      ids: {
        tryTake: () => undefined,
        take: () => Promise.reject(new Fault('ids_unavailable', 'test', { retryable: true })),
      },
    });
    expect(codes(await Promise.all(buyers(3).map((buyer) => gate.hold(activity, request(buyer)))))).toEqual(
      buyers(3).map(() => 'busy'),
    );
    expect(scripts.calls).toEqual([]);
    expect(reported.broken).toEqual([]);
  });

  test('order ids that come late are waited for', async () => {
    const scripts = recording();
    const { gate } = makeTestGate(scripts, {
      ids: { tryTake: () => undefined, take: (count) => Promise.resolve(buyers(count).map((_, i) => String(i + 1))) },
    });
    expect(await gate.hold(activity, request('ann'))).toMatchObject({ code: 'held', mark: { orderId: '1' } });
  });

  test('before Redis’ time is known: busy', async () => {
    const scripts = recording();
    const { gate } = makeTestGate(scripts, { time: new RedisTime(systemClock) });
    expect(await gate.hold(activity, request('ann'))).toEqual({ code: 'busy' });
    expect(scripts.calls).toEqual([]);
  });

  // One `;` in an id would make the outbox entry of 128 buyers unreadable.
  test.each<Partial<HoldRequest>>([
    { buyerId: '' },
    { buyerId: '#' },
    { buyerId: 'a,b' },
    { buyerId: 'a;b' },
    { buyerId: 'a'.repeat(65) },
    { requestId: '' },
    { requestId: 'short' },
    { requestId: 'request;x' },
    { requestId: 'request,x' },
    { requestId: 'request|x' },
    { requestId: 'k'.repeat(65) },
  ])('of ids that the door refuses: invalid, and reported as our bug: %j', async (malformed) => {
    const scripts = recording();
    const { gate, reported } = makeTestGate(scripts);
    const [bad, good] = await Promise.all([
      gate.hold(activity, request('ann', malformed)),
      gate.hold(activity, request('bob')),
    ]);
    expect([bad.code, good.code]).toEqual(['invalid', 'held']);
    expect(scripts.calls.map(({ batch }) => batch.length)).toEqual([1]);
    expect(reported.broken).toEqual([['act1', expect.any(Bug)]]);
  });
});

describe('a reply of Redis proves that nothing ran, or it does not (P24)', () => {
  const reply = (text: string): Error => Object.assign(new Error(text), { name: 'ReplyError' });

  test.each([
    ['NOSCRIPT No matching script. Please use EVAL.', 'busy'],
    ['MOVED 3999 127.0.0.1:6381', 'busy'],
    ['ASK 3999 127.0.0.1:6381', 'busy'],
    ['TRYAGAIN Multiple keys request during rehashing of slot', 'busy'],
    ['CLUSTERDOWN Hash slot not served', 'busy'],
    ['CLUSTERDOWN The cluster is down', 'busy'],
    ["READONLY You can't write against a read only replica.", 'busy'],
    ['NOREPLICAS Not enough good replicas to write.', 'busy'],
    ['MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.', 'busy'],
    ["OOM command not allowed when used memory > 'maxmemory'.", 'busy'],
    ['LOADING Redis is loading the dataset in memory', 'busy'],
    ["MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", 'busy'],
    ['BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.', 'busy'],
    ['ERR user_script:70: attempt to compare number with nil', 'in_doubt'],
    ['ERR Error running script', 'in_doubt'],
    ['WRONGTYPE Operation against a key holding the wrong kind of value', 'in_doubt'],
    ['UNKILLABLE Sorry the script already executed write commands', 'in_doubt'],
    ['NOPERM this user has no permissions to run the command', 'in_doubt'],
    ['NOAUTH Authentication required.', 'in_doubt'],
    ['CROSSSLOT Keys in request don’t hash to the same slot', 'in_doubt'],
    ['EXECABORT Transaction discarded because of previous errors.', 'in_doubt'],
    ['BUSYKEY Target key name already exists.', 'in_doubt'],
    ['a text nobody thought of', 'in_doubt'],
  ])('%s', async (text, code) => {
    const { gate, reported } = makeTestGate(
      recording(() => {
        throw faultOf(reply(text), 'run script hold');
      }),
    );
    expect(codes(await Promise.all(buyers(3).map((buyer) => gate.hold(activity, request(buyer)))))).toEqual(
      buyers(3).map(() => code),
    );
    expect(reported).toEqual({ notReady: [], broken: [], decided: [] });
  });

  test.each([
    ['not connected', new NotConnected('not connected to Redis'), 'busy'],
    ['never written', new Error("Stream isn't writeable and enableOfflineQueue options is false"), 'busy'],
    ['timed out', new Error('Command timed out'), 'in_doubt'],
    ['cut', new Error('Connection is closed.'), 'in_doubt'],
    ['reset', Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' }), 'in_doubt'],
    // a client's own words that sound like a server's
    ['an imitation', new Error('READONLY You can’t write against a read only replica.'), 'in_doubt'],
  ])('%s', async (_, error, code) => {
    const { gate } = makeTestGate(
      recording(() => {
        throw faultOf(error, 'run script hold');
      }),
    );
    expect(await gate.hold(activity, request('ann'))).toEqual({ code });
  });
});

describe('a reply that `hold.lua` never gives is in doubt, and reported as broken', () => {
  test.each<[string, HoldReply]>([
    ['an unknown code', decided([42, 1])],
    ['not_ready for one alone', decided([-1, 1])],
    ['a repeat without its mark', decided([2, 1])],
    ['an unreadable mark', decided([2, 1], { marks: ['7|1|1|q|x'] })],
  ])('%s', async (_, reply) => {
    const { gate, reported } = makeTestGate(recording(() => reply));
    const results = await Promise.all([gate.hold(activity, request('ann')), gate.hold(activity, request('bob'))]);
    expect(codes(results)).toEqual(['in_doubt', 'in_doubt']);
    expect(reported.broken).toEqual([['act1', expect.any(Bug)]]);
    expect(reported.decided).toEqual([]);
  });

  // through the functions that read the script's replies
  test.each<[string, unknown]>([
    ['too few codes', [1, 1_764_600_000_000, 5, [1], [], 0]],
    ['too many codes', [1, 1_764_600_000_000, 5, [1, 1, 1], [], 0]],
    ['no codes', [1, 1_764_600_000_000, 5]],
    ['nothing', null],
    ['a word', 'OK'],
    ['an empty list', []],
  ])('%s', async (_, reply) => {
    const never = () => Promise.reject(new Error('not asked'));
    const scripts = makeGateScripts(
      { run: () => Promise.resolve(reply), command: never, isReady: () => true, whenReady: never, close: never },
      makeKeys('t'),
    );
    const { gate, reported } = makeTestGate(scripts);
    const results = await Promise.all([gate.hold(activity, request('ann')), gate.hold(activity, request('bob'))]);
    expect(codes(results)).toEqual(['in_doubt', 'in_doubt']);
    expect(reported.broken).toHaveLength(1);
    expect(reported.decided).toEqual([]);
  });
});

test('what was decided teaches the time: Redis’ own, between sending and receiving', async () => {
  const time = new RedisTime(systemClock);
  const at = systemClock.monotonic();
  time.learn({ redisMs: 5_000_000, sentAt: at - 1_000, receivedAt: at });
  const wide = time.latest()! - time.earliest()!;
  const { gate } = makeTestGate(
    recording(({ batch }) => ({
      ...(decided(batch.map(() => 0)) as Extract<HoldReply, { kind: 'decided' }>),
      redisNow: Math.floor(5_000_000 + systemClock.monotonic() - at),
    })),
    { time },
  );
  await gate.hold(activity, request('ann'));
  expect(time.latest()! - time.earliest()!).toBeLessThan(wide / 2);
});
