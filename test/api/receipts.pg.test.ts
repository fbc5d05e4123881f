/**
 * Receipts over sockets: one string for one purchase wherever it is said, asked for by polling and by event stream, read
 * from the mark or, where mark or Redis is gone, from PostgreSQL at a bounded rate.
 *
 * The worker is a process of its own here, so that tests say when a purchase lands.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, afterEach, describe, expect, inject, test } from 'vitest';
import type { Activity } from '../../src/domain/activity.ts';
import { startFaultProxy, type FaultProxy } from '../support/fault-proxy.ts';
import { ask, buy, startSluice, until, type TestSluice, type Told } from '../support/sluice.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';
import { openEvents } from './events.ts';
import { comeToRest } from './state-of.ts';

const PREFIX = `t${randomBytes(4).toString('hex')}`;
let database: TestDatabase;
let proxy: FaultProxy;
let api: TestSluice;
let worker: TestSluice | undefined;

const startApi = (settings: Record<string, string> = {}): Promise<TestSluice> =>
  startSluice({
    role: 'api',
    redisUrl: proxy.url,
    directRedisUrl: inject('redisUrl'),
    database,
    settings: { SLUICE_KEY_PREFIX: PREFIX, SLUICE_GATE_TIMEOUT_MS: '500', ...settings },
  });
const startWorker = async (): Promise<void> => {
  worker = await startSluice({ role: 'worker', database, settings: { SLUICE_KEY_PREFIX: PREFIX } });
};
const stopWorker = async (): Promise<void> => {
  await worker?.stop();
  worker = undefined;
};

beforeAll(async () => {
  database = await createTestDatabase();
  proxy = await startFaultProxy({ targetPort: Number(new URL(inject('redisUrl')).port) });
  api = await startApi();
});
afterEach(stopWorker);
afterAll(async () => {
  await api.stop();
  await proxy.stop();
  await database.drop();
});

type Bought = { receipt: string; orderId: string; key: string };
async function bought(activity: Activity, buyer: string, quantity = 1): Promise<Bought> {
  const key = `the-key-of-${buyer.slice(0, 20)}`;
  const told = await buy(api.url, activity.id, buyer, { key, quantity });
  expect(told.code).toBe('held');
  return { ...(told.body as { receipt: string; orderId: string }), key };
}
const poll = (receipt: string, buyer: string, at = api): Promise<Told> =>
  ask(at.url, `/api/v1/receipts/${receipt}`, buyer);
const ordersState = async (receipt: string, buyer: string, state: string): Promise<void> => {
  await until(`the receipt says ${state}`, async () => (await poll(receipt, buyer)).body['state'] === state);
};

describe('polling', () => {
  test('queued, then ordered with the order', async () => {
    const activity = await api.openActivity({ perBuyerLimit: 2 });
    const { receipt, orderId } = await bought(activity, 'ann', 2);
    const named = { receipt, orderId, activityId: activity.id, quantity: 2 };
    const queued = await poll(receipt, 'ann');
    expect(queued).toMatchObject({ status: 200, body: { ...named, state: 'queued' } });
    expect(Object.keys(queued.body)).not.toContain('order');
    expect(queued.headers.get('cache-control')).toBe('no-store');

    await startWorker();
    await ordersState(receipt, 'ann', 'ordered');
    const { body } = await poll(receipt, 'ann');
    expect(body).toEqual({
      ...named,
      state: 'ordered',
      order: {
        orderId,
        activityId: activity.id,
        quantity: 2,
        item: { name: '测试商品' },
        priceMinor: 9_900,
        amountMinor: 19_800,
        currency: 'CNY',
        state: 'placed',
        placedAt: expect.any(Number),
        placedAtIso: expect.stringMatching(/Z$/),
      },
    });
    // the list has the order as soon as its receipt says so
    expect((await ask(api.url, '/api/v1/orders', 'ann')).body).toMatchObject({ items: [{ orderId }] });
  });

  test('one string from held, replayed, already_bought, the latest and the poll, before and after landing', async () => {
    const activity = await api.openActivity();
    const { receipt, key } = await bought(activity, 'ann');
    const all = async (): Promise<unknown[]> => [
      (await buy(api.url, activity.id, 'ann', { key })).body['receipt'],
      (await buy(api.url, activity.id, 'ann')).body['receipt'],
      (await ask(api.url, `/api/v1/activities/${activity.id}/receipt`, 'ann')).body['receipt'],
      (await poll(receipt, 'ann')).body['receipt'],
    ];
    expect(await all()).toEqual([receipt, receipt, receipt, receipt]);
    await startWorker();
    await comeToRest(api, activity.id);
    expect(await all()).toEqual([receipt, receipt, receipt, receipt]);
    await api.redis.command('HDEL', api.keys.buyers({ activityId: activity.id, segment: 0, run: 1 }, 0), 'ann');
    expect((await ask(api.url, `/api/v1/activities/${activity.id}/receipt`, 'ann')).body['receipt']).toBe(receipt);
    expect((await poll(receipt, 'ann')).body['receipt']).toBe(receipt);
  });

  test('the latest of an activity: none is 404, of two the second', async () => {
    const activity = await api.openActivity();
    const latest = (): Promise<Told> => ask(api.url, `/api/v1/activities/${activity.id}/receipt`, 'ann');
    expect(await latest()).toMatchObject({ status: 404, code: 'unknown_receipt' });
    expect(await ask(api.url, '/api/v1/activities/no-such/receipt', 'ann')).toMatchObject({ status: 404 });
    const first = await bought(activity, 'ann');
    await startWorker();
    await ordersState(first.receipt, 'ann', 'ordered');
    await ask(api.url, `/api/v1/orders/${first.orderId}/cancel`, 'ann', { method: 'POST' });
    await ordersState(first.receipt, 'ann', 'given_back');
    expect((await latest()).body).toMatchObject({ receipt: first.receipt, state: 'given_back', reason: 'cancelled' });
    let second: Told | undefined;
    await until('he may buy again', async () => {
      second = await buy(api.url, activity.id, 'ann', { key: 'a-second-key' });
      return second.code === 'held';
    });
    expect((await latest()).body['receipt']).toBe(second!.body['receipt']);
    await ordersState(String(second!.body['receipt']), 'ann', 'ordered');
    // the first is not forgotten: its mark has gone, PostgreSQL has it
    expect((await poll(first.receipt, 'ann')).body).toMatchObject({ state: 'given_back', reason: 'cancelled' });
  });

  test('the longest ids fit in 400 characters, and the URL takes them', async () => {
    const buyer = 'b'.repeat(64);
    const activity = await api.openActivity({
      id: `a${randomBytes(31).toString('hex')}x`,
      perBuyerLimit: 1_000,
      total: 1_000,
    });
    expect(activity.id).toHaveLength(64);
    const { receipt } = await bought(activity, buyer, 1_000);
    expect(receipt.length).toBeLessThanOrEqual(400);
    expect((await poll(receipt, buyer)).status).toBe(200);
  });
});

describe('a receipt that we have not signed, or not in this spelling, is unknown', () => {
  let activity: Activity;
  let receipt: string;
  beforeAll(async () => {
    activity = await api.openActivity();
    ({ receipt } = await bought(activity, 'ann'));
  });

  const tampered: [name: string, spoil: (receipt: string) => string][] = [
    ['another order', (r) => rewritten(r, (parts) => (parts[3] = '1'))],
    ['another buyer', (r) => rewritten(r, (parts) => (parts[4] = 'ann2'))],
    ['more of it', (r) => rewritten(r, (parts) => (parts[5] = '2'))],
    ['another run', (r) => rewritten(r, (parts) => (parts[2] = '2'))],
    ['another key', (r) => rewritten(r, (parts) => (parts[0] = 'AAAAAA'))],
    ['one part more', (r) => rewritten(r, (parts) => parts.push('1'))],
    ['without its end', (r) => r.slice(0, -1)],
    ['without its signature', (r) => r.split('.').slice(0, 2).join('.')],
    ['with an empty signature', (r) => `${r.split('.').slice(0, 2).join('.')}.`],
    ['with the signature twice', (r) => `${r}.${r.split('.')[2]!}`],
    ['with padding', (r) => `${r}=`],
    ['in base64', (r) => swapped(r)],
    ['with spare bits', (r) => `${r.slice(0, -1)}${String.fromCharCode(r.charCodeAt(r.length - 1) + 1)}`],
    ['with a blank', (r) => `${r}%20`],
    ['with a zero byte', (r) => `${r}%00`],
    ['in capitals', (r) => r.toUpperCase()],
    ['of another version', (r) => r.replace('r1', 'r2')],
    ['of 410 characters', (r) => r + 'x'.repeat(410 - r.length)],
    ['of 900 characters', (r) => r + 'x'.repeat(900 - r.length)],
    ['of nothing but dots', () => '..'.repeat(3)],
  ];
  test.each(tampered)('%s', async (_name, spoil) => {
    for (const path of ['', '/events']) {
      const told = await ask(api.url, `/api/v1/receipts/${spoil(receipt)}${path}`, 'ann');
      expect({ status: told.status, code: told.code.replace('not_found', 'unknown_receipt') }).toEqual({
        status: 404,
        code: 'unknown_receipt',
      });
    }
  });

  test('but its percent-encoded spelling is the same text', async () => {
    const told = await poll(receipt.replaceAll('.', '%2E'), 'ann');
    expect(told).toMatchObject({ status: 200, body: { receipt } });
  });

  function rewritten(text: string, change: (parts: string[]) => unknown): string {
    const [version, payload = '', signature] = text.split('.');
    const parts = Buffer.from(payload, 'base64url').toString().split('|');
    change(parts);
    return `${version}.${Buffer.from(parts.join('|')).toString('base64url')}.${signature}`;
  }
  /** The same bytes with a `-` or `_` written as base64 has it, or with padding where there is neither. */
  function swapped(text: string): string {
    const other = text.replaceAll('-', '%2B').replaceAll('_', '%2F');
    return other === text ? `${text}%3D` : other;
  }
});

describe('the event stream', () => {
  test('tells queued, then ordered, and ends; its headers keep proxies from gathering', async () => {
    const activity = await api.openActivity();
    const { receipt, orderId } = await bought(activity, 'ann');
    const stream = await openEvents(api.url, receipt, 'ann');
    expect(stream.status).toBe(200);
    expect(stream.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    expect(stream.headers.get('cache-control')).toBe('no-store, no-transform');
    expect(stream.headers.get('x-accel-buffering')).toBe('no');
    expect(await stream.next()).toEqual({
      id: 'queued',
      data: { receipt, orderId, activityId: activity.id, quantity: 1, state: 'queued' },
    });
    await startWorker();
    expect(await stream.rest()).toMatchObject([{ id: 'ordered', data: { state: 'ordered', order: { orderId } } }]);
  });

  test('hears of the landing at once, by a hint', async () => {
    const activity = await api.openActivity();
    await startWorker();
    const { receipt } = await bought(activity, 'ann');
    const startedAt = performance.now();
    const events = await (await openEvents(api.url, receipt, 'ann')).rest();
    expect(events.at(-1)).toMatchObject({ id: 'ordered' });
    expect(performance.now() - startedAt).toBeLessThan(900);
  });

  test('does not repeat what its reader has heard, and answers before there is anything to tell', async () => {
    const activity = await api.openActivity();
    const { receipt } = await bought(activity, 'ann');
    const startedAt = performance.now();
    const stream = await openEvents(api.url, receipt, 'ann', 'queued');
    expect(performance.now() - startedAt).toBeLessThan(2_000);
    await startWorker();
    expect(await stream.rest()).toMatchObject([{ id: 'ordered' }]);
    expect(await (await openEvents(api.url, receipt, 'ann', 'ordered')).rest()).toEqual([]);
    expect(await (await openEvents(api.url, receipt, 'ann', 'nonsense')).rest()).toMatchObject([{ id: 'ordered' }]);
  });

  test('tells the reason of a purchase that was given back', async () => {
    const activity = await api.openActivity();
    await startWorker();
    const { receipt, orderId } = await bought(activity, 'ann');
    await ordersState(receipt, 'ann', 'ordered');
    await ask(api.url, `/api/v1/orders/${orderId}/cancel`, 'ann', { method: 'POST' });
    expect(await (await openEvents(api.url, receipt, 'ann')).rest()).toMatchObject([
      { id: 'given_back.cancelled', data: { state: 'given_back', reason: 'cancelled', order: { state: 'cancelled' } } },
    ]);
  });

  test('goes on over a Redis that is away for a while', async () => {
    const activity = await api.openActivity();
    const { receipt } = await bought(activity, 'ann');
    const stream = await openEvents(api.url, receipt, 'ann');
    expect(await stream.next()).toMatchObject({ id: 'queued' });
    await proxy.refuseNew(true);
    proxy.cut();
    await startWorker();
    const rest = await stream.rest(); // PostgreSQL knows what has landed
    await proxy.refuseNew(false);
    expect(rest).toMatchObject([{ id: 'ordered' }]);
    await until('Redis is back', async () => (await fetch(`${api.url}/readyz`)).status === 200);
  });

  test('answers HEAD and is done with it', async () => {
    const activity = await api.openActivity();
    const { receipt } = await bought(activity, 'ann');
    const told = await ask(api.url, `/api/v1/receipts/${receipt}/events`, 'ann', { method: 'HEAD' });
    expect(told.status).toBe(200);
  });

  test('beyond the cap a newcomer is told to come back; who has a stream keeps it; a place freed is taken', async () => {
    const small = await startApi({ SLUICE_EVENT_STREAMS_MAX: '2' });
    try {
      const activity = await small.openActivity();
      const { receipt } = (await buy(small.url, activity.id, 'ann')).body as { receipt: string };
      const [first, second] = [
        await openEvents(small.url, receipt, 'ann'),
        await openEvents(small.url, receipt, 'ann'),
      ];
      for (let i = 0; i < 5; i++) {
        const third = await ask(small.url, `/api/v1/receipts/${receipt}/events`, 'ann');
        expect(third).toMatchObject({ status: 503, code: 'busy' });
        expect(third.headers.get('retry-after')).toMatch(/^[1-9][0-9]*$/);
      }
      first.close();
      await until('a place is free', async () => {
        const third = await openEvents(small.url, receipt, 'ann');
        third.close();
        return third.status === 200;
      });
      await startWorker();
      expect((await second.rest()).at(-1)).toMatchObject({ id: 'ordered' });
    } finally {
      await small.stop();
    }
  });

  test('ends when the process stops, which waits for nobody', async () => {
    const leaving = await startApi();
    const activity = await leaving.openActivity();
    const { receipt } = (await buy(leaving.url, activity.id, 'ann')).body as { receipt: string };
    const stream = await openEvents(leaving.url, receipt, 'ann');
    await stream.next();
    const startedAt = performance.now();
    const [rest] = await Promise.all([stream.rest(), leaving.stop()]);
    expect(rest).toEqual([]);
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });
});

describe('from PostgreSQL', () => {
  let activity: Activity;
  let receipt: string;
  beforeEach(async () => {
    activity = await api.openActivity();
    await startWorker();
    ({ receipt } = await bought(activity, 'ann'));
    await comeToRest(api, activity.id);
  });
  const dropMark = (): Promise<unknown> =>
    api.redis.command('HDEL', api.keys.buyers({ activityId: activity.id, segment: 0, run: 1 }, 0), 'ann');

  test('where the mark is gone', async () => {
    await dropMark();
    expect((await poll(receipt, 'ann')).body).toMatchObject({ receipt, state: 'ordered', order: { state: 'placed' } });
  });

  test('where Redis is away', async () => {
    await proxy.refuseNew(true);
    proxy.cut();
    const told = await poll(receipt, 'ann');
    const latest = await ask(api.url, `/api/v1/activities/${activity.id}/receipt`, 'ann');
    await proxy.refuseNew(false);
    expect(told.body).toMatchObject({ receipt, state: 'ordered', order: { state: 'placed' } });
    expect(latest.body).toEqual(told.body);
    await until('Redis is back', async () => (await fetch(`${api.url}/readyz`)).status === 200);
  });

  test('at a bounded rate: beyond it busy, with a time to come back', async () => {
    const slow = await startApi({ SLUICE_RECEIPT_READS_PER_SECOND: '2' });
    try {
      await dropMark();
      const told = await Promise.all(Array.from({ length: 12 }, () => poll(receipt, 'ann', slow)));
      const busy = told.filter((one) => one.code === 'busy');
      expect(told.filter((one) => one.body['state'] === 'ordered').length).toBeGreaterThanOrEqual(1);
      expect(busy.length).toBeGreaterThanOrEqual(8);
      for (const one of busy) {
        expect(one.status).toBe(503);
        expect(one.headers.get('retry-after')).toMatch(/^[1-9][0-9]*$/);
        expect(Number(one.headers.get('retry-after')) * 1_000).toBeGreaterThanOrEqual(Number(one.body['retryAfterMs']));
      }
      for (const path of ['/api/v1/orders', `/api/v1/activities/${activity.id}/receipt`]) {
        const codes = await Promise.all(
          Array.from({ length: 8 }, async () => (await ask(slow.url, path, 'ann')).status),
        );
        expect(new Set(codes)).toContain(503);
      }
    } finally {
      await slow.stop();
    }
  });

  test('a receipt whose mark is still there is told within any rate', async () => {
    const slow = await startApi({ SLUICE_RECEIPT_READS_PER_SECOND: '1' });
    try {
      const told = await Promise.all(Array.from({ length: 20 }, () => poll(receipt, 'ann', slow)));
      expect(new Set(told.map((one) => one.body['state']))).toEqual(new Set(['ordered']));
    } finally {
      await slow.stop();
    }
  });
});
