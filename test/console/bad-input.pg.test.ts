/**
 * What an operator may ask for wrongly: each row is refused with its code and field, in the language asked for, and leaves
 * nothing behind. Bounds are refused one beyond and taken at the bound.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { fieldFault, TITLES, type Language } from '../../src/domain/text.ts';
import { systemClock } from '../../src/platform/clock.ts';
import { startSluice, tokenOf, type TestSluice, type Told } from '../support/sluice.ts';
import { admin, newActivity } from './operator.ts';

let sluice: TestSluice;
beforeAll(async () => {
  sluice = await startSluice({ role: 'api' });
});
afterAll(() => sluice.stop());

const DAY_MS = 86_400_000;
const inMs = (ms: number): string => new Date(systemClock.now() + ms).toISOString();
const counts = async (): Promise<unknown> => {
  const [row] = await sluice.database.database.query(
    'select (select count(*)::int from activities) as activities, (select count(*)::int from audit) as audit',
  );
  return row;
};
const post = (change: Record<string, unknown>, language?: string): Promise<Told> =>
  admin(sluice.url, 'POST', '/activities', {
    role: 'operator',
    body: newActivity(change),
    ...(language === undefined ? {} : { language }),
  });
const item = (change: Record<string, unknown>): Record<string, unknown> => ({
  item: { name: '测试商品', priceMinor: 9_900, currency: 'CNY', ...change },
});
const without = (name: string): Record<string, unknown> => {
  const { [name]: _gone, ...rest } = newActivity();
  return rest;
};

describe('a new activity', () => {
  const far = (): string => inMs(366 * DAY_MS + 60_000);
  test.each<[what: string, change: () => Record<string, unknown>, field: string]>([
    ['an id with a blank', () => ({ id: 'a b' }), 'id'],
    ['an empty id', () => ({ id: '' }), 'id'],
    ['an id of 65 characters', () => ({ id: 'x'.repeat(65) }), 'id'],
    ['an id that is a number', () => ({ id: 7 }), 'id'],
    ['no name', () => ({ item: { priceMinor: 1, currency: 'EUR' } }), 'item.name'],
    ['an empty name', () => item({ name: '' }), 'item.name'],
    ['a name of 121 code points', () => item({ name: '🎁'.repeat(121) }), 'item.name'],
    ['a name with a line break', () => item({ name: 'a\nb' }), 'item.name'],
    ['a name with a zero byte', () => item({ name: 'a\u0000b' }), 'item.name'],
    ['a name that turns the direction round', () => item({ name: 'a\u202eb' }), 'item.name'],
    ['a name with half a character', () => item({ name: 'a\ud800' }), 'item.name'],
    ['a name not in normal form', () => item({ name: 'e\u0301' }), 'item.name'],
    ['a price below 0', () => item({ priceMinor: -1 }), 'item.priceMinor'],
    ['a price above the bound', () => item({ priceMinor: 100_000_000_001 }), 'item.priceMinor'],
    ['half a cent', () => item({ priceMinor: 1.5 }), 'item.priceMinor'],
    ['a price as text', () => item({ priceMinor: '100' }), 'item.priceMinor'],
    ['no currency', () => ({ item: { name: 'x', priceMinor: 1 } }), 'item.currency'],
    ['a currency in small letters', () => item({ currency: 'cny' }), 'item.currency'],
    ['a currency of four letters', () => item({ currency: 'EURO' }), 'item.currency'],
    ['a picture that is a script', () => item({ imageUrl: 'javascript:alert(1)' }), 'item.imageUrl'],
    ['a picture on disk', () => item({ imageUrl: 'file:///etc/passwd' }), 'item.imageUrl'],
    ['a picture without an address', () => item({ imageUrl: '/x.png' }), 'item.imageUrl'],
    ['a picture that is null', () => item({ imageUrl: null }), 'item.imageUrl'],
    ['an item with more', () => item({ weight: 1 }), 'item.weight'],
    ['an item that is a text', () => ({ item: 'lamp' }), 'item'],
    ['a total of 0', () => ({ total: 0 }), 'total'],
    ['a total above the bound', () => ({ total: 10_000_001 }), 'total'],
    ['half a unit', () => ({ total: 1.5 }), 'total'],
    ['a total as text', () => ({ total: '10' }), 'total'],
    ['a limit of 0', () => ({ perBuyerLimit: 0 }), 'perBuyerLimit'],
    ['a limit above the bound', () => ({ perBuyerLimit: 1_001 }), 'perBuyerLimit'],
    ['a start without a zone', () => ({ opensAt: '2026-12-24T20:00:00' }), 'opensAt'],
    ['a start that is a number', () => ({ opensAt: 1_800_000_000_000 }), 'opensAt'],
    ['a start that is a day', () => ({ opensAt: '2026-12-24' }), 'opensAt'],
    ['30 February', () => ({ opensAt: '2027-02-30T20:00:00Z' }), 'opensAt'],
    ['29 February of a common year', () => ({ opensAt: '2027-02-29T20:00:00Z' }), 'opensAt'],
    ['31 April', () => ({ opensAt: '2027-04-31T20:00:00+08:00' }), 'opensAt'],
    ['24 o’clock', () => ({ opensAt: '2027-04-30T24:00:00Z' }), 'opensAt'],
    ['a leap second', () => ({ opensAt: '2026-12-31T23:59:60Z' }), 'opensAt'],
    ['a zone of 24 hours', () => ({ opensAt: '2027-04-30T20:00:00+24:00' }), 'opensAt'],
    ['a zone without minutes', () => ({ opensAt: '2027-04-30T20:00:00+08' }), 'opensAt'],
    ['a start in more than a year', () => ({ opensAt: far(), endsAt: far() }), 'opensAt'],
    ['an end in more than a year', () => ({ endsAt: far() }), 'endsAt'],
    ['an end that is the start', () => ({ opensAt: inMs(DAY_MS), endsAt: inMs(DAY_MS - 1) }), 'endsAt'],
    ['an end that has passed', () => ({ opensAt: inMs(-2_000), endsAt: inMs(-1_000) }), 'endsAt'],
    ['another answerWhen', () => ({ answerWhen: 'later' }), 'answerWhen'],
    ['an overshoot below 1', () => ({ overshoot: 0.9, answerWhen: 'ordered' }), 'overshoot'],
    ['an overshoot above 2', () => ({ overshoot: 2.001, answerWhen: 'ordered' }), 'overshoot'],
    ['an overshoot of four decimals', () => ({ overshoot: 1.0001, answerWhen: 'ordered' }), 'overshoot'],
    ['an overshoot without waiting', () => ({ overshoot: 1.2 }), 'overshoot'],
    ['65 segments', () => ({ segments: 65 }), 'segments'],
    ['another durability', () => ({ durability: 'forever' }), 'durability'],
    ['autoConfirm as text', () => ({ autoConfirm: 'true' }), 'autoConfirm'],
    ['limits with more', () => ({ limits: { perDay: 1 } }), 'limits.perDay'],
    ['a field that is not known', () => ({ color: 'red' }), 'color'],
    ['a state of its own', () => ({ state: 'open' }), 'state'],
  ])('%s', async (_what, change, field) => {
    const before = await counts();
    for (const language of ['zh-CN', 'en'] satisfies Language[]) {
      const told = await post(change(), language);
      expect(told.body).toEqual({
        code: 'invalid',
        status: 400,
        title: TITLES.invalid[language],
        field,
        detail: expect.any(String),
      });
      expect(told.status).toBe(400);
      // a sentence about this fault, and not only that there is one
      if (!['id', 'opensAt'].includes(field) || language === 'en') expect(String(told.body['detail'])).toContain(field);
    }
    expect(await counts()).toEqual(before);
  });

  test.each(['item', 'total', 'opensAt', 'endsAt'])('without %s', async (name) => {
    const told = await admin(sluice.url, 'POST', '/activities', { body: without(name), language: 'en' });
    expect(told.body).toMatchObject({
      code: 'invalid',
      field: name,
      detail: fieldFault('required', 'en', { field: name }),
    });
  });

  test.each<[string, Record<string, unknown>, string]>([
    ['two segments', { segments: 2 }, 'segments'],
    ['winners told by a replica', { durability: 'replicated' }, 'durability'],
    ['winners told by a disk', { durability: 'synced' }, 'durability'],
    ['tickets', { requireTicket: true }, 'requireTicket'],
    ['payment', { payWithinSeconds: 900 }, 'payWithinSeconds'],
    ['limits', { limits: { buyerPerSecond: 5 } }, 'limits'],
  ])('%s are not offered yet, and are not ignored', async (_what, change, field) => {
    const before = await counts();
    for (const language of ['zh-CN', 'en'] satisfies Language[]) {
      const told = await post(change, language);
      expect(told.body).toEqual({
        code: 'not_offered',
        status: 400,
        title: TITLES.not_offered[language],
        field,
        detail: fieldFault('not_offered', language, { field }),
      });
    }
    expect(await counts()).toEqual(before);
  });

  test('everything at its bounds is taken, and means what it says', async () => {
    const told = await post({
      id: `${'z'.repeat(40)}${String(systemClock.now())}-_`,
      item: {
        name: '🎁'.repeat(120),
        priceMinor: 100_000_000_000,
        currency: 'JPY',
        imageUrl: 'https://cdn.example/闸.png?x=1',
      },
      total: 10_000_000,
      perBuyerLimit: 1_000,
      opensAt: '2026-12-24t20:00:00.1239+08:00',
      endsAt: '2026-12-24T12:00:01z',
      answerWhen: 'ordered',
      overshoot: 2,
      segments: 1,
      durability: 'memory',
      requireTicket: false,
      autoConfirm: false,
    });
    const opensAt = Date.UTC(2026, 11, 24, 12, 0, 0, 123);
    expect(told.body).toMatchObject({
      total: 10_000_000,
      surplus: 10_000_000,
      perBuyerLimit: 1_000,
      opensAt,
      opensAtIso: '2026-12-24T12:00:00.123Z',
      endsAt: opensAt + 877,
      overshoot: 2,
    });
    expect(told.status).toBe(201);
  });

  test('`2.0` is 2; one without an id gets one; one whose id is taken is told so', async () => {
    const made = await admin(sluice.url, 'POST', '/activities', { body: { ...without('id'), total: 2.0 } });
    const id = String(made.body['id']);
    expect(id).toMatch(/^act-[0-9a-f]{12}$/);
    const before = await counts();
    const again = await post({ id });
    expect(again.body).toMatchObject({ code: 'activity_exists', status: 409 });
    expect(await counts()).toEqual(before);
  });
});

describe('an edit', () => {
  const make = async (): Promise<{ path: string; etag: string }> => {
    const made = await admin(sluice.url, 'POST', '/activities', { body: newActivity() });
    return { path: `/activities/${String(made.body['id'])}`, etag: made.headers.get('etag')! };
  };

  test('needs the version that was read: none is 428, an old one 412 with the present document', async () => {
    const { path, etag } = await make();
    expect(etag).toBe('"1"');
    const body = { total: 11 };
    const none = await admin(sluice.url, 'PATCH', path, { body, language: 'en' });
    expect(none.body).toMatchObject({ code: 'version_required', status: 428, title: TITLES.version_required.en });
    for (const ifMatch of ['1', 'W/"1"', '*', '"one"', '""', '"1", "2"', '"01"', '"9999999999999999"']) {
      const odd = await admin(sluice.url, 'PATCH', path, { body, ifMatch });
      expect(odd.body, ifMatch).toMatchObject({ code: 'invalid', field: 'if-match' });
    }
    const edited = await admin(sluice.url, 'PATCH', path, { body, ifMatch: etag });
    expect(edited.headers.get('etag')).toBe('"2"');
    const old = await admin(sluice.url, 'PATCH', path, { body: { total: 12 }, ifMatch: etag });
    expect(old.headers.get('etag')).toBe('"2"');
    expect(old.body).toMatchObject({ code: 'old_version', status: 412, activity: { total: 11, version: 2 } });
    const read = await admin(sluice.url, 'GET', path);
    expect(read.headers.get('etag')).toBe('"2"');
    expect(read.body).toMatchObject({ total: 11 });
  });

  test('a move may name the version it has seen', async () => {
    const { path } = await make();
    const old = await admin(sluice.url, 'POST', `${path}/approve`, { name: 'bob', ifMatch: '"7"' });
    expect(old.body).toMatchObject({ code: 'old_version', status: 412 });
    expect((await admin(sluice.url, 'POST', `${path}/approve`, { name: 'bob', ifMatch: '"1"' })).status).toBe(200);
  });

  test.each<[what: string, body: Record<string, unknown>, field: string]>([
    ['nothing', {}, 'body'],
    ['an item of nothing', { item: {} }, 'item'],
    ['another id', { id: 'x' }, 'id'],
    ['a state', { state: 'open' }, 'state'],
    ['a version', { version: 9 }, 'version'],
    ['an end before the start that stands', { endsAt: inMs(60_000) }, 'endsAt'],
    ['an overshoot without waiting', { overshoot: 1.5 }, 'overshoot'],
    ['a bad date', { endsAt: '2027-02-30T00:00:00Z' }, 'endsAt'],
    ['a name without an end', { item: { name: 'x'.repeat(5_000) } }, 'item.name'],
  ])('of %s is invalid', async (_what, body, field) => {
    const { path, etag } = await make();
    const told = await admin(sluice.url, 'PATCH', path, { body, ifMatch: etag });
    expect(told.body).toMatchObject({ code: 'invalid', field });
    expect((await admin(sluice.url, 'GET', path)).headers.get('etag')).toBe(etag);
  });

  test('changes what it names, and what follows from it', async () => {
    const { path, etag } = await make();
    const told = await admin(sluice.url, 'PATCH', path, {
      ifMatch: etag,
      body: { answerWhen: 'ordered', overshoot: 1.25, item: { imageUrl: 'https://a.example/x.png' } },
    });
    expect(told.body).toMatchObject({
      total: 10,
      surplus: 2,
      item: { name: '测试商品', imageUrl: 'https://a.example/x.png' },
    });
    const again = await admin(sluice.url, 'PATCH', path, {
      ifMatch: told.headers.get('etag')!,
      body: { total: 100, item: { imageUrl: null } },
    });
    expect(again.body).toMatchObject({ total: 100, surplus: 25 });
    expect(again.body['item']).toEqual({ name: '测试商品', priceMinor: 9_900, currency: 'CNY' });
  });
});

describe('the rest', () => {
  test.each<[method: string, path: string, body: unknown, status: number, field: string | undefined]>([
    ['GET', '/activities?limit=0', undefined, 400, 'limit'],
    ['GET', '/activities?limit=201', undefined, 400, 'limit'],
    ['GET', '/activities?limit=1&limit=2', undefined, 400, 'limit'],
    ['GET', '/activities?after=no-such', undefined, 400, 'after'],
    ['GET', '/activities?state=open', undefined, 400, 'state'],
    ['GET', '/activities/a%20b', undefined, 400, 'id'],
    ['GET', '/activities/no-such', undefined, 404, undefined],
    ['GET', '/activities/no-such/verify', undefined, 404, undefined],
    ['GET', '/activities/no-such/live', undefined, 404, undefined],
    ['GET', '/activities/no-such/verify?deep=1', undefined, 400, 'deep'],
    ['DELETE', '/activities/no-such', undefined, 405, undefined],
    ['POST', '/activities/no-such/pause', { why: 'x' }, 400, 'why'],
    ['POST', '/activities/no-such/pause', { reason: '' }, 400, 'reason'],
    ['POST', '/activities/no-such/pause', { reason: 'x'.repeat(121) }, 400, 'reason'],
    ['POST', '/activities/no-such/pause', { reason: 'a\u2066b' }, 400, 'reason'],
    ['POST', '/activities/no-such/pause', { reason: 7 }, 400, 'reason'],
    ['POST', '/activities/no-such/explode', {}, 404, undefined],
    ['GET', '/orders?state=gone', undefined, 400, 'state'],
    ['GET', '/orders?activityId=a%20b', undefined, 400, 'activityId'],
    ['GET', '/orders?after=9223372036854775808', undefined, 400, 'after'],
    ['GET', '/orders?after=0', undefined, 400, 'after'],
    ['GET', '/dead-letters?state=lost', undefined, 400, 'state'],
    ['POST', '/dead-letters/0/give-back', undefined, 400, 'id'],
    ['POST', '/dead-letters/1/give-back', undefined, 404, undefined],
    ['POST', '/dead-letters/9999999999999999999/give-back', undefined, 404, undefined],
    ['GET', '/audit?after=x', undefined, 400, 'after'],
    ['GET', '/audit?actor=bob', undefined, 400, 'actor'],
  ])('%s %s %j is %i', async (method, path, body, status, field) => {
    const before = await counts();
    const told = await admin(sluice.url, method, path, body === undefined ? {} : { body });
    expect(told.status).toBe(status);
    expect(told.body).toMatchObject({ status, code: expect.any(String), title: expect.any(String) });
    if (field !== undefined) expect(told.body).toMatchObject({ code: 'invalid', field });
    expect(told.headers.get('cache-control')).toBe('no-store');
    expect(await counts()).toEqual(before);
  });

  test('lists are pages, newest first', async () => {
    const made: string[] = [];
    for (let i = 0; i < 3; i++) {
      made.unshift(String((await admin(sluice.url, 'POST', '/activities', { body: newActivity() })).body['id']));
    }
    const ids = (told: Told): string[] => (told.body['items'] as { id: string }[]).map(({ id }) => id);
    const first = await admin(sluice.url, 'GET', '/activities?limit=2', { role: 'viewer' });
    expect(ids(first)).toEqual(made.slice(0, 2));
    const second = await admin(sluice.url, 'GET', `/activities?limit=2&after=${String(first.body['next'])}`);
    expect(ids(second)[0]).toBe(made[2]);
    const audit = await admin(sluice.url, 'GET', '/audit?limit=1');
    expect(audit.body['items']).toMatchObject([{ action: 'create', activityId: made[0], actor: 'approver' }]);
    const before = await admin(sluice.url, 'GET', `/audit?limit=1&after=${String(audit.body['next'])}`);
    expect(before.body['items']).toMatchObject([{ activityId: made[1] }]);
  });

  test('a buyer’s token is no operator’s', async () => {
    const told = await fetch(`${sluice.url}/api/v1/admin/activities`, {
      headers: { authorization: `Bearer ${tokenOf('ann')}` },
    });
    expect(await told.json()).toMatchObject({ code: 'unauthenticated', status: 401, reason: 'signature' });
  });
});
