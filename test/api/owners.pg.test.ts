/**
 * Whose is it? Receipts, orders and streams are there for the buyer named by the token and for nobody else; nothing in a
 * request but the token says who is asking.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/platform/clock.ts';
import { makeHs256 } from '../../src/platform/identity/hs256.ts';
import { ask, buy, startSluice, TEST_SECRET, tokenOf, type TestSluice } from '../support/sluice.ts';
import { comeToRest, stateOf } from './state-of.ts';

let sluice: TestSluice;
let activityId: string;
let receipt: string;
let orderId: string;
let before: Record<string, unknown>;
beforeAll(async () => {
  sluice = await startSluice();
  activityId = (await sluice.openActivity()).id;
  const { body } = await buy(sluice.url, activityId, 'ann', { key: 'the-key-of-ann' });
  ({ receipt, orderId } = body as { receipt: string; orderId: string });
  await comeToRest(sluice, activityId);
  before = await stateOf(sluice);
});
afterAll(() => sluice.stop());

/** Every call that is about something owned, and what it answers where there is no such thing. */
const calls = (): { method: string; path: string; code: string }[] => [
  { method: 'GET', path: `/api/v1/receipts/${receipt}`, code: 'unknown_receipt' },
  { method: 'GET', path: `/api/v1/receipts/${receipt}/events`, code: 'unknown_receipt' },
  { method: 'GET', path: `/api/v1/activities/${activityId}/receipt`, code: 'unknown_receipt' },
  { method: 'GET', path: `/api/v1/orders/${orderId}`, code: 'unknown_order' },
  { method: 'POST', path: `/api/v1/orders/${orderId}/cancel`, code: 'unknown_order' },
  { method: 'POST', path: `/api/v1/orders/${orderId}/pay`, code: 'unknown_order' },
];
const LIST = { method: 'GET', path: '/api/v1/orders', code: '' };

test('its owner has it', async () => {
  const headers = { authorization: `Bearer ${tokenOf('ann')}` };
  const statuses = [];
  for (const { method, path } of calls()) {
    if (!path.endsWith('cancel')) statuses.push((await fetch(sluice.url + path, { method, headers })).status);
  }
  expect(statuses).toEqual([200, 200, 200, 200, 409]);
  expect((await ask(sluice.url, '/api/v1/orders', 'ann')).body['items']).toHaveLength(1);
});

test.each(['bob', 'Ann', 'ann_', 'an'])('to %s it does not exist, and asking changes nothing', async (buyer) => {
  for (const { method, path, code } of calls()) {
    const told = await ask(sluice.url, path, buyer, { method });
    expect({ path, status: told.status, code: told.code }).toEqual({ path, status: 404, code });
    // the same words as for what nobody has
    const nobodys = await ask(sluice.url, path.replace(receipt, 'r1.x.y').replace(orderId, '1'), buyer, { method });
    expect(told.body).toEqual(nobodys.body);
  }
  expect((await ask(sluice.url, '/api/v1/orders', buyer)).body).toEqual({ items: [] });
  expect(await stateOf(sluice)).toEqual(before);
});

test('without a token there is no answer about it', async () => {
  for (const { method, path } of [...calls(), LIST]) {
    const told = await ask(sluice.url, path, undefined, { method });
    expect(told.body).toMatchObject({ code: 'unauthenticated', reason: 'missing', status: 401 });
    expect(told.headers.get('www-authenticate')).toBe('Bearer');
  }
  expect(await stateOf(sluice)).toEqual(before);
});

describe('a token that does not count is told why, everywhere alike', () => {
  const now = Math.floor(systemClock.now() / 1_000);
  const sign = (claims: Record<string, unknown>): string => makeHs256([TEST_SECRET]).sign(claims);
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  test.each<[reason: string, token: string]>([
    ['expired', sign({ sub: 'ann', exp: now - 31 })],
    ['not_yet', sign({ sub: 'ann', exp: now + 900, nbf: now + 300 })],
    ['malformed', sign({ sub: 'ann' })],
    ['malformed', sign({ sub: 'ann', exp: 'never' })],
    ['malformed', `${part({ alg: 'none', typ: 'JWT' })}.${part({ sub: 'ann', exp: now + 900 })}.`],
    [
      'signature',
      `${sign({ sub: 'bob', exp: now + 900 })
        .split('.')
        .slice(0, 2)
        .join('.')}.${tokenOf('ann').split('.')[2]!}`,
    ],
    ['buyer_id', sign({ sub: 'ann:bob', exp: now + 900 })],
    ['buyer_id', sign({ sub: 'ann\n', exp: now + 900 })],
    ['buyer_id', sign({ sub: 'ann}{', exp: now + 900 })],
    ['buyer_id', sign({ sub: '安', exp: now + 900 })],
    ['buyer_id', sign({ sub: '', exp: now + 900 })],
    ['buyer_id', sign({ sub: ['ann'], exp: now + 900 })],
    ['buyer_id', sign({ sub: null, exp: now + 900 })],
    ['audience', sign({ sub: 'ann', exp: now + 900, aud: 'sluice-operator' })],
  ])('%s', async (reason, token) => {
    for (const { method, path } of [
      ...calls(),
      LIST,
      { method: 'POST', path: `/api/v1/activities/${activityId}/purchases` },
    ]) {
      const told = await ask(sluice.url, path, undefined, {
        method,
        headers: {
          authorization: `Bearer ${token}`,
          ...(path.endsWith('purchases')
            ? { 'idempotency-key': 'a-good-key', 'content-type': 'application/json' }
            : {}),
        },
        ...(path.endsWith('purchases') ? { body: '{"quantity":1}' } : {}),
      });
      expect({ path, ...told.body }).toMatchObject({ path, code: 'unauthenticated', reason, status: 401 });
    }
    expect(await stateOf(sluice)).toEqual(before);
  });
});

test('a key of one buyer is another buyer’s own', async () => {
  const bobs = await buy(sluice.url, activityId, 'bob', { key: 'the-key-of-ann' });
  expect(bobs.code).toBe('held');
  expect(bobs.body['orderId']).not.toBe(orderId);
  await comeToRest(sluice, activityId);
  before = await stateOf(sluice);
});

describe('development identity', () => {
  const login = (at: TestSluice): Promise<{ status: number; code: string; body: Record<string, unknown> }> =>
    ask(at.url, '/api/v1/dev/login', undefined, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{"buyerId":"cid"}',
    });

  test('gives a token that buys as its buyer', async () => {
    const { status, body } = await login(sluice);
    expect(status).toBe(200);
    const told = await ask(sluice.url, '/api/v1/orders', undefined, {
      headers: { authorization: `Bearer ${String(body['token'])}` },
    });
    expect(told).toMatchObject({ status: 200, body: { items: [] } });
  });

  test('does not exist unless it is switched on', async () => {
    const strict = await startSluice({ role: 'api', settings: { SLUICE_DEV_IDENTITY: 'false' } });
    try {
      const told = await login(strict);
      expect(told).toMatchObject({ status: 404, code: 'not_found' });
      expect((await ask(strict.url, '/api/v1/dev/login')).status).toBe(404);
    } finally {
      await strict.stop();
    }
  });
});
