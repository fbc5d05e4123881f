/** Speaks for `gate-change.lua` and `shut.lua` (P17, P21): what the gate learns of the row, in whatever order it arrives. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { GateChange, Segment } from '../../../src/purchase/4-gate/gate-scripts.ts';
import { codesOf, hold, onBothServers, openTestGate, stateOf, type Dump, type TestGate } from '../../support/gate.ts';

const HOUR_MS = 3_600_000;
const SHARDS = 4;

onBothServers((redisUrl) => {
  let gate: TestGate;
  let segment: Segment;
  let now: number;
  beforeAll(async () => {
    gate = await openTestGate(redisUrl);
  });
  afterAll(() => gate.close());
  beforeEach(async () => {
    segment = await gate.open({ units: 10, shards: SHARDS });
    now = await gate.scripts.time();
  });

  const run = (...[name, ...args]: (string | number)[]): Promise<unknown> => gate.redis.command(String(name), ...args);
  const rules = (version: number, more: Partial<GateChange> = {}): GateChange => ({
    version,
    state: 'open',
    opensAt: now - 60_000,
    endsAt: now + HOUR_MS,
    perBuyerLimit: 5,
    expiresAt: now + 3 * HOUR_MS,
    ...more,
  });

  async function expectUnchanged(outcome: string, change: GateChange, at = segment): Promise<void> {
    const before = await gate.dump(segment);
    expect(await gate.scripts.change(at, change)).toBe(outcome);
    expect(await gate.dump(segment)).toEqual(before);
  }

  test('brings state, window and limit, and touches nothing that was sold', async () => {
    await hold(gate, segment, [['ann', 'r1', 2]]);
    const before = await gate.dump(segment);
    const change = rules(9, { state: 'paused', opensAt: now - 5, endsAt: now + 5, perBuyerLimit: 3 });
    expect(await gate.scripts.change(segment, change)).toBe('done');
    const after = await gate.dump(segment);
    for (const key of Object.keys(before)) {
      if (key === gate.keys.meta(segment)) continue;
      expect(after[key]!.holds).toEqual(before[key]!.holds);
    }
    expect(after[gate.keys.meta(segment)]!.holds).toEqual({
      ...(before[gate.keys.meta(segment)]!.holds as object),
      version: '9',
      state: 'paused',
      opensAt: String(now - 5),
      endsAt: String(now + 5),
      perBuyerLimit: '3',
    });
  });

  test('a pause of version 7 that arrives behind the resume of version 8 does not shut the sale', async () => {
    expect(await gate.scripts.change(segment, rules(8))).toBe('done');
    await expectUnchanged('older', rules(7, { state: 'paused' }));
    expect(await codesOf(gate, segment, [['ann', 'r1']])).toEqual(['held']);
  });

  test('in order they both come true', async () => {
    await gate.scripts.change(segment, rules(7, { state: 'paused' }));
    expect(await codesOf(gate, segment, [['ann', 'r1']])).toEqual(['paused']);
    await gate.scripts.change(segment, rules(8));
    expect(await codesOf(gate, segment, [['ann', 'r1']])).toEqual(['held']);
  });

  test('a repeat changes nothing, and versions are numbers: 10 is behind 9', async () => {
    await gate.scripts.change(segment, rules(9));
    await expectUnchanged('older', rules(9, { state: 'ended' }));
    expect(await gate.scripts.change(segment, rules(10))).toBe('done');
    await expectUnchanged('older', rules(9, { state: 'ended' }));
  });

  test('the expiry of every key moves with the end, later and earlier; shards stay spread over ten minutes', async () => {
    for (const [version, hours] of [
      [7, 100],
      [8, 5],
    ] as const) {
      const expiresAt = now + hours * HOUR_MS;
      expect(await gate.scripts.change(segment, rules(version, { expiresAt }))).toBe('done');
      expect(expiries(await gate.dump(segment))).toEqual({
        [gate.keys.meta(segment)]: expiresAt,
        [gate.keys.stock(segment)]: expiresAt,
        [gate.keys.outbox(segment)]: expiresAt,
        [gate.keys.lent(segment)]: expiresAt,
        [gate.keys.buyers(segment, 0)]: expiresAt,
        [gate.keys.buyers(segment, 1)]: expiresAt + 150_000,
        [gate.keys.buyers(segment, 2)]: expiresAt + 300_000,
        [gate.keys.buyers(segment, 3)]: expiresAt + 450_000,
      });
    }
  });

  test('an expiry in the past would delete the keys at once: refused', async () => {
    await expectUnchanged('past', rules(7, { expiresAt: now - 1_000 }));
  });

  describe('refused, and no key is made, where', () => {
    test('the gate is of another run', async () => {
      await expectUnchanged('other_run', rules(7), { ...segment, run: 2 });
      await run('HSET', gate.keys.meta(segment), 'run', '2');
      await expectUnchanged('other_run', rules(7));
    });
    test('meta is lost', async () => {
      await run('DEL', gate.keys.meta(segment));
      await expectUnchanged('missing', rules(7));
    });
    test('meta is of another type', async () => {
      await run('DEL', gate.keys.meta(segment));
      await run('RPUSH', gate.keys.meta(segment), '1');
      await expectUnchanged('missing', rules(7));
    });
    test.each(['', 'abc', 'nan', '-1', '1.5'])('the version of the gate is %j', async (version) => {
      await run('HSET', gate.keys.meta(segment), 'version', version);
      await expectUnchanged('missing', rules(7));
    });
  });

  test('keys that are lost are not made anew by moving their expiry', async () => {
    await run('DEL', gate.keys.stock(segment), gate.keys.outbox(segment), gate.keys.buyers(segment, 2));
    const before = Object.keys(await gate.dump(segment));
    expect(await gate.scripts.change(segment, rules(7))).toBe('done');
    expect(Object.keys(await gate.dump(segment))).toEqual(before);
    expect(await hold(gate, segment, [['ann', 'r1']])).toEqual({ kind: 'not_ready', reason: 'stock missing' });
  });

  describe('shut for its losses', () => {
    test('the gate looks at nothing, and only says so', async () => {
      await hold(gate, segment, [['ann', 'r1']]);
      const { marks, left, entries } = await stateOf(gate, segment);
      expect(await gate.scripts.shut(segment)).toBe(true);
      expect(
        await hold(gate, segment, [
          ['ann', 'r1'],
          ['bob', 'r2'],
        ]),
      ).toEqual({ kind: 'not_ready', reason: 'shut' });
      expect(await stateOf(gate, segment)).toMatchObject({ marks, left, entries });
      expect(await gate.scripts.shut(segment)).toBe(true);
    });

    test('it stays so when a change decided before arrives after; the change is not asked for again', async () => {
      await gate.scripts.shut(segment);
      expect(await gate.scripts.change(segment, rules(7))).toBe('done');
      expect(await hold(gate, segment, [['ann', 'r1']])).toEqual({ kind: 'not_ready', reason: 'shut' });
      expect((await stateOf(gate, segment)).meta).toMatchObject({ version: '7', state: 'shut' });
    });

    test('another run is not shut, nor is a key made', async () => {
      const before = await gate.dump(segment);
      expect(await gate.scripts.shut({ ...segment, run: 2 })).toBe(false);
      expect(await gate.dump(segment)).toEqual(before);
      await run('DEL', gate.keys.meta(segment));
      expect(await gate.scripts.shut(segment)).toBe(false);
      await run('RPUSH', gate.keys.meta(segment), '1');
      expect(await gate.scripts.shut(segment)).toBe(false);
    });
  });
});

const expiries = (dump: Dump): Record<string, number> =>
  Object.fromEntries(Object.entries(dump).map(([key, { expiresAt }]) => [key, expiresAt]));
