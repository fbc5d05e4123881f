/** Orders, dead letters and the audit, as operators look them up; a dead letter given back by hand. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ask, buy, isQuiet, startSluice, until, type TestSluice } from '../support/sluice.ts';
import { admin, auditOf } from './operator.ts';

let sluice: TestSluice;
beforeAll(async () => {
  sluice = await startSluice();
});
afterAll(() => sluice.stop());
type Items = Record<string, unknown>[];
const items = async (path: string): Promise<Items> =>
  (await admin(sluice.url, 'GET', path, { role: 'viewer' })).body['items'] as Items;

test('orders are found by activity, buyer and state', async () => {
  const [first, second] = [await sluice.openActivity(), await sluice.openActivity()];
  for (const { id } of [first, second]) for (const buyer of ['ann', 'bob']) await buy(sluice.url, id, buyer);
  for (const activity of [first, second]) await until('all has landed', () => isQuiet(sluice, activity));
  const orderId = String((await items(`/orders?activityId=${first.id}&buyerId=ann`))[0]!['orderId']);
  await ask(sluice.url, `/api/v1/orders/${orderId}/cancel`, 'ann', { method: 'POST' });

  const who = (found: Items): string[] =>
    found.map((order) => `${String(order['activityId'])} ${String(order['buyerId'])}`);
  expect(who(await items(`/orders?activityId=${first.id}`))).toEqual([`${first.id} bob`, `${first.id} ann`]);
  expect(who(await items('/orders?buyerId=ann'))).toEqual([`${second.id} ann`, `${first.id} ann`]);
  expect(await items(`/orders?activityId=${first.id}&state=cancelled`)).toEqual([
    {
      orderId,
      activityId: first.id,
      buyerId: 'ann',
      requestId: expect.stringMatching(/^key-/),
      run: 1,
      quantity: 1,
      item: { name: '测试商品' },
      priceMinor: 9_900,
      amountMinor: 9_900,
      currency: 'CNY',
      state: 'cancelled',
      reason: 'cancelled',
      heldAt: expect.any(Number),
      heldAtIso: expect.any(String),
      placedAt: expect.any(Number),
      placedAtIso: expect.any(String),
      closedAt: expect.any(Number),
      closedAtIso: expect.any(String),
    },
  ]);
  expect(await items('/orders?activityId=no-such')).toEqual([]);
});

test('a dead letter is given back once: its units go back on sale, its buyer is told', async () => {
  const activity = await sluice.openActivity({ total: 1 });
  const bought = await buy(sluice.url, activity.id, 'ann');
  await until('it has landed', () => isQuiet(sluice, activity));
  const id = String(bought.body['orderId']);
  await sluice.database.database.query(
    `with gone as (delete from orders where order_id = $1 returning *)
     insert into dead_letters (order_id, activity_id, run, segment, entry_id, buyer_id, request_id, quantity, held_at, error, tries)
     select order_id, activity_id, run, 0, '0-1', buyer_id, request_id, quantity, held_at, 'too long', 5 from gone`,
    [id],
  );
  expect(await items(`/dead-letters?activityId=${activity.id}&state=open`)).toMatchObject([
    { id, orderId: id, buyerId: 'ann', state: 'open', error: 'too long', tries: 5 },
  ]);
  const path = `/dead-letters/${id}/give-back`;
  expect((await admin(sluice.url, 'POST', path, { role: 'viewer' })).status).toBe(403);
  const told = await Promise.all(
    [1, 2, 3].map(() => admin(sluice.url, 'POST', path, { role: 'operator', body: { reason: '地址无法送达' } })),
  );
  expect(told.map(({ status }) => status).toSorted()).toEqual([200, 409, 409]);
  expect(told.find(({ status }) => status === 409)!.body).toMatchObject({
    code: 'dead_letter_closed',
    state: 'given_back',
  });
  await until('it is on sale again', async () => (await buy(sluice.url, activity.id, 'bob')).status < 300);
  const receipt = await ask(sluice.url, `/api/v1/activities/${activity.id}/receipt`, 'ann');
  expect(receipt.body).toMatchObject({ state: 'failed', reason: 'not_ordered' });
  expect((await auditOf(sluice, activity.id)).at(-1)).toBe('operator dead_letter_give_back open→given_back');
  expect(await items(`/audit?activityId=${activity.id}&limit=1`)).toMatchObject([
    { action: 'dead_letter_give_back', reason: '地址无法送达', details: { orderId: id } },
  ]);
  await until('all has landed', () => isQuiet(sluice, activity));
  expect((await sluice.wired.verify(activity.id))!.findings).toEqual([]);
});
