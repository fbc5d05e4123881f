/** Orders over sockets: a buyer's list, one of them, its cancellation, and the unit that is for sale again. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Activity } from '../../src/domain/activity.ts';
import { ask, books, buy, startSluice, until, type TestSluice, type Told } from '../support/sluice.ts';
import { comeToRest, stateOf } from './state-of.ts';

let sluice: TestSluice;
beforeAll(async () => {
  sluice = await startSluice();
});
afterAll(() => sluice.stop());

const someBuyer = (): string => `buyer-${randomBytes(5).toString('hex')}`;
const post = (path: string, buyer: string): Promise<Told> => ask(sluice.url, path, buyer, { method: 'POST' });
const cancel = (orderId: string, buyer: string): Promise<Told> => post(`/api/v1/orders/${orderId}/cancel`, buyer);
const one = (orderId: string, buyer: string): Promise<Told> => ask(sluice.url, `/api/v1/orders/${orderId}`, buyer);

type Bought = { receipt: string; orderId: string };
/** Buys and waits for the order. */
async function bought(activity: Activity, buyer: string, quantity = 1, key = 'the-first-key'): Promise<Bought> {
  const told = await buy(sluice.url, activity.id, buyer, { key, quantity });
  expect(told.code).toBe('held');
  await comeToRest(sluice, activity.id);
  return told.body as Bought;
}

test('one order, whole', async () => {
  const activity = await sluice.openActivity({ perBuyerLimit: 3, priceMinor: 12_345, itemName: '𠮷野家 🍜 bowl' });
  const buyer = someBuyer();
  const { orderId } = await bought(activity, buyer, 3);
  const told = await one(orderId, buyer);
  expect(told.headers.get('cache-control')).toBe('no-store');
  expect(told.body).toEqual({
    orderId,
    activityId: activity.id,
    quantity: 3,
    item: { name: '𠮷野家 🍜 bowl' },
    priceMinor: 12_345,
    amountMinor: 37_035,
    currency: 'CNY',
    state: 'placed',
    placedAt: expect.any(Number),
    placedAtIso: new Date(Number(told.body['placedAt'])).toISOString(),
  });
});

test('the largest amount is exact', async () => {
  const activity = await sluice.openActivity({ perBuyerLimit: 1_000, total: 1_000, priceMinor: 100_000_000_000 });
  const buyer = someBuyer();
  const { orderId } = await bought(activity, buyer, 1_000);
  expect((await one(orderId, buyer)).body['amountMinor']).toBe(100_000_000_000_000);
});

describe('the list', () => {
  const buyer = someBuyer();
  /** newest first */
  let all: string[];
  beforeAll(async () => {
    all = [];
    for (let i = 0; i < 5; i++) all.unshift((await bought(await sluice.openActivity(), buyer)).orderId);
  });
  const page = async (query = ''): Promise<{ ids: string[]; next: unknown }> => {
    const { status, body } = await ask(sluice.url, `/api/v1/orders${query}`, buyer);
    expect(status).toBe(200);
    return { ids: (body['items'] as { orderId: string }[]).map(({ orderId }) => orderId), next: body['next'] };
  };

  test('is newest first, and whole without a `next`', async () => {
    expect(await page()).toEqual({ ids: all, next: undefined });
    expect(await page('?limit=5')).toEqual({ ids: all, next: undefined });
    expect(await page('?limit=200')).toEqual({ ids: all, next: undefined });
  });

  test('is read in pages by `after`', async () => {
    const first = await page('?limit=2');
    expect(first).toEqual({ ids: all.slice(0, 2), next: all[1] });
    const second = await page(`?limit=2&after=${String(first.next)}`);
    expect(second).toEqual({ ids: all.slice(2, 4), next: all[3] });
    expect(await page(`?limit=2&after=${String(second.next)}`)).toEqual({ ids: all.slice(4), next: undefined });
    expect(await page(`?after=${all[4]}`)).toEqual({ ids: [], next: undefined });
  });

  test('starts before any `after`, also one that names no order of his', async () => {
    expect((await page('?after=1')).ids).toEqual([]);
    expect((await page('?after=9223372036854775807')).ids).toEqual(all);
  });
});

describe('a cancel', () => {
  test('gives the unit back within a second; the buyer buys anew with another key, the old key is told its end', async () => {
    const activity = await sluice.openActivity({ total: 1 });
    const [ann, bob] = [someBuyer(), someBuyer()];
    const { orderId, receipt } = await bought(activity, ann);
    expect((await buy(sluice.url, activity.id, bob)).code).toBe('sold_out');

    const cancelled = await cancel(orderId, ann);
    const cancelledAt = performance.now();
    expect(cancelled.body).toMatchObject({
      orderId,
      state: 'cancelled',
      reason: 'cancelled',
      closedAt: expect.any(Number),
    });
    let bobs: Told | undefined;
    await until('the unit is on sale again', async () => {
      bobs = await buy(sluice.url, activity.id, bob, { key: 'the-key-of-bob' });
      return bobs.code !== 'sold_out';
    });
    expect(bobs!.code).toBe('held');
    expect(performance.now() - cancelledAt).toBeLessThan(1_000);

    // the first answer again, with the present state (P15)
    const again = await buy(sluice.url, activity.id, ann, { key: 'the-first-key' });
    expect(again).toMatchObject({
      status: 200,
      body: { code: 'replayed', receipt, orderId, quantity: 1, state: 'given_back', reason: 'cancelled' },
    });
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    expect((await ask(sluice.url, `/api/v1/receipts/${receipt}`, ann)).body).toMatchObject({
      state: 'given_back',
      reason: 'cancelled',
    });
    expect((await buy(sluice.url, activity.id, ann, { key: 'the-second-key' })).code).toBe('sold_out');

    await comeToRest(sluice, activity.id);
    await cancel(String(bobs!.body['orderId']), bob);
    let anns: Told | undefined;
    await until('she buys anew', async () => {
      anns = await buy(sluice.url, activity.id, ann, { key: 'the-second-key' });
      return anns.code === 'held';
    });
    expect(anns!.body['orderId']).not.toBe(orderId);
    await comeToRest(sluice, activity.id);
    expect(await books(sluice.database, activity.id)).toMatchObject({ sold: 1, liveOrders: 1, liveUnits: 1 });
  });

  test('twenty at once: one give-back of all its units, and all are told the same end', async () => {
    const activity = await sluice.openActivity({ total: 5, perBuyerLimit: 2 });
    const ann = someBuyer();
    const { orderId } = await bought(activity, ann, 2);
    const told = await Promise.all(Array.from({ length: 20 }, () => cancel(orderId, ann)));
    expect(told.map((each) => each.status)).toEqual(Array.from({ length: 20 }, () => 200));
    for (const each of told) expect(each.body).toEqual(told[0]!.body);
    expect(told[0]!.body).toMatchObject({ orderId, state: 'cancelled', reason: 'cancelled' });
    const stock = sluice.keys.stock({ activityId: activity.id, segment: 0, run: activity.run });
    await until('the units are back', async () => (await sluice.redis.command('GET', stock)) === '5');
    const rows = await sluice.database.database.query(
      'select units, reason, state from give_backs where order_id = $1',
      [orderId],
    );
    await until('it is through', async () => {
      const [row] = await sluice.database.database.query('select state from give_backs where order_id = $1', [orderId]);
      return row?.['state'] === 'done';
    });
    expect(rows).toMatchObject([{ units: 2, reason: 'cancelled' }]);
    // and once more, later: nothing moves
    const before = await stateOf(sluice);
    expect((await cancel(orderId, ann)).body).toEqual(told[0]!.body);
    expect(await stateOf(sluice)).toEqual(before);
  });

  test('and a purchase at once: the buyer never holds two', async () => {
    const activity = await sluice.openActivity({ total: 50 });
    const ann = someBuyer();
    const { orderId } = await bought(activity, ann);
    await Promise.all([
      cancel(orderId, ann),
      ...Array.from({ length: 10 }, (_, i) => buy(sluice.url, activity.id, ann, { key: `a-later-key-${i}` })),
    ]);
    await until('all is carried', async () => {
      const [row] = await sluice.database.database.query<{ pending: number }>(
        `select count(*)::int as pending from give_backs where activity_id = $1 and state = 'pending'`,
        [activity.id],
      );
      return row!.pending === 0;
    });
    await comeToRest(sluice, activity.id);
    const { liveOrders, sold } = await books(sluice.database, activity.id);
    expect(liveOrders).toBeLessThanOrEqual(1);
    expect(sold).toBe(liveOrders);
  });

  test('is possible after the sale, too', async () => {
    const activity = await sluice.openActivity();
    const ann = someBuyer();
    const { orderId } = await bought(activity, ann);
    await sluice.wired.activities.change(activity.id, 'end', 'test');
    expect((await cancel(orderId, ann)).body).toMatchObject({ state: 'cancelled' });
  });

  test('of an order that was refused is 409 and gives nothing back', async () => {
    const activity = await sluice.openActivity({ total: 1 });
    // Redis is wrong: it has one unit more than there are
    await sluice.redis.command(
      'INCRBY',
      sluice.keys.stock({ activityId: activity.id, segment: 0, run: activity.run }),
      1,
    );
    const [ann, bob] = [someBuyer(), someBuyer()];
    await bought(activity, ann);
    const { orderId, receipt } = await bought(activity, bob);
    await until('it has failed', async () => {
      const { body } = await ask(sluice.url, `/api/v1/receipts/${receipt}`, bob);
      return body['state'] === 'failed' && body['reason'] === 'sold_out';
    });
    expect((await one(orderId, bob)).body).toMatchObject({ state: 'refused', reason: 'sold_out' });
    const before = await books(sluice.database, activity.id);
    const told = await cancel(orderId, bob);
    expect(told).toMatchObject({ status: 409, body: { code: 'order_closed', status: 409, state: 'refused' } });
    expect(await books(sluice.database, activity.id)).toEqual(before);
  });
});

test('payment is not offered here: 409 for the owner, and nothing changes', async () => {
  const activity = await sluice.openActivity();
  const ann = someBuyer();
  const { orderId } = await bought(activity, ann);
  const before = await stateOf(sluice);
  expect(await post(`/api/v1/orders/${orderId}/pay`, ann)).toMatchObject({
    status: 409,
    body: { code: 'payment_not_offered', status: 409, title: expect.any(String) },
  });
  expect(await stateOf(sluice)).toEqual(before);
});

test('an order id is text on every way and comes back as it went', async () => {
  const activity = await sluice.openActivity();
  const ann = someBuyer();
  const { orderId } = await bought(activity, ann);
  expect(orderId).toMatch(/^[1-9][0-9]{15,18}$/);
  expect(Number.isSafeInteger(Number(orderId))).toBe(false);
  expect((await one(orderId, ann)).body['orderId']).toBe(orderId);
  expect((await ask(sluice.url, '/api/v1/orders', ann)).body['items']).toMatchObject([{ orderId }]);
  expect((await cancel(orderId, ann)).body['orderId']).toBe(orderId);
});
