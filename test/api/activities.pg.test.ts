/** Activities and the time as everybody may read them: no token, no database call, cacheable for a second. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/platform/clock.ts';
import { ask, buy, startSluice, until, type TestSluice } from '../support/sluice.ts';
import { comeToRest } from './state-of.ts';

const HOUR_MS = 3_600_000;
let sluice: TestSluice;
beforeAll(async () => {
  sluice = await startSluice();
});
afterAll(() => sluice.stop());

const show = async (id: string): Promise<Record<string, unknown>> =>
  (await ask(sluice.url, `/api/v1/activities/${id}`)).body;
const fromNow = (ms: number): number => systemClock.now() + ms;

test('one activity, whole', async () => {
  const [opensAt, endsAt] = [fromNow(-5_000), fromNow(HOUR_MS)];
  const { id } = await sluice.openActivity({
    opensAt,
    endsAt,
    perBuyerLimit: 2,
    itemName: '闸 & <b>sluice</b>',
    imageUrl: 'https://img.example/x.png',
  });
  const told = await ask(sluice.url, `/api/v1/activities/${id}`);
  expect(told.headers.get('cache-control')).toBe('public, max-age=1');
  expect(told.headers.get('content-type')).toBe('application/json; charset=utf-8');
  const now = told.body['now'] as number;
  expect(Math.abs(now - systemClock.now())).toBeLessThan(5_000);
  expect(told.body).toEqual({
    id,
    item: { name: '闸 & <b>sluice</b>', priceMinor: 9_900, currency: 'CNY', imageUrl: 'https://img.example/x.png' },
    state: 'open',
    paused: false,
    opensAt,
    opensAtIso: new Date(opensAt).toISOString(),
    endsAt,
    endsAtIso: new Date(endsAt).toISOString(),
    perBuyerLimit: 2,
    availability: 'available',
    now,
    nowIso: new Date(now).toISOString(),
  });
});

test('the time is Redis’ and never cached', async () => {
  const told = await ask(sluice.url, '/api/v1/time');
  expect(told.headers.get('cache-control')).toBe('no-store');
  const [seconds] = (await sluice.redis.command('TIME')) as [string];
  const now = told.body['now'] as number;
  expect(Math.abs(now - Number(seconds) * 1_000)).toBeLessThan(3_000);
  expect(told.body).toEqual({ now, nowIso: new Date(now).toISOString() });
});

describe('the state', () => {
  test('follows the clock: scheduled, open, ended, without anybody doing anything', async () => {
    const { id } = await sluice.openActivity({ opensAt: fromNow(1_200), endsAt: fromNow(2_500) });
    const seen: { state: unknown; now: number }[] = [];
    await until('it has ended', async () => {
      const body = await show(id);
      seen.push({ state: body['state'], now: body['now'] as number });
      return body['state'] === 'ended';
    });
    const { opensAt, endsAt } = await show(id);
    for (const { state, now } of seen) {
      expect(state).toBe(now < Number(opensAt) ? 'scheduled' : now < Number(endsAt) ? 'open' : 'ended');
    }
    expect([...new Set(seen.map((one) => one.state))]).toEqual(['scheduled', 'open', 'ended']);
  });

  test('paused is a flag beside it', async () => {
    const { id } = await sluice.openActivity();
    await sluice.wired.activities.change(id, 'pause', 'test');
    await sluice.wired.memory.refresh();
    expect(await show(id)).toMatchObject({ state: 'open', paused: true });
    await sluice.wired.activities.change(id, 'end', 'test');
    await sluice.wired.memory.refresh();
    expect(await show(id)).toMatchObject({ state: 'ended' });
  });

  test('in review there is no such activity, for the page, the list and the purchase', async () => {
    const id = 'in-review-1';
    const plan = {
      id,
      itemName: 'x',
      priceMinor: 1,
      currency: 'CNY',
      total: 1,
      opensAt: fromNow(0),
      endsAt: fromNow(HOUR_MS),
    };
    await sluice.wired.activities.plan(plan, 'test');
    await sluice.wired.memory.refresh();
    expect(await ask(sluice.url, `/api/v1/activities/${id}`)).toMatchObject({ status: 404, code: 'unknown_activity' });
    expect((await buy(sluice.url, id, 'ann')).code).toBe('unknown_activity');
    expect(JSON.stringify((await ask(sluice.url, '/api/v1/activities?limit=200')).body)).not.toContain(id);
    await sluice.wired.activities.approve(id, 'test');
    await sluice.wired.memory.refresh();
    // approved, but never preheated: past its time it is still not open, since nothing could be bought
    expect(await show(id)).toMatchObject({ state: 'scheduled', availability: 'unknown' });
    expect((await buy(sluice.url, id, 'ann')).code).toBe('not_ready');
  });
});

describe('the availability', () => {
  test('available, low under a tenth, sold out, and back', async () => {
    const { id } = await sluice.openActivity({ total: 20, perBuyerLimit: 20 });
    const availability = async (): Promise<unknown> => (await show(id))['availability'];
    expect(await availability()).toBe('available');
    await buy(sluice.url, id, 'ann', { quantity: 18 });
    expect(await availability()).toBe('available'); // 2 of 20 are a tenth
    const { body } = await buy(sluice.url, id, 'bob');
    expect(await availability()).toBe('low');
    await buy(sluice.url, id, 'cid');
    expect(await availability()).toBe('sold_out');
    await comeToRest(sluice, id);
    await ask(sluice.url, `/api/v1/orders/${String(body['orderId'])}/cancel`, 'bob', { method: 'POST' });
    await until('it is for sale again', async () => (await availability()) === 'low');
  });
});

describe('the list', () => {
  let pages: TestSluice;
  const ids = { late: 'c-late', soon: 'd-soon', open: 'z-open', opened: 'y-opened', over: 'a-over' };
  beforeAll(async () => {
    pages = await startSluice();
    await pages.openActivity({ id: ids.late, opensAt: fromNow(2 * HOUR_MS), endsAt: fromNow(3 * HOUR_MS) });
    await pages.openActivity({ id: ids.soon, opensAt: fromNow(HOUR_MS), endsAt: fromNow(2 * HOUR_MS) });
    await pages.openActivity({ id: ids.open, opensAt: fromNow(-1_000) });
    await pages.openActivity({ id: ids.opened, opensAt: fromNow(-60_000) });
    await pages.openActivity({ id: ids.over, opensAt: fromNow(-90_000), endsAt: fromNow(-30) + 600 });
    await until(
      'it is over',
      async () => (await ask(pages.url, `/api/v1/activities/${ids.over}`)).body['state'] === 'ended',
    );
  });
  afterAll(() => pages.stop());
  const order = [ids.opened, ids.open, ids.over, ids.soon, ids.late];
  const page = async (query = ''): Promise<{ ids: string[]; next: unknown }> => {
    const { body } = await ask(pages.url, `/api/v1/activities${query}`);
    return { ids: (body['items'] as { id: string }[]).map(({ id }) => id), next: body['next'] };
  };

  test('has open ones first, then by the instant of opening', async () => {
    expect(await page()).toEqual({ ids: order, next: undefined });
    const told = await ask(pages.url, '/api/v1/activities');
    expect(told.headers.get('cache-control')).toBe('public, max-age=1');
    expect((told.body['items'] as object[])[0]).toEqual(
      expect.objectContaining({ id: ids.opened, state: 'open', availability: 'available', item: expect.any(Object) }),
    );
  });

  test('is read in pages by `after`', async () => {
    const first = await page('?limit=2');
    expect(first).toEqual({ ids: order.slice(0, 2), next: order[1] });
    const second = await page(`?limit=2&after=${String(first.next)}`);
    expect(second).toEqual({ ids: order.slice(2, 4), next: order[3] });
    expect(await page(`?limit=2&after=${String(second.next)}`)).toEqual({ ids: order.slice(4), next: undefined });
  });
});

test('HEAD is GET without the body', async () => {
  const { id } = await sluice.openActivity();
  for (const path of ['/api/v1/time', '/api/v1/activities', `/api/v1/activities/${id}`, '/livez', '/readyz']) {
    const response = await fetch(sluice.url + path, { method: 'HEAD' });
    expect(response.status).toBe(200);
    expect(await response.text()).toBe('');
  }
});

test('no origin is let in: an answer carries no CORS header', async () => {
  for (const origin of ['https://evil.example', 'null', sluice.url]) {
    const response = await fetch(`${sluice.url}/api/v1/activities`, { headers: { origin } });
    expect([...response.headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([]);
  }
});
