/**
 * Speaks for `hold.lua` before keys that are not what they were (P12): lost, evicted, of another type,
 * unreadable. The answer is `not_ready` for the whole batch: never "sold out", never "full", never a second sale to a
 * buyer whose mark is gone. Nothing changes, on any key of the activity, and the reason is reported.
 *
 * An eviction is a deletion that nobody asked for: the script sees the same, so both are one row here.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parseMark } from '../../../src/domain/mark.ts';
import type { Segment } from '../../../src/purchase/4-gate/gate-scripts.ts';
import {
  activityOf,
  buyersOfShards,
  codesOf,
  hold,
  makeTestGate,
  markText,
  onBothServers,
  openTestGate,
  requestIdOf,
  stateOf,
  type Press,
  type TestGate,
} from '../../support/gate.ts';

const [[ANN, ANNE], [BOB]] = buyersOfShards(2, 2) as [[string, string], [string, string]];

/** A winner's repeat, his second press, and new buyers in both shards, one of whom asks for more than there is. */
const BATCH: readonly Press[] = [
  [ANN, 'r1'],
  [ANN, 'r2'],
  [BOB, 'r3'],
  [ANNE, 'r4', 5],
  [BOB, 'r5', 1_000],
];

/** Texts that some parser takes for a number, and some that none does. */
const NO_NUMBERS = [
  '',
  'abc',
  '"5"',
  ' 5',
  '5 ',
  '5\n',
  '-1',
  '+5',
  '1.5',
  '1e3',
  '0x10',
  'nan',
  'inf',
  '007',
] as const;

/** The types that a key could have instead of its own. */
const TYPES: Readonly<Record<string, (key: string) => (string | number)[]>> = {
  string: (key) => ['SET', key, '5'],
  hash: (key) => ['HSET', key, '#', '1', 'n', '1', 'run', '1'],
  list: (key) => ['RPUSH', key, '5'],
  set: (key) => ['SADD', key, '5'],
  'sorted set': (key) => ['ZADD', key, 5, '5'],
  stream: (key) => ['XADD', key, '*', 'n', '1', '1', 'x'],
};

onBothServers((redisUrl) => {
  let gate: TestGate;
  let segment: Segment;
  beforeAll(async () => {
    gate = await openTestGate(redisUrl);
  });
  afterAll(() => gate.close());

  beforeEach(async () => {
    segment = await gate.open({ units: 5, shards: 2 });
    expect(await codesOf(gate, segment, [[ANN, 'r1']])).toEqual(['held']);
  });

  const run = (...[name, ...args]: (string | number)[]): Promise<unknown> => gate.redis.command(String(name), ...args);

  /** The whole batch is `not_ready` for this reason, and every key is as the damage left it. */
  async function expectNotReady(reason: string): Promise<void> {
    const damaged = await gate.dump(segment);
    expect(await hold(gate, segment, BATCH)).toEqual({ kind: 'not_ready', reason });
    expect(await gate.dump(segment)).toEqual(damaged);
  }

  test('a healthy gate answers this batch', async () => {
    expect(await codesOf(gate, segment, BATCH)).toEqual([
      'replayed',
      'already_bought',
      'held',
      'sold_out',
      'already_bought',
    ]);
  });

  describe('lost, or of another type:', () => {
    const KEYS = [
      ['meta', 'hash', () => gate.keys.meta(segment), 'meta missing', 'meta type'],
      ['stock', 'string', () => gate.keys.stock(segment), 'stock missing', 'stock type'],
      ['outbox', 'stream', () => gate.keys.outbox(segment), 'outbox', 'outbox'],
      ['first shard of marks', 'hash', () => gate.keys.buyers(segment, 0), 'buyers missing', 'buyers type'],
      ['second shard of marks', 'hash', () => gate.keys.buyers(segment, 1), 'buyers missing', 'buyers type'],
    ] as const;

    for (const [name, ownType, key, missing, wrongType] of KEYS) {
      test(`the ${name} deleted`, async () => {
        await run('DEL', key());
        await expectNotReady(missing);
      });

      test(`the ${name} expired`, async () => {
        await run('PEXPIREAT', key(), 1);
        await expectNotReady(missing);
      });

      for (const [type, make] of Object.entries(TYPES)) {
        if (type === ownType) continue;
        test(`the ${name} replaced by a ${type}`, async () => {
          await run('DEL', key());
          await run(...make(key()));
          await expectNotReady(wrongType);
        });
      }
    }
  });

  describe('stock that is no plain decimal of at most ten digits:', () => {
    test.each([...NO_NUMBERS, '"500"', '-0', '00', '0500', '99999999999', '9'.repeat(400), '5\0', '٥'])(
      '%j',
      async (stock) => {
        await run('SET', gate.keys.stock(segment), stock, 'KEEPTTL');
        await expectNotReady('stock value');
      },
    );

    test('but the largest that fits is sold from', async () => {
      await run('SET', gate.keys.stock(segment), '9999999999', 'KEEPTTL');
      expect(await codesOf(gate, segment, [[BOB, 'r3']])).toEqual(['held']);
      expect((await stateOf(gate, segment)).left).toBe('9999999998');
    });
  });

  describe('meta:', () => {
    const NUMBERS = ['opensAt', 'endsAt', 'perBuyerLimit', 'seq'] as const;

    test.each<[field: string, reason: string]>([
      ['run', 'meta missing'],
      ['fence', 'fence'],
      ['state', 'shut'],
      ['opensAt', 'meta value'],
      ['endsAt', 'meta value'],
      ['perBuyerLimit', 'meta value'],
      ['seq', 'meta value'],
    ])('%s missing', async (field, reason) => {
      await run('HDEL', gate.keys.meta(segment), field);
      await expectNotReady(reason);
    });

    test.each(NUMBERS)('%s that is no plain decimal', async (field) => {
      for (const value of [...NO_NUMBERS, '9'.repeat(16)]) {
        await run('HSET', gate.keys.meta(segment), field, value);
        await expectNotReady('meta value');
      }
    });

    test('a limit of nothing', async () => {
      await run('HSET', gate.keys.meta(segment), 'perBuyerLimit', '0');
      await expectNotReady('meta value');
    });

    test.each(['', '0', '2', '01', '1 ', ' 1', '1.0', '1e0', 'abc'])('run %j, not the one asked for', async (value) => {
      await run('HSET', gate.keys.meta(segment), 'run', value);
      await expectNotReady('run');
    });

    test.each(['', 'shut', 'OPEN', 'open ', 'closed', 'building', '1'])('state %j', async (value) => {
      await run('HSET', gate.keys.meta(segment), 'state', value);
      await expectNotReady('shut');
    });

    test.each(['', '0', 'master', '0'.repeat(40)])('fence %j', async (value) => {
      await run('HSET', gate.keys.meta(segment), 'fence', value);
      await expectNotReady('fence');
    });

    test('of a run that is older than the caller thinks, and of one that is newer', async () => {
      const damaged = await gate.dump(segment);
      for (const runAsked of [2, 0]) {
        const reply = await hold(gate, { ...segment, run: runAsked }, BATCH);
        expect(reply).toEqual({ kind: 'not_ready', reason: 'run' });
      }
      expect(await gate.dump(segment)).toEqual(damaged);
    });
  });

  describe('marks:', () => {
    test('a shard made anew, without its guard: its buyers are not asked to buy twice', async () => {
      const shard = gate.keys.buyers(segment, 0);
      await run('DEL', shard);
      await run('HSET', shard, 'someone', markText({ orderId: '77', requestId: requestIdOf('r0') }));
      await expectNotReady('buyers missing');
    });

    test('the guard removed', async () => {
      await run('HDEL', gate.keys.buyers(segment, 0), '#');
      await expectNotReady('buyers missing');
    });

    const good = markText({ orderId: '1234567890123456789', requestId: requestIdOf('r1') });
    test.each([
      '',
      'abc',
      '7',
      '7|1|1|q',
      '7|1|1|q|',
      '7|1|1|q|short',
      `7|1|1|q|${'k'.repeat(65)}`,
      '|1|1|q|request-r1',
      '07|1|1|q|request-r1',
      '12345678901234567890|1|1|q|request-r1',
      '7.5|1|1|q|request-r1',
      '-7|1|1|q|request-r1',
      '7|0|1|q|request-r1',
      '7|01|1|q|request-r1',
      '7|10000|1|q|request-r1',
      '7|1|0|q|request-r1',
      '7|1||q|request-r1',
      '7|1|1|x|request-r1',
      '7|1|1|Q|request-r1',
      '7|1|1|qq|request-r1',
      '7|1|1|q|request r1',
      '7|1|1|q|request;r1',
      ' 7|1|1|q|request-r1',
      '7|1|1|q|request-r1\n',
      `x${good}`,
    ])('an unreadable one: %j', async (mark) => {
      await run('HSET', gate.keys.buyers(segment, 0), ANN, mark);
      await expectNotReady('mark value');
    });

    test.each([
      good,
      '1|1|1|q|12345678',
      `1|9999|1|o|${'k'.repeat(64)}`,
      '1|1|1|d|request-r1',
      '1|1|9007199254740991|p|request-r1',
      ...[...'CERSANL'].map((closed) => `1|1|1|${closed}|Az09_.:-`),
    ])('what is taken for one is readable to all: %j', async (mark) => {
      await run('HSET', gate.keys.buyers(segment, 0), ANN, mark);
      expect(parseMark(mark)).toBeDefined();
      const reply = await hold(gate, segment, [[ANN, 'r99', 5]]);
      expect(reply).toMatchObject({ kind: 'decided' });
    });

    test('of buyers who are not in the batch are not looked at: constant work', async () => {
      await run('HSET', gate.keys.buyers(segment, 0), 'someone', 'abc');
      await run('DEL', gate.keys.buyers(segment, 1));
      expect(await codesOf(gate, segment, [[ANN, 'r1']])).toEqual(['replayed']);
    });
  });

  describe('through the gate', () => {
    test.each([
      ['stock deleted', () => run('DEL', gate.keys.stock(segment)), 'stock missing'],
      ['stock "abc"', () => run('SET', gate.keys.stock(segment), 'abc', 'KEEPTTL'), 'stock value'],
      ['meta deleted', () => run('DEL', gate.keys.meta(segment)), 'meta missing'],
      ['a shard of marks deleted', () => run('DEL', gate.keys.buyers(segment, 1)), 'buyers missing'],
      ['an unreadable mark', () => run('HSET', gate.keys.buyers(segment, 0), ANN, 'x'), 'mark value'],
      ['the outbox deleted', () => run('DEL', gate.keys.outbox(segment)), 'outbox'],
    ])('%s: every purchase of the turn is not ready, and it is reported', async (_, damage, reason) => {
      await damage();
      const { gate: through, reported } = makeTestGate(gate.scripts);
      const answers = await Promise.all(
        BATCH.filter(([, , quantity = 1]) => Number(quantity) <= 5).map(([buyerId, request, quantity = 1]) =>
          through.hold(activityOf(segment), { buyerId, requestId: requestIdOf(request), quantity: Number(quantity) }),
        ),
      );
      expect(answers).toEqual(answers.map(() => ({ code: 'not_ready' })));
      expect(reported.notReady).toEqual([[segment.activityId, reason]]);
      expect(reported.decided).toEqual([]);
      expect(reported.broken).toEqual([]);
    });

    test('an activity that was never preheated is not ready, without a call', async () => {
      const { gate: through, reported } = makeTestGate({ hold: () => Promise.reject(new Error('not to be asked')) });
      const request = { buyerId: ANN, requestId: requestIdOf('r1'), quantity: 1 };
      expect(await through.hold(activityOf(segment, { run: 0, shards: 0 }), request)).toEqual({ code: 'not_ready' });
      expect(reported.notReady).toEqual([[segment.activityId, 'never preheated']]);
    });
  });
});
