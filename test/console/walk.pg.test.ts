/**
 * The whole walk of an activity by the operator API, over sockets, with a sale in between: planned by one, approved by
 * another, preheated, confirmed, opened and ended, verified and settled. And what the clock does by itself.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { systemClock } from '../../src/platform/clock.ts';
import { ask, buy, isQuiet, startSluice, until, type TestSluice } from '../support/sluice.ts';
import { admin, auditOf, newActivity } from './operator.ts';

let sluice: TestSluice;
beforeAll(async () => {
  sluice = await startSluice();
});
afterAll(() => sluice.stop());

const inMs = (ms: number): string => new Date(systemClock.now() + ms).toISOString();
const read = async (id: string): Promise<Record<string, unknown>> =>
  (await admin(sluice.url, 'GET', `/activities/${id}`, { role: 'viewer' })).body;

test('create, edit, approve, preheat, confirm, open, pause, resume, end, verify, settle', async () => {
  const body = newActivity({ autoConfirm: false, total: 5, item: { name: 'Lamp', priceMinor: 100, currency: 'EUR' } });
  const id = body['id'] as string;
  const path = `/activities/${id}`;
  const made = await admin(sluice.url, 'POST', '/activities', { role: 'operator', name: 'ann', body });
  expect(made.status).toBe(201);
  expect(made.headers.get('location')).toBe(`/api/v1/admin/activities/${id}`);
  expect(made.body).toMatchObject({
    id,
    item: { name: 'Lamp', priceMinor: 100, currency: 'EUR' },
    total: 5,
    sold: 0,
    surplus: 0,
    perBuyerLimit: 1,
    answerWhen: 'held',
    overshoot: 1,
    segments: 1,
    durability: 'memory',
    requireTicket: false,
    autoConfirm: false,
    state: 'in_review',
    paused: false,
    preheat: 'none',
    run: 0,
    createdBy: 'ann',
    moves: ['approve', 'reject', 'edit'],
  });
  expect((await ask(sluice.url, `/api/v1/activities/${id}`)).code).toBe('unknown_activity');

  const edited = await admin(sluice.url, 'PATCH', path, {
    role: 'operator',
    name: 'ann',
    ifMatch: made.headers.get('etag')!,
    body: { total: 4, item: { priceMinor: 120 } },
  });
  expect(edited.body).toMatchObject({ total: 4, item: { name: 'Lamp', priceMinor: 120 }, state: 'in_review' });

  const approved = await admin(sluice.url, 'POST', `${path}/approve`, { name: 'bob', body: { reason: '价格已核对' } });
  expect(approved.body).toMatchObject({ state: 'scheduled', gateTold: true });
  expect((await ask(sluice.url, `/api/v1/activities/${id}`)).body['state']).toBe('scheduled');

  const preheated = await admin(sluice.url, 'POST', `${path}/preheat`, { role: 'operator', name: 'ann' });
  expect(preheated.body).toMatchObject({ activityId: id, run: 1, outcome: 'verified', wrote: true });
  const stock = (preheated.body['checks'] as Record<string, unknown>[]).find((check) => check['name'] === 'stock');
  expect(stock).toEqual({ segment: 0, name: 'stock', expected: '4', found: '4', holds: true });
  expect((await buy(sluice.url, id, 'early')).code).toBe('not_open');

  expect((await admin(sluice.url, 'POST', `${path}/confirm`, { name: 'bob' })).body).toMatchObject({
    preheat: 'confirmed',
    gateTold: true,
  });
  const again = await admin(sluice.url, 'POST', `${path}/preheat`, { role: 'operator' });
  expect(again.body).toMatchObject({ outcome: 'compared', wrote: false });

  expect((await admin(sluice.url, 'POST', `${path}/open`, { role: 'operator' })).body['state']).toBe('open');
  expect((await buy(sluice.url, id, 'b1')).code).toBe('held');
  await admin(sluice.url, 'POST', `${path}/pause`, { role: 'operator', body: { reason: 'a look at the price' } });
  expect((await buy(sluice.url, id, 'b2')).code).toBe('paused');
  await admin(sluice.url, 'POST', `${path}/resume`, { role: 'operator' });
  for (const buyer of ['b2', 'b3', 'b4']) expect((await buy(sluice.url, id, buyer)).code).toBe('held');
  expect((await buy(sluice.url, id, 'b5')).code).toBe('sold_out');

  const live = await admin(sluice.url, 'GET', `${path}/live`, { role: 'viewer' });
  expect(live.body).toMatchObject({ activityId: id, state: 'open', total: 4, left: 0, leftPerSegment: [0] });
  expect(await read(id)).toMatchObject({ moves: ['edit_sale', 'pause', 'end'] });

  expect((await admin(sluice.url, 'POST', `${path}/settle`, { role: 'operator' })).body).toMatchObject({
    code: 'wrong_state',
    reason: 'state',
    state: 'open',
  });
  expect((await admin(sluice.url, 'POST', `${path}/end`, { role: 'operator' })).body['state']).toBe('ended');
  expect((await buy(sluice.url, id, 'late')).code).toBe('ended');
  expect((await buy(sluice.url, id, 'b1')).code).toBe('already_bought');

  const activity = (await sluice.wired.activities.find(id))!;
  await until('all has landed', () => isQuiet(sluice, activity));
  expect((await admin(sluice.url, 'GET', `${path}/verify`, { role: 'viewer' })).body).toEqual({
    activityId: id,
    run: 1,
    gate: 'read',
    weighed: true,
    total: 4,
    surplus: 0,
    left: 0,
    inFlight: { outbox: 0, deadLetters: 0, giveBacks: 0, transfers: 0 },
    live: 4,
    holds: 4,
    findings: [],
    findingsMore: 0,
  });

  const orders = await admin(sluice.url, 'GET', `/orders?activityId=${id}&limit=3`, { role: 'viewer' });
  expect((orders.body['items'] as object[]).length).toBe(3);
  const rest = await admin(sluice.url, 'GET', `/orders?activityId=${id}&after=${String(orders.body['next'])}`);
  expect((rest.body['items'] as Record<string, unknown>[]).map((order) => order['buyerId'])).toEqual(['b1']);
  expect(rest.body['next']).toBeUndefined();

  const settled = await admin(sluice.url, 'POST', `${path}/settle`, { role: 'operator', name: 'ann' });
  expect(settled.body).toMatchObject({ state: 'settled', sold: 4, moves: [] });
  const [landing] = await sluice.database.database.query(
    `select l.closed, l.entry = l.last_entry as ended, r.state from landings l
       join runs r on r.activity_id = l.activity_id and r.run = l.run where l.activity_id = $1`,
    [id],
  );
  expect(landing).toEqual({ closed: true, ended: true, state: 'closed' });

  expect(await auditOf(sluice, id)).toEqual([
    'ann create →in_review',
    'ann edit in_review→in_review',
    'bob approve in_review→scheduled',
    'ann preheat scheduled→scheduled',
    'bob confirm scheduled→scheduled',
    'operator open scheduled→open',
    'operator pause open→open',
    'operator resume open→open',
    'operator end open→ended',
    'ann settle ended→settled',
  ]);
  const told = await admin(sluice.url, 'GET', `/audit?activityId=${id}&limit=200`, { role: 'viewer' });
  const acts = told.body['items'] as Record<string, unknown>[];
  expect(acts.map((act) => act['reason']).filter((why) => why !== undefined)).toEqual([
    'a look at the price',
    '价格已核对',
  ]);
  expect(acts.at(-2)).toMatchObject({ action: 'edit', details: { total: 4, priceMinor: 120, editedBy: 'ann' } });
});

test('approved within ten minutes of its start it preheats, confirms, opens and ends by itself, at its instants', async () => {
  const body = newActivity({ opensAt: inMs(1_500), endsAt: inMs(4_000), total: 2 });
  const id = body['id'] as string;
  await admin(sluice.url, 'POST', '/activities', { role: 'operator', body });
  await admin(sluice.url, 'POST', `/activities/${id}/approve`);
  await until('it is confirmed', async () => (await read(id))['preheat'] === 'confirmed');
  await until('it sells', async () => (await buy(sluice.url, id, 'b1')).status === 202);
  const soldAt = systemClock.now();
  expect(soldAt).toBeGreaterThanOrEqual(Date.parse(body['opensAt'] as string));
  await until('the row is open', async () => {
    const [row] = await sluice.database.database.query('select state from activities where id = $1', [id]);
    return row!['state'] === 'open';
  });
  await until('the row has ended', async () => {
    const [row] = await sluice.database.database.query('select state from activities where id = $1', [id]);
    return row!['state'] === 'ended';
  });
  expect(systemClock.now()).toBeGreaterThanOrEqual(Date.parse(body['endsAt'] as string));
  expect((await buy(sluice.url, id, 'b2')).code).toBe('ended');
  const meta = sluice.keys.meta({ activityId: id, segment: 0 });
  await until('the gate knows it', async () => (await sluice.redis.command('HGET', meta, 'state')) === 'ended');
  expect(await auditOf(sluice, id)).toEqual([
    'operator create →in_review',
    'approver approve in_review→scheduled',
    'scheduler preheat scheduled→scheduled',
    'scheduler confirm scheduled→scheduled',
    'scheduler open scheduled→open',
    'scheduler end open→ended',
  ]);
  const settled = await admin(sluice.url, 'POST', `/activities/${id}/settle`);
  expect(settled.body).toMatchObject({ state: 'settled', sold: 1 });
});

test('what is not confirmed at its instant stays scheduled, alarms, and opens when confirmed', async () => {
  const body = newActivity({ opensAt: inMs(1_000), autoConfirm: false });
  const id = body['id'] as string;
  await admin(sluice.url, 'POST', '/activities', { role: 'operator', body });
  await admin(sluice.url, 'POST', `/activities/${id}/approve`);
  const alarmed = (): boolean =>
    sluice.log.lines.some(({ fields }) => fields['activityId'] === id && fields['reason'] === 'not_confirmed');
  await until('somebody is told', alarmed);
  expect(await read(id)).toMatchObject({ state: 'scheduled', preheat: 'verified' });
  expect((await buy(sluice.url, id, 'b1')).code).toBe('not_ready');
  expect((await admin(sluice.url, 'POST', `/activities/${id}/confirm`)).body).toMatchObject({ state: 'open' });
  await until('it sells', async () => (await buy(sluice.url, id, 'b1')).status === 202);
});

test('the end of a running sale moves at the gate, for its keys too', async () => {
  const activity = await sluice.openActivity({ endsAt: systemClock.now() + 3_600_000 });
  const at = { activityId: activity.id, segment: 0, run: activity.run };
  const before = await read(activity.id);
  const endsAt = systemClock.now() + 5 * 3_600_000;
  const moved = await admin(sluice.url, 'PATCH', `/activities/${activity.id}`, {
    role: 'operator',
    ifMatch: `"${String(before['version'])}"`,
    body: { endsAt: new Date(endsAt).toISOString() },
  });
  expect(moved.body).toMatchObject({ state: 'open', endsAt, gateTold: true });
  expect(await sluice.redis.command('HGET', sluice.keys.meta(at), 'endsAt')).toBe(String(endsAt));
  expect(Number(await sluice.redis.command('PEXPIRETIME', sluice.keys.stock(at)))).toBeGreaterThan(endsAt + 7_200_000);

  const price = await admin(sluice.url, 'PATCH', `/activities/${activity.id}`, {
    role: 'operator',
    ifMatch: moved.headers.get('etag')!,
    body: { endsAt: new Date(endsAt).toISOString(), item: { priceMinor: 1 } },
  });
  expect(price.body).toMatchObject({ code: 'wrong_state', status: 409, reason: 'only_in_sale', state: 'open' });
});

test('a move is decided although the gate cannot be reached, and carried when it can', async () => {
  const activity = await sluice.openActivity();
  const meta = sluice.keys.meta({ activityId: activity.id, segment: 0 });
  const run = String(await sluice.redis.command('HGET', meta, 'run'));
  await sluice.redis.command('HSET', meta, 'run', '999');
  const paused = await admin(sluice.url, 'POST', `/activities/${activity.id}/pause`);
  expect(paused.body).toMatchObject({ paused: true, gateTold: false });
  await sluice.redis.command('HSET', meta, 'run', run);
  await until('the gate knows it', async () => (await sluice.redis.command('HGET', meta, 'state')) === 'paused');
});

test('the limit of a running sale changes at the gate and at the door', async () => {
  const activity = await sluice.openActivity({ perBuyerLimit: 1 });
  expect((await buy(sluice.url, activity.id, 'ann', { quantity: 2 })).code).toBe('invalid');
  const edited = await admin(sluice.url, 'PATCH', `/activities/${activity.id}`, {
    role: 'operator',
    ifMatch: `"${String((await read(activity.id))['version'])}"`,
    body: { perBuyerLimit: 2 },
  });
  expect(edited.body).toMatchObject({ state: 'open', perBuyerLimit: 2, gateTold: true });
  expect((await buy(sluice.url, activity.id, 'ann', { quantity: 2 })).code).toBe('held');
});

test('a copy is a plan of its own, whatever became of the original', async () => {
  const activity = await sluice.openActivity({ total: 3, answerWhen: 'ordered', overshoot: 1.5 });
  await buy(sluice.url, activity.id, 'ann');
  const window = { opensAt: inMs(3_600_000), endsAt: inMs(7_200_000) };
  const path = `/activities/${activity.id}/copy`;
  const id = `${activity.id}-again`;
  const copied = await admin(sluice.url, 'POST', path, {
    role: 'operator',
    name: 'ann',
    body: { id, total: 8, ...window },
  });
  expect(copied.status).toBe(201);
  expect(copied.headers.get('location')).toBe(`/api/v1/admin/activities/${id}`);
  expect(copied.body).toMatchObject({
    id,
    item: { name: '测试商品', priceMinor: 9_900, currency: 'CNY' },
    ...{ total: 8, sold: 0, surplus: 4, answerWhen: 'ordered', overshoot: 1.5 },
    ...{ state: 'in_review', preheat: 'none', run: 0, version: 1, createdBy: 'ann' },
  });
  expect(await read(activity.id)).toMatchObject({ total: 3, state: 'open' });

  expect((await admin(sluice.url, 'POST', path, { body: { id, ...window } })).body).toMatchObject({
    code: 'activity_exists',
    status: 409,
  });
  // the original's window: its end may have passed
  expect((await admin(sluice.url, 'POST', path, { body: { endsAt: inMs(-1_000) } })).body).toMatchObject({
    code: 'invalid',
    field: 'endsAt',
  });
  expect((await admin(sluice.url, 'POST', path, { body: { sold: 1, ...window } })).status).toBe(400);
  expect((await admin(sluice.url, 'POST', '/activities/none/copy', { body: window })).code).toBe('unknown_activity');
  expect((await admin(sluice.url, 'POST', path, { role: 'viewer', body: window })).status).toBe(403);
});
