/**
 * The contract's table of answers to a purchase, row by row over sockets: code, status, body, headers, in both languages.
 * Which of two answers comes first is `order-of-answers.pg.test.ts`'s business.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { TITLES, type Language, type ProblemCode } from '../../src/domain/text.ts';
import { systemClock } from '../../src/platform/clock.ts';
import { makeHs256 } from '../../src/platform/identity/hs256.ts';
import { STATUS } from '../../src/purchase/5-receipt/answer.ts';
import { startFaultProxy, type FaultProxy } from '../support/fault-proxy.ts';
import { ask, buy, isQuiet, startSluice, TEST_SECRET, until, type TestSluice, type Told } from '../support/sluice.ts';

let sluice: TestSluice;
let proxy: FaultProxy;
/** `sluice` but for what is asked of tokens */
let strict: TestSluice;
beforeAll(async () => {
  proxy = await startFaultProxy({ targetPort: Number(new URL(inject('redisUrl')).port) });
  sluice = await startSluice({
    redisUrl: proxy.url,
    directRedisUrl: inject('redisUrl'),
    settings: { SLUICE_GATE_TIMEOUT_MS: '300' },
  });
  strict = await startSluice({
    role: 'api',
    settings: { SLUICE_BUYER_ISSUER: 'the-shop', SLUICE_BUYER_AUDIENCE: 'sluice' },
  });
});
afterAll(async () => {
  await sluice.stop();
  await strict.stop();
  await proxy.stop();
});

const LANGUAGES: readonly { asked: string | undefined; language: Language }[] = [
  { asked: undefined, language: 'zh-CN' },
  { asked: 'zh-CN', language: 'zh-CN' },
  { asked: 'en', language: 'en' },
];
const someKey = (): string => `key-${randomBytes(6).toString('hex')}`;
const HOUR_MS = 3_600_000;
/** `{asked: undefined}` asks for no language at all. */
const inWords = (asked: string | undefined): { language?: string } => (asked === undefined ? {} : { language: asked });

describe.each(LANGUAGES)('asked in $asked', ({ asked, language }) => {
  /** every code that a test below has heard */
  const heard = new Set<string>();
  const problem = (code: ProblemCode, status: number): object => ({ code, status, title: TITLES[code][language] });
  const isProblem = (told: Told, code: ProblemCode, status: number, more: object = {}): void => {
    expect(told.body).toEqual({ ...problem(code, status), ...more });
    expect(told.status).toBe(status);
    expect(told.headers.get('content-type')).toBe('application/problem+json; charset=utf-8');
    expect(told.headers.get('cache-control')).toBe('no-store');
  };
  /** Where waiting helps the header is in whole seconds, and obeying it is enough. */
  const saysWhenToReturn = (told: Told): void => {
    const header = told.headers.get('retry-after') ?? '';
    const retryAfterMs = told.body['retryAfterMs'] as number;
    expect(header).toMatch(/^[1-9][0-9]*$/);
    expect(Number.isInteger(retryAfterMs) && retryAfterMs > 0).toBe(true);
    expect(Number(header)).toBe(Math.max(1, Math.ceil(retryAfterMs / 1_000)));
  };
  const purchase = async (
    activityId: string,
    buyer: string,
    more: { key?: string; quantity?: unknown } = {},
  ): Promise<Told> => {
    const told = await buy(sluice.url, activityId, buyer, { ...more, ...inWords(asked) });
    heard.add(told.code);
    return told;
  };

  test('held: 202 with the receipt', async () => {
    const { id } = await sluice.openActivity({ perBuyerLimit: 3 });
    const told = await purchase(id, 'ann', { quantity: 2 });
    expect(told.status).toBe(202);
    expect(told.body).toEqual({
      code: 'held',
      receipt: expect.stringMatching(/^r1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}$/),
      orderId: expect.stringMatching(/^[1-9][0-9]{0,18}$/),
      quantity: 2,
      state: 'queued',
    });
    expect(told.headers.get('content-type')).toBe('application/json; charset=utf-8');
    expect(told.headers.get('cache-control')).toBe('no-store');
    expect(told.headers.get('idempotent-replayed')).toBeNull();
  });

  test('ordered: 201 where the reply waits for the order', async () => {
    const { id } = await sluice.openActivity({ answerWhen: 'ordered' });
    const told = await purchase(id, 'ann');
    expect(told.status).toBe(201);
    expect(told.body).toEqual({
      code: 'ordered',
      receipt: expect.stringMatching(/^r1\./),
      orderId: expect.any(String),
      quantity: 1,
      state: 'ordered',
    });
  });

  test('replayed: 200, the first answer again with the present state', async () => {
    const activity = await sluice.openActivity({ total: 1 });
    const key = someKey();
    const first = await purchase(activity.id, 'ann', { key });
    await until('the order has landed', () => isQuiet(sluice, activity));
    await until(
      'the mark says so',
      async () => (await purchase(activity.id, 'ann', { key })).body['state'] === 'ordered',
    );
    const again = await purchase(activity.id, 'ann', { key });
    expect(again.status).toBe(200);
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    expect(again.body).toEqual({
      code: 'replayed',
      receipt: first.body['receipt'],
      orderId: first.body['orderId'],
      quantity: 1,
      state: 'ordered',
    });
  });

  test('already_bought: 409 with his own receipt, also when nothing is left', async () => {
    const { id } = await sluice.openActivity({ total: 1 });
    const first = await purchase(id, 'ann');
    const { receipt, orderId } = first.body;
    isProblem(await purchase(id, 'ann'), 'already_bought', 409, { receipt, orderId });
  });

  test('sold_out: 409', async () => {
    const { id } = await sluice.openActivity({ total: 1 });
    await purchase(id, 'ann');
    isProblem(await purchase(id, 'bob'), 'sold_out', 409);
  });

  test('not_open: 409 with the instant', async () => {
    const opensAt = systemClock.now() + HOUR_MS;
    const { id } = await sluice.openActivity({ opensAt, endsAt: opensAt + HOUR_MS });
    const opensAtIso = new Date(opensAt).toISOString();
    isProblem(await purchase(id, 'ann'), 'not_open', 409, { opensAt, opensAtIso });
  });

  test('paused: 409, ended: 410 by hand and by the clock', async () => {
    const { id } = await sluice.openActivity();
    await sluice.wired.activities.change(id, 'pause', 'test');
    isProblem(await purchase(id, 'ann'), 'paused', 409);
    await sluice.wired.activities.change(id, 'end', 'test');
    isProblem(await purchase(id, 'ann'), 'ended', 410);

    const short = await sluice.openActivity({ endsAt: systemClock.now() + 700 });
    await until(
      'it is over',
      async () => (await ask(sluice.url, `/api/v1/activities/${short.id}`)).body['state'] === 'ended',
    );
    isProblem(await purchase(short.id, 'bob'), 'ended', 410);
  });

  test('busy: 503 while Redis is away', async () => {
    const { id } = await sluice.openActivity();
    await proxy.refuseNew(true);
    proxy.cut();
    const told = await purchase(id, 'ann');
    await proxy.refuseNew(false);
    isProblem(told, 'busy', 503, { retryAfterMs: expect.any(Number) });
    saysWhenToReturn(told);
    await until('Redis is back', async () => (await purchase(id, 'ann')).code === 'held');
  });

  test('not_ready: 503 while the gate cannot be trusted', async () => {
    const activity = await sluice.openActivity();
    await sluice.redis.command('DEL', sluice.keys.stock({ activityId: activity.id, segment: 0, run: activity.run }));
    const told = await purchase(activity.id, 'ann');
    isProblem(told, 'not_ready', 503, { retryAfterMs: expect.any(Number) });
    saysWhenToReturn(told);
  });

  test('in_doubt: 503 when the reply is lost; the same key then gets the exact answer', async () => {
    const { id } = await sluice.openActivity({ total: 1 });
    const key = someKey();
    proxy.loseReplies({
      every: 1,
      of: ([command]) => command === 'EVALSHA' || command === 'EVAL' || command === 'evalsha',
    });
    const told = await purchase(id, 'ann', { key });
    proxy.keepReplies();
    isProblem(told, 'in_doubt', 503, { retryAfterMs: expect.any(Number) });
    saysWhenToReturn(told);
    let again = told;
    await until('the answer is exact', async () => {
      again = await purchase(id, 'ann', { key });
      return again.status !== 503;
    });
    expect(again.code).toBe('replayed');
    isProblem(await purchase(id, 'bob'), 'sold_out', 409);
  });

  test('unauthenticated: 401 with the reason, nobody bought', async () => {
    const { id } = await sluice.openActivity();
    const now = Math.floor(systemClock.now() / 1_000);
    const good = { sub: 'ann', exp: now + 600 };
    const signed = (claims: Record<string, unknown>, secret = TEST_SECRET): string =>
      `Bearer ${makeHs256([secret]).sign(claims)}`;
    const rows: [reason: string, at: TestSluice, authorization: string | undefined][] = [
      ['missing', sluice, undefined],
      ['malformed', sluice, 'Bearer'],
      ['malformed', sluice, 'Basic YW5uOmFubg=='],
      ['malformed', sluice, 'Bearer not.a.token'],
      ['malformed', sluice, `${signed(good)}=`],
      ['signature', sluice, signed(good, 'another-secret-another-secret-another')],
      ['expired', sluice, signed({ ...good, exp: now - 60 })],
      ['not_yet', sluice, signed({ ...good, nbf: now + 300 })],
      ['buyer_id', sluice, signed({ ...good, sub: 'ann|bob' })],
      ['buyer_id', sluice, signed({ ...good, sub: 7 })],
      ['buyer_id', sluice, signed({ ...good, sub: 'x'.repeat(65) })],
      ['buyer_id', sluice, signed({ exp: good.exp })],
      ['issuer', strict, signed({ ...good, aud: 'sluice' })],
      ['audience', strict, signed({ ...good, iss: 'the-shop', aud: 'another' })],
    ];
    for (const [reason, at, authorization] of rows) {
      const response = await fetch(`${at.url}/api/v1/activities/${id}/purchases`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'idempotency-key': someKey(),
          ...(authorization === undefined ? {} : { authorization }),
          ...(asked === undefined ? {} : { 'accept-language': asked }),
        },
        body: '{"quantity":1}',
      });
      const body = (await response.json()) as Record<string, unknown>;
      const told: Told = { status: response.status, code: String(body['code']), body, headers: response.headers };
      isProblem(told, 'unauthenticated', 401, { reason });
      heard.add(told.code);
      expect(told.headers.get('www-authenticate')).toBe('Bearer');
    }
    expect(await sluice.redis.command('GET', sluice.keys.stock({ activityId: id, segment: 0, run: 1 }))).toBe('10');
  });

  test('invalid: 400 with the field; unknown_activity: 404; key_reused: 422', async () => {
    const { id } = await sluice.openActivity({ perBuyerLimit: 2 });
    const told = await purchase(id, 'ann', { quantity: 0 });
    isProblem(told, 'invalid', 400, { field: 'quantity', detail: expect.stringContaining('quantity') });
    isProblem(await purchase('no-such', 'ann'), 'unknown_activity', 404);
    const key = someKey();
    await purchase(id, 'ann', { key });
    isProblem(await purchase(id, 'ann', { key, quantity: 2 }), 'key_reused', 422);
  });

  test('these are all that there are', () => {
    expect([...heard].toSorted()).toEqual(Object.keys(STATUS).toSorted());
  });

  test.each<[code: ProblemCode, status: number, method: string, type: string, body: string]>([
    ['method_not_allowed', 405, 'PUT', 'application/json', '{"quantity":1}'],
    ['body_too_large', 413, 'POST', 'application/json', `{"quantity":1}${' '.repeat(16_384)}`],
    ['not_json', 415, 'POST', 'text/plain', '{"quantity":1}'],
  ])('%s: %i, before anything is asked', async (code, status, method, type, body) => {
    const response = await fetch(`${sluice.url}/api/v1/activities/no-such/purchases`, {
      method,
      headers: { 'content-type': type, ...(asked === undefined ? {} : { 'accept-language': asked }) },
      body,
    });
    const told = { status: response.status, code, headers: response.headers };
    isProblem({ ...told, body: (await response.json()) as Record<string, unknown> }, code, status);
    expect(response.headers.get('allow')).toBe(status === 405 ? 'POST' : null);
  });
});

test('a token of the right issuer and audience buys', async () => {
  const { id } = await strict.openActivity();
  const exp = Math.floor(systemClock.now() / 1_000) + 600;
  const token = makeHs256([TEST_SECRET]).sign({ sub: 'ann', iss: 'the-shop', aud: ['x', 'sluice'], exp });
  const response = await fetch(`${strict.url}/api/v1/activities/${id}/purchases`, {
    method: 'POST',
    headers: {
      authorization: `bearer ${token}`,
      'idempotency-key': someKey(),
      'content-type': 'application/json; charset=utf-8',
    },
    body: '{"quantity":1.0,"ticket":"of no use here"}',
  });
  expect(response.status).toBe(202);
});

test('titles differ between the languages', () => {
  for (const titles of Object.values(TITLES)) expect(titles['zh-CN']).not.toBe(titles.en);
});

test.each<[header: string | undefined, language: Language]>([
  [undefined, 'zh-CN'],
  ['', 'zh-CN'],
  ['en', 'en'],
  ['EN-gb', 'en'],
  ['en-US,en;q=0.9', 'en'],
  ['zh-TW', 'zh-CN'],
  ['fr', 'zh-CN'],
  ['fr, en;q=0.5', 'en'],
  ['zh;q=0.5, en;q=0.8', 'en'],
  ['zh;q=0.8, en;q=0.5', 'zh-CN'],
  ['en;q=0.5, zh', 'zh-CN'],
  ['en ; q=0.3 , zh;q=0.2', 'en'],
  ['en;q=0', 'zh-CN'],
  ['en;q=0, *', 'zh-CN'],
  ['*', 'zh-CN'],
  ['en;q=2', 'zh-CN'],
  ['en;q=abc', 'zh-CN'],
  ['english', 'zh-CN'],
])('Accept-Language: %s is answered in %s', async (header, language) => {
  const response = await fetch(`${sluice.url}/api/v1/activities/no-such`, {
    headers: header === undefined ? {} : { 'accept-language': header },
  });
  expect((await response.json()) as object).toMatchObject({ title: TITLES.unknown_activity[language] });
});

test('a header that names more languages than anybody speaks is not read', async () => {
  const response = await fetch(`${sluice.url}/api/v1/activities/no-such`, {
    headers: { 'accept-language': `en${',fr'.repeat(80)}` },
  });
  expect((await response.json()) as object).toMatchObject({ title: TITLES.unknown_activity['zh-CN'] });
});

test('eight presses at once: one is held, the others are told so', async () => {
  const { id } = await sluice.openActivity();
  const key = someKey();
  const codes = await Promise.all(
    Array.from({ length: 8 }, async () => (await buy(sluice.url, id, 'ann', { key })).code),
  );
  expect(codes.toSorted()).toEqual(['held', ...Array.from({ length: 7 }, () => 'replayed')]);
});
