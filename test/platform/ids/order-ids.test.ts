import { beforeEach, describe, expect, test } from 'vitest';
import { isOrderId } from '../../../src/domain/ids.ts';
import { systemClock } from '../../../src/platform/clock.ts';
import { ORDER_ID_EPOCH_MS, OrderIds } from '../../../src/platform/ids/order-ids.ts';
import type { StampRefusal } from '../../../src/platform/ids/order-ids.ts';
import { readOrderId } from './ids-read.ts';
import { NOON_MS, World } from './stepped-world.ts';
import type { Host } from './stepped-world.ts';

let world: World;
let host: Host;
/** what the worker number grants */
let granted: number | StampRefusal;
let ids: OrderIds;

beforeEach(() => {
  world = new World();
  host = world.host();
  granted = 7;
  ids = new OrderIds({
    worker: {
      stamp: () => granted,
      refusal: () => (typeof granted === 'string' ? granted : undefined),
    },
    clock: host.clock,
    timers: host.timers,
  });
});

/** What became of a draw that may have to wait. */
type Drawn = { ids?: string[]; code?: string; afterMs?: number };
function draw(count = 1): Drawn {
  const drawn: Drawn = {};
  const begunMs = world.timeMs;
  void ids.take(count).then(
    (some) => Object.assign(drawn, { ids: some, afterMs: world.timeMs - begunMs }),
    (fault: { code: string }) => Object.assign(drawn, { code: fault.code, afterMs: world.timeMs - begunMs }),
  );
  return drawn;
}

describe('an order id', () => {
  test.each([
    { instant: NOON_MS, number: 0, draws: [1] },
    { instant: NOON_MS, number: 1_023, draws: [3, 128] },
    { instant: ORDER_ID_EPOCH_MS + 1, number: 0, draws: [1] },
    { instant: ORDER_ID_EPOCH_MS + 2 ** 41 - 1, number: 1_023, draws: [4_096] },
  ])('carries instant, worker number and sequence: %o', ({ instant, number, draws }) => {
    host.step(instant - NOON_MS);
    granted = number;
    const drawn = draws.flatMap((count) => ids.tryTake(count) ?? []);
    expect(drawn.map(readOrderId)).toEqual(drawn.map((_, sequence) => ({ instantMs: instant, number, sequence })));
    expect(drawn.every(isOrderId)).toBe(true);
    expect(BigInt(drawn.at(-1) ?? 0)).toBeLessThan(2n ** 63n);
  });

  test('does not exist before the epoch, at its first instant, or beyond 41 bits', () => {
    for (const instant of [0, ORDER_ID_EPOCH_MS - 1, ORDER_ID_EPOCH_MS, ORDER_ID_EPOCH_MS + 2 ** 41]) {
      host.offMs = instant - NOON_MS;
      expect(ids.tryTake(1)).toBeUndefined();
    }
  });

  test.each([0, -1, 1.5, 4_097, Number.NaN])('is not drawn %d at a time', (count) => {
    expect(() => ids.tryTake(count)).toThrow('1 to 4096');
  });
});

describe('within one ms', () => {
  test('4,096 ids, then the next ms', async () => {
    const drawn = [ids.tryTake(4_000), ids.tryTake(96)].flatMap((some) => some ?? []);
    expect(new Set(drawn).size).toBe(4_096);
    expect(ids.tryTake(1)).toBeUndefined();
    const next = draw(1);
    await world.pass(1);
    expect(next).toMatchObject({ afterMs: 1 });
    expect(BigInt(next.ids?.[0] ?? 0)).toBeGreaterThan(BigInt(drawn.at(-1) ?? 0));
  });

  test('a draw is never cut in two: what does not fit goes to the next ms whole', async () => {
    ids.tryTake(4_000);
    const next = draw(128);
    await world.pass(1);
    expect(next.ids?.map((id) => readOrderId(id).sequence)).toEqual(Array.from({ length: 128 }, (_, i) => i));
  });

  test('another worker number waits for the next ms, so that ids still grow', async () => {
    granted = 9;
    const [before] = ids.tryTake(1) ?? [];
    granted = 2;
    expect(ids.tryTake(1)).toBeUndefined();
    const next = draw();
    await world.pass(1);
    expect(readOrderId(next.ids?.[0] ?? '0').number).toBe(2);
    expect(BigInt(next.ids?.[0] ?? 0)).toBeGreaterThan(BigInt(before ?? 0));
  });
});

describe('a clock that steps back', () => {
  test.each([
    { back: 1, waited: 5 },
    { back: 40, waited: 40 },
    { back: 999, waited: 1_000 },
  ])('by $back ms is waited for', async ({ back, waited }) => {
    const [last] = ids.tryTake(1) ?? [];
    host.step(-back);
    expect(ids.tryTake(1)).toBeUndefined();
    expect(ids.isReady(), 'it may well catch up').toBe(true);
    const next = draw();
    await world.pass(1_000);
    expect(next.code).toBeUndefined();
    expect(next.afterMs).toBeLessThanOrEqual(waited);
    expect(BigInt(next.ids?.[0] ?? 0)).toBeGreaterThan(BigInt(last ?? 0));
  });

  test.each([1_500, 2_000, 3_600_000])(
    'by %d ms is waited for one second; not ready until it has caught up',
    async (back) => {
      const [last] = ids.tryTake(1) ?? [];
      host.step(-back);
      const first = draw();
      await world.pass(400);
      const second = draw();
      await world.pass(600);
      expect(first).toEqual({ code: 'ids_unavailable', afterMs: 1_000 });
      expect(second, 'who comes later does not begin the second anew').toEqual({
        code: 'ids_unavailable',
        afterMs: 600,
      });
      expect(ids.isReady()).toBe(false);

      await world.pass(back - 1_001);
      const third = draw();
      await world.pass(0);
      expect(third).toEqual({ code: 'ids_unavailable', afterMs: 0 });

      await world.pass(2);
      expect(ids.isReady()).toBe(true);
      expect(BigInt(ids.tryTake(1)?.[0] ?? 0)).toBeGreaterThan(BigInt(last ?? 0));
    },
  );

  test('and is put right within the second costs only the wait', async () => {
    ids.tryTake(1);
    host.step(-3_600_000);
    const next = draw();
    await world.pass(300);
    host.step(3_600_000);
    await world.pass(5);
    expect(next.ids).toHaveLength(1);
  });

  test('twice, a good while apart, is waited for twice', async () => {
    for (let time = 0; time < 2; time += 1) {
      ids.tryTake(1);
      host.step(-600);
      const next = draw();
      await world.pass(600);
      expect(next.ids).toHaveLength(1);
      await world.pass(5_000);
    }
  });
});

describe('without a grant', () => {
  test.each<{ refusal: StampRefusal; ready: boolean }>([
    { refusal: 'not_held', ready: false },
    { refusal: 'too_early', ready: true },
    { refusal: 'too_late', ready: true },
  ])('$refusal: ready at first $ready, a second later not, then not any more', async ({ refusal, ready }) => {
    granted = refusal;
    expect(ids.isReady()).toBe(ready);
    const first = draw();
    await world.pass(1_000);
    expect(first).toEqual({ code: 'ids_unavailable', afterMs: 1_000 });
    expect(ids.isReady()).toBe(false);
    granted = 7;
    expect(ids.isReady()).toBe(true);
    expect(ids.tryTake(1)).toHaveLength(1);
  });
});

test('70,000 ids in batches of 128 cost a tenth of a second of one core at most', () => {
  const worker = { stamp: () => 7, refusal: () => undefined };
  const real = new OrderIds({ worker, clock: systemClock, timers: host.timers });
  const seen = new Set<string>();
  // The best of several rounds, so that neither the compiler's warming up nor a neighbour decides. Some 6 ms here.
  const costsMs = Array.from({ length: 5 }, () => {
    const drawn: string[][] = [];
    const spent = process.cpuUsage();
    while (drawn.length < 547) {
      const some = real.tryTake(128);
      if (some !== undefined) drawn.push(some);
    }
    const { user, system } = process.cpuUsage(spent);
    for (const id of drawn.flat()) seen.add(id);
    return (user + system) / 1_000;
  });
  expect(seen.size).toBe(5 * 547 * 128);
  expect(Math.min(...costsMs)).toBeLessThan(100);
});
