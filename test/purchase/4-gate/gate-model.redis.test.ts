/**
 * The scripts against a model of the gate: random sequences of batches, repeats, give-backs, landings and changes, with few
 * buyers and keys so that they collide. After every step the answers and the whole state agree, and so do the invariants:
 *
 * - stock ≥ 0, and stock + units of open marks = initial stock: every unit is somewhere, once;
 * - a buyer has at most one open mark;
 * - entries are numbered without a gap and hold exactly what was told `held`.
 *
 * A failure prints seed and path; SLUICE_TEST_SEED repeats a run.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { formatMark, type MarkStatus } from '../../../src/domain/mark.ts';
import type { Segment } from '../../../src/purchase/4-gate/gate-scripts.ts';
import {
  nextOrderId,
  onBothServers,
  openTestGate,
  requestIdOf,
  saidOf,
  stateOf,
  type TestGate,
} from '../../support/gate.ts';
import { GateModel, isOpen, type Phase, type Purchase } from './gate-model.ts';

const RUN = 3;
const BUYERS = ['ann', 'bob', 'cid', 'dan', 'eve'];
const HOUR_MS = 3_600_000;

const seed = Number(process.env.SLUICE_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));

const someRun = fc.oneof({ weight: 9, arbitrary: fc.constant(RUN) }, { weight: 1, arbitrary: fc.constantFrom(2, 4) });
const press = fc.record({
  buyerId: fc.constantFrom(...BUYERS),
  request: fc.constantFrom('r1', 'r2', 'r3'),
  quantity: fc.oneof(
    { weight: 20, arbitrary: fc.integer({ min: 1, max: 3 }) as fc.Arbitrary<unknown> },
    { weight: 1, arbitrary: fc.constantFrom<unknown>(0, -1, 4, 9_999, 10_000, 1.5, '', ' 1', 'nan', '1e0', '0x1') },
  ),
});
/** Which of the orders made so far, held or not; taken modulo their number. */
const someOrder = fc.nat(1_000);

const step = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({ do: fc.constant('hold' as const), batch: fc.array(press, { minLength: 1, maxLength: 6 }) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('give back' as const),
      run: someRun,
      order: someOrder,
      closedStatus: fc.constantFrom<MarkStatus>('C', 'E', 'R', 'S', 'A', 'N', 'L'),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('land' as const),
      run: someRun,
      entry: fc.nat(20),
      orders: fc.array(fc.tuple(someOrder, fc.constantFrom<'o' | 'd'>('o', 'o', 'd')), { maxLength: 5 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('change' as const),
      run: someRun,
      // mostly the next version, now and then one that comes late
      versionsAhead: fc.constantFrom(1, 1, 1, 2, 0, -1),
      state: fc.constantFrom<GateModel['state']>('open', 'open', 'open', 'paused', 'ended'),
      phase: fc.constantFrom<Phase>('during', 'during', 'during', 'before', 'after'),
      limit: fc.integer({ min: 1, max: 4 }),
    }),
  },
);

onBothServers((redisUrl) => {
  let gate: TestGate;
  beforeAll(async () => {
    gate = await openTestGate(redisUrl);
  });
  afterAll(() => gate.close());

  test(`the scripts do what the model does (seed ${seed})`, { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: 9 }),
        fc.integer({ min: 1, max: 3 }),
        fc.array(step, { minLength: 5, maxLength: 40, size: 'max' }),
        async (units, shards, steps) => {
          const segment = await gate.open({ units, shards, run: RUN, perBuyerLimit: 3 });
          const world = new World(gate, segment, new GateModel({ run: RUN, units, limit: 3, version: 2 }), units);
          for (const one of steps) await world.take(one);
        },
      ),
      { seed, numRuns: 40 },
    );
  });
});

type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** The gate and its model, side by side. */
class World {
  readonly #gate: TestGate;
  readonly #segment: Segment;
  readonly #model: GateModel;
  readonly #units: number;
  /** every purchase that was ever sent, held or not: candidates for give-back and landing */
  readonly #sent: Purchase[] = [{ buyerId: 'ann', requestId: requestIdOf('r0'), orderId: '1', quantity: 1 }];

  constructor(gate: TestGate, segment: Segment, model: GateModel, units: number) {
    this.#gate = gate;
    this.#segment = segment;
    this.#model = model;
    this.#units = units;
  }

  async take(one: Step): Promise<void> {
    const { scripts } = this.#gate;
    switch (one.do) {
      case 'hold': {
        const batch = one.batch.map(({ buyerId, request, quantity }): Purchase & { quantity: number } => ({
          buyerId,
          requestId: requestIdOf(request),
          orderId: nextOrderId(),
          quantity: quantity as number, // what no type allows must be refused all the same
        }));
        this.#sent.push(...batch);
        const reply = await scripts.hold(this.#segment, batch, Number.MAX_SAFE_INTEGER);
        const expected = this.#model
          .hold(batch)
          .map(({ code, mark }) => (mark === undefined ? { code } : { code, mark: formatMark(mark) }));
        expect(saidOf(reply)).toEqual(expected);
        expect(reply).toMatchObject({ left: this.#model.left });
        break;
      }
      case 'give back': {
        const { buyerId, orderId, quantity } = this.#order(one.order);
        const units = typeof quantity === 'number' ? quantity : 0;
        const order = { buyerId, orderId, units, closedStatus: one.closedStatus };
        const outcome = await scripts.giveBack(this.#at(one.run), { ...order, liveMark: undefined });
        expect(outcome).toBe(this.#model.giveBack(one.run, order));
        break;
      }
      case 'land': {
        const holds = one.orders.map(([n, status]) => ({ ...this.#order(n), status }));
        await scripts.markLanded(this.#at(one.run), one.entry, holds);
        this.#model.land(one.run, one.entry, holds);
        break;
      }
      case 'change': {
        const version = this.#model.version + one.versionsAhead;
        const now = await scripts.time();
        const [opensAt, endsAt] = {
          before: [now + HOUR_MS, now + 2 * HOUR_MS],
          during: [now - HOUR_MS, now + HOUR_MS],
          after: [now - 2 * HOUR_MS, now - HOUR_MS],
        }[one.phase] as [number, number];
        const { state, limit: perBuyerLimit } = one;
        const rules = { version, state, opensAt, endsAt, perBuyerLimit, expiresAt: now + 4 * HOUR_MS };
        expect(await scripts.change(this.#at(one.run), rules)).toBe(
          this.#model.change(one.run, { version, state, phase: one.phase, limit: one.limit }),
        );
        break;
      }
    }
    await this.#compare();
  }

  #order(n: number): Purchase {
    return this.#sent[n % this.#sent.length]!;
  }

  #at(run: number): Segment {
    return { ...this.#segment, run };
  }

  async #compare(): Promise<void> {
    const { left, meta, marks, entries } = await stateOf(this.#gate, this.#segment);
    const model = this.#model;
    expect({ left, marks, entries }).toEqual({
      left: String(model.left),
      marks: Object.fromEntries([...model.marks].map(([buyer, mark]) => [buyer, formatMark(mark)])),
      entries: model.entries.map(({ number, holds }) => ({
        number: String(number),
        payload: holds.map((one) => [one.orderId, one.buyerId, one.requestId, one.quantity].join(',')).join(';'),
      })),
    });
    expect(meta).toMatchObject({
      seq: String(model.entries.length),
      landed: String(model.landed),
      moved: String(model.moved),
      version: String(model.version),
      state: model.state,
      perBuyerLimit: String(model.limit),
    });
    // the model's own sanity: what it allows must not break the promises
    const open = [...model.marks.values()].filter(isOpen);
    expect(model.left).toBeGreaterThanOrEqual(0);
    expect(model.left + open.reduce((sum, mark) => sum + mark.quantity, 0)).toBe(this.#units);
    const orders = model.entries.flatMap(({ holds }) => holds.map(({ orderId }) => orderId));
    expect(new Set(orders).size).toBe(orders.length);
  }
}
