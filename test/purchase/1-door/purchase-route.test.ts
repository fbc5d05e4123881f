/** The door by itself: what it asks, in which order, and what it makes of an identity that cannot be known now. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Activity } from '../../../src/domain/activity.ts';
import type { HoldRequest, PurchaseCode } from '../../../src/domain/results.ts';
import { systemRandom, systemTimers } from '../../../src/platform/clock.ts';
import { makeHttpServer, type HttpServer } from '../../../src/platform/http/server.ts';
import { purchaseRoute, type Identify } from '../../../src/purchase/1-door/purchase-route.ts';
import { replyTo, type PurchaseAnswer } from '../../../src/purchase/5-receipt/answer.ts';

let server: HttpServer;
let url: string;
let who: Awaited<ReturnType<Identify>> | Promise<Awaited<ReturnType<Identify>>>;
let asked: string[];
let walked: [activityId: string, request: HoldRequest][];
let counted: PurchaseCode[];
beforeEach(async () => {
  [asked, walked, counted] = [[], [], []];
  who = { kind: 'buyer', buyerId: 'ann' };
  server = makeHttpServer({
    bodyBytesMax: 16_384,
    timers: systemTimers,
    random: systemRandom,
    onBug: (error) => asked.push(String(error)),
  });
  server.route([
    purchaseRoute<PurchaseAnswer>({
      identify(authorization) {
        asked.push(`who: ${authorization}`);
        return who;
      },
      activity: (id) => (id === 'sale' ? ({ perBuyerLimit: 2 } as Activity) : undefined),
      purchase: async (activityId, request) => {
        walked.push([activityId, request]);
        return { code: 'sold_out' };
      },
      replyTo: (answer, language) => replyTo(answer, language, 0),
      counted: (code) => counted.push(code),
    }),
  ]);
  url = await server.listen({ host: '127.0.0.1', port: 0 });
});
afterEach(() => server.close(5_000));

async function send(quantity: number, activityId = 'sale'): Promise<Record<string, unknown>> {
  const response = await fetch(`${url}/api/v1/activities/${activityId}/purchases`, {
    method: 'POST',
    headers: { authorization: 'Bearer x', 'idempotency-key': 'the-first-key', 'content-type': 'application/json' },
    body: JSON.stringify({ quantity, ticket: 'ignored' }),
  });
  return (await response.json()) as Record<string, unknown>;
}

test('a purchase walks on with buyer, key and quantity, and with nothing else of the caller’s', async () => {
  expect(await send(2)).toMatchObject({ code: 'sold_out' });
  expect(walked).toEqual([['sale', { buyerId: 'ann', requestId: 'the-first-key', quantity: 2 }]]);
  expect(asked).toEqual(['who: Bearer x']);
  expect(counted).toEqual(['sold_out']);
});

test('a quantity above the limit is invalid before anybody asks who it is', async () => {
  expect(await send(3)).toMatchObject({ code: 'invalid', field: 'quantity', detail: expect.stringContaining('2') });
  expect([asked, walked, counted]).toEqual([[], [], ['invalid']]);
});

test('form is checked by schema before that', async () => {
  expect(await send(1_001, 'no-such')).toMatchObject({ code: 'invalid', field: 'quantity' });
  expect(await send(1, 'a b')).toMatchObject({ code: 'invalid', field: 'id' });
  expect([asked, walked]).toEqual([[], []]);
});

test.each(['at once', 'later'])('who is refused does not walk on (known %s)', async (when) => {
  const refused = { kind: 'unauthenticated', reason: 'expired' } as const;
  who = when === 'later' ? Promise.resolve(refused) : refused;
  expect(await send(1)).toMatchObject({ code: 'unauthenticated', reason: 'expired', status: 401 });
  expect([walked, counted]).toEqual([[], ['unauthenticated']]);
});

test('keys that cannot be had now are no fault of the buyer: busy, not "sign in"', async () => {
  who = Promise.resolve({ kind: 'unauthenticated', reason: 'unavailable' });
  expect(await send(1)).toMatchObject({ code: 'busy', status: 503, retryAfterMs: expect.any(Number) });
  expect([walked, counted]).toEqual([[], ['busy']]);
});
