/** Speaks for `preheat.lua` (G10, P12, P20): all keys of a run or none, once. What is compared with what: `preheat.pg.test.ts`. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { PreheatValues, Segment } from '../../../src/purchase/4-gate/gate-scripts.ts';
import { codesOf, hold, onBothServers, openTestGate, type TestGate } from '../../support/gate.ts';

const HOUR_MS = 3_600_000;
const SHARDS = 3;

onBothServers((redisUrl) => {
  let gate: TestGate;
  let segment: Segment;
  let values: PreheatValues;
  let activities = 0;
  beforeAll(async () => {
    gate = await openTestGate(redisUrl);
  });
  afterAll(() => gate.close());
  beforeEach(async () => {
    const now = await gate.scripts.time();
    segment = { activityId: `act${(activities += 1)}x`, segment: 0, run: 3, shards: SHARDS };
    values = {
      version: 2,
      opensAt: now - 1_000,
      endsAt: now + HOUR_MS,
      perBuyerLimit: 2,
      units: 100,
      expiresAt: now + 3 * HOUR_MS,
    };
  });

  const run = (...[name, ...args]: (string | number)[]): Promise<unknown> => gate.redis.command(String(name), ...args);
  const write = (more: Partial<PreheatValues> = {}, at = segment) =>
    gate.scripts.preheat(at, 'write', { ...values, ...more });
  const allKeys = (): string[] => [
    gate.keys.meta(segment),
    gate.keys.stock(segment),
    gate.keys.outbox(segment),
    gate.keys.lent(segment),
    ...Array.from({ length: SHARDS }, (_, shard) => gate.keys.buyers(segment, shard)),
  ];

  test('makes every key of the run, shut, each with its expiry', async () => {
    const { expiresAt } = values;
    expect(await write()).toMatchObject({ kind: 'written', run: '3', state: 'shut', stock: '100', outboxEntries: '0' });
    const dump = await gate.dump(segment);
    expect(dump).toEqual({
      [gate.keys.meta(segment)]: {
        type: 'hash',
        expiresAt,
        holds: {
          run: '3',
          fence: expect.stringMatching(/^[0-9a-f]{40}$/) as string,
          state: 'shut',
          version: '2',
          opensAt: String(values.opensAt),
          endsAt: String(values.endsAt),
          perBuyerLimit: '2',
          seq: '0',
          added: '0',
          moved: '0',
          landed: '0',
          latchUntil: '0',
        },
      },
      [gate.keys.stock(segment)]: { type: 'string', expiresAt, holds: '100' },
      [gate.keys.outbox(segment)]: { type: 'stream', expiresAt, holds: { entries: [], lastId: '0-1', added: 1 } },
      [gate.keys.lent(segment)]: { type: 'hash', expiresAt, holds: { '#': '1' } },
      [gate.keys.buyers(segment, 0)]: { type: 'hash', expiresAt, holds: { '#': '1' } },
      [gate.keys.buyers(segment, 1)]: { type: 'hash', expiresAt: expiresAt + 200_000, holds: { '#': '1' } },
      [gate.keys.buyers(segment, 2)]: { type: 'hash', expiresAt: expiresAt + 400_000, holds: { '#': '1' } },
    });
    // until it is confirmed nothing is sold
    expect(await hold(gate, segment, [['ann', 'r1']])).toEqual({ kind: 'not_ready', reason: 'shut' });
  });

  test('again, in the middle of the sale, with any values: nothing changes, the present state is read', async () => {
    await write();
    await gate.scripts.change(segment, { ...values, version: 3, state: 'open' });
    expect(
      await codesOf(gate, segment, [
        ['ann', 'r1', 2],
        ['bob', 'r2'],
      ]),
    ).toEqual(['held', 'held']);
    const before = await gate.dump(segment);
    for (const mode of ['write', 'compare'] as const) {
      const reading = await gate.scripts.preheat(segment, mode, { ...values, units: 5_000, version: 99 });
      expect(reading).toMatchObject({ kind: 'read', stock: '97', outboxEntries: '1', state: 'open', version: '3' });
      expect(await gate.dump(segment)).toEqual(before);
    }
  });

  test('five at once: one writes, the others read what it wrote', async () => {
    const readings = await Promise.all(Array.from({ length: 5 }, () => write()));
    expect(readings.map(({ kind }) => kind).toSorted()).toEqual(['read', 'read', 'read', 'read', 'written']);
    expect(new Set(readings.map((reading) => JSON.stringify({ ...reading, kind: '' }))).size).toBe(1);
  });

  test('only comparing makes nothing', async () => {
    expect(await gate.scripts.preheat(segment, 'compare', values)).toMatchObject({
      kind: 'missing',
      run: '',
      stock: '',
    });
    expect(await gate.dump(segment)).toEqual({});
  });

  test('only comparing an older run does not bring the newer one', async () => {
    await write();
    const before = await gate.dump(segment);
    expect(await gate.scripts.preheat({ ...segment, run: 4 }, 'compare', values)).toMatchObject({
      kind: 'missing',
      run: '3',
    });
    expect(await gate.dump(segment)).toEqual(before);
  });

  test('a newer run is never overwritten by an older one', async () => {
    await write();
    const before = await gate.dump(segment);
    expect(await write({}, { ...segment, run: 2 })).toMatchObject({ kind: 'read', run: '3' });
    expect(await gate.dump(segment)).toEqual(before);
  });

  test('an older run is followed by a newer one, on keys of its own, with its numbers from the start', async () => {
    await write();
    await gate.scripts.change(segment, { ...values, version: 3, state: 'open' });
    await hold(gate, segment, [['ann', 'r1']]);
    await gate.scripts.shut(segment);
    const next = { ...segment, run: 4 };
    const later = { ...values, version: 4, state: 'open' as const };
    expect(await write(later, next)).toMatchObject({ kind: 'written', run: '4', stock: '100' });
    expect(await gate.scripts.change(next, { ...later, version: 5 })).toBe('done');
    expect(await codesOf(gate, next, [['ann', 'r1']])).toEqual(['held']);
    const dump = await gate.dump(segment);
    expect(dump[gate.keys.meta(segment)]!.holds).toMatchObject({ run: '4', seq: '1', state: 'open' });
    expect(dump[gate.keys.stock(segment)]!.holds).toBe('99');
  });

  test('an expiry in the past is refused: the keys would be gone at once', async () => {
    expect(await write({ expiresAt: values.opensAt - 10_000 })).toEqual({
      kind: 'refused',
      reason: 'expiry in the past',
    });
    expect(await gate.dump(segment)).toEqual({});
  });

  describe('a key that is there before its run', () => {
    test.each([1, 2, 3, 4, 5, 6])('key %i: nothing is written; once it is gone, preheat works', async (n) => {
      const key = allKeys()[n]!;
      for (const make of [
        ['SET', key, '100000'],
        ['RPUSH', key, 'x'],
        ['HSET', key, '#', '1'],
        ['XADD', key, '*', 'n', '1'],
      ]) {
        await run(...make);
        const before = await gate.dump(segment);
        expect(await write()).toEqual({ kind: 'refused', reason: `exists: ${key}` });
        expect(await gate.dump(segment)).toEqual(before);
        await run('DEL', key);
      }
      expect(await write()).toMatchObject({ kind: 'written' });
    });

    test.each([
      ['SET', 'string'],
      ['RPUSH', 'list'],
      ['SADD', 'set'],
    ])('meta made by %s', async (command, type) => {
      await run(command, gate.keys.meta(segment), 'x');
      const before = await gate.dump(segment);
      expect(await write()).toEqual({ kind: 'refused', reason: `meta is a ${type}` });
      expect(await gate.dump(segment)).toEqual(before);
    });

    test.each(['', 'abc', '-1', '1e3', '3.0'])('meta that names run %j', async (value) => {
      await run('HSET', gate.keys.meta(segment), 'run', value);
      expect(await write()).toEqual({ kind: 'refused', reason: 'meta has no run' });
      expect(Object.keys(await gate.dump(segment))).toEqual([gate.keys.meta(segment)]);
    });
  });

  describe('damage shows in what is read', () => {
    test.each([
      ['stock lost', () => run('DEL', allKeys()[1]!), { stock: '', lowestExpiry: '-2' }],
      ['outbox lost', () => run('DEL', allKeys()[2]!), { outboxEntries: '', lowestExpiry: '-2' }],
      ['a shard lost', () => run('DEL', allKeys()[5]!), { guards: '2', lowestExpiry: '-2' }],
      ['a guard lost', () => run('HDEL', allKeys()[5]!, '#'), { guards: '2' }],
      ['a key without expiry', () => run('PERSIST', allKeys()[3]!), { lowestExpiry: '-1' }],
      ['stock a list', () => run('DEL', allKeys()[1]!).then(() => run('RPUSH', allKeys()[1]!, 1)), { stock: 'a list' }],
      [
        'outbox a set',
        () => run('DEL', allKeys()[2]!).then(() => run('SADD', allKeys()[2]!, 1)),
        { outboxEntries: 'a set' },
      ],
      ['a shard a string', () => run('SET', allKeys()[5]!, '1'), { guards: '2' }],
      ['another server', () => run('HSET', allKeys()[0]!, 'fence', 'abc'), { fence: 'abc' }],
    ])('%s', async (_, damage, reading) => {
      await write();
      await damage();
      const before = await gate.dump(segment);
      expect(await write()).toMatchObject({ kind: 'read', ...reading });
      expect(await gate.dump(segment)).toEqual(before);
    });
  });

  test('tells the server it ran on, for the fence', async () => {
    const info = String(await run('INFO', 'replication'));
    const id = /master_replid:([0-9a-f]{40})/.exec(info)?.[1];
    expect(await write()).toMatchObject({ fence: id, server: id });
  });
});
