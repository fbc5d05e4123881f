/**
 * Settling: the books are closed when everything has landed and is where it should be, and not a moment before (P22).
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Activity } from '../../../src/domain/activity.ts';
import { systemClock } from '../../../src/platform/clock.ts';
import type { Step } from '../../../src/purchase/6-landing/place-orders.ts';
import { ask, books, buy, isQuiet, startSluice, until, type TestSluice } from '../../support/sluice.ts';

let sluice: TestSluice;
/** holds a worker up after a step, with what it has in hand */
let holdUp: { readonly after: string; readonly activityId: string; readonly until: Promise<void> } | undefined;
let heldUp = 0;
beforeAll(async () => {
  const step: Step = async (name, work) => {
    const done = await work();
    const entries = Array.isArray(done) ? done.length : 0;
    if (holdUp?.after === name && entries > 0) {
      heldUp += 1;
      await holdUp.until;
    }
    return done;
  };
  sluice = await startSluice({ overrides: { step } });
});
afterAll(() => sluice.stop());

const { promise, release } = (() => {
  let release = (): void => undefined;
  const promise = new Promise<void>((resolve) => (release = resolve));
  return { promise, release };
})();
const settle = (id: string) => sluice.wired.walk.settle(id, { actor: 'op' });
async function endedSale(buyers: number, total = 50): Promise<Activity> {
  const activity = await sluice.openActivity({ total });
  await Promise.all(Array.from({ length: buyers }, (_, i) => buy(sluice.url, activity.id, `b${i}`)));
  await sluice.wired.activities.change(activity.id, 'end', 'op');
  return activity;
}
const landing = async ({ id }: Activity): Promise<Record<string, unknown>> => {
  const [row] = await sluice.database.database.query(
    'select entry, last_entry, closed from landings where activity_id = $1',
    [id],
  );
  return row!;
};

test('a worker with a batch in hand keeps the books open; what it lands is in them', { timeout: 60_000 }, async () => {
  const activity = await sluice.openActivity({ total: 5 });
  holdUp = { after: 'read', activityId: activity.id, until: promise };
  await buy(sluice.url, activity.id, 'ann');
  await until('the worker has it in hand', () => heldUp > 0);
  await sluice.wired.activities.change(activity.id, 'end', 'op');
  expect(await landing(activity)).toEqual({ entry: '0', last_entry: '1', closed: false });
  expect(await settle(activity.id)).toMatchObject({ kind: 'unsettled', open: { outboxEntries: 1 } });
  expect(await sluice.wired.activities.find(activity.id)).toMatchObject({ state: 'ended' });
  holdUp = undefined;
  release();
  expect(await settle(activity.id)).toMatchObject({ kind: 'moved', activity: { state: 'settled', sold: 1 } });
  expect(await landing(activity)).toEqual({ entry: '1', last_entry: '1', closed: true });
});

test('settled while the last holds are landing, none is left out', { timeout: 120_000 }, async () => {
  for (let round = 0; round < 10; round++) {
    const activity = await endedSale(30);
    expect(await settle(activity.id)).toMatchObject({ kind: 'moved' });
    const { entry, last_entry: last } = await landing(activity);
    expect(entry).toBe(last);
    expect(await books(sluice.database, activity.id)).toMatchObject({ sold: 30, liveOrders: 30 });
  }
});

describe('what is open is named, and keeps the activity ended', () => {
  test('a dead letter', async () => {
    const activity = await endedSale(2);
    await until('all has landed', () => isQuiet(sluice, activity));
    await sluice.database.database.query(
      `with gone as (delete from orders where activity_id = $1 and buyer_id = 'b0' returning *)
       insert into dead_letters (order_id, activity_id, run, segment, entry_id, buyer_id, request_id, quantity, held_at, error, tries)
       select order_id, activity_id, run, 0, '0-1', buyer_id, request_id, quantity, held_at, 'test', 5 from gone`,
      [activity.id],
    );
    expect(await settle(activity.id)).toMatchObject({ kind: 'unsettled', open: { deadLetters: 1 } });
    expect(await sluice.wired.activities.find(activity.id)).toMatchObject({ state: 'ended' });
  });

  test('a finding', async () => {
    const activity = await endedSale(2);
    await until('all has landed', () => isQuiet(sluice, activity));
    const at = { activityId: activity.id, segment: 0, run: activity.run };
    await sluice.redis.command('SET', sluice.keys.stock(at), '7', 'KEEPTTL');
    expect(await settle(activity.id)).toMatchObject({
      kind: 'unsettled',
      open: { outboxEntries: 0, giveBacks: 0, deadLetters: 0, gateChanges: 0 },
      findings: [{ kind: 'equation_gap', units: 41 }],
    });
    await sluice.redis.command('SET', sluice.keys.stock(at), '48', 'KEEPTTL');
    expect(await settle(activity.id)).toMatchObject({ kind: 'moved' });
  });

  test('a gate that has not heard of the end', { timeout: 60_000 }, async () => {
    const activity = await sluice.openActivity();
    const meta = sluice.keys.meta({ activityId: activity.id, segment: 0 });
    await sluice.redis.command('HSET', meta, 'run', '99');
    await sluice.wired.activities.change(activity.id, 'end', 'op');
    expect(await settle(activity.id)).toMatchObject({
      kind: 'unsettled',
      open: { outboxEntries: null, gateChanges: 1 },
    });
    await sluice.redis.command('HSET', meta, 'run', String(activity.run));
    await until('it is settled', async () => (await settle(activity.id)).kind === 'moved');
  });
});

test('an order that is cancelled just then is not lost between', { timeout: 60_000 }, async () => {
  for (let round = 0; round < 10; round++) {
    const activity = await endedSale(3);
    await until('all has landed', () => isQuiet(sluice, activity));
    const orders = (await ask(sluice.url, '/api/v1/orders', 'b0')).body['items'] as { orderId: string }[];
    const [settled] = await Promise.all([
      settle(activity.id),
      ask(sluice.url, `/api/v1/orders/${orders[0]!.orderId}/cancel`, 'b0', { method: 'POST' }),
    ]);
    if (settled.kind !== 'moved')
      await until('it is settled', async () => (await settle(activity.id)).kind === 'moved');
    await until('it is back', () => isQuiet(sluice, activity));
    expect((await sluice.wired.verify(activity.id))!.findings).toEqual([]);
    expect(await books(sluice.database, activity.id)).toMatchObject({ sold: 2 });
  }
});

test('days later, when the keys have ended by themselves, the noted end is enough', async () => {
  const activity = await endedSale(4);
  await until('all has landed', () => isQuiet(sluice, activity));
  const at = { activityId: activity.id, segment: 0, run: activity.run };
  const { keys } = sluice;
  await sluice.redis.command('DEL', keys.meta(at), keys.stock(at), keys.outbox(at), keys.lent(at), keys.buyers(at, 0));
  expect(await settle(activity.id)).toMatchObject({ kind: 'unsettled', findings: [{ kind: 'gate_unreadable' }] });
  await sluice.database.database.query(`update runs set expires_at = now() - interval '1 s' where activity_id = $1`, [
    activity.id,
  ]);
  expect(await settle(activity.id)).toMatchObject({ kind: 'moved', activity: { state: 'settled', sold: 4 } });
});

test('an activity that was never preheated ends and settles too', async () => {
  const now = systemClock.now();
  const id = `never${now}`;
  const plan = { id, itemName: 'x', priceMinor: 1, currency: 'EUR', total: 7, opensAt: now + 9e6, endsAt: now + 1e7 };
  await sluice.wired.activities.plan(plan, 'maker');
  await sluice.wired.activities.approve(id, 'op');
  await sluice.wired.activities.change(id, 'end', 'op');
  expect(await settle(id)).toMatchObject({ kind: 'moved', activity: { state: 'settled' } });
});
