/**
 * The operator API's table, call by call over HTTP in both languages: who may not, what is answered when it is done, and
 * each way in which it is refused, with its code, its title and its sentence. The table names every call that is offered.
 *
 * Which move is allowed when is `moves.pg.test.ts`'s business, every bound of every field `bad-input.pg.test.ts`'s.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { fieldFault, MOVE_REFUSALS, TITLES, type Language, type ProblemCode } from '../../src/domain/text.ts';
import { OPERATOR_ROLES, type OperatorRole } from '../../src/platform/identity/operators.ts';
import { systemClock } from '../../src/platform/clock.ts';
import { makeHs256 } from '../../src/platform/identity/hs256.ts';
import { buy, startSluice, TEST_OPERATOR_SECRET, tokenOf, type TestSluice, type Told } from '../support/sluice.ts';
import { admin, newActivity, operatorToken, type Asking } from './operator.ts';
import { inSituation, type Situation } from './situations.ts';

let sluice: TestSluice;
beforeAll(async () => {
  // no worker: nothing moves but by the calls of this test
  sluice = await startSluice({ role: 'api' });
});
afterAll(() => sluice.stop());

/** A call as it is asked: what stands for `{id}`, the query, the body, the version. */
type Ask = Omit<Asking, 'role' | 'language'> & { readonly id?: string; readonly query?: string };
/** One way to be refused: `says` is what the problem has besides code, title and status. */
type Refusal = {
  readonly code: ProblemCode;
  readonly status: number;
  readonly ask: () => Promise<Ask> | Ask;
  readonly says?: (language: Language) => object;
};
type Call = {
  readonly call: `${string} ${string}`;
  readonly needs: OperatorRole;
  /** what is asked so that it is done, and what is then answered */
  readonly ask: () => Promise<Ask> | Ask;
  readonly status: number;
  readonly answer: object;
  readonly refusals: readonly Refusal[];
};

const about = (situation: Situation) => async (): Promise<Ask> => ({ id: await inSituation(sluice, situation) });
const NO_SUCH: Refusal = { code: 'unknown_activity', status: 404, ask: () => ({ id: 'no-such' }) };
const wrongState = (situation: Situation, reason: keyof typeof MOVE_REFUSALS, state: string): Refusal => ({
  code: 'wrong_state',
  status: 409,
  ask: about(situation),
  says: (language) => ({
    reason,
    detail: MOVE_REFUSALS[reason][language],
    state,
    paused: situation.includes('paused'),
    preheat: expect.any(String) as string,
    version: expect.any(Number) as number,
  }),
});
const invalid = (kind: string, field: string, limit: unknown, ask: Refusal['ask']): Refusal => ({
  code: 'invalid',
  status: 400,
  ask,
  says: (language) => ({ field, detail: fieldFault(kind, language, { field, limit }) }),
});
const NO_REASON = invalid('length', 'reason', 120, () => ({ id: 'no-such', body: { reason: '' } }));
/** `?after` and `?limit` are pages everywhere. */
const PAGES = ['limit=0', 'limit=201', 'after=%20'].map((query) =>
  invalid('pattern', query.split('=')[0]!, undefined, () => ({ query: `?${query}` })),
);

/** A hold that was set aside, as the landing leaves it; its id. */
async function deadLetter(state: 'open' | 'given_back'): Promise<string> {
  const { id } = await sluice.openActivity();
  const { body } = await buy(sluice.url, id, 'ann');
  const orderId = String(body['orderId']);
  await sluice.database.database.query(
    `insert into dead_letters (order_id, activity_id, run, segment, entry_id, buyer_id, request_id, quantity, held_at, error, tries)
     values ($1, $2, 1, 0, '0-1', 'ann', 'key-of-ann', 1, now(), 'too long', 5)`,
    [orderId, id],
  );
  if (state === 'given_back') await admin(sluice.url, 'POST', `/dead-letters/${orderId}/give-back`);
  return orderId;
}

const TABLE: readonly Call[] = [
  {
    call: 'POST /activities',
    needs: 'operator',
    ask: () => ({ body: newActivity() }),
    status: 201,
    answer: { state: 'in_review', total: 10, sold: 0, moves: ['approve', 'reject', 'edit'] },
    refusals: [
      invalid('minimum', 'total', 1, () => ({ body: newActivity({ total: 0 }) })),
      invalid('additionalProperties', 'color', undefined, () => ({ body: newActivity({ color: 'red' }) })),
      {
        code: 'not_offered',
        status: 400,
        ask: () => ({ body: newActivity({ segments: 2 }) }),
        says: (language) => ({
          field: 'segments',
          detail: fieldFault('not_offered', language, { field: 'segments' }),
        }),
      },
      {
        code: 'activity_exists',
        status: 409,
        ask: async () => ({ body: newActivity({ id: await inSituation(sluice, 'in review') }) }),
      },
    ],
  },
  {
    call: 'GET /activities',
    needs: 'viewer',
    async ask() {
      await inSituation(sluice, 'rejected');
      return { query: '?limit=1' };
    },
    status: 200,
    answer: { items: [{ state: 'rejected' }] },
    refusals: PAGES,
  },
  {
    call: 'GET /activities/{id}',
    needs: 'viewer',
    ask: about('scheduled'),
    status: 200,
    answer: { state: 'scheduled', createdBy: 'maker', version: expect.any(Number) },
    refusals: [NO_SUCH],
  },
  {
    call: 'PATCH /activities/{id}',
    needs: 'operator',
    ask: async () => ({ ...(await about('in review')()), ifMatch: '"1"', body: { total: 11 } }),
    status: 200,
    answer: { state: 'in_review', total: 11, version: 2 },
    refusals: [
      { ...NO_SUCH, ask: () => ({ id: 'no-such', ifMatch: '"1"', body: { total: 11 } }) },
      {
        code: 'version_required',
        status: 428,
        ask: async () => ({ ...(await about('in review')()), body: { total: 11 } }),
      },
      {
        code: 'old_version',
        status: 412,
        ask: async () => ({ ...(await about('scheduled')()), ifMatch: '"1"', body: { total: 11 } }),
        says: () => ({ activity: expect.objectContaining({ state: 'scheduled', total: 10 }) as object }),
      },
      invalid('version', 'if-match', undefined, () => ({ id: 'no-such', ifMatch: 'W/"1"', body: { total: 11 } })),
      invalid('maximum', 'total', 10_000_000, () => ({ id: 'no-such', ifMatch: '"1"', body: { total: 10_000_001 } })),
    ],
  },
  {
    call: 'POST /activities/{id}/copy',
    needs: 'operator',
    ask: async () => ({ ...(await about('in review')()), body: { total: 11 } }),
    status: 201,
    answer: { state: 'in_review', total: 11, sold: 0, version: 1 },
    refusals: [
      { ...NO_SUCH, ask: () => ({ id: 'no-such', body: {} }) },
      invalid('maximum', 'total', 10_000_000, () => ({ id: 'no-such', body: { total: 10_000_001 } })),
      {
        code: 'activity_exists',
        status: 409,
        ask: async () => ({
          ...(await about('in review')()),
          body: { id: await inSituation(sluice, 'in review') },
        }),
      },
    ],
  },
  {
    call: 'POST /activities/{id}/approve',
    needs: 'approver',
    ask: about('in review'),
    status: 200,
    answer: { state: 'scheduled', gateTold: true },
    refusals: [
      NO_SUCH,
      NO_REASON,
      wrongState('open', 'state', 'open'),
      wrongState('in review, its end past', 'over', 'in_review'),
      {
        code: 'forbidden',
        status: 403,
        ask: async () => ({ ...(await about('in review')()), name: 'maker' }),
        says: (language) => ({ reason: 'own', detail: MOVE_REFUSALS.own[language] }),
      },
    ],
  },
  {
    call: 'POST /activities/{id}/reject',
    needs: 'approver',
    ask: about('in review'),
    status: 200,
    answer: { state: 'rejected' },
    refusals: [NO_SUCH, NO_REASON, wrongState('scheduled, opens within a minute', 'last_minute', 'scheduled')],
  },
  {
    call: 'POST /activities/{id}/preheat',
    needs: 'operator',
    ask: about('scheduled'),
    status: 200,
    answer: { outcome: 'verified', wrote: true, run: 1 },
    refusals: [
      NO_SUCH,
      NO_REASON,
      wrongState('in review', 'state', 'in_review'),
      {
        code: 'preheat_failed',
        status: 409,
        ask: about('scheduled, not confirmed, its opening past'),
        says: () => ({
          activityId: expect.any(String) as string,
          run: 1,
          outcome: 'failed',
          wrote: false,
          checks: expect.arrayContaining([expect.objectContaining({ name: 'opensAt', holds: false })]) as object[],
        }),
      },
    ],
  },
  {
    call: 'POST /activities/{id}/confirm',
    needs: 'approver',
    ask: about('scheduled, verified'),
    status: 200,
    answer: { state: 'scheduled', preheat: 'confirmed', gateTold: true },
    refusals: [NO_SUCH, NO_REASON, wrongState('scheduled', 'not_verified', 'scheduled')],
  },
  {
    call: 'POST /activities/{id}/open',
    needs: 'operator',
    ask: about('scheduled, confirmed'),
    status: 200,
    answer: { state: 'open', gateTold: true },
    refusals: [NO_SUCH, NO_REASON, wrongState('scheduled, verified', 'not_confirmed', 'scheduled')],
  },
  {
    call: 'POST /activities/{id}/pause',
    needs: 'operator',
    ask: about('open'),
    status: 200,
    answer: { state: 'open', paused: true, gateTold: true },
    refusals: [NO_SUCH, NO_REASON, wrongState('open, paused', 'paused', 'open')],
  },
  {
    call: 'POST /activities/{id}/resume',
    needs: 'operator',
    ask: about('open, paused'),
    status: 200,
    answer: { state: 'open', paused: false, gateTold: true },
    refusals: [NO_SUCH, NO_REASON, wrongState('open', 'not_paused', 'open')],
  },
  {
    call: 'POST /activities/{id}/end',
    needs: 'operator',
    ask: about('open'),
    status: 200,
    answer: { state: 'ended', gateTold: true },
    refusals: [NO_SUCH, NO_REASON, wrongState('ended', 'state', 'ended')],
  },
  {
    call: 'POST /activities/{id}/settle',
    needs: 'operator',
    ask: about('ended'),
    status: 200,
    answer: { state: 'settled', sold: 0 },
    refusals: [
      NO_SUCH,
      NO_REASON,
      wrongState('open', 'state', 'open'),
      {
        code: 'unsettled',
        status: 409,
        async ask() {
          // nobody lands here: what was held is still under way
          const { id } = await sluice.openActivity();
          await buy(sluice.url, id, 'ann');
          await admin(sluice.url, 'POST', `/activities/${id}/end`);
          return { id };
        },
        says: () => ({ open: expect.objectContaining({ outboxEntries: 1 }) as object, findings: [] }),
      },
    ],
  },
  {
    call: 'GET /activities/{id}/verify',
    needs: 'viewer',
    ask: about('open'),
    status: 200,
    answer: { run: 1, total: 10, surplus: 0, left: 10, live: 0, findings: [] },
    refusals: [NO_SUCH],
  },
  {
    call: 'GET /activities/{id}/live',
    needs: 'viewer',
    ask: about('open'),
    status: 200,
    answer: { state: 'open', total: 10, left: 10 },
    refusals: [NO_SUCH],
  },
  {
    call: 'GET /orders',
    needs: 'viewer',
    ask: () => ({ query: '?activityId=no-such&state=placed&buyerId=ann' }),
    status: 200,
    answer: { items: [] },
    refusals: [...PAGES, invalid('enum', 'state', undefined, () => ({ query: '?state=gone' }))],
  },
  {
    call: 'GET /dead-letters',
    needs: 'viewer',
    async ask() {
      await deadLetter('open');
      return { query: '?limit=1&state=open' };
    },
    status: 200,
    answer: { items: [{ buyerId: 'ann', state: 'open', error: 'too long', tries: 5 }] },
    refusals: [...PAGES, invalid('enum', 'state', undefined, () => ({ query: '?state=gone' }))],
  },
  {
    call: 'POST /dead-letters/{id}/give-back',
    needs: 'operator',
    ask: async () => ({ id: await deadLetter('open') }),
    status: 200,
    answer: { state: 'given_back', buyerId: 'ann' },
    refusals: [
      { code: 'unknown_dead_letter', status: 404, ask: () => ({ id: '1' }) },
      { code: 'unknown_dead_letter', status: 404, ask: () => ({ id: '9999999999999999999' }) },
      invalid('pattern', 'id', undefined, () => ({ id: '0' })),
      invalid('length', 'reason', 120, () => ({ id: '1', body: { reason: '' } })),
      {
        code: 'dead_letter_closed',
        status: 409,
        ask: async () => ({ id: await deadLetter('given_back') }),
        says: () => ({ state: 'given_back' }),
      },
    ],
  },
  {
    call: 'GET /audit',
    needs: 'viewer',
    ask: async () => ({ query: `?limit=1&activityId=${await inSituation(sluice, 'rejected')}` }),
    status: 200,
    answer: { items: [{ action: 'reject', actor: 'setter', from: 'in_review', to: 'rejected' }] },
    refusals: PAGES,
  },
];

const LANGUAGES = ['zh-CN', 'en'] as const satisfies readonly Language[];

function asked({ call }: Call, ask: Ask, role: OperatorRole, language: Language): Promise<Told> {
  const [method, path] = call.split(' ') as [string, string];
  const { id = 'no-such', query = '', ...asking } = ask;
  return admin(sluice.url, method, `${path.replace('{id}', id)}${query}`, { ...asking, role, language });
}

function isProblem(told: Told, code: ProblemCode, status: number, language: Language, more: object): void {
  expect(told.body).toEqual({ code, status, title: TITLES[code][language], ...more });
  expect(told.status).toBe(status);
  expect(told.headers.get('content-type')).toBe('application/problem+json; charset=utf-8');
  expect(told.headers.get('cache-control')).toBe('no-store');
}

test('the table names every call of the operator API, and no other: a new one gets its row here', async () => {
  const { paths } = (await (await fetch(`${sluice.url}/openapi.json`)).json()) as { paths: Record<string, object> };
  const offered = Object.entries(paths).flatMap(([path, item]) =>
    path.startsWith('/api/v1/admin/')
      ? Object.keys(item).map((method) => `${method.toUpperCase()} ${path.slice('/api/v1/admin'.length)}`)
      : [],
  );
  expect(TABLE.map(({ call }) => call).toSorted()).toEqual(offered.toSorted());
});

describe.each(TABLE.map((row): [string, Call] => [row.call, row]))('%s', (_call, row) => {
  test('is done, and answered', async () => {
    for (const language of LANGUAGES) {
      const told = await asked(row, await row.ask(), row.needs, language);
      expect(told.body).toMatchObject(row.answer);
      expect(told.status).toBe(row.status);
      expect(told.headers.get('content-type')).toBe('application/json; charset=utf-8');
      expect(told.headers.get('cache-control')).toBe('no-store');
    }
  });

  test('is not done for who may not', async () => {
    const ask = await row.ask();
    const [method, path] = row.call.split(' ') as [string, string];
    const now = Math.floor(systemClock.now() / 1_000);
    const sign = (claims: object): string =>
      `Bearer ${makeHs256([TEST_OPERATOR_SECRET]).sign({ sub: 'eve', role: 'approver', aud: 'sluice-operator', exp: now + 600, ...claims })}`;
    const strangers: [reason: string, authorization: string | undefined][] = [
      ['missing', undefined],
      ['malformed', 'Bearer not.a.token'],
      ['signature', `Bearer ${tokenOf('ann')}`],
      ['signature', `Bearer ${operatorToken('approver').slice(0, -2)}AA`],
      ['expired', sign({ exp: now - 60 })],
      ['not_yet', sign({ nbf: now + 300 })],
      ['audience', sign({ aud: 'shop' })],
      ['operator', sign({ role: 'owner' })],
      ['operator', sign({ sub: '' })],
    ];
    for (const language of LANGUAGES) {
      for (const [reason, authorization] of strangers) {
        const address = `${sluice.url}/api/v1/admin${path.replace('{id}', ask.id ?? 'no-such')}${ask.query ?? ''}`;
        const response = await fetch(address, {
          method,
          headers: {
            'accept-language': language,
            ...(authorization === undefined ? {} : { authorization }),
            ...(ask.body === undefined ? {} : { 'content-type': 'application/json' }),
          },
          ...(ask.body === undefined ? {} : { body: JSON.stringify(ask.body) }),
        });
        const { status, headers } = response;
        const told: Told = { status, headers, code: '', body: (await response.json()) as Record<string, unknown> };
        isProblem(told, 'unauthenticated', 401, language, { reason });
        expect(headers.get('www-authenticate')).toBe('Bearer');
      }
      for (const role of OPERATOR_ROLES.slice(0, OPERATOR_ROLES.indexOf(row.needs))) {
        isProblem(await asked(row, ask, role, language), 'forbidden', 403, language, { role, needs: row.needs });
      }
    }
    // and it still could be, by who may
    expect((await asked(row, ask, row.needs, 'en')).status).toBe(row.status);
  });

  test.each(row.refusals.map((refusal) => ({ ...refusal, name: `${refusal.code} ${refusal.status}` })))(
    'is refused: $name',
    async ({ code, status, ask, says }) => {
      for (const language of LANGUAGES) {
        isProblem(await asked(row, await ask(), row.needs, language), code, status, language, says?.(language) ?? {});
      }
    },
  );
});
