/**
 * Anything at all, over sockets: methods, paths, headers and bodies by fast-check, many at a time. Whatever comes in, there
 * is no 5xx but a deliberate 503, every error is a problem document, the process lives, and nothing has changed.
 *
 * The activities asked about sell nothing (paused, not open, ended, sold out), so that a request may be right in every
 * part and still change nothing; that they would sell, were it not for this, is tested last.
 *
 * Size: SLUICE_TEST_SIZE requests (default 3,000).
 */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { systemClock } from '../../src/platform/clock.ts';
import { buy, startSluice, tokenOf, type TestSluice } from '../support/sluice.ts';
import { bytesOf, readReply, talk, type RawRequest } from './raw-http.ts';
import { comeToRest, stateOf } from './state-of.ts';

const SIZE = Number(process.env['SLUICE_TEST_SIZE'] ?? 3_000);
/** requests under way at once */
const AT_ONCE = 12;

let sluice: TestSluice;
let ids: Record<'paused' | 'notOpen' | 'ended' | 'soldOut', string>;
let order: { receipt: string; orderId: string };
const crashes: unknown[] = [];
const note = (error: unknown): void => void crashes.push(error);

beforeAll(async () => {
  process.on('unhandledRejection', note);
  sluice = await startSluice({ settings: { SLUICE_EVENT_STREAMS_MAX: '5' } });
  const opensAt = systemClock.now() + 3_600_000;
  const [paused, notOpen, ended, soldOut] = [
    await sluice.openActivity({ perBuyerLimit: 5 }),
    await sluice.openActivity({ opensAt, endsAt: opensAt + 1_000 }),
    await sluice.openActivity(),
    await sluice.openActivity({ total: 1 }),
  ];
  ids = { paused: paused.id, notOpen: notOpen.id, ended: ended.id, soldOut: soldOut.id };
  await sluice.wired.activities.change(ids.paused, 'pause', 'test');
  await sluice.wired.activities.change(ids.ended, 'end', 'test');
  order = (await buy(sluice.url, ids.soldOut, 'winner')).body as typeof order;
  await comeToRest(sluice, ids.soldOut);
  await sluice.wired.memory.refresh();
});
afterAll(async () => {
  process.off('unhandledRejection', note);
  await sluice.stop();
});

const oneOf = fc.constantFrom;
/** Text in which every character means something somewhere. */
const spiky = fc.string({ unit: oneOf(...'aZ09_-.:|/?&=#%{}[]()<>"\'`$\\*;,+~!@^ '), maxLength: 70 });
const anyText = fc.oneof(
  spiky,
  fc.string({ unit: 'binary', maxLength: 40 }),
  oneOf('__proto__', 'constructor', '..', ''),
);
const encoded = anyText.map((text) => encodeURIComponent(Buffer.from(text).toString()));
/** Visible bytes and blanks, as a header may hold them. */
const headerText = fc.oneof(
  spiky,
  fc.string({ unit: fc.integer({ min: 0x20, max: 0xff }).map((c) => String.fromCharCode(c)) }),
);

const names = fc.oneof(
  { weight: 3, arbitrary: fc.nat(3).map((i) => Object.values(ids)[i]!) },
  { weight: 1, arbitrary: oneOf('no-such', 'x'.repeat(65)) },
  { weight: 1, arbitrary: encoded },
);
const orderNames = fc.oneof(
  fc.constant(null).map(() => order.orderId),
  fc.bigInt({ min: -1n, max: 2n ** 64n }).map(String),
  encoded,
);
const receiptNames = fc.oneof(
  fc.constant(null).map(() => order.receipt),
  fc.nat(280).map((at) => `${order.receipt.slice(0, at)}x${order.receipt.slice(at + 1)}`),
  fc.nat(300).map((length) => order.receipt.slice(0, length)),
  encoded,
);
const paths = fc.oneof(
  { weight: 4, arbitrary: names.map((name) => `/api/v1/activities/${name}/purchases`) },
  { weight: 1, arbitrary: names.map((name) => `/api/v1/activities/${name}`) },
  { weight: 1, arbitrary: names.map((name) => `/api/v1/activities/${name}/receipt`) },
  { weight: 1, arbitrary: receiptNames.map((name) => `/api/v1/receipts/${name}`) },
  { weight: 1, arbitrary: receiptNames.map((name) => `/api/v1/receipts/${name}/events`) },
  { weight: 1, arbitrary: orderNames.map((name) => `/api/v1/orders/${name}`) },
  // pay changes nothing, cancel would for its owner: it is asked for by somebody else only, below
  { weight: 1, arbitrary: orderNames.map((name) => `/api/v1/orders/${name}/pay`) },
  { weight: 1, arbitrary: orderNames.map((name) => `/api/v1/orders/${name}/cancel`) },
  { weight: 1, arbitrary: oneOf('/api/v1/orders', '/api/v1/activities', '/api/v1/time', '/livez', '/readyz') },
  { weight: 1, arbitrary: oneOf('/api/v1/dev/login', '/api/v1/tickets', '/', '*', '//') },
  { weight: 1, arbitrary: fc.array(encoded, { maxLength: 5 }).map((parts) => `/${parts.join('/')}`) },
  { weight: 1, arbitrary: spiky.map((text) => `/${text.replaceAll(/[ #]/g, '')}`) },
);
const queries = fc.oneof(
  { weight: 6, arbitrary: fc.constant('') },
  {
    weight: 1,
    arbitrary: fc
      .array(fc.tuple(fc.oneof(oneOf('limit', 'after', 'quantity'), encoded), encoded), { minLength: 1, maxLength: 4 })
      .map((pairs) => `?${pairs.map(([name, value]) => `${name}=${value}`).join('&')}`),
  },
);

const authorizations = fc.oneof(
  { weight: 5, arbitrary: fc.constant(`Bearer ${tokenOf('loser')}`) },
  { weight: 1, arbitrary: oneOf('Bearer', 'Bearer ', 'Basic eDp4', 'bearer a.b.c', `Bearer ${tokenOf('loser')}x`) },
  { weight: 1, arbitrary: headerText.map((text) => `Bearer ${text}`) },
  { weight: 1, arbitrary: headerText },
);
const keys = fc.oneof(
  { weight: 4, arbitrary: oneOf('a-good-key', 'another-good-key') },
  { weight: 1, arbitrary: headerText },
);
const types = fc.oneof(
  { weight: 6, arbitrary: oneOf('application/json', 'application/json; charset=utf-8', 'APPLICATION/JSON') },
  { weight: 1, arbitrary: oneOf('text/plain', 'application/x-www-form-urlencoded', '') },
  { weight: 1, arbitrary: headerText },
);
const header = (name: string, value: fc.Arbitrary<string>, weight = 8): fc.Arbitrary<(readonly [string, string])[]> =>
  fc.oneof<fc.MaybeWeightedArbitrary<(readonly [string, string])[]>[]>(
    { weight, arbitrary: value.map((text) => [[name, text] as const]) },
    { weight: 1, arbitrary: fc.constant([]) },
    { weight: 1, arbitrary: fc.tuple(value, value).map((both) => both.map((text) => [name, text] as const)) },
  );
const headers = fc
  .tuple(
    header('authorization', authorizations),
    header('idempotency-key', keys),
    header('content-type', types),
    header('accept-language', fc.oneof(oneOf('en', 'zh-CN', 'en;q=0.5,zh'), headerText), 1),
    header('last-event-id', headerText, 1),
    fc.array(
      fc.tuple(
        oneOf('x-forwarded-for', 'x-user-id', 'cookie', 'origin', 'range', 'accept', 'te', 'if-match'),
        headerText,
      ),
      { maxLength: 2 },
    ),
  )
  .map((groups) => groups.flat());

const quantities = fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: -2, max: 7 }) },
  { weight: 1, arbitrary: fc.oneof(fc.double(), fc.integer(), fc.string(), fc.boolean(), fc.constant(null)) },
);
const bodies = fc.oneof(
  { weight: 4, arbitrary: fc.record({ quantity: quantities, ticket: fc.string() }, { requiredKeys: [] }).map(toJson) },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.dictionary(anyText, fc.jsonValue(), { maxKeys: 3 }), quantities)
      .map(([more, quantity]) => toJson({ quantity, ...more })),
  },
  { weight: 1, arbitrary: fc.record({ buyerId: fc.oneof(fc.constant('ann'), anyText) }).map(toJson) },
  { weight: 1, arbitrary: fc.json({ maxDepth: 6 }) },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes)) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(fc.constant(Buffer.from('{"quantity":1,"ticket":"abc"}')), fc.nat(28), fc.nat(255))
      .map(([body, at, byte]) => Buffer.concat([body.subarray(0, at), Buffer.from([byte]), body.subarray(at + 1)])),
  },
  { weight: 1, arbitrary: fc.constant(`{"quantity":1}${' '.repeat(17_000)}`) },
);
function toJson(value: unknown): string {
  return JSON.stringify(value);
}

const anything: fc.Arbitrary<RawRequest> = fc
  .record({
    method: fc.oneof(
      { weight: 5, arbitrary: fc.constant('POST') },
      { weight: 3, arbitrary: fc.constant('GET') },
      { weight: 1, arbitrary: oneOf('PUT', 'DELETE', 'PATCH', 'HEAD', 'OPTIONS', 'TRACE', 'QUERY', 'PURGE', 'BUY') },
    ),
    path: fc.tuple(paths, queries).map((parts) => parts.join('')),
    headers,
    body: fc.option(bodies, { nil: undefined, freq: 5 }),
  })
  .map((request) => (request.method === 'POST' ? request : { ...request, body: undefined }));

/** Nothing wrong with it, but for what it asks for. */
const rightOnes: fc.Arbitrary<RawRequest> = fc.nat(3).map((i) => ({
  method: 'POST',
  path: `/api/v1/activities/${Object.values(ids)[i]!}/purchases`,
  headers: [
    ['authorization', `Bearer ${tokenOf('loser')}`],
    ['idempotency-key', 'a-good-key'],
    ['content-type', 'application/json'],
  ],
  body: '{"quantity":1}',
}));
const requests = fc.oneof({ weight: 9, arbitrary: anything }, { weight: 1, arbitrary: rightOnes });

const DELIBERATE = ['busy', 'not_ready', 'in_doubt'];

test(
  `${SIZE} requests, ${AT_ONCE} at a time: nothing breaks and nothing changes`,
  { timeout: 60_000 + SIZE * 50 },
  async () => {
    const before = await stateOf(sluice);
    const codes = new Map<string, number>();
    await fc.assert(
      fc.asyncProperty(fc.array(requests, { minLength: AT_ONCE, maxLength: AT_ONCE }), async (batch) => {
        await Promise.all(
          batch.map(async (request) => {
            const bytes = bytesOf(request);
            const reply = readReply(await talk(sluice.url, bytes));
            const sent = (): string =>
              `${bytes.toString('latin1').slice(0, 1_000)}\n--- ${reply?.status} ${reply?.text}`;
            expect(reply, sent()).toBeDefined();
            const { status, body, text } = reply!;
            const code = String(body['code'] ?? status);
            codes.set(code, (codes.get(code) ?? 0) + 1);
            if (status < 400) {
              expect(status, sent()).toBe(200);
              return;
            }
            expect(status < 500 || (status === 503 && DELIBERATE.includes(code)), sent()).toBe(true);
            // a HEAD that does not parse is no HEAD
            if (request.method === 'HEAD' && body['field'] !== 'request') return expect(text, sent()).toBe('');
            expect(reply!.headers['content-type'], sent()).toBe('application/problem+json; charset=utf-8');
            expect(body, sent()).toMatchObject({ code: expect.any(String), title: expect.any(String), status });
            if (code === 'invalid') expect(body, sent()).toMatchObject({ field: expect.any(String) });
          }),
        );
      }),
      { numRuns: Math.ceil(SIZE / AT_ONCE), endOnFailure: true },
    );
    expect(await stateOf(sluice)).toEqual(before);
    expect(crashes).toEqual([]);
    expect(sluice.log.lines.filter((line) => line.level === 'error')).toEqual([]);
    // it went through the door and not only against it
    for (const code of ['paused', 'not_open', 'ended', 'sold_out', 'invalid', 'unauthenticated', 'unknown_order']) {
      expect(codes.get(code) ?? 0, code).toBeGreaterThan(0);
    }
    expect((await fetch(`${sluice.url}/livez`)).status).toBe(200);
    expect((await fetch(`${sluice.url}/readyz`)).status).toBe(200);
  },
);

test('and the requests were such as buy where there is something to be had', async () => {
  await sluice.wired.activities.change(ids.paused, 'resume', 'test');
  expect((await buy(sluice.url, ids.paused, 'loser', { key: 'a-good-key' })).code).toBe('held');
});
