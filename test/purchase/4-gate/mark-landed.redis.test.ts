/** Speaks for `mark-landed.lua`: the landing's word in the marks, which never undoes what came after it. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parseMark, type MarkStatus } from '../../../src/domain/mark.ts';
import type { LandedHold, Segment } from '../../../src/purchase/4-gate/gate-scripts.ts';
import {
  candidate,
  markText,
  onBothServers,
  openTestGate,
  requestIdOf,
  stateOf,
  type Press,
  type TestGate,
} from '../../support/gate.ts';

onBothServers((redisUrl) => {
  let gate: TestGate;
  let segment: Segment;
  beforeAll(async () => {
    gate = await openTestGate(redisUrl);
  });
  afterAll(() => gate.close());
  beforeEach(async () => {
    segment = await gate.open({ units: 1_000, shards: 3 });
  });

  const run = (...[name, ...args]: (string | number)[]): Promise<unknown> => gate.redis.command(String(name), ...args);
  const statuses = async (): Promise<Record<string, MarkStatus>> =>
    Object.fromEntries(
      Object.entries((await stateOf(gate, segment)).marks).map(([buyer, mark]) => [buyer, parseMark(mark)!.status]),
    );

  async function take(presses: readonly Press[]): Promise<LandedHold[]> {
    const batch = presses.map(candidate);
    await gate.scripts.hold(segment, batch, Number.MAX_SAFE_INTEGER);
    return batch.map(({ buyerId, orderId }) => ({ buyerId, orderId, status: 'o' }));
  }

  async function expectUnchanged(work: () => Promise<unknown>): Promise<void> {
    const before = await gate.dump(segment);
    await work();
    expect(await gate.dump(segment)).toEqual(before);
  }

  test('changes the status of the marks and nothing else of them, in all shards', async () => {
    const holds = await take([
      ['ann', 'r1', 2],
      ['bob', 'r2'],
      ['cid', 'r3'],
      ['dan', 'r4'],
    ]);
    const before = (await stateOf(gate, segment)).marks;
    await gate.scripts.markLanded(segment, 1, [...holds.slice(0, 2), { ...holds[2]!, status: 'd' }]);
    const { marks, meta, left } = await stateOf(gate, segment);
    expect(marks).toEqual({
      ann: before['ann']!.replace('|q|', '|o|'),
      bob: before['bob']!.replace('|q|', '|o|'),
      cid: before['cid']!.replace('|q|', '|d|'),
      dan: before['dan'],
    });
    expect(meta['landed']).toBe('1');
    expect(left).toBe('995');
  });

  test('a repeat changes nothing', async () => {
    const holds = await take([
      ['ann', 'r1'],
      ['bob', 'r2'],
    ]);
    await gate.scripts.markLanded(segment, 1, holds);
    await expectUnchanged(() => gate.scripts.markLanded(segment, 1, holds));
  });

  test('what was set aside may still be ordered; what is ordered is not set aside', async () => {
    const [ann] = await take([['ann', 'r1']]);
    await gate.scripts.markLanded(segment, 1, [{ ...ann!, status: 'd' }]);
    expect(await statuses()).toEqual({ ann: 'd' });
    await gate.scripts.markLanded(segment, 1, [ann!]);
    expect(await statuses()).toEqual({ ann: 'o' });
    await expectUnchanged(() => gate.scripts.markLanded(segment, 1, [{ ...ann!, status: 'd' }]));
  });

  test.each([...'pCERSANL'] as MarkStatus[])('a mark of status %s stays as it is', async (status) => {
    const [ann] = await take([['ann', 'r1']]);
    const mark = markText({ orderId: ann!.orderId, requestId: requestIdOf('r1'), status });
    for (let shard = 0; shard < 3; shard++) {
      if (await run('HEXISTS', gate.keys.buyers(segment, shard), 'ann')) {
        await run('HSET', gate.keys.buyers(segment, shard), 'ann', mark);
      }
    }
    await gate.scripts.markLanded(segment, 1, [ann!]);
    expect((await stateOf(gate, segment)).marks['ann']).toBe(mark);
  });

  test('a late word about a closed order does not touch the mark of the next one', async () => {
    const [first] = await take([['ann', 'r1']]);
    await gate.scripts.giveBack(segment, { ...first!, units: 1, closedStatus: 'C', liveMark: undefined });
    await take([['ann', 'r2']]);
    await gate.scripts.markLanded(segment, 1, [first!]);
    expect(await statuses()).toEqual({ ann: 'q' });
  });

  test('`landed` only grows', async () => {
    await gate.scripts.markLanded(segment, 5, []);
    expect((await stateOf(gate, segment)).meta['landed']).toBe('5');
    await expectUnchanged(() => gate.scripts.markLanded(segment, 4, []));
    await gate.scripts.markLanded(segment, 10, []);
    expect((await stateOf(gate, segment)).meta['landed']).toBe('10');
  });

  test('more holds than one call takes: all are marked, `landed` moves with the last', async () => {
    const holds: LandedHold[] = [];
    for (let batch = 0; batch < 5; batch++) {
      holds.push(...(await take(Array.from({ length: 128 }, (_, i): Press => [`b${batch}x${i}`, `r${batch}x${i}`]))));
    }
    await gate.scripts.markLanded(segment, 5, holds);
    const all = await statuses();
    expect(Object.keys(all)).toHaveLength(640);
    expect(new Set(Object.values(all))).toEqual(new Set(['o']));
    expect((await stateOf(gate, segment)).meta['landed']).toBe('5');
  });

  describe('nothing happens, and no key is made, where', () => {
    test('the gate is of another run', async () => {
      const holds = await take([['ann', 'r1']]);
      await run('HSET', gate.keys.meta(segment), 'run', '2');
      await expectUnchanged(() => gate.scripts.markLanded(segment, 1, holds));
    });
    test('the holds are of another run', async () => {
      const holds = await take([['ann', 'r1']]);
      await expectUnchanged(() => gate.scripts.markLanded({ ...segment, run: 2 }, 1, holds));
    });
    test.each(['DEL', 'RPUSH'])('meta is lost, or of another type (%s)', async (how) => {
      const holds = await take([['ann', 'r1']]);
      await run('DEL', gate.keys.meta(segment));
      if (how === 'RPUSH') await run('RPUSH', gate.keys.meta(segment), '1');
      await expectUnchanged(() => gate.scripts.markLanded(segment, 1, holds));
    });
    test.each(['DEL', 'RPUSH'])('the shards are lost, or of another type (%s)', async (how) => {
      const holds = await take([
        ['ann', 'r1'],
        ['bob', 'r2'],
        ['cid', 'r3'],
        ['dan', 'r4'],
      ]);
      for (let shard = 0; shard < 3; shard++) {
        await run('DEL', gate.keys.buyers(segment, shard));
        if (how === 'RPUSH') await run('RPUSH', gate.keys.buyers(segment, shard), '1');
      }
      const before = await gate.dump(segment);
      await gate.scripts.markLanded(segment, 1, holds);
      const after = await gate.dump(segment);
      expect(Object.keys(after)).toEqual(Object.keys(before));
      // PostgreSQL has the orders: `landed` is true all the same
      expect((await stateOfMeta()).landed).toBe('1');
    });
  });

  const stateOfMeta = async (): Promise<Record<string, string>> =>
    (await gate.redis.command('HGETALL', gate.keys.meta(segment))) as Record<string, string>;
});
