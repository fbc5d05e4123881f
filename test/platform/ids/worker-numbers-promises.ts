/** What every table of worker numbers must do: the real one and its double alike. */
import { beforeEach, describe, expect, test } from 'vitest';
import type { WorkerNumbers } from '../../../src/platform/ids/worker-numbers-table.ts';
import { NOON_MS } from './stepped-world.ts';

/** A table, and what its tests need besides. */
export type NumbersUnderTest = {
  readonly numbers: WorkerNumbers;
  /** makes the leases of these numbers lapse */
  lapse(...numbers: number[]): Promise<void>;
  /** makes the leases of all numbers that have a row last until tomorrow */
  holdAll(): Promise<void>;
  /** all as at the start: nobody has any number */
  clear(): Promise<void>;
};

const TTL_MS = 30_000;
const UNTIL_MS = NOON_MS + TTL_MS;

/** Runs the suite. */
export function workerNumbersKeepTheirPromises(name: string, get: () => NumbersUnderTest): void {
  describe(`${name}: worker numbers`, () => {
    let numbers: WorkerNumbers;
    const take = (owner: string, more: { pastMs?: number; untilMs?: number } = {}) =>
      numbers.take({ owner, ttlMs: TTL_MS, pastMs: NOON_MS, untilMs: UNTIL_MS, ...more });

    beforeEach(async () => {
      await get().clear();
      numbers = get().numbers;
    });

    test('the first taker gets number 0 and may stamp from the beginning of time', async () => {
      expect(await take('a')).toEqual({ number: 0, floorMs: 0, untilMs: UNTIL_MS });
    });

    test('20 takers at once get 20 numbers', async () => {
      const taken = await Promise.all(Array.from({ length: 20 }, (_, i) => take(`taker ${i}`)));
      expect(new Set(taken.map((one) => one?.number)).size).toBe(20);
      expect(taken).not.toContain(undefined);
    });

    test('there are 1,024 numbers, then none; a lapsed one is free again', async () => {
      await take('the first');
      await get().holdAll();
      await get().lapse(1_022, 1_023, 1_024);
      expect((await take('a'))?.number).toBe(1_022);
      expect((await take('b'))?.number).toBe(1_023);
      expect(await take('c')).toBeUndefined();
      await get().lapse(77);
      expect((await take('c'))?.number).toBe(77);
    });

    test('a number that lapsed starts where its last holder had to stop, whoever takes it', async () => {
      await take('a');
      await get().lapse(0);
      const soon = { pastMs: UNTIL_MS, untilMs: UNTIL_MS + 10 };
      expect(await take('b', soon)).toEqual({ number: 0, floorMs: UNTIL_MS, untilMs: UNTIL_MS + 10 });
      await get().lapse(0);
      const clockBehind = { pastMs: UNTIL_MS + 10, untilMs: NOON_MS };
      expect(await take('c', clockBehind)).toEqual({ number: 0, floorMs: UNTIL_MS + 10, untilMs: UNTIL_MS + 10 });
    });

    test('numbers safely past come first, lowest first; without any, the one that ends soonest', async () => {
      for (const later of [2, 1, 3, 0]) await take(`until ${later} later`, { untilMs: UNTIL_MS + later });
      await get().holdAll();
      await get().lapse(0, 1, 2);
      expect((await take('none is past'))?.number).toBe(1);
      expect((await take('both are past', { pastMs: UNTIL_MS + 3 }))?.number).toBe(0);
      await get().lapse(3, 900);
      expect((await take('one was never used'))?.number).toBe(900);
    });

    test('renewing moves the end of instants up, never down, also when the lease had lapsed', async () => {
      await take('a');
      const renew = (untilMs: number) => numbers.renew({ number: 0, owner: 'a', ttlMs: TTL_MS, untilMs });
      expect(await renew(UNTIL_MS + 5)).toEqual({ untilMs: UNTIL_MS + 5 });
      expect(await renew(UNTIL_MS - 5)).toEqual({ untilMs: UNTIL_MS + 5 });
      await get().lapse(0);
      expect(await renew(UNTIL_MS + 9)).toEqual({ untilMs: UNTIL_MS + 9 });
      expect((await take('b'))?.number, 'renewed, so it is not free').toBe(1);
    });

    test('a former holder can neither renew nor give up', async () => {
      await take('a');
      await get().lapse(0);
      await take('b', { pastMs: UNTIL_MS, untilMs: UNTIL_MS + 10 });
      expect(await numbers.renew({ number: 0, owner: 'a', ttlMs: TTL_MS, untilMs: UNTIL_MS + 99 })).toBeUndefined();
      expect(await numbers.giveUp({ number: 0, owner: 'a', untilMs: NOON_MS })).toBe(false);
      await get().lapse(0);
      expect((await take('c', { pastMs: UNTIL_MS + 10 }))?.floorMs).toBe(UNTIL_MS + 10);
    });

    test('a number given up is free at once, from the instant named; a late renewal finds nothing', async () => {
      await take('a');
      expect(await numbers.giveUp({ number: 0, owner: 'a', untilMs: NOON_MS - 50 })).toBe(true);
      expect(await numbers.renew({ number: 0, owner: 'a', ttlMs: TTL_MS, untilMs: UNTIL_MS })).toBeUndefined();
      expect(await take('b')).toEqual({ number: 0, floorMs: NOON_MS - 50, untilMs: UNTIL_MS });
    });

    test('a renewal that meets a taker: one of them has the number', async () => {
      await take('a0');
      for (let round = 0; round < 40; round += 1) {
        const [old, young] = [`a${round}`, `a${round + 1}`];
        await get().lapse(0);
        const [renewed, taken] = await Promise.all([
          numbers.renew({ number: 0, owner: old, ttlMs: TTL_MS, untilMs: UNTIL_MS }),
          take(young, { pastMs: UNTIL_MS }),
        ]);
        expect([renewed !== undefined, taken?.number === 0]).toContain(true);
        expect(renewed !== undefined && taken?.number === 0).toBe(false);
        await get().clear();
        await take(young);
      }
    });
  });
}
