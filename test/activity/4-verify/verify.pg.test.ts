/**
 * Verify: on a healthy sale it finds nothing, however busy; on a damaged one it finds exactly what was damaged, once.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ActivityPlan } from '../../../src/activity/1-plan/plan.ts';
import type { Verified } from '../../../src/activity/4-verify/verify.ts';
import type { Activity } from '../../../src/domain/activity.ts';
import { systemClock } from '../../../src/platform/clock.ts';
import { shardOf } from '../../../src/platform/redis/keys.ts';
import { ask, books, buy, isQuiet, startSluice, until, type TestSluice } from '../../support/sluice.ts';

let sluice: TestSluice;
beforeAll(async () => {
  sluice = await startSluice();
});
afterAll(() => sluice.stop());

const verify = async (id: string): Promise<Verified> => (await sluice.wired.verify(id))!;
const sides = ({ total, surplus, left, inFlight, live }: Verified): [number, number] => [
  total + surplus,
  left! + inFlight.outbox + inFlight.deadLetters + inFlight.giveBacks + inFlight.transfers + live,
];

describe('a healthy sale that is busy', () => {
  const BUYERS = 500;
  const AT_ONCE = 16;
  /** the sale goes on until it has been verified this often */
  const VERIFIED_MIN = 15;

  /** A crowd buys, and of `cancelEvery` winners one cancels; verified all the while. */
  async function verifiedSale(
    plan: Partial<ActivityPlan>,
    cancelEvery: number,
  ): Promise<{ seen: Verified[]; activity: Activity }> {
    const activity = await sluice.openActivity(plan);
    const seen: Verified[] = [];
    let over = false;
    const watching = (async () => {
      while (!over) seen.push(await verify(activity.id));
    })();
    let next = 0;
    const crowd = Array.from({ length: AT_ONCE }, async () => {
      for (let i = next++; i < BUYERS || (seen.length < VERIFIED_MIN && i < 20 * BUYERS); i = next++) {
        const told = await buy(sluice.url, activity.id, `buyer${i}`, { quantity: 1 + (i % 3) });
        if (told.status >= 300 || i % cancelEvery !== 0) continue;
        const orderId = String(told.body['orderId']);
        await until('the order is there', async () => {
          const order = await ask(sluice.url, `/api/v1/orders/${orderId}`, `buyer${i}`);
          return order.status === 200;
        });
        await ask(sluice.url, `/api/v1/orders/${orderId}/cancel`, `buyer${i}`, { method: 'POST' });
      }
    });
    await Promise.all(crowd);
    await until('all has landed', () => isQuiet(sluice, activity));
    over = true;
    await watching;
    return { seen, activity };
  }

  test.each<[string, Partial<ActivityPlan>, number]>([
    ['answered with the hold', { total: 300, perBuyerLimit: 3 }, 3],
    [
      'strict, with more tickets than units',
      { total: 120, perBuyerLimit: 3, answerWhen: 'ordered', overshoot: 1.5 },
      3,
    ],
    ['cancelled and sold again', { total: 40, perBuyerLimit: 3 }, 1],
  ])('%s', { timeout: 240_000 }, async (_name, plan, cancelEvery) => {
    const { seen, activity } = await verifiedSale(plan, cancelEvery);
    expect(seen.flatMap((one) => one.findings)).toEqual([]);
    expect(seen.length).toBeGreaterThanOrEqual(VERIFIED_MIN);
    const weighed = seen.filter((one) => one.weighed);
    expect(weighed.length).toBeGreaterThan(seen.length / 2);
    for (const one of weighed) expect(sides(one)[0]).toBe(sides(one)[1]);
    // it was seen on its way, and not only before and after
    expect(new Set(weighed.map((one) => `${one.left} ${one.live}`)).size).toBeGreaterThan(3);
    const last = await verify(activity.id);
    const { liveUnits, surplus } = await books(sluice.database, activity.id);
    expect(last).toMatchObject({
      weighed: true,
      live: liveUnits,
      holds: liveUnits,
      surplus,
      findings: [],
      inFlight: { outbox: 0, deadLetters: 0, giveBacks: 0 },
    });
  });

  test('what waits to land is in flight', async () => {
    const api = await startSluice({ role: 'api' });
    const activity = await api.openActivity({ total: 9, perBuyerLimit: 5 });
    await buy(api.url, activity.id, 'ann', { quantity: 2 });
    await buy(api.url, activity.id, 'bob', { quantity: 3 });
    const verified = await api.wired.verify(activity.id);
    await api.stop();
    expect(verified).toMatchObject({
      left: 4,
      inFlight: { outbox: 5 },
      live: 0,
      holds: 5,
      findings: [],
      weighed: true,
    });
  });
});

describe('damage is found once', () => {
  let activity: Activity;
  let orders: { order_id: string; buyer_id: string }[];
  beforeEach(async () => {
    activity = await sluice.openActivity({ total: 10, perBuyerLimit: 2 });
    for (const buyer of ['ann', 'bob', 'cyd']) await buy(sluice.url, activity.id, buyer);
    await until('all has landed', () => isQuiet(sluice, activity));
    orders = await sql(`select order_id, buyer_id from orders where activity_id = $1 order by buyer_id`);
  });
  const sql = (text: string, values: unknown[] = [activity.id]) =>
    sluice.database.database.query<{ order_id: string; buyer_id: string }>(text, values);
  const at = () => ({ activityId: activity.id, segment: 0, run: activity.run });
  const marks = (buyer: string): string => sluice.keys.buyers(at(), shardOf(buyer, activity.shards));
  const redis = (name: string, ...args: (string | number)[]): Promise<unknown> => sluice.redis.command(name, ...args);
  const orderOf = (buyer: string): string => orders.find((order) => order.buyer_id === buyer)!.order_id;

  test('there is none to find', async () => {
    expect((await verify(activity.id)).findings).toEqual([]);
  });

  test('a mark is gone: its buyer could buy again', async () => {
    await redis('HDEL', marks('bob'), 'bob');
    const orderId = orderOf('bob');
    expect((await verify(activity.id)).findings).toEqual([
      { kind: 'order_without_mark', id: orderId, orderId, buyerId: 'bob' },
    ]);
  });

  test('a mark is closed although its order lives', async () => {
    const mark = String(await redis('HGET', marks('bob'), 'bob'));
    await redis('HSET', marks('bob'), 'bob', mark.replace('|o|', '|C|'));
    expect((await verify(activity.id)).findings).toMatchObject([{ kind: 'order_without_mark', buyerId: 'bob' }]);
  });

  test.each([
    ['one that nobody has', () => '1'],
    ['one that no table could hold', () => '9999999999999999999'],
    ['another buyer’s', () => orderOf('ann')],
  ])('a mark names another order: %s', async (_name, other) => {
    const mark = String(await redis('HGET', marks('bob'), 'bob'));
    await redis('HSET', marks('bob'), 'bob', mark.replace(/^\d+/, other()));
    const orderId = orderOf('bob');
    expect((await verify(activity.id)).findings).toEqual([
      { kind: 'mark_of_other_order', id: orderId, orderId, buyerId: 'bob' },
    ]);
  });

  test('a mark names another quantity', async () => {
    const mark = String(await redis('HGET', marks('bob'), 'bob'));
    await redis('HSET', marks('bob'), 'bob', mark.replace('|1|', '|2|'));
    expect((await verify(activity.id)).findings).toMatchObject([{ kind: 'quantity_differs', buyerId: 'bob' }]);
  });

  test('a mark is none', async () => {
    await redis('HSET', marks('bob'), 'bob', 'nonsense');
    expect((await verify(activity.id)).findings).toEqual([{ kind: 'mark_unreadable', id: 'bob', buyerId: 'bob' }]);
  });

  test('an order is gone: its units are nowhere', async () => {
    const orderId = orderOf('bob');
    await sql(`delete from orders where order_id = $1`, [orderId]);
    expect((await verify(activity.id)).findings).toEqual([
      { kind: 'taken_without_order', id: orderId, orderId, buyerId: 'bob', units: 1 },
    ]);
  });

  test('an order was ended by hand, without its way back', async () => {
    const orderId = orderOf('bob');
    await sql(`update orders set state = 'cancelled' where order_id = $1`, [orderId]);
    expect((await verify(activity.id)).findings).toMatchObject([{ kind: 'taken_without_order', orderId, units: 1 }]);
  });

  test('a give-back was noted that the gate never had', async () => {
    const orderId = orderOf('bob');
    await sql(`update orders set state = 'cancelled' where order_id = $1`, [orderId]);
    await sql(
      `insert into give_backs (order_id, activity_id, run, taking_run, buyer_id, request_id, quantity, units, reason, state)
       select order_id, activity_id, run, run, buyer_id, request_id, quantity, quantity, 'cancelled', 'done'
         from orders where order_id = $1`,
      [orderId],
    );
    expect((await verify(activity.id)).findings).toMatchObject([{ kind: 'taken_without_order', orderId, units: 1 }]);
  });

  test.each([
    ['more', '9', -2],
    ['fewer', '5', 2],
  ])('the stock says %s than there are', async (_name, stock, units) => {
    await redis('SET', sluice.keys.stock(at()), stock, 'KEEPTTL');
    expect((await verify(activity.id)).findings).toEqual([{ kind: 'equation_gap', id: activity.id, units }]);
  });

  test('two of a kind, and one that would hide the other', async () => {
    await sql(`delete from orders where order_id = $1`, [orderOf('bob')]);
    await redis('SET', sluice.keys.stock(at()), '8', 'KEEPTTL');
    expect((await verify(activity.id)).findings).toMatchObject([
      { kind: 'taken_without_order', buyerId: 'bob' },
      { kind: 'equation_gap', units: -1 },
    ]);
  });

  test.each([
    ['is no number', ['SET', 'abc']],
    ['is missing', ['DEL']],
    ['is negative', ['SET', '-1']],
  ] as const)('the stock %s', async (_name, [name, ...args]) => {
    await redis(name, sluice.keys.stock(at()), ...args);
    const verified = await verify(activity.id);
    expect(verified.findings).toEqual([{ kind: 'stock_unreadable', id: '0' }]);
    expect(verified).toMatchObject({ left: null, gate: 'unreadable', weighed: false });
  });

  test('`sold` was written by hand', async () => {
    await sql(`update activities set sold = 5 where id = $1`);
    expect((await verify(activity.id)).findings).toEqual([{ kind: 'sold_differs', id: activity.id, units: 2 }]);
  });

  test('a shard of marks, the outbox, or all of it is gone', async () => {
    await redis('DEL', marks('bob'));
    await redis('HSET', marks('bob'), 'bob', 'x');
    expect((await verify(activity.id)).findings).toEqual([{ kind: 'gate_unreadable', id: '0 buyers 0' }]);
    await redis('DEL', marks('bob'));
    await redis('SET', marks('bob'), 'x');
    expect((await verify(activity.id)).findings).toEqual([{ kind: 'gate_unreadable', id: '0 buyers 0' }]);
    await redis('DEL', sluice.keys.meta(at()));
    expect((await verify(activity.id)).findings).toEqual([{ kind: 'gate_unreadable', id: '0' }]);
  });

  test('entries are gone before they landed', async () => {
    const api = await startSluice({ role: 'api' });
    const one = await api.openActivity({ total: 5 });
    await buy(api.url, one.id, 'ann');
    const outbox = api.keys.outbox({ activityId: one.id, segment: 0, run: one.run });
    const [[entry]] = (await api.redis.command('XRANGE', outbox, '-', '+')) as [[string, string[]]];
    await api.redis.command('XDEL', outbox, entry);
    const verified = await api.wired.verify(one.id);
    await api.stop();
    expect(verified!.findings).toMatchObject([
      { kind: 'taken_without_order', buyerId: 'ann', units: 1 },
      { kind: 'entries_missing', id: '0 1' },
    ]);
  });
});

test('what is set aside is in flight and no finding', async () => {
  const activity = await sluice.openActivity({ total: 5 });
  await buy(sluice.url, activity.id, 'ann');
  await until('it has landed', () => isQuiet(sluice, activity));
  const { database } = sluice.database;
  // as the landing would have left it
  await database.query(
    `with gone as (delete from orders where activity_id = $1 returning *)
     insert into dead_letters (order_id, activity_id, run, segment, entry_id, buyer_id, request_id, quantity, held_at, error, tries)
     select order_id, activity_id, run, 0, '0-1', buyer_id, request_id, quantity, held_at, 'test', 5 from gone`,
    [activity.id],
  );
  expect(await verify(activity.id)).toMatchObject({ left: 4, inFlight: { deadLetters: 1 }, live: 0, findings: [] });
});

test('an activity that is not at the gate yet, and one that is not there', async () => {
  const planned = await sluice.wired.activities.plan(
    {
      id: `act${process.pid}`,
      itemName: 'x',
      priceMinor: 1,
      currency: 'EUR',
      total: 7,
      opensAt: systemClock.now() + 1e9,
      endsAt: systemClock.now() + 2e9,
    },
    'maker',
  );
  expect(planned.kind).toBe('planned');
  expect(await verify(`act${process.pid}`)).toMatchObject({ run: 0, gate: 'none', total: 7, left: 7, findings: [] });
  expect(await sluice.wired.verify('no-such')).toBeUndefined();
});
