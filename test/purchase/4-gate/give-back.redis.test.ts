/** Speaks for `give-back.lua` (P7, P12, P15, P23): the units of an order return once, to the run that lost them. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { CLOSED_STATUS, parseMark, type Mark } from '../../../src/domain/mark.ts';
import type { Segment } from '../../../src/purchase/4-gate/gate-scripts.ts';
import {
  candidate,
  codesOf,
  markText,
  onBothServers,
  openTestGate,
  requestIdOf,
  stateOf,
  type TestGate,
} from '../../support/gate.ts';

onBothServers((redisUrl) => {
  let gate: TestGate;
  let segment: Segment;
  /** ann's order: three units of the ten */
  let order: { buyerId: string; orderId: string; units: number; closedStatus: string; liveMark: Mark | undefined };
  beforeAll(async () => {
    gate = await openTestGate(redisUrl);
  });
  afterAll(() => gate.close());

  beforeEach(async () => {
    segment = await gate.open({ units: 10 });
    const ann = candidate(['ann', 'r1', 3]);
    await gate.scripts.hold(segment, [ann], Number.MAX_SAFE_INTEGER);
    order = { buyerId: 'ann', orderId: ann.orderId, units: 3, closedStatus: 'C', liveMark: undefined };
  });

  const run = (...[name, ...args]: (string | number)[]): Promise<unknown> => gate.redis.command(String(name), ...args);

  /** Gives back, expects this outcome and that no key changed, came or went. */
  async function expectUnchanged(outcome: 'nothing' | 'not_now', more: Partial<typeof order> = {}, at = segment) {
    const before = await gate.dump(segment);
    expect(await gate.scripts.giveBack(at, { ...order, ...more })).toBe(outcome);
    expect(await gate.dump(segment)).toEqual(before);
  }

  test('returns the units, closes the mark and counts the move; nothing else changes', async () => {
    const before = await gate.dump(segment);
    expect(await gate.scripts.giveBack(segment, order)).toBe('done');
    const after = await gate.dump(segment);
    const expected = structuredClone(before) as Record<string, { holds: unknown }>;
    expected[gate.keys.stock(segment)]!.holds = '10';
    Object.assign(expected[gate.keys.meta(segment)]!.holds as object, { moved: '1' });
    Object.assign(expected[gate.keys.buyers(segment, 0)]!.holds as object, {
      ann: markText({ orderId: order.orderId, requestId: requestIdOf('r1'), quantity: 3, status: 'C' }),
    });
    expect(after).toEqual(expected);
  });

  test('a repeat does nothing, whatever reason it brings', async () => {
    expect(await gate.scripts.giveBack(segment, order)).toBe('done');
    await expectUnchanged('nothing');
    await expectUnchanged('nothing', { closedStatus: 'E' });
    expect((await stateOf(gate, segment)).left).toBe('10');
  });

  test('ten at once return the units once', async () => {
    const outcomes = await Promise.all(Array.from({ length: 10 }, () => gate.scripts.giveBack(segment, order)));
    expect(outcomes.toSorted()).toEqual(['done', ...Array.from({ length: 9 }, () => 'nothing')]);
    expect((await stateOf(gate, segment)).left).toBe('10');
  });

  test.each(Object.entries(CLOSED_STATUS))('for the reason %s the mark says %s', async (_, closedStatus) => {
    await gate.scripts.giveBack(segment, { ...order, closedStatus });
    expect(parseMark((await stateOf(gate, segment)).marks['ann']!)!.status).toBe(closedStatus);
  });

  test.each(['q', 'o', 'd', 'p'] as const)('an open mark of status %s is closed', async (status) => {
    const mark = markText({ orderId: order.orderId, requestId: requestIdOf('r1'), quantity: 3, status });
    await run('HSET', gate.keys.buyers(segment, 0), 'ann', mark);
    expect(await gate.scripts.giveBack(segment, order)).toBe('done');
    expect((await stateOf(gate, segment)).left).toBe('10');
  });

  test('units burnt in strict mode do not return: the mark is closed all the same', async () => {
    expect(await gate.scripts.giveBack(segment, { ...order, units: 0, closedStatus: 'S' })).toBe('done');
    const { left, marks } = await stateOf(gate, segment);
    expect(left).toBe('7');
    expect(parseMark(marks['ann']!)!.status).toBe('S');
  });

  test.each(['paused', 'ended'] as const)('works while the sale is %s', async (state) => {
    await gate.change(segment, { state });
    expect(await gate.scripts.giveBack(segment, order)).toBe('done');
    expect((await stateOf(gate, segment)).left).toBe('10');
  });

  test('works outside the window', async () => {
    const now = await gate.scripts.time();
    await gate.change(segment, { opensAt: now - 2_000, endsAt: now - 1_000 });
    expect(await gate.scripts.giveBack(segment, order)).toBe('done');
  });

  describe('the mark of another order is left alone:', () => {
    test('the order is one that the gate never held', () => expectUnchanged('nothing', { orderId: '999' }));
    test('its id is the beginning of the right one', () =>
      expectUnchanged('nothing', { orderId: order.orderId.slice(0, -1) }));
    test('the buyer has none', () => expectUnchanged('nothing', { buyerId: 'bob' }));

    test('a late give-back of the first order does not touch the second', async () => {
      await gate.scripts.giveBack(segment, order);
      expect(await codesOf(gate, segment, [['ann', 'r2', 2]])).toEqual(['held']);
      await expectUnchanged('nothing');
    });
  });

  describe('beside a live order of the same buyer (P23)', () => {
    const live = (): Mark => ({
      orderId: '4242',
      quantity: 2,
      run: 1,
      status: 'o',
      requestId: requestIdOf('r0'),
    });

    test('the live order gets its mark back, and the units return', async () => {
      expect(await gate.scripts.giveBack(segment, { ...order, closedStatus: 'A', liveMark: live() })).toBe('done');
      const { left, marks } = await stateOf(gate, segment);
      expect(left).toBe('10');
      expect(marks['ann']).toBe(markText(live()));
      // so the buyer is not sold to a second time
      expect(
        await codesOf(gate, segment, [
          ['ann', 'r0', 2],
          ['ann', 'r9'],
        ]),
      ).toEqual(['replayed', 'already_bought']);
    });

    test('a repeat does nothing', async () => {
      await gate.scripts.giveBack(segment, { ...order, closedStatus: 'A', liveMark: live() });
      await expectUnchanged('nothing', { closedStatus: 'A', liveMark: live() });
      await expectUnchanged('nothing');
    });
  });

  describe('not now, and no key is made:', () => {
    test('the gate is of a newer run', async () => {
      await run('HSET', gate.keys.meta(segment), 'run', '2');
      await expectUnchanged('not_now');
    });
    test('the order is of a newer run than the gate', () => expectUnchanged('not_now', {}, { ...segment, run: 2 }));
    test('the gate is shut', async () => {
      await gate.scripts.shut(segment);
      await expectUnchanged('not_now');
    });
    test('the run was built on another server', async () => {
      await run('HSET', gate.keys.meta(segment), 'fence', '0'.repeat(40));
      await expectUnchanged('not_now');
    });

    const KEYS = [
      ['meta', () => gate.keys.meta(segment)],
      ['stock', () => gate.keys.stock(segment)],
      ['shard', () => gate.keys.buyers(segment, 0)],
    ] as const;
    test.each(KEYS)('no %s', async (_, key) => {
      await run('DEL', key());
      await expectUnchanged('not_now');
    });
    test.each(KEYS)('%s of another type', async (_, key) => {
      await run('DEL', key());
      await run('RPUSH', key(), '5');
      await expectUnchanged('not_now');
    });
    test('no guard in the shard', async () => {
      await run('HDEL', gate.keys.buyers(segment, 0), '#');
      await expectUnchanged('not_now');
    });
    test.each(['', 'abc', '5 ', '-1', '007', '1e3', '99999999999'])('stock %j', async (stock) => {
      await run('SET', gate.keys.stock(segment), stock, 'KEEPTTL');
      await expectUnchanged('not_now');
    });
    // HINCRBY would refuse it after the units have returned
    test.each(['', 'abc', '1.5', '-1', '9'.repeat(20)])('the counter of moves is %j', async (moved) => {
      await run('HSET', gate.keys.meta(segment), 'moved', moved);
      await expectUnchanged('not_now');
    });
    test('no counter of moves', async () => {
      await run('HDEL', gate.keys.meta(segment), 'moved');
      await expectUnchanged('not_now');
    });
    // "Nothing to do" would end the row, and the unit would be gone for good.
    test.each(['', 'abc', '|3|1|q|request-r1', 'x|3|1|q|request-r1'])('the mark is %j', async (mark) => {
      await run('HSET', gate.keys.buyers(segment, 0), 'ann', mark);
      await expectUnchanged('not_now');
    });
  });
});
