/** The verdict: three witnesses compared by ids, each way of breaking a sale named, and nothing else. */
import { describe, expect, test } from 'vitest';
import type { BookedOrder } from '../../../src/cli/demo/auditor.ts';
import type { BuyerEvidence } from '../../../src/cli/demo/crowd/evidence.ts';
import type { GateBooks, WrittenHold } from '../../../src/cli/demo/gate-witness.ts';
import type { Ledger } from '../../../src/cli/demo/ledger-table.ts';
import { reachVerdict, type Verdict, type VerdictBooks } from '../../../src/cli/demo/verdict.ts';
import type { Mark } from '../../../src/domain/mark.ts';
import { end, heardBy, order, press, SALE } from './evidence-made.ts';

/** A small sale that holds: two units, ann and bob have one each, cat came too late. */
const ANN = order();
const BOB = order({ orderId: '12', buyerId: 'bob' });
const HELD_BY_ANN = heardBy([press(1, 'held', 1_100)], [end('ordered')]);
const HELD_BY_BOB = heardBy([press(1, 'held', 1_200, { orderId: '12' })], [end('ordered', { orderId: '12' })], 'bob');
const REFUSED_CAT = heardBy([press(1, 'sold_out', 1_300)], [], 'cat');
const CROWD: readonly BuyerEvidence[] = [HELD_BY_ANN, HELD_BY_BOB, REFUSED_CAT];

const markOf = (one: BookedOrder, more: Partial<Mark> = {}): [string, Mark] => [
  one.buyerId,
  { orderId: one.orderId, quantity: one.quantity, run: 1, status: 'o', requestId: one.requestId, ...more },
];
const holdOf = (one: BookedOrder, entry: number): WrittenHold => ({
  segment: 0,
  entry,
  orderId: one.orderId,
  buyerId: one.buyerId,
  quantity: one.quantity,
});
const LEDGER: Ledger = {
  state: 'ended',
  total: 2,
  sold: 2,
  surplus: 0,
  run: 1,
  segments: 1,
  shards: 1,
  orders: [ANN, BOB],
  deadLetters: [],
  givingBack: [],
  landed: [2],
};
const GATE: GateBooks = {
  left: 0,
  marks: new Map([markOf(ANN), markOf(BOB)]),
  holds: [holdOf(ANN, 1), holdOf(BOB, 2)],
  damage: [],
};

type Change = { ledger?: Partial<Ledger>; gate?: Partial<GateBooks>; books?: Partial<VerdictBooks> };
const verdictOf = (change: Change = {}, crowd = CROWD): Promise<Verdict> =>
  reachVerdict(
    {
      ledger: { ...LEDGER, ...change.ledger },
      gate: { ...GATE, ...change.gate },
      sale: SALE,
      admitsSurplus: false,
      letInAt: 1_000,
      landedAt: 1_500,
      saysItself: [{ holds: true, says: 'It holds.' }],
      ...change.books,
    },
    crowd,
  );

describe('a sale that holds', () => {
  test('is told in the contract’s numbers', async () => {
    const verdict = await verdictOf();
    expect(verdict).toMatchObject({
      buyers: 3,
      requests: 3,
      stock: 2,
      accepted: 2,
      ordersStored: 2,
      refused: 1,
      refusedByCode: { sold_out: 1 },
      replayed: 0,
      oversold: 0,
      lost: 0,
      duplicates: 0,
      wrongAnswers: 0,
      secondsToSellOut: 0.205,
      secondsToLand: 0.295,
      equationHolds: true,
      witnesses: { clients: 2, postgresql: 2, redis: 2 },
      broken: [],
      findings: [],
      holds: true,
    });
  });
  test('may have units left: it is then not sold out', async () => {
    const crowd = [HELD_BY_ANN];
    const change = {
      ledger: { orders: [ANN], sold: 1 },
      gate: { left: 1, marks: new Map([markOf(ANN)]), holds: [holdOf(ANN, 1)] },
    };
    expect(await verdictOf(change, crowd)).toMatchObject({ holds: true, secondsToSellOut: null });
  });
  test('may have units under way, counted by ids', async () => {
    const dan = order({ orderId: '13', buyerId: 'dan' });
    const change: Change = {
      ledger: {
        total: 6,
        landed: [2],
        deadLetters: [{ orderId: '14', buyerId: 'eve', quantity: 1 }],
        givingBack: [{ orderId: '15', units: 1 }],
      },
      gate: { left: 1, holds: [...GATE.holds, holdOf(dan, 3)] },
    };
    const crowd = [HELD_BY_ANN, HELD_BY_BOB];
    expect(await verdictOf(change, crowd)).toMatchObject({ equation: { inFlight: 3 }, holds: true });
  });
  test('strict: what the surplus admitted was refused, and told', async () => {
    const fay = order({ orderId: '16', buyerId: 'fay', state: 'refused', reason: 'sold_out' });
    const crowd = [
      ...CROWD,
      heardBy([press(1, 'held', 1_150, { orderId: '16' })], [end('failed', { orderId: '16' })], 'fay'),
    ];
    const change: Change = {
      ledger: { orders: [ANN, BOB, fay], landed: [3] },
      gate: {
        marks: new Map([markOf(ANN), markOf(BOB), markOf(fay, { status: 'S' })]),
        holds: [...GATE.holds, holdOf(fay, 3)],
      },
      books: { admitsSurplus: true, sale: { ...SALE, answerWhen: 'ordered', stockOnlyFalls: false } },
    };
    expect(await verdictOf(change, crowd)).toMatchObject({ refusedAtLanding: 1, accepted: 3, lost: 0, holds: true });
    // the same without a surplus: the gate sold what there was not
    const drift = await verdictOf({ ...change, books: {} }, crowd);
    expect(drift).toMatchObject({ broken: ['drift'], equationHolds: false, holds: false });
  });
});

describe('a sale that is broken is named so, and not otherwise', () => {
  test('oversell', async () => {
    const crowd = [...CROWD.slice(0, 2), heardBy([press(1, 'held', 1_250, { orderId: '13' })], [], 'cat')];
    const cat = order({ orderId: '13', buyerId: 'cat' });
    const change: Change = {
      ledger: { orders: [ANN, BOB, cat], sold: 3, landed: [3] },
      gate: { marks: new Map([markOf(ANN), markOf(BOB), markOf(cat)]), holds: [...GATE.holds, holdOf(cat, 3)] },
    };
    expect(await verdictOf(change, crowd)).toMatchObject({
      oversold: 1,
      lost: 0,
      duplicates: 0,
      wrongAnswers: 0,
      equationHolds: false,
      broken: ['oversell'],
      holds: false,
    });
  });
  test('lose: the order is gone', async () => {
    const change: Change = { ledger: { orders: [BOB], sold: 1 } };
    expect(await verdictOf(change)).toMatchObject({ lost: 1, wrongAnswers: 0, broken: ['lose'], holds: false });
  });
  test('lose: the entry of the outbox is gone too', async () => {
    const change: Change = { ledger: { orders: [BOB], sold: 1 }, gate: { holds: [holdOf(BOB, 2)] } };
    expect(await verdictOf(change)).toMatchObject({ lost: 1, broken: ['lose'], holds: false });
  });
  test('duplicate', async () => {
    const again = order({ orderId: '13', requestId: 'key-2' });
    const crowd = [heardBy([press(1, 'held', 1_100), press(2, 'held', 1_200, { orderId: '13' })]), REFUSED_CAT];
    const change: Change = {
      ledger: { orders: [ANN, again] },
      gate: { marks: new Map([markOf(again)]), holds: [holdOf(ANN, 1), holdOf(again, 2)] },
    };
    expect(await verdictOf(change, crowd)).toMatchObject({
      duplicates: 1,
      oversold: 0,
      lost: 0,
      wrongAnswers: 0,
      broken: ['duplicate'],
      holds: false,
    });
  });
  test('wrong-answer', async () => {
    const liedTo = heardBy([press(1, 'held', 1_100), press(1, 'replayed', 1_200, { orderId: '17' })], [end('ordered')]);
    expect(await verdictOf({}, [liedTo, HELD_BY_BOB, REFUSED_CAT])).toMatchObject({
      wrongAnswers: 1,
      equationHolds: true,
      broken: ['wrong-answer'],
      holds: false,
    });
  });
  test('wrong-answer: sold to somebody after others had heard sold_out', async () => {
    const crowd = [HELD_BY_ANN, heardBy([press(1, 'held', 2_000, { orderId: '12' })], [], 'bob'), REFUSED_CAT];
    expect(await verdictOf({}, crowd)).toMatchObject({ wrongAnswers: 1, broken: ['wrong-answer'] });
  });
  test('wrong-answer: sold_out, and units are left', async () => {
    const change: Change = {
      ledger: { orders: [ANN], sold: 1 },
      gate: { left: 1, marks: new Map([markOf(ANN)]), holds: [holdOf(ANN, 1)] },
    };
    expect(await verdictOf(change, [HELD_BY_ANN, REFUSED_CAT])).toMatchObject({ broken: ['wrong-answer'] });
  });
  test.each<[string, Change, string]>([
    [
      'a unit is missing',
      { ledger: { orders: [ANN], sold: 1 }, gate: { marks: new Map([markOf(ANN)]), holds: [holdOf(ANN, 1)] } },
      'off by 1',
    ],
    ['a unit too many is left', { gate: { left: 1 } }, 'off by -1'],
    ['`sold` is not what the orders say', { ledger: { sold: 1 } }, 'counts 1 sold'],
    [
      'a landed hold is nowhere',
      { gate: { holds: [...GATE.holds, holdOf(order({ orderId: '18', buyerId: 'gus' }), 2)] } },
      'order 18 was landed',
    ],
    ['the gate does not know a winner', { gate: { marks: new Map([markOf(ANN)]) } }, 'does not know bob'],
    [
      'the gate has another order',
      { gate: { marks: new Map([markOf(ANN), markOf(BOB, { orderId: '19' })]) } },
      'the gate has order 19 of bob',
    ],
    [
      'the gate has a winner more',
      { gate: { marks: new Map([...GATE.marks, markOf(order({ orderId: '20', buyerId: 'hal' }))]) } },
      'PostgreSQL has none',
    ],
    [
      'a closed mark of a live order',
      { gate: { marks: new Map([markOf(ANN), markOf(BOB, { status: 'S' })]) } },
      'the gate has order 12 of bob',
    ],
    ['the stock cannot be read', { gate: { damage: ['segment 0: the stock is "abc"'] } }, 'the stock is "abc"'],
    ['verify says so', { books: { saysItself: [{ holds: false, says: 'verify: a finding' }] } }, 'verify: a finding'],
  ])('drift: %s', async (what, change, says) => {
    // where a unit is missing nobody has heard of it
    const crowd = what === 'a unit is missing' ? [HELD_BY_ANN, REFUSED_CAT] : CROWD.slice(0, 2);
    const verdict = await verdictOf(change, crowd);
    expect(verdict).toMatchObject({ broken: ['drift'], equationHolds: false, holds: false });
    expect(verdict.findings).toContainEqual({ kind: 'drift', says: expect.stringContaining(says) as string });
  });
  test('drift: an order of somebody who never came', async () => {
    const verdict = await verdictOf({}, [HELD_BY_ANN, REFUSED_CAT]);
    expect(verdict.broken).toEqual(['drift']);
    expect(verdict.findings[0]?.says).toContain('who never came');
  });
  test('what verify finds beside a finding of ours only agrees with it', async () => {
    const change: Change = {
      ledger: { orders: [BOB], sold: 1 },
      books: { saysItself: [{ holds: false, says: 'too' }] },
    };
    expect(await verdictOf(change)).toMatchObject({ broken: ['lose'] });
  });
  test('findings are spelt out ten of a kind; the numbers count all', async () => {
    const crowd = Array.from({ length: 30 }, (_, i) => heardBy([press(1, 'ended', 2_000)], [], `buyer${i}`));
    const verdict = await verdictOf({}, [...CROWD, ...crowd]);
    expect(verdict.wrongAnswers).toBe(30);
    expect(verdict.findings).toHaveLength(10);
  });
});
