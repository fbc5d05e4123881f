/**
 * Speaks for `hold.lua`: which answer a purchase gets, and what changes with it. Damage to the keys is in
 * `hold-damage.redis.test.ts`, servers that lost their role in `fence.redis.test.ts` and `server-states.redis.test.ts`.
 *
 * A refusal changes nothing at all; that is not a column of the tables but checked at every row, on all keys.
 */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { must } from '../../../src/domain/fault.ts';
import { parseMark } from '../../../src/domain/mark.ts';
import type { RedisLink } from '../../../src/platform/redis/link.ts';
import { shardOf } from '../../../src/platform/redis/keys.ts';
import { makeGateScripts, type Segment } from '../../../src/purchase/4-gate/gate-scripts.ts';
import {
  buyersOfShards,
  candidate,
  codesOf,
  hold,
  markText,
  onBothServers,
  openTestGate,
  requestIdOf,
  saidOf,
  stateOf,
  type Press,
  type SegmentRules,
  type TestGate,
} from '../../support/gate.ts';

/**
 * buyer, request, quantity, answer, whose request the told mark carries and its status, units left after it.
 * A line with `*` is what happens in between.
 */
const PRECEDENCE: readonly (readonly [behaviour: string, rules: Partial<SegmentRules>, steps: string])[] = [
  [
    'the winner asks again after the sell-out and is told what he was told first',
    { units: 1 },
    `ann r1 1  held            -     0
     ann r1 1  replayed        r1 q  0
     bob r2 1  sold_out        -     0
     ann r1 1  replayed        r1 q  0`,
  ],
  [
    'a second request of a winner has already bought, with stock and after the sell-out',
    { units: 2 },
    `ann r1 1  held            -     1
     ann r2 1  already_bought  r1 q  1
     bob r3 1  held            -     0
     ann r4 1  already_bought  r1 q  0
     cid r5 1  sold_out        -     0`,
  ],
  [
    'pause stops new purchases, and tells winners what it told them before',
    { units: 5 },
    `ann r1 1  held            -     4
     * pause
     ann r1 1  replayed        r1 q  4
     ann r2 1  already_bought  r1 q  4
     ann r1 2  key_reused      -     4
     bob r3 1  paused          -     4
     * resume
     bob r3 1  held            -     3`,
  ],
  [
    'so does the end, by hand',
    { units: 5 },
    `ann r1 1  held            -     4
     * end
     ann r1 1  replayed        r1 q  4
     ann r2 1  already_bought  r1 q  4
     ann r1 2  key_reused      -     4
     bob r3 1  ended           -     4`,
  ],
  [
    'so does the end, by the window',
    { units: 5 },
    `ann r1 1  held            -     4
     * window over
     ann r1 1  replayed        r1 q  4
     ann r2 1  already_bought  r1 q  4
     bob r3 1  ended           -     4`,
  ],
  [
    'before the opening nobody buys, paused or not; a mark from before the opening moved is known',
    { units: 5 },
    `ann r1 1  held            -     4
     * window ahead
     ann r1 1  replayed        r1 q  4
     ann r2 1  already_bought  r1 q  4
     bob r3 1  not_open        -     4
     * pause
     bob r3 1  not_open        -     4`,
  ],
  [
    'a pause is told before the end, the end before a quantity above the limit, that before the sell-out',
    { units: 1, perBuyerLimit: 2 },
    `ann r1 1  held            -     0
     bob r2 3  invalid         -     0
     bob r2 2  sold_out        -     0
     * end
     bob r2 3  ended           -     0
     * window over
     * pause
     bob r2 3  paused          -     0`,
  ],
  [
    'a request comes back with another quantity: its key is used, whatever else is true',
    { units: 3 },
    `ann r1 2  held            -     1
     ann r1 1  key_reused      -     1
     ann r1 3  key_reused      -     1
     ann r1 2  replayed        r1 q  1
     bob r2 1  held            -     0
     ann r1 1  key_reused      -     0`,
  ],
  [
    'the same key of two buyers is two purchases',
    { units: 3 },
    `ann r1 1  held            -     2
     bob r1 2  held            -     0
     ann r1 1  replayed        r1 q  0
     bob r1 2  replayed        r1 q  0`,
  ],
  [
    'a quantity above what is left is refused alone',
    { units: 3 },
    `ann r1 2  held            -     1
     bob r2 2  sold_out        -     1
     cid r3 1  held            -     0`,
  ],
  [
    'a closed mark answers its own request for ever, and another one buys again',
    { units: 1 },
    `ann r1 1  held            -     0
     * give back ann r1
     ann r1 1  replayed        r1 C  1
     ann r1 2  key_reused      -     1
     ann r2 1  held            -     0
     ann r2 1  replayed        r2 q  0
     ann r3 1  already_bought  r2 q  0
     * give back ann r2
     bob r4 1  held            -     0
     ann r2 1  replayed        r2 C  0
     ann r5 1  sold_out        -     0
     * pause
     ann r2 1  replayed        r2 C  0
     ann r5 1  paused          -     0`,
  ],
  [
    'a mark that has landed is told as it stands',
    { units: 2 },
    `ann r1 1  held            -     1
     * land ann r1
     ann r1 1  replayed        r1 o  1
     ann r2 1  already_bought  r1 o  1`,
  ],
];

/** The words by which one script finds a quantity, and the next something else. Some are 1 or 5 to `tonumber`. */
const NO_QUANTITIES: readonly unknown[] = [
  -3,
  0,
  1.5,
  '',
  '1e3',
  '0x10',
  'nan',
  'NaN',
  'inf',
  '-inf',
  ' 5 ',
  ' 5',
  '5 ',
  '5\n',
  '05',
  '+1',
  '1,5',
  '１',
  1e9,
  10_000,
  '99999999999999999999',
];

onBothServers((redisUrl) => {
  let gate: TestGate;
  beforeAll(async () => {
    gate = await openTestGate(redisUrl);
  });
  afterAll(() => gate.close());

  describe('hold answers in this precedence', () => {
    for (const [behaviour, rules, steps] of PRECEDENCE) {
      test(`${behaviour}; one by one`, () => walk(gate, rules, steps, 1));
      test(`${behaviour}; in batches`, () => walk(gate, rules, steps, 128));
    }
  });

  describe('the window is half open, by the clock of Redis', () => {
    test.each([
      ['opens in a millisecond', 1, 1_000, 'not_open'],
      ['opens now', 0, 1_000, 'held'],
      ['opened a millisecond ago', -1, 1_000, 'held'],
      ['ends in a millisecond', -1_000, 1, 'held'],
      ['ends now', -1_000, 0, 'ended'],
      ['ended a millisecond ago', -1_000, -1, 'ended'],
      ['is a millisecond long, and this is it', 0, 1, 'held'],
    ] as const)('one that %s', async (_, opensInMs, endsInMs, answer) => {
      const segment = await gate.open();
      const { opensAt, now, codes } = await holdAtBorder(gate, segment, ['ann', 'r1'], { opensInMs, endsInMs });
      expect(codes).toEqual([answer]);
      expect(opensAt - now).toBe(opensInMs);
    });
  });

  describe('a quantity that the door should have refused', () => {
    test.each(NO_QUANTITIES.map((quantity) => [JSON.stringify(quantity), quantity]))(
      '%s is invalid, the rest of its batch is served',
      async (_, quantity) => {
        const segment = await gate.open({ units: 5 });
        expect(await codesOf(gate, segment, [['ann', 'r1']])).toEqual(['held']);
        const before = await gate.dump(segment);
        expect(await codesOf(gate, segment, [['bob', 'r2', quantity]])).toEqual(['invalid']);
        // not of the mark either: it is no repeat of anything
        expect(await codesOf(gate, segment, [['ann', 'r1', quantity]])).toEqual(['invalid']);
        expect(await gate.dump(segment)).toEqual(before);
        expect(
          await codesOf(gate, segment, [
            ['bob', 'r2', quantity],
            ['cid', 'r3', 2],
            ['bob', 'r4', 2],
          ]),
        ).toEqual(['invalid', 'held', 'held']);
        expect((await stateOf(gate, segment)).left).toBe('0');
      },
    );

    test.each([1, 2, 1_000])('the limit is %i: that many are held, one more is invalid', async (limit) => {
      const segment = await gate.open({ units: 5_000, perBuyerLimit: limit });
      expect(
        await codesOf(gate, segment, [
          ['ann', 'r1', limit + 1],
          ['bob', 'r2', limit],
        ]),
      ).toEqual(['invalid', 'held']);
    });
  });

  describe('a hold', () => {
    test('changes stock, mark, outbox and number together, and nothing else', async () => {
      const segment = await gate.open({ units: 10, shards: 3 });
      const before = await gate.dump(segment);
      const ann = candidate(['ann', 'r1', 2]);
      const bob = candidate(['bob', 'r2', 3]);
      const reply = await gate.scripts.hold(segment, [ann, bob], (await gate.scripts.time()) + 60_000);
      expect(reply).toMatchObject({ kind: 'decided', codes: [1, 1], marks: [], left: 5 });
      const after = await gate.dump(segment);

      const { keys } = gate;
      const expected = structuredClone(before) as Record<string, { holds: unknown }>;
      must(expected[keys.stock(segment)], 'a stock key').holds = '5';
      (expected[keys.meta(segment)]!.holds as Record<string, string>)['seq'] = '1';
      for (const one of [ann, bob]) {
        const shard = expected[keys.buyers(segment, shardOf(one.buyerId, 3))]!.holds as Record<string, string>;
        shard[one.buyerId] = markText(one);
      }
      const outbox = after[keys.outbox(segment)]!.holds as { entries: [string, string[]][]; lastId: string };
      expected[keys.outbox(segment)]!.holds = {
        entries: [[outbox.lastId, ['n', '1', '1', `${written(ann)};${written(bob)}`]]],
        lastId: outbox.lastId,
        added: 2, // the first was the one by which the empty stream was made
      };
      expect(after).toEqual(expected);
      // what the script wrote is what the rest of the program reads
      const marks = (await stateOf(gate, segment)).marks;
      expect(parseMark(marks['bob']!)).toEqual({
        orderId: bob.orderId,
        quantity: 3,
        run: 1,
        status: 'q',
        requestId: requestIdOf('r2'),
      });
    });

    test('numbers its entries without a gap, one a batch that took something', async () => {
      const segment = await gate.open({ units: 3 });
      const batches: Press[][] = [
        [
          ['ann', 'r1'],
          ['bob', 'r2'],
        ],
        [['ann', 'r1']],
        [['cid', 'r3']],
        [['dan', 'r4']],
      ];
      for (const batch of batches) await hold(gate, segment, batch);
      const { entries, meta } = await stateOf(gate, segment);
      expect(entries.map((entry) => entry.number)).toEqual(['1', '2']);
      expect(meta['seq']).toBe('2');
    });

    test('works on a run other than the first, whose keys are its own', async () => {
      const segment = await gate.open({ run: 7, units: 1 });
      expect(await codesOf(gate, segment, [['ann', 'r1']])).toEqual(['held']);
      expect((await stateOf(gate, segment)).marks['ann']).toContain('|1|7|q|');
    });
  });

  describe('a batch', () => {
    test('of 128 with the same buyer five times: one hold, and the other four are answered by their keys', async () => {
      const segment = await gate.open({ units: 500 });
      const others = Array.from({ length: 123 }, (_, i): Press => [`other${i}`, `o${i}`]);
      const batch: Press[] = [
        ...others.slice(0, 10),
        ['ann', 'r1'],
        ...others.slice(10, 50),
        ['ann', 'r1'], // the double click
        ['ann', 'r2'], // another press
        ...others.slice(50, 120),
        ['ann', 'r1', 2], // the same key with other content
        ['ann', 'r3'],
        ...others.slice(120),
      ];
      expect(batch).toHaveLength(128);
      const said = saidOf(await hold(gate, segment, batch));
      const anns = said.filter((_, i) => batch[i]![0] === 'ann');
      expect(anns.map((one) => one.code)).toEqual([
        'held',
        'replayed',
        'already_bought',
        'key_reused',
        'already_bought',
      ]);
      expect(said.filter((one) => one.code === 'held')).toHaveLength(124);

      const { left, marks, entries } = await stateOf(gate, segment);
      expect(left).toBe('376');
      const mark = parseMark(marks['ann']!)!;
      expect(mark.requestId).toBe(requestIdOf('r1'));
      // all that were told a mark were told the one that stands
      expect(anns.flatMap((one) => one.mark ?? [])).toEqual([marks['ann'], marks['ann'], marks['ann']]);
      expect(entries.map((entry) => entry.payload.split(';').length)).toEqual([124]);
    });

    test('of 128 times the same buyer with 128 keys: one hold', async () => {
      const segment = await gate.open({ units: 500 });
      const batch = Array.from({ length: 128 }, (_, i): Press => ['ann', `r${i}`]);
      const codes = await codesOf(gate, segment, batch);
      expect(codes).toEqual(['held', ...Array.from({ length: 127 }, () => 'already_bought')]);
      expect((await stateOf(gate, segment)).left).toBe('499');
    });

    test('of a buyer whose mark is closed: his new request is held once', async () => {
      const segment = await gate.open({ units: 5 });
      await hold(gate, segment, [['ann', 'r1']]);
      await giveBack(gate, segment, 'ann');
      expect(
        await codesOf(gate, segment, [
          ['ann', 'r2'],
          ['ann', 'r1'], // no longer known: the gate knows the latest request only
          ['ann', 'r2'],
        ]),
      ).toEqual(['held', 'already_bought', 'replayed']);
    });

    test('of 128 buyers over four shards, more than there is: the first in line win', async () => {
      const segment = await gate.open({ units: 100, shards: 4 });
      const batch = buyersOfShards(4, 32)
        .flat()
        .map((buyer, i): Press => [buyer, `r${i}`]);
      const codes = await codesOf(gate, segment, batch);
      expect(codes).toEqual([
        ...Array.from({ length: 100 }, () => 'held'),
        ...Array.from({ length: 28 }, () => 'sold_out'),
      ]);
      const { left, marks, entries } = await stateOf(gate, segment);
      expect(left).toBe('0');
      expect(Object.keys(marks).toSorted()).toEqual(
        batch
          .slice(0, 100)
          .map(([buyer]) => buyer)
          .toSorted(),
      );
      expect(entries[0]!.payload.split(';')).toHaveLength(100);
      // again: the winners are known in every shard, the others are not
      expect(await codesOf(gate, segment, batch)).toEqual([
        ...Array.from({ length: 100 }, () => 'replayed'),
        ...Array.from({ length: 28 }, () => 'sold_out'),
      ]);
    });

    test('with the same buyer in several shapes over several shards keeps each to his own', async () => {
      const segment = await gate.open({ units: 3, shards: 2 });
      const [[ann], [bob]] = buyersOfShards(2, 1) as [[string], [string]];
      expect(
        await codesOf(gate, segment, [
          [ann, 'r1', 4],
          [bob, 'r1', 3],
          [ann, 'r1', 1],
          [bob, 'r1', 3],
          [ann, 'r2', 1],
        ]),
      ).toEqual(['sold_out', 'held', 'sold_out', 'replayed', 'sold_out']);
    });
  });

  test('a script that starts after `notAfter` writes nothing, and says so', async () => {
    const segment = await gate.open();
    const before = await gate.dump(segment);
    const now = await gate.scripts.time();
    const reply = await gate.scripts.hold(segment, [candidate(['ann', 'r1'])], now - 1);
    expect(reply).toEqual({ kind: 'not_ready', reason: 'late' });
    expect(await gate.dump(segment)).toEqual(before);
    // whoever repeats it in time is served
    expect(await codesOf(gate, segment, [['ann', 'r1']])).toEqual(['held']);
  });
});

const written = (one: { orderId: string; buyerId: string; requestId: string; quantity: number }): string =>
  `${one.orderId},${one.buyerId},${one.requestId},${one.quantity}`;

async function giveBack(gate: TestGate, segment: Segment, buyerId: string): Promise<void> {
  const mark = must(parseMark((await stateOf(gate, segment)).marks[buyerId]!), 'a mark to give back');
  const done = await gate.scripts.giveBack(segment, {
    buyerId,
    orderId: mark.orderId,
    units: mark.quantity,
    closedStatus: 'C',
    liveMark: undefined,
  });
  expect(done).toBe('done');
}

/** Walks through a table's steps, up to `batchMax` purchases a call, and checks every column at the end of each call. */
async function walk(gate: TestGate, rules: Partial<SegmentRules>, steps: string, batchMax: number): Promise<void> {
  const segment = await gate.open(rules);
  const now = await gate.scripts.time();
  let batch: string[][] = [];
  const flush = async (): Promise<void> => {
    if (batch.length === 0) return;
    await check(gate, segment, batch);
    batch = [];
  };
  for (const step of steps.split('\n').map((line) => line.trim().split(/\s+/))) {
    if (step[0] !== '*') {
      if (batch.push(step) === batchMax) await flush();
      continue;
    }
    await flush();
    const [, ...words] = step;
    const what = words.slice(0, 2).join(' ');
    if (what === 'give back') await giveBack(gate, segment, words[2]!);
    else if (words[0] === 'land') await land(gate, segment, words[1]!);
    else expect(await gate.change(segment, CHANGES(now)[what]!), what).toBe('done');
  }
  await flush();
}

const CHANGES = (now: number): Record<string, Parameters<TestGate['change']>[1]> => ({
  pause: { state: 'paused' },
  resume: { state: 'open' },
  end: { state: 'ended' },
  'window over': { state: 'open', opensAt: now - 60_000, endsAt: now - 1 },
  'window ahead': { opensAt: now + 3_600_000, endsAt: now + 7_200_000 },
});

async function land(gate: TestGate, segment: Segment, buyerId: string): Promise<void> {
  const mark = must(parseMark((await stateOf(gate, segment)).marks[buyerId]!), 'a mark to land');
  await gate.scripts.markLanded(segment, 1, [{ buyerId, orderId: mark.orderId, status: 'o' }]);
}

async function check(gate: TestGate, segment: Segment, rows: readonly string[][]): Promise<void> {
  const before = await gate.dump(segment);
  const reply = await hold(
    gate,
    segment,
    rows.map(([buyer, request, quantity]): Press => [buyer!, request!, quantity]),
  );
  const said = saidOf(reply);
  const told = said.map(({ code, mark }) => {
    const { requestId, status } = mark === undefined ? {} : must(parseMark(mark), `a readable mark: ${mark}`);
    return [code, mark === undefined ? '-' : `${requestId} ${status}`];
  });
  const expected = rows.map((row) => [row[3]!, row[4] === '-' ? '-' : `${requestIdOf(row[4]!)} ${row[5]}`]);
  expect(told).toEqual(expected);
  const { left, entries } = await stateOf(gate, segment);
  expect(left).toBe(rows.at(-1)!.at(-1));
  expect(reply).toMatchObject({ left: Number(left) });
  if (said.every(({ code }) => code !== 'held')) expect(await gate.dump(segment)).toEqual(before);
  // no purchase is in two entries
  const all = entries.flatMap((entry) => entry.payload.split(';'));
  expect(new Set(all).size).toBe(all.length);
}

const HOLD_TEXT = readFileSync(new URL('../../../src/purchase/4-gate/lua/hold.lua', import.meta.url), 'utf8');

/** Asks `hold.lua` with a window set around the very instant at which it runs: the border is met to the millisecond. */
async function holdAtBorder(
  gate: TestGate,
  segment: Segment,
  press: Press,
  window: { opensInMs: number; endsInMs: number },
): Promise<{ now: number; opensAt: number; codes: (string | undefined)[] }> {
  const setWindow = `#!lua
    do
      local t = redis.call('TIME')
      local now = t[1] * 1000 + math.floor(t[2] / 1000)
      redis.call('HSET', KEYS[1], 'opensAt', string.format('%.0f', now + ${window.opensInMs}),
        'endsAt', string.format('%.0f', now + ${window.endsInMs}))
    end`;
  const text = setWindow + HOLD_TEXT.slice(HOLD_TEXT.indexOf('\n'));
  const redis: RedisLink = {
    ...gate.redis,
    run: (_, keys, args) => gate.redis.run({ name: 'border', text }, keys, args),
  };
  const scripts = makeGateScripts(redis, gate.keys);
  for (;;) {
    const reply = await scripts.hold(segment, [candidate(press)], Number.MAX_SAFE_INTEGER);
    if (reply.kind !== 'decided') throw new Error(reply.reason);
    // A millisecond may end between the two looks at the clock, rarely: then a new buyer asks again.
    if (reply.opensAt - reply.redisNow === window.opensInMs) {
      return { now: reply.redisNow, opensAt: reply.opensAt, codes: saidOf(reply).map(({ code }) => code) };
    }
    press = [`${press[0]}x`, press[1]];
  }
}
