/**
 * Anything that a socket can carry to the edge, by fast-check: requests that are nearly right, requests that are wrong in
 * every part, HTTP that is framed wrongly, and bytes that are no HTTP at all.
 *
 * Promises that none of it may change anything: buyers who ask have nothing and find nothing to buy, operators who could
 * move something only read, or ask for moves that their activity does not allow. So whatever changes is a hole.
 */
import fc from 'fast-check';
import { bytesOf, type Ending, type RawRequest } from './raw-http.ts';

/** What there is to ask about. */
export type Targets = {
  /** activities that sell nothing, and why; `settled` allows no move to anybody */
  readonly activities: Readonly<Record<'paused' | 'notOpen' | 'ended' | 'soldOut' | 'inReview' | 'settled', string>>;
  /** an order of somebody else than `loser` */
  readonly orderId: string;
  readonly receipt: string;
  /** texts of `Authorization` */
  readonly loser: string;
  /** who owns the order: only reads, and only repeats his purchase */
  readonly winner: string;
  readonly viewer: string;
  readonly approver: string;
};

/** One conversation: what is written, and what may come back. */
export type Sent = {
  readonly bytes: Buffer;
  readonly ending: Ending;
  /** whether one answer must come: not to what is no request, or none that ever got whole */
  readonly isAnswered: boolean;
  readonly isHead: boolean;
};

const oneOf = fc.constantFrom;
const weighed = <T>(...rows: readonly [weight: number, arbitrary: fc.Arbitrary<T>][]): fc.Arbitrary<T> =>
  fc.oneof(...rows.map(([weight, arbitrary]) => ({ weight, arbitrary })));

/** Text in which every character means something somewhere. */
const spiky = fc.string({ unit: oneOf(...'aZ09_-.:|/?&=#%{}[]()<>"\'`$\\*;,+~!@^ '), maxLength: 70 });
/** Names that an object has without having been given them. */
const PROTOTYPE = ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', 'valueOf'] as const;
const anyText = fc.oneof(
  spiky,
  fc.string({ unit: 'binary', maxLength: 40 }),
  oneOf(...PROTOTYPE, '..', '', '\ud800', 'a\udfffb'),
);
const encoded = anyText.map((text) => encodeURIComponent(Buffer.from(text).toString()));
/** Visible bytes and blanks, as a header may hold them. */
const headerText = fc.oneof(
  spiky,
  fc.string({ unit: fc.integer({ min: 0x20, max: 0xff }).map((code) => String.fromCharCode(code)) }),
);

// ------------------------------------------------------------------------------------------------------------- the parts

const queries = weighed(
  [15, fc.constant('')],
  [
    1,
    fc
      .array(
        fc.tuple(
          fc.oneof(oneOf('limit', 'after', 'quantity', 'state', 'activityId', 'buyerId', ...PROTOTYPE), encoded),
          fc.oneof(oneOf('0', '1', '200', '201', '9223372036854775808', 'placed', 'open'), encoded),
        ),
        { minLength: 1, maxLength: 4 },
      )
      .map((pairs) => `?${pairs.map(([name, value]) => `${name}=${value}`).join('&')}`),
  ],
  [1, oneOf('?', '?limit', '?limit=1&limit=2', '?limit[]=1', '?limit=%', '?%00=1', '?a=b?c=d', '?limit=1e1')],
);

const header = (name: string, value: fc.Arbitrary<string>, weight = 20): fc.Arbitrary<(readonly [string, string])[]> =>
  weighed<(readonly [string, string])[]>(
    [weight, value.map((text) => [[name, text] as const])],
    [1, fc.constant([])],
    [1, fc.tuple(value, value).map((both) => both.map((text) => [name, text] as const))],
  );
const keys = weighed([8, oneOf('a-good-key', 'another-good-key')], [1, headerText]);
const types = weighed(
  [16, oneOf('application/json', 'application/json; charset=utf-8', 'APPLICATION/JSON')],
  [
    1,
    oneOf(
      'text/plain',
      'application/x-www-form-urlencoded',
      'application/problem+json',
      'multipart/form-data',
      '',
      ';',
    ),
  ],
  [1, headerText],
);
const others = fc.array(
  fc.tuple(
    oneOf(
      ...['x-forwarded-for', 'x-user-id', 'x-http-method-override', 'cookie', 'origin', 'range', 'accept', 'te'],
      ...['if-match', 'if-none-match', 'expect', 'upgrade', 'accept-encoding', ...PROTOTYPE],
    ),
    fc.oneof(headerText, oneOf('100-continue', 'websocket', 'h2c', 'gzip', 'DELETE', 'bytes=0-0', '*')),
  ),
  { maxLength: 3 },
);

/** A number as it may be written, in range and far beyond. */
const numberTexts = fc.oneof(
  fc.integer({ min: -2, max: 7 }).map(String),
  oneOf('1e400', '-1e400', '9007199254740993', '1e21', '-0', '1.0', '1E0', '10e-1', '0.1e1', '9'.repeat(400)),
  fc.double().map(String),
  fc.bigInt().map(String),
);
const deep = fc
  .tuple(oneOf('[', '{"a":', '{"__proto__":', '[{"quantity":'), fc.nat(3_000))
  .map(([open, depth]) => open.repeat(depth));
function toJson(value: unknown): string {
  return JSON.stringify(value);
}
/** Values with a name that every object has. */
const withPrototype = fc
  .tuple(oneOf(...PROTOTYPE), fc.json({ maxDepth: 2 }), numberTexts)
  .map(([name, value, number]) => `{"quantity":${number},"${name}":${value}}`);
const anyJson = fc.oneof(
  fc.json({ maxDepth: 6 }),
  withPrototype,
  deep,
  numberTexts.map((number) => `{"quantity":${number}}`),
  fc.tuple(numberTexts, numberTexts).map(([one, other]) => `{"quantity":${one},"quantity":${other}}`),
  oneOf('{"quantity":1,"ticket":"\\ud800"}', '{"buyerId":"\\udfff"}', '\ufeff{"quantity":1}', '{"quantity":1}{}', '//'),
  fc.constant(`{"quantity":1}${' '.repeat(17_000)}`),
);
/** JSON with one byte changed, and bytes that are no text. */
const brokenJson = fc.oneof(
  fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes)),
  fc
    .tuple(fc.constant(Buffer.from('{"quantity":1,"ticket":"abc"}')), fc.nat(28), fc.nat(255))
    .map(([body, at, byte]) => Buffer.concat([body.subarray(0, at), Buffer.of(byte), body.subarray(at + 1)])),
  oneOf(Buffer.from('{"quantity":1,"ticket":"\xff"}', 'latin1'), Buffer.from([0xed, 0xa0, 0x80])),
);
const purchaseBodies = weighed<string | Buffer>(
  [
    4,
    fc
      .record(
        {
          quantity: weighed<unknown>(
            [3, fc.integer({ min: -2, max: 7 })],
            [1, fc.oneof(fc.double(), fc.integer(), fc.string(), fc.boolean(), fc.constant(null))],
          ),
          ticket: fc.string(),
        },
        { requiredKeys: [] },
      )
      .map(toJson),
  ],
  [2, fc.dictionary(anyText, fc.jsonValue(), { maxKeys: 3 }).map((more) => toJson({ quantity: 1, ...more }))],
  [1, fc.record({ buyerId: fc.oneof(fc.constant('ann'), anyText) }).map(toJson)],
  [2, anyJson],
  [2, brokenJson],
);

/** Bodies of calls that take none, or a reason. */
const reasons = weighed<string | Buffer | undefined>(
  [3, fc.constant(undefined)],
  [1, oneOf('{}', 'null', '{"reason":"价格已核对"}')],
  [1, anyText.map((reason) => toJson({ reason }))],
  [1, anyJson],
  [1, brokenJson],
);

/** A plan with everything but a total that may be: never one that could be taken. */
const planBodies = fc
  .record(
    {
      id: fc.oneof(oneOf('fuzzed', 'x'.repeat(65)), anyText),
      item: fc.oneof(fc.jsonValue(), fc.constant({ name: 'x', priceMinor: 1, currency: 'EUR' })),
      opensAt: fc.oneof(oneOf('2020-01-01T00:00:00Z', '2999-01-01T00:00:00Z', '2027-02-30T00:00:00Z'), anyText),
      endsAt: fc.oneof(oneOf('2999-01-02T00:00:00Z', '2027-01-01T00:00:00+25:00'), anyText),
      perBuyerLimit: fc.jsonValue(),
      answerWhen: fc.oneof(oneOf('held', 'ordered'), anyText),
      overshoot: fc.double(),
      segments: fc.integer(),
      durability: anyText,
      limits: fc.jsonValue(),
      autoConfirm: fc.jsonValue(),
    },
    { requiredKeys: [] },
  )
  .chain((plan) => oneOf<unknown>(0, -1, 1.5, 10_000_001, '5', null, [1], {}).map((total) => ({ ...plan, total })))
  .map(toJson);

// ---------------------------------------------------------------------------------------------------------- the requests

const METHODS = oneOf(
  ...['POST', 'GET', 'PUT', 'DELETE', 'PATCH', 'HEAD', 'OPTIONS', 'TRACE', 'QUERY', 'PURGE', 'SUBSCRIBE', 'M-SEARCH'],
  // no HTTP of ours or of anybody's
  ...['BUY', 'get', 'G', 'POST,POST', '__proto__'],
);
const isReading = (method: string): boolean => method === 'GET' || method === 'HEAD';

/** Requests about what `targets` names. */
function requestsAbout(targets: Targets): fc.Arbitrary<RawRequest> {
  const activityIds = Object.values(targets.activities);
  const names = weighed([3, oneOf(...activityIds)], [1, oneOf('no-such', 'x'.repeat(65), ...PROTOTYPE)], [1, encoded]);
  const orderNames = fc.oneof(
    fc.constant(targets.orderId),
    oneOf('9223372036854775807', '9223372036854775808', '9999999999999999999', '0', '1'),
    fc.bigInt({ min: -1n, max: 2n ** 65n }).map(String),
    encoded,
  );
  const receiptNames = fc.oneof(
    fc.constant(targets.receipt),
    fc.nat(280).map((at) => `${targets.receipt.slice(0, at)}x${targets.receipt.slice(at + 1)}`),
    fc.nat(300).map((length) => targets.receipt.slice(0, length)),
    fc.nat(600).map((length) => 'r1.'.padEnd(length, 'A')),
    encoded,
  );
  const moves = oneOf('approve', 'reject', 'preheat', 'confirm', 'open', 'pause', 'resume', 'end', 'settle');
  const from = (method: string, path: fc.Arbitrary<string>): fc.Arbitrary<readonly [string, string]> =>
    path.map((text) => [method, text] as const);
  const under = (method: string, name: fc.Arbitrary<string>, before: string, after: fc.Arbitrary<string> | string) =>
    from(
      method,
      fc.tuple(name, typeof after === 'string' ? fc.constant(after) : after).map((rest) => before + rest.join('')),
    );
  const fixed = (folder: string, ...rest: string[]): fc.Arbitrary<string> =>
    oneOf(...rest).map((name) => folder + name);
  const calls = weighed(
    [6, under('POST', names, '/api/v1/activities/', '/purchases')],
    [1, under('GET', names, '/api/v1/activities/', fc.oneof(fc.constant(''), fc.constant('/receipt')))],
    [2, under('GET', receiptNames, '/api/v1/receipts/', fc.oneof(fc.constant(''), fc.constant('/events')))],
    [1, under('GET', orderNames, '/api/v1/orders/', '')],
    [1, under('POST', orderNames, '/api/v1/orders/', oneOf('/pay', '/cancel'))],
    [1, from('GET', fixed('/', 'api/v1/orders', 'api/v1/activities', 'api/v1/time'))],
    [1, from('GET', fixed('/', 'livez', 'readyz', 'metrics', 'openapi.json'))],
    [1, from('POST', fixed('/api/v1/', 'dev/login', 'tickets', 'payments/webhook'))],
    [
      2,
      under(
        'POST',
        names,
        '/api/v1/admin/activities/',
        fc.oneof(
          fc.constant('/stock'),
          moves.map((move) => `/${move}`),
        ),
      ),
    ],
    [1, under('GET', names, '/api/v1/admin/activities/', oneOf('', '/verify', '/live'))],
    [1, under('PATCH', names, '/api/v1/admin/activities/', '')],
    [1, under('POST', orderNames, '/api/v1/admin/dead-letters/', '/give-back')],
    [1, from('GET', fixed('/api/v1/admin/', 'activities', 'orders', 'dead-letters', 'audit', 'alerts'))],
    [1, from('GET', fixed('', '/', '*', '//', 'x', 'http://other.example/api/v1/time'))],
    [
      1,
      from(
        'GET',
        fc.array(encoded, { maxLength: 5 }).map((parts) => `/${parts.join('/')}`),
      ),
    ],
    [
      1,
      from(
        'GET',
        spiky.map((text) => `/${text.replaceAll(/[ #]/g, '')}`),
      ),
    ],
  );
  const brokenAuthorizations = fc.oneof(
    oneOf('Bearer', 'Bearer ', 'Basic eDp4', 'bearer a.b.c', `${targets.loser}x`, `${targets.approver}x`),
    oneOf(targets.approver.slice(0, -3), targets.approver.replace('Bearer', 'Basic')),
    headerText.map((text) => `Bearer ${text}`),
    headerText,
  );
  /** Who changes nothing by any call. */
  const harmless = weighed(
    [5, fc.constant(targets.loser)],
    [2, fc.constant(targets.viewer)],
    [2, brokenAuthorizations],
  );
  /** Whoever reads. */
  const reading = weighed([2, harmless], [1, oneOf(targets.winner, targets.approver)]);

  const calling = fc
    .tuple(calls, METHODS, fc.nat(4))
    .map(([[method, path], another, at]) => [at === 0 ? another : method, path] as const);
  const anything = calling.chain(([method, path]) =>
    fc
      .record({
        query: queries,
        headers: fc
          .tuple(
            header('authorization', isReading(method) ? reading : harmless),
            header('idempotency-key', keys),
            header('content-type', types),
            header('accept-language', fc.oneof(oneOf('en', 'zh-CN', 'en;q=0.5,zh'), headerText), 1),
            header('last-event-id', headerText, 1),
            others,
          )
          .map((groups) => groups.flat()),
        body: path.endsWith('/purchases')
          ? fc.option(purchaseBodies, { nil: undefined, freq: 20 })
          : weighed([3, reasons], [1, planBodies]),
      })
      .map(({ query, headers, body }) => {
        const withBody = method === 'POST' || method === 'PATCH' ? body : undefined;
        return {
          method,
          path: path + query,
          // a type without a body is refused for that alone
          headers: headers.filter(([name]) => name !== 'content-type' || withBody !== undefined),
          body: withBody,
        };
      }),
  );

  /** Nothing wrong with it, but for what it asks for. */
  const rightOnes = fc
    .tuple(oneOf(...activityIds), oneOf(targets.loser, targets.winner), oneOf('a-good-key', 'another-good-key'))
    .map(([id, authorization, key]): RawRequest => ({
      method: 'POST',
      path: `/api/v1/activities/${id}/purchases`,
      headers: [
        ['authorization', authorization],
        ['idempotency-key', key],
        ['content-type', 'application/json'],
      ],
      body: '{"quantity":1}',
    }));

  /** An operator who may do everything asks for what is not allowed to anybody. */
  const approver = (request: RawRequest): RawRequest => ({
    ...request,
    headers: [
      ['authorization', targets.approver],
      ...(request.body === undefined ? [] : [['content-type', 'application/json'] as const]),
      ...(request.headers ?? []),
    ],
  });
  const versions = header('if-match', fc.oneof(oneOf('"1"', '"0"', '*', 'W/"1"', '"999999999999999"'), headerText), 1);
  const unmovable = weighed([2, fc.constant(targets.activities.settled)], [1, oneOf('no-such', ...PROTOTYPE)]);
  const refusedMoves = fc.oneof(
    fc
      .tuple(unmovable, moves, reasons, versions)
      .map(([id, move, body, headers]) =>
        approver({ method: 'POST', path: `/api/v1/admin/activities/${id}/${move}`, body, headers }),
      ),
    fc
      .tuple(unmovable, fc.oneof(planBodies, anyJson, brokenJson), versions)
      .map(([id, body, headers]) =>
        approver({ method: 'PATCH', path: `/api/v1/admin/activities/${id}`, body, headers }),
      ),
    fc
      .oneof(planBodies, brokenJson, deep)
      .map((body) => approver({ method: 'POST', path: '/api/v1/admin/activities', body })),
    fc
      .tuple(orderNames, reasons)
      .map(([id, body]) => approver({ method: 'POST', path: `/api/v1/admin/dead-letters/${id}/give-back`, body })),
  );
  return weighed([7, anything], [1, rightOnes], [2, refusedMoves]);
}

// ------------------------------------------------------------------------------------------------------- the conversations

const CRLF = '\r\n';

/** The same request in chunks, cut anywhere, with what a chunk may carry besides. */
const inChunks = (request: RawRequest, cuts: readonly number[], extension: string): Buffer => {
  const body = Buffer.from(request.body ?? '');
  const edges = [...new Set([0, ...cuts.map((cut) => cut % (body.length + 1)), body.length])].toSorted((a, b) => a - b);
  const pieces = edges.slice(1).map((edge, i) => body.subarray(edges[i], edge));
  const { body: _instead, ...rest } = request;
  return Buffer.concat([
    bytesOf({ ...rest, headers: [...(request.headers ?? []), ['transfer-encoding', 'chunked']] }),
    ...pieces.flatMap((piece) => [
      Buffer.from(`${piece.length.toString(16)}${extension}${CRLF}`),
      piece,
      Buffer.from(CRLF),
    ]),
    Buffer.from(`0${CRLF}${CRLF}`),
  ]);
};

/** Headers that are too many, too long, or contradict each other. */
const bombs = fc.oneof(
  fc
    .tuple(fc.nat(40_000), oneOf('x-bomb', 'cookie', 'authorization', 'accept-language', 'idempotency-key'))
    .map(([length, name]): (readonly [string, string])[] => [[name, 'b'.repeat(length)]]),
  fc
    .nat(2_500)
    .map((count): (readonly [string, string])[] => Array.from({ length: count }, (_, i) => [`x${i}`, ''] as const)),
  oneOf<(readonly [string, string])[]>(
    [['content-length', '-1']],
    [['content-length', '1e3']],
    [['content-length', '99999999999999999999']],
    [
      ['content-length', '5'],
      ['content-length', '6'],
    ],
    [
      ['content-length', '14'],
      ['transfer-encoding', 'chunked'],
    ],
    [['transfer-encoding', 'gzip']],
    [['transfer-encoding', 'chunked, identity']],
    [['bad name', 'x']],
    [['', 'x']],
    [['x-folded', `a${CRLF} b`]],
    [['x-split', `a${CRLF}${CRLF}GET / HTTP/1.1`]],
    [['x-null', 'a\u0000b']],
    [['host', 'another']],
    [['connection', 'upgrade'], ['upgrade', 'websocket']], // prettier-ignore
    [['connection', 'upgrade, http2-settings'], ['upgrade', 'h2c'], ['http2-settings', 'AAMAAABk']], // prettier-ignore
  ),
);

/** What opens a conversation in another language than ours. */
const strangers = oneOf(
  'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  'GET /\r\n',
  'GET / HTTP/0.9\r\n\r\n',
  'GET /api/v1/time HTTP/1.0\r\n\r\n',
  'GET /api/v1/time HTTP/1.1\r\n\r\n',
  'GET /api/v1/time HTTP/2.0\r\nhost: x\r\n\r\n',
  'GET  /api/v1/time  HTTP/1.1\r\nhost: x\r\n\r\n',
  'GET /api/v1/time HTTP/1.1\nhost: x\n\n',
  'CONNECT other.example:443 HTTP/1.1\r\nhost: other.example\r\n\r\n',
  'OPTIONS * HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n',
  '\r\n\r\n\r\n',
  '*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n',
  '\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003',
);

/** Conversations about what `targets` names. */
export function conversationsAbout(targets: Targets): fc.Arbitrary<Sent> {
  const requests = requestsAbout(targets);
  const whole = requests.map((request): Sent => ({
    bytes: bytesOf(request),
    ending: 'waits',
    isAnswered: true,
    isHead: request.method === 'HEAD',
  }));
  const chunked = fc
    .tuple(requests, fc.array(fc.nat(20_000), { maxLength: 4 }), oneOf('', ';a=b', ';a="b\\"c"'))
    .filter(([request]) => request.method === 'POST')
    .map(([request, cuts, extension]): Sent => ({
      bytes: inChunks(request, cuts, extension),
      ending: 'waits',
      isAnswered: true,
      isHead: false,
    }));
  /** Framed so that the rest may never come: who sends it says that nothing more does. */
  const unframed = (bytes: Buffer): Sent => ({ bytes, ending: 'half-closes', isAnswered: false, isHead: false });
  const bombed = fc
    .tuple(requests, bombs)
    .map(([request, bomb]) => unframed(bytesOf({ ...request, headers: [...bomb, ...(request.headers ?? [])] })));
  const cut = fc.tuple(requests, fc.double({ min: 0, max: 1, noNaN: true })).map(([request, share]) => {
    const bytes = bytesOf(request);
    return unframed(bytes.subarray(0, Math.floor(bytes.length * share)));
  });
  const gone = cut.map((sent): Sent => ({ ...sent, ending: 'goes' }));
  const mutated = fc
    .tuple(requests, fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 3 }))
    .map(([request, changes]) => {
      const bytes = bytesOf(request);
      for (const [at, byte] of changes) bytes[at % bytes.length] = byte;
      return unframed(bytes);
    });
  const garbage = fc.oneof(
    fc.uint8Array({ maxLength: 400 }).map((bytes) => unframed(Buffer.from(bytes))),
    strangers.map((text) => unframed(Buffer.from(text, 'latin1'))),
    anyText.map((text) => unframed(Buffer.from(text))),
  );
  return weighed([20, whole], [2, chunked], [2, bombed], [1, cut], [1, gone], [2, mutated], [1, garbage]);
}
