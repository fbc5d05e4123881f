/**
 * Redis wrong about everything (article 6.3): in mid-sale the stock key is set to ten times the total and all marks are
 * deleted, with the guard restored; then three times as many buyers as there are units come, each twice with new keys.
 * PostgreSQL alone must end with exactly `total` units and one live order a buyer, everybody else who was accepted must be
 * told a reason, and an alarm must name it.
 *
 * The verdict can fail: with the unique index dropped, or with the check dropped, it does.
 * Size: units on sale (short form 120); full size: 2000.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ask, books, buy, isQuiet, startSluice, until, type TestSluice } from '../support/sluice.ts';

const SIZE = Number(process.env['SLUICE_TEST_SIZE'] ?? 120);
const AT_ONCE = 64;

/** Runs work for each item, a few at a time. */
async function forEachOf<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  const runner = async (): Promise<void> => {
    while (next < items.length) {
      const i = next++;
      results[i] = await work(items[i]!);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, runner));
  return results;
}

type Verdict = { units: number; ordersAboveOneABuyer: number; accepted: number; unresolved: number; alarms: string[] };

async function sellWithWrongRedis(sluice: TestSluice): Promise<Verdict> {
  const activity = await sluice.openActivity({ total: SIZE });
  const at = { activityId: activity.id, segment: 0, run: activity.run };
  const beLiedTo = async (): Promise<void> => {
    for (let shard = 0; shard < activity.shards; shard++) {
      const key = sluice.keys.buyers(at, shard);
      await sluice.redis.command('DEL', key);
      await sluice.redis.command('HSET', key, '#', '1');
      await sluice.redis.command('EXPIRE', key, 20_000);
    }
    await sluice.redis.command('SET', sluice.keys.stock(at), SIZE * 10, 'KEEPTTL');
  };
  const buyers = Array.from({ length: SIZE * 3 }, (_, i) => `buyer${i}`);
  const accepted: { buyer: string; receipt: string }[] = [];
  const press = async (buyer: string): Promise<void> => {
    const told = await buy(sluice.url, activity.id, buyer);
    if (told.code === 'held') accepted.push({ buyer, receipt: told.body['receipt'] as string });
  };
  await forEachOf(buyers.slice(0, SIZE / 2), press); // mid-sale
  await beLiedTo();
  await forEachOf(buyers, press);
  await beLiedTo();
  await forEachOf(buyers, press);

  await until('landed', () => isQuiet(sluice, activity), 60_000);
  const standings = await forEachOf(accepted, ({ buyer, receipt }) =>
    ask(sluice.url, `/api/v1/receipts/${receipt}`, buyer),
  );
  const ends = standings.map(({ body }) => body as { state: string; reason?: string });
  const resolved = ends.filter(
    (end) => end.state === 'ordered' || (end.state === 'failed' && end.reason !== undefined),
  );
  const { liveUnits, liveOrders, liveBuyers } = await books(sluice.database, activity.id);
  return {
    units: liveUnits,
    ordersAboveOneABuyer: liveOrders - liveBuyers,
    accepted: accepted.length,
    unresolved: ends.length - resolved.length,
    alarms: [...new Set(sluice.alarms())],
  };
}

const holds = (verdict: Verdict): boolean =>
  verdict.units === SIZE && verdict.ordersAboveOneABuyer === 0 && verdict.unresolved === 0;

describe('PostgreSQL when Redis is wrong about everything', () => {
  let sluice: TestSluice;
  beforeAll(async () => {
    sluice = await startSluice();
  });
  afterAll(() => sluice?.stop());

  test('ends with exactly the units there were, one live order a buyer, and a told end for all others', async () => {
    const verdict = await sellWithWrongRedis(sluice);
    expect(verdict.accepted).toBeGreaterThan(SIZE * 5); // Redis really was wrong
    expect(verdict).toMatchObject({ units: SIZE, ordersAboveOneABuyer: 0, unresolved: 0 });
    expect(verdict.alarms).toContain('landing_refused');
    expect(holds(verdict)).toBe(true);
  }, 120_000);

  test('does not, with the unique index dropped', async () => {
    await sluice.database.database.script(`drop index orders_one_live_per_buyer`);
    const verdict = await sellWithWrongRedis(sluice);
    expect(verdict.ordersAboveOneABuyer).toBeGreaterThan(0);
    expect(holds(verdict)).toBe(false);
  }, 120_000);

  test('does not, with the check dropped', async () => {
    await sluice.database.database.script(`alter table activities drop constraint sold_within_total`);
    const verdict = await sellWithWrongRedis(sluice);
    expect(verdict.units).toBeGreaterThan(SIZE);
    expect(holds(verdict)).toBe(false);
  }, 120_000);
});
