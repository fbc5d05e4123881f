/**
 * Bad input, over sockets: each row gets its stable code and names the field, and nothing has changed afterwards, neither
 * at the gate nor in the books.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buy, startSluice, tokenOf, type TestSluice } from '../support/sluice.ts';
import { exchange, readReply, talk, type RawReply, type RawRequest } from './raw-http.ts';
import { comeToRest, stateOf } from './state-of.ts';

let sluice: TestSluice;
let activityId: string;
let orderId: string;
let receipt: string;
let before: Record<string, unknown>;
beforeAll(async () => {
  sluice = await startSluice();
  activityId = (await sluice.openActivity({ perBuyerLimit: 3, total: 5 })).id;
  ({ orderId, receipt } = (await buy(sluice.url, activityId, 'owner', { quantity: 2 })).body as Record<
    string,
    string
  > as {
    orderId: string;
    receipt: string;
  });
  await comeToRest(sluice, activityId);
  before = await stateOf(sluice);
});
afterAll(() => sluice.stop());

const invalid = (reply: RawReply, field: string): void => {
  expect(reply.body).toEqual({
    code: 'invalid',
    status: 400,
    title: expect.any(String),
    field,
    detail: expect.any(String),
  });
  expect(reply.status).toBe(400);
  expect(reply.headers['content-type']).toBe('application/problem+json; charset=utf-8');
};
const nothingChanged = async (): Promise<void> => {
  expect(await stateOf(sluice)).toEqual(before);
};

type Change = Partial<Omit<RawRequest, 'headers'>> & {
  headers?: readonly (readonly [string, string])[];
  key?: string | undefined;
  type?: string | undefined;
};
/** A purchase that would be held but for what `change` spoils. */
function purchase(change: Change): Promise<RawReply> {
  const key = 'key' in change ? change.key : 'a-good-key';
  const type = 'type' in change ? change.type : 'application/json';
  return exchange(sluice.url, {
    method: 'POST',
    path: change.path ?? `/api/v1/activities/${activityId}/purchases`,
    headers: [
      ['authorization', `Bearer ${tokenOf('ann')}`],
      ...(key === undefined ? [] : [['idempotency-key', key] as const]),
      ...(type === undefined ? [] : [['content-type', type] as const]),
      ...(change.headers ?? []),
    ],
    body: 'body' in change ? change.body : '{"quantity":1}',
  });
}

describe('the quantity', () => {
  const texts = [
    ...['-3', '-1', '-0', '0', '1.5', '1e-9', '1000000000', '1e9', '2147483648', '9007199254740993', '1e309', '-1e309'],
    ...['4', '"1"', '"-2"', '"nan"', '" 5 "', '"0x10"', '"1e3"', '""', 'null', 'true', 'false', '[1]', '[]', '{}'],
    ...['{"then":1}', '{"$gt":0}'],
  ];
  test.each(texts)('%s is invalid', async (text) => {
    invalid(await purchase({ body: `{"quantity":${text}}` }), 'quantity');
    await nothingChanged();
  });

  test.each(['NaN', 'Infinity', '0x10', '01', '+1', '1_000', '.5', '１', 'undefined', "'1'"])(
    '%s is no JSON at all',
    async (text) => {
      invalid(await purchase({ body: `{"quantity":${text}}` }), 'body');
      await nothingChanged();
    },
  );

  test('none is invalid', async () => {
    for (const body of ['{}', '{"quantity":1,"quantity":0}']) invalid(await purchase({ body }), 'quantity');
    await nothingChanged();
  });

  test('2.0 and 20e-1 are 2; a member named twice counts as it was said last', async () => {
    const { id } = await sluice.openActivity({ perBuyerLimit: 2 });
    const path = `/api/v1/activities/${id}/purchases`;
    expect((await purchase({ path, body: '{"quantity":2.0}' })).body).toMatchObject({ code: 'held', quantity: 2 });
    for (const body of ['{"quantity":20e-1}', '{"quantity":1,"quantity":2}', '\ufeff{"quantity":2}']) {
      expect((await purchase({ path, body })).body).toMatchObject({ code: 'replayed', quantity: 2 });
    }
    await comeToRest(sluice, id);
    before = await stateOf(sluice);
  });
});

describe('the body', () => {
  const nested = `${'['.repeat(4_000)}${']'.repeat(4_000)}`;
  test.each<[name: string, change: Change, field: string]>([
    ['an unknown field', { body: '{"quantity":1,"buyerId":"bob"}' }, 'buyerId'],
    ['a field of the server', { body: '{"quantity":1,"orderId":"1"}' }, 'orderId'],
    ['__proto__', { body: '{"quantity":1,"__proto__":{"quantity":1}}' }, 'body'],
    ['__proto__, escaped', { body: String.raw`{"quantity":1,"__\u0070roto__":{"a":1}}` }, 'body'],
    ['constructor.prototype', { body: '{"quantity":1,"constructor":{"prototype":{"a":1}}}' }, 'body'],
    ['constructor', { body: '{"quantity":1,"constructor":1}' }, 'constructor'],
    ['toString', { body: '{"quantity":1,"toString":1}' }, 'toString'],
    ['a field of a kind', { body: '{"quantity":1,"$&{limit}":1}' }, '$&{limit}'],
    ['nested deeply', { body: `{"quantity":${nested}}` }, 'quantity'],
    ['nested deeply, unknown', { body: `{"quantity":1,"x":${nested}}` }, 'x'],
    ['nested and not closed', { body: '['.repeat(16_000) }, 'body'],
    ['a list', { body: '[{"quantity":1}]' }, 'body'],
    ['a number', { body: '1' }, 'body'],
    ['null', { body: 'null' }, 'body'],
    ['a text', { body: '"quantity"' }, 'body'],
    ['empty', { body: '' }, 'body'],
    ['cut off', { body: '{"quantity":1' }, 'body'],
    ['followed by more', { body: '{"quantity":1}{"quantity":1}' }, 'body'],
    ['not there', { body: undefined }, 'body'],
    ['not there, not named', { body: undefined, type: undefined }, 'body'],
    ['broken UTF-8 in a value', { body: Buffer.from('{"quantity":1,"ticket":"\xff\xfe"}', 'latin1') }, 'body'],
    ['a surrogate as UTF-8', { body: Buffer.from('{"quantity":1,"ticket":"\xed\xa0\x80"}', 'latin1') }, 'body'],
    ['UTF-16', { body: Buffer.from('{"quantity":1}', 'utf16le') }, 'body'],
    ['a zero byte', { body: '{"quantity":1,"ticket":"\0"}' }, 'body'],
    ['a ticket that is none', { body: '{"quantity":1,"ticket":7}' }, 'ticket'],
    ['a ticket without end', { body: `{"quantity":1,"ticket":"${'x'.repeat(1_025)}"}` }, 'ticket'],
    ['the quantity in the query', { path: '?quantity=-3' }, 'quantity'],
    ['the buyer in the query', { path: '?userId=bob' }, 'userId'],
  ])('%s', async (_name, change, field) => {
    const path = change.path?.startsWith('?') ? `/api/v1/activities/${activityId}/purchases${change.path}` : undefined;
    invalid(await purchase(path === undefined ? change : { ...change, path }), field);
    await nothingChanged();
  });

  test.each<[type: string | undefined, body: string]>([
    ['text/plain', '{"quantity":1}'],
    ['text/plain;charset=utf-8', '{"quantity":1}'],
    ['application/x-www-form-urlencoded', 'quantity=1'],
    ['multipart/form-data; boundary=x', '--x\r\n\r\n1\r\n--x--'],
    ['application/xml', '<quantity>1</quantity>'],
    ['application/jsonx', '{"quantity":1}'],
    ['application/vnd.api+json', '{"quantity":1}'],
    ['json', '{"quantity":1}'],
    ['', '{"quantity":1}'],
    ['application/', '{"quantity":1}'],
    ['application/json, text/plain', '{"quantity":1}'],
    [undefined, '{"quantity":1}'],
  ])('of type %s is 415', async (type, body) => {
    const reply = await purchase({ type, body });
    expect(reply.body).toMatchObject({ code: 'not_json', status: 415 });
    expect(reply.status).toBe(415);
    await nothingChanged();
  });

  test('beyond 16 KiB is 413, told by its length or counted, at the limit it is read', async () => {
    const padded = (bytes: number): string => `{"quantity":0}${' '.repeat(bytes - 14)}`;
    invalid(await purchase({ body: padded(16_384) }), 'quantity');
    const chunked = (body: string): string => `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
    for (const change of [
      { body: padded(16_385) },
      { body: padded(17 * 1024) },
      { body: padded(200 * 1024) },
      { body: chunked(padded(17 * 1024)), headers: [['transfer-encoding', 'chunked']] as const },
      { body: '{"quantity":1}', headers: [['content-length', '99999999999']] as const },
    ]) {
      const reply = await purchase(change);
      expect(reply.body).toMatchObject({ code: 'body_too_large', status: 413 });
      expect(reply.status).toBe(413);
    }
    await nothingChanged();
  });
});

describe('the headers', () => {
  test.each<[name: string, key: string | undefined]>([
    ['missing', undefined],
    ['empty', ''],
    ['of 7 characters', '1234567'],
    ['of 65 characters', 'k'.repeat(65)],
    ['with a blank', 'key with blanks'],
    ['with a bar', 'key|key|key'],
    ['with a comma', 'key,key,key'],
    ['with a zero byte escaped', String.raw`key-\u0000-key`],
    ['in Chinese', Buffer.from('一二三四五六七八').toString('latin1')],
    ['with a quote', '"quoted-key"'],
    ['of 4,000 characters', 'k'.repeat(4_000)],
  ])('a key %s', async (_name, key) => {
    invalid(await purchase({ key }), 'idempotency-key');
    await nothingChanged();
  });

  test('two keys are none', async () => {
    invalid(await purchase({ headers: [['idempotency-key', 'another-good-key']] }), 'idempotency-key');
    invalid(await purchase({ headers: [['Idempotency-Key', 'a-good-key']] }), 'idempotency-key');
    await nothingChanged();
  });

  test('of two tokens the first is taken, whoever else is named in whatever header', async () => {
    const { id } = await sluice.openActivity();
    const reply = await purchase({
      path: `/api/v1/activities/${id}/purchases`,
      headers: [
        ['authorization', `Bearer ${tokenOf('bob')}`],
        ['x-user-id', 'bob'],
        ['x-http-method-override', 'DELETE'],
        ['cookie', `token=${tokenOf('bob')}`],
      ],
    });
    expect(reply.status).toBe(202);
    await comeToRest(sluice, id);
    const rows = await sluice.database.database.query('select buyer_id from orders where activity_id = $1', [id]);
    expect(rows).toEqual([{ buyer_id: 'ann' }]);
    before = await stateOf(sluice);
  });

  test('a cookie, a query or a body is no token', async () => {
    for (const request of [
      { headers: [['cookie', `authorization=Bearer ${tokenOf('ann')}`]] as const, path: '/api/v1/orders' },
      { headers: [['proxy-authorization', `Bearer ${tokenOf('ann')}`]] as const, path: '/api/v1/orders' },
    ]) {
      const reply = await exchange(sluice.url, request);
      expect(reply.body).toMatchObject({ code: 'unauthenticated', reason: 'missing', status: 401 });
    }
    const reply = await exchange(sluice.url, { path: `/api/v1/orders?access_token=${tokenOf('ann')}` });
    invalid(reply, 'access_token');
    await nothingChanged();
  });

  test('an expectation that nobody knows is let pass', async () => {
    const reply = await purchase({ body: '{"quantity":0}', headers: [['expect', 'a miracle']] });
    invalid(reply, 'quantity');
  });

  test('headers beyond 16 KiB are 431', async () => {
    const reply = await purchase({ headers: [['x-long', 'x'.repeat(20_000)]] });
    expect(reply.body).toMatchObject({ code: 'headers_too_large', status: 431, title: expect.any(String) });
    expect(reply.status).toBe(431);
    await nothingChanged();
  });
});

describe('the path', () => {
  const odd = ['a%20b', 'a%7Cb', '%7Bx%7D', '*', '%00', 'a%2Fb', '%E9%97%B8', 'x'.repeat(65), 'a.b', '..%2f..', '%3A'];
  test.each(odd)('an activity named %s is invalid', async (name) => {
    invalid(await purchase({ path: `/api/v1/activities/${name}/purchases` }), 'id');
    invalid(await exchange(sluice.url, { path: `/api/v1/activities/${name}` }), 'id');
    await nothingChanged();
  });

  test.each(['0', '-1', '01', '1.0', '1e3', 'abc', '12345678901234567890', '%00'])(
    'an order named %s is invalid',
    async (name) => {
      const headers = [['authorization', `Bearer ${tokenOf('owner')}`]] as const;
      invalid(await exchange(sluice.url, { path: `/api/v1/orders/${name}`, headers }), 'id');
      for (const act of ['cancel', 'pay']) {
        invalid(await exchange(sluice.url, { method: 'POST', path: `/api/v1/orders/${name}/${act}`, headers }), 'id');
      }
      await nothingChanged();
    },
  );

  test.each(['__proto__', 'constructor', 'toString', 'no-such', 'x'.repeat(64)])(
    'an activity named %s is unknown',
    async (name) => {
      const reply = await purchase({ path: `/api/v1/activities/${name}/purchases` });
      expect(reply.body).toMatchObject({ code: 'unknown_activity', status: 404 });
      expect((await exchange(sluice.url, { path: `/api/v1/activities/${name}` })).body).toEqual(reply.body);
      await nothingChanged();
    },
  );

  test.each(['9223372036854775807', '9223372036854775808', '9999999999999999999', '1'])(
    'an order named %s is unknown, and asking does no harm',
    async (name) => {
      const headers = [['authorization', `Bearer ${tokenOf('owner')}`]] as const;
      for (const [method, path] of [
        ['GET', ''],
        ['POST', '/cancel'],
        ['POST', '/pay'],
      ] as const) {
        const reply = await exchange(sluice.url, { method, path: `/api/v1/orders/${name}${path}`, headers });
        expect(reply.body).toMatchObject({ code: 'unknown_order', status: 404 });
      }
      await nothingChanged();
    },
  );

  test.each([
    ...['/', '/api', '/api/v1', '/api/v1/', '//api/v1/time', '/api/v1/time/', '/API/V1/TIME', '/api/v1/time;x=1'],
    ...['/api//v1/time', '/api/v1/./time', '/api/v1/x/../time', '/api/v1/activities/', '/%zz', '/api/v1/orders/%', '*'],
    ...['/api/v1/admin/no-such-call', '/api/v2/time', '/favicon.ico', '/.env', '/api/v1/receipts/'],
  ])('%s is nowhere', async (path) => {
    for (const method of ['GET', 'POST']) {
      const reply = await exchange(sluice.url, { method, path });
      expect({ status: reply.status, code: reply.body['code'] }).toEqual(
        path.endsWith('receipts/')
          ? { status: method === 'GET' ? 401 : 405, code: method === 'GET' ? 'unauthenticated' : 'method_not_allowed' }
          : path.endsWith('activities/')
            ? { status: method === 'GET' ? 400 : 405, code: method === 'GET' ? 'invalid' : 'method_not_allowed' }
            : { status: 404, code: 'not_found' },
      );
    }
  });

  test('with a body of any kind it is nowhere all the same', async () => {
    for (const [type, body] of [
      ['text/plain', 'x'],
      ['application/json', '{'],
      ['application/json', '{"__proto__":1}'],
    ] as const) {
      const reply = await exchange(sluice.url, {
        method: 'POST',
        path: '/no',
        headers: [['content-type', type]],
        body,
      });
      expect(reply.body).toMatchObject({ code: 'not_found', status: 404 });
    }
  });
});

describe('the query', () => {
  const bad: [query: string, field: string][] = [
    ...['0', '201', '1000', '1e2', '-1', '1.0', '01', '', '%20', 'all', '0x10', '%EF%BC%91'].map(
      (limit): [string, string] => [`limit=${limit}`, 'limit'],
    ),
    ['limit=1&limit=2', 'limit'],
    ['limit[]=1', 'limit[]'],
    ['limit', 'limit'],
    ['page=2', 'page'],
    ['__proto__=1', '__proto__'],
    ['constructor=1', 'constructor'],
    ['a[__proto__]=b&a[length]=100000000', 'a[__proto__]'],
    ['after=', 'after'],
    ['after=1&after=2', 'after'],
    ['after=%00', 'after'],
    ['after=a%20b', 'after'],
  ];
  test.each([...bad, ['after=no-such', 'after'] as [string, string]])('activities?%s', async (query, field) => {
    invalid(await exchange(sluice.url, { path: `/api/v1/activities?${query}` }), field);
  });
  test.each([
    ...bad,
    ['after=abc', 'after'] as [string, string],
    ['after=0', 'after'] as [string, string],
    ['after=9223372036854775808', 'after'] as [string, string],
    ['buyerId=owner', 'buyerId'] as [string, string],
  ])('orders?%s', async (query, field) => {
    const headers = [['authorization', `Bearer ${tokenOf('owner')}`]] as const;
    invalid(await exchange(sluice.url, { path: `/api/v1/orders?${query}`, headers }), field);
  });

  test('is refused where a call takes none', async () => {
    const headers = [['authorization', `Bearer ${tokenOf('owner')}`]] as const;
    for (const path of [
      ...['/livez', '/readyz', '/api/v1/time', `/api/v1/activities/${activityId}`],
      ...[`/api/v1/activities/${activityId}/receipt`, `/api/v1/receipts/${receipt}`, `/api/v1/orders/${orderId}`],
    ]) {
      invalid(await exchange(sluice.url, { path: `${path}?x=1`, headers }), 'x');
    }
  });

  test('with 1,300 fields is answered at once', async () => {
    const query = Array.from({ length: 1_300 }, (_, i) => `a${i}=b`).join('&');
    const startedAt = performance.now();
    invalid(await exchange(sluice.url, { path: `/api/v1/orders?${query}` }), 'a0');
    expect(performance.now() - startedAt).toBeLessThan(1_000);
  });
});

describe('calls without a body', () => {
  test.each(['cancel', 'pay'])('%s takes none, or an empty one', async (act) => {
    const path = `/api/v1/orders/${orderId}/${act}`;
    const headers = [
      ['authorization', `Bearer ${tokenOf('owner')}`] as const,
      ['content-type', 'application/json'] as const,
    ];
    invalid(await exchange(sluice.url, { method: 'POST', path, headers, body: '{"state":"paid"}' }), 'state');
    invalid(await exchange(sluice.url, { method: 'POST', path, headers, body: '[]' }), 'body');
    invalid(await exchange(sluice.url, { method: 'POST', path, headers, body: '{' }), 'body');
    await nothingChanged();
  });

  test('dev login takes a buyer id and nothing else', async () => {
    const login = (body: string): Promise<RawReply> =>
      exchange(sluice.url, {
        method: 'POST',
        path: '/api/v1/dev/login',
        headers: [['content-type', 'application/json']],
        body,
      });
    for (const buyerId of ['""', '"a b"', '"a|b"', '7', 'null', `"${'x'.repeat(65)}"`, String.raw`"a\u0000"`]) {
      invalid(await login(`{"buyerId":${buyerId}}`), 'buyerId');
    }
    invalid(await login('{"buyerId":"ann","role":"admin"}'), 'role');
    invalid(await login('{}'), 'buyerId');
  });
});

describe('what is no HTTP', () => {
  test.each<[name: string, bytes: string]>([
    ['no request line', 'hello\r\n\r\n'],
    ['a header without a colon', 'GET /livez HTTP/1.1\r\nhost test\r\n\r\n'],
    ['two lengths', 'POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab'],
    [
      'a length and an encoding',
      'POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n',
    ],
    ['a negative length', 'POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n'],
    ['a control character in a header', 'GET /livez HTTP/1.1\r\nhost: x\r\nx: a\x01b\r\n\r\n'],
    ['a blank in the path', 'GET /live z HTTP/1.1\r\nhost: x\r\n\r\n'],
    ['TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
    ['an unknown method', 'BUY /livez HTTP/1.1\r\nhost: x\r\n\r\n'],
  ])('%s is 400', async (_name, bytes) => {
    const reply = readReply(await talk(sluice.url, Buffer.from(bytes, 'latin1')));
    expect(reply?.body).toMatchObject({ code: 'invalid', status: 400, title: expect.any(String), field: 'request' });
    expect(reply?.status).toBe(400);
    expect(reply?.headers['content-type']).toBe('application/problem+json; charset=utf-8');
  });

  test('behind a purchase on the same connection it never is the purchase’s answer', async () => {
    const { id } = await sluice.openActivity();
    const purchase =
      `POST /api/v1/activities/${id}/purchases HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n` +
      `authorization: Bearer ${tokenOf('ann')}\r\nidempotency-key: a-good-key\r\ncontent-length: 14\r\n\r\n{"quantity":1}`;
    const reply = readReply(await talk(sluice.url, `${purchase}no HTTP at all\r\n\r\n`));
    // no answer at all leaves the buyer in doubt, which is true; "invalid" would not be
    expect([undefined, 202]).toContain(reply?.status);
    const again = readReply(await talk(sluice.url, purchase.replace('host: x', 'host: x\r\nconnection: close')));
    expect(again?.body['code']).toBe('replayed');
  });

  test('a chunked body that breaks off is 400 and buys nothing', async () => {
    const head = `POST /api/v1/activities/${activityId}/purchases HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n`;
    const rest = `authorization: Bearer ${tokenOf('ann')}\r\nidempotency-key: a-good-key\r\ntransfer-encoding: chunked\r\n\r\n`;
    const reply = readReply(await talk(sluice.url, `${head}${rest}e\r\n{"quantity":1}\r\nzz\r\n`));
    expect(reply?.body).toMatchObject({ code: 'invalid', status: 400 });
  });
});

test('after all of it nobody has noticed anything', async () => {
  expect(sluice.alarms()).toEqual([]);
  expect(sluice.log.lines.filter((line) => line.level === 'error')).toEqual([]);
  expect((await buy(sluice.url, activityId, 'ann')).code).toBe('held');
});
