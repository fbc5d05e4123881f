/**
 * Every situation × every move × every role, over HTTP: what is allowed is done once with one audit row, what is not is
 * refused with the reason and the present state, and leaves no trace. Then pairs of moves at once.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { OperatorRole } from '../../src/platform/identity/operators.ts';
import { startSluice, type TestSluice, type Told } from '../support/sluice.ts';
import { admin, newActivity } from './operator.ts';
import { inSituation, SITUATIONS, type Situation } from './situations.ts';

let sluice: TestSluice;
beforeAll(async () => {
  // no worker: nothing moves but by the calls of this test
  sluice = await startSluice({ role: 'api' });
});
afterAll(() => sluice.stop());

const MOVES = ['approve', 'reject', 'edit', 'preheat', 'confirm', 'open', 'pause', 'resume', 'end', 'settle'] as const;
type Move = (typeof MOVES)[number];

/** A line a situation: what each move is answered, `ok` or the reason of the refusal; `.` is the reason `state`. */
const TABLE = `
                                             approve  reject       edit          preheat confirm       open           pause   resume      end  settle
in review                                  | ok       ok           ok            .       .             .              .       .           .    .
in review, its end past                    | over     ok           future        .       .             .              .       .           .    .
scheduled                                  | .        ok           ok            ok      not_verified  not_confirmed  ok      not_paused  ok   .
scheduled, opens within a minute           | .        last_minute  last_minute   ok      not_verified  not_confirmed  ok      not_paused  ok   .
scheduled, verified                        | .        ok           ok            ok      ok            not_confirmed  ok      not_paused  ok   .
scheduled, confirmed                       | .        ok           ok            ok      not_verified  ok             ok      not_paused  ok   .
scheduled, confirmed, paused               | .        ok           ok            ok      not_verified  ok             paused  ok          ok   .
scheduled, not confirmed, its opening past | .        ok           ok            differs ok            not_confirmed  ok      not_paused  ok   .
due to open                                | .        .            only_in_sale  .       .             .              ok      not_paused  ok   .
open                                       | .        .            only_in_sale  .       .             .              ok      not_paused  ok   .
open, paused                               | .        .            only_in_sale  .       .             .              paused  ok          ok   .
due to end                                 | .        .            .             .       .             .              .       .           .    ok
ended                                      | .        .            .             .       .             .              .       .           .    ok
settled                                    | .        .            .             .       .             .              .       .           .    .
rejected                                   | .        .            .             .       .             .              .       .           .    .`;

/** The state that is told, by situation. */
const STATE: Readonly<Record<Situation, string>> = {
  'in review': 'in_review',
  'in review, its end past': 'in_review',
  scheduled: 'scheduled',
  'scheduled, opens within a minute': 'scheduled',
  'scheduled, verified': 'scheduled',
  'scheduled, confirmed': 'scheduled',
  'scheduled, confirmed, paused': 'scheduled',
  'scheduled, not confirmed, its opening past': 'scheduled',
  'due to open': 'open',
  open: 'open',
  'open, paused': 'open',
  'due to end': 'ended',
  ended: 'ended',
  settled: 'settled',
  rejected: 'rejected',
};
/** The state afterwards, by move that is allowed; the others leave it. */
const TO: Partial<Record<Move, string>> = {
  approve: 'scheduled',
  reject: 'rejected',
  edit: 'in_review',
  open: 'open',
  end: 'ended',
  settle: 'settled',
};
const NEEDS: Readonly<Record<Move, OperatorRole>> = {
  approve: 'approver',
  reject: 'approver',
  confirm: 'approver',
  edit: 'operator',
  preheat: 'operator',
  open: 'operator',
  pause: 'operator',
  resume: 'operator',
  end: 'operator',
  settle: 'operator',
};
const RANK: readonly OperatorRole[] = ['viewer', 'operator', 'approver'];
/** Who asks: each role, and the approver who planned it. */
const ASKERS = [
  { role: 'viewer', name: 'viewer' },
  { role: 'operator', name: 'operator' },
  { role: 'approver', name: 'approver' },
  { role: 'approver', name: 'maker' },
] as const;

const rows = TABLE.trim()
  .split('\n')
  .slice(1)
  .map((line): [Situation, string[]] => {
    const [situation = '', answers = ''] = line.split('|');
    return [situation.trim() as Situation, answers.trim().split(/\s+/)];
  });

type Row = { version: string; state: string; paused: boolean; preheat: string };
async function rowOf(id: string): Promise<Row> {
  const [row] = await sluice.database.database.query<Row>(
    'select version, state, paused, preheat from activities where id = $1',
    [id],
  );
  return row!;
}
/** Acts of people; what the clock is behind with is made up for by whoever asks first. */
async function actsOf(id: string): Promise<number> {
  const [row] = await sluice.database.database.query<{ acts: number }>(
    `select count(*)::int as acts from audit where activity_id = $1 and actor <> 'scheduler'`,
    [id],
  );
  return row!.acts;
}

async function ask(id: string, move: Move, who: { role: OperatorRole; name: string }): Promise<Told> {
  if (move !== 'edit') return admin(sluice.url, 'POST', `/activities/${id}/${move}`, { ...who, body: {} });
  const seen = await admin(sluice.url, 'GET', `/activities/${id}`, { role: 'viewer' });
  let ifMatch = seen.headers.get('etag')!;
  let told = await admin(sluice.url, 'PATCH', `/activities/${id}`, { ...who, ifMatch, body: { total: 20 } });
  if (told.status === 412) {
    // the clock has moved it since it was read
    ifMatch = told.headers.get('etag')!;
    told = await admin(sluice.url, 'PATCH', `/activities/${id}`, { ...who, ifMatch, body: { total: 20 } });
  }
  return told;
}

test('the table names every situation and every move', () => {
  expect(rows.map(([situation]) => situation).toSorted()).toEqual(Object.keys(SITUATIONS).toSorted());
  for (const [situation, answers] of rows) expect(answers, situation).toHaveLength(MOVES.length);
});

describe.each(rows)('%s', (situation, answers) => {
  test.each(MOVES.map((move, i) => [move, answers[i]!] as const))(
    '%s: %s',
    { timeout: 60_000 },
    async (move, answer) => {
      let id: string | undefined;
      for (const who of ASKERS) {
        id ??= await inSituation(sluice, situation);
        const about = `${situation}: ${move} by ${who.name}`;
        const before = await rowOf(id);
        const acts = await actsOf(id);
        const told = await ask(id, move, who);
        const after = await rowOf(id);

        if (RANK.indexOf(who.role) < RANK.indexOf(NEEDS[move])) {
          expect(told.body, about).toMatchObject({ code: 'forbidden', status: 403, needs: NEEDS[move] });
          expect(after, about).toEqual(before);
          expect(await actsOf(id), about).toBe(acts);
          continue;
        }
        const own = move === 'approve' && who.name === 'maker' && STATE[situation] === 'in_review';
        if (answer === 'ok' && !own) {
          expect(told.status, `${about}: ${JSON.stringify(told.body)}`).toBe(200);
          // one that is confirmed late opens with it
          const late = situation === 'scheduled, not confirmed, its opening past' && move === 'confirm';
          expect(after.state, about).toBe(late ? 'open' : (TO[move] ?? STATE[situation]));
          // a preheat that only compares leaves no trace; one that is taken back has a row of its own
          const compared = move === 'preheat' && before.preheat === 'confirmed';
          const withdrawn = (move === 'edit' || move === 'reject') && before.preheat !== 'none';
          expect(await actsOf(id), about).toBe(acts + (compared ? 0 : withdrawn ? 2 : 1));
          if (move !== 'preheat') {
            expect(told.body, about).toMatchObject({ state: after.state, gateTold: true });
            expect(told.headers.get('etag'), about).toBe(`"${after.version}"`);
          }
          id = undefined; // changed: the next one asks about another
          continue;
        }
        if (own) expect(told.body, about).toMatchObject({ code: 'forbidden', status: 403, reason: 'own' });
        else if (answer === 'future') expect(told.body, about).toMatchObject({ code: 'invalid', field: 'endsAt' });
        else if (answer === 'differs') expect(told.body, about).toMatchObject({ code: 'preheat_failed', status: 409 });
        else {
          expect(told.body, about).toMatchObject({
            code: 'wrong_state',
            status: 409,
            reason: answer === '.' ? 'state' : answer,
            state: STATE[situation],
            detail: expect.any(String),
          });
        }
        expect(after.state, about).toBe(STATE[situation]);
        if (answer === 'differs') id = undefined;
        else expect(await actsOf(id), about).toBe(acts);
      }
    },
  );
});

test('who is unknown, and what is unknown', async () => {
  const id = await inSituation(sluice, 'in review');
  const none = await fetch(`${sluice.url}/api/v1/admin/activities/${id}`);
  expect(none.status).toBe(401);
  expect(none.headers.get('www-authenticate')).toBe('Bearer');
  expect(await none.json()).toMatchObject({ code: 'unauthenticated', reason: 'missing' });
  for (const move of MOVES.filter((one) => one !== 'edit')) {
    const told = await admin(sluice.url, 'POST', `/activities/no-such/${move}`);
    expect(told.body, move).toMatchObject({ code: 'unknown_activity', status: 404 });
  }
});

test('who changed a plan may not approve it either, unless he may approve his own', async () => {
  const id = await inSituation(sluice, 'in review');
  const edited = await admin(sluice.url, 'PATCH', `/activities/${id}`, {
    name: 'bea',
    ifMatch: '"1"',
    body: { total: 2 },
  });
  expect(edited.body).toMatchObject({ editedBy: 'bea', createdBy: 'maker' });
  for (const name of ['bea', 'maker']) {
    const told = await admin(sluice.url, 'POST', `/activities/${id}/approve`, { name });
    expect(told.body).toMatchObject({ code: 'forbidden', reason: 'own' });
  }
  expect((await admin(sluice.url, 'POST', `/activities/${id}/approve`, { name: 'cyd' })).status).toBe(200);

  const alone = await startSluice({
    role: 'api',
    settings: { SLUICE_SELF_APPROVAL: 'true' },
    database: sluice.database,
  });
  const own = await admin(alone.url, 'POST', '/activities', { name: 'solo', body: newActivity() });
  const told = await admin(alone.url, 'POST', `/activities/${String(own.body['id'])}/approve`, { name: 'solo' });
  await alone.stop();
  expect(told.body).toMatchObject({ state: 'scheduled' });
});

describe('of two moves at once that exclude each other one wins, and the other is told the state it met', () => {
  const ROUNDS = 20;
  test.each<[Situation, Move, Move]>([
    ['in review', 'approve', 'approve'],
    ['in review', 'approve', 'reject'],
    ['scheduled, verified', 'confirm', 'confirm'],
    ['scheduled, confirmed', 'open', 'open'],
    ['open', 'pause', 'pause'],
    ['open, paused', 'resume', 'resume'],
    ['open', 'end', 'end'],
    ['due to open', 'end', 'end'],
    ['ended', 'settle', 'settle'],
  ])('%s: %s and %s', { timeout: 240_000 }, async (situation, one, other) => {
    for (let round = 0; round < ROUNDS; round++) {
      const id = await inSituation(sluice, situation);
      const acts = await actsOf(id);
      // reject is allowed from scheduled too: approve first, then reject would be two that both may
      const told = await Promise.all([
        ask(id, one, { role: 'approver', name: 'one' }),
        ask(id, other, { role: 'approver', name: 'other' }),
      ]);
      const after = await rowOf(id);
      const statuses = told.map(({ status }) => status).toSorted((a, b) => a - b);
      if (one === 'approve' && other === 'reject' && statuses[1] === 200) {
        expect(after.state).toBe('rejected'); // one after the other, as the table allows
        expect(await actsOf(id)).toBe(acts + 2);
        continue;
      }
      expect(
        statuses,
        `${situation}: ${one} and ${other}, round ${round}: ${JSON.stringify(told.map((t) => t.body))}`,
      ).toEqual([200, 409]);
      const loser = told.find(({ status }) => status === 409)!;
      expect(loser.body).toMatchObject({ code: 'wrong_state', state: after.state, paused: after.paused });
      expect(await actsOf(id)).toBe(acts + 1);
    }
  });

  test('two edits of one version', { timeout: 240_000 }, async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const id = await inSituation(sluice, 'scheduled');
      const { version } = await rowOf(id);
      const edit = (total: number): Promise<Told> =>
        admin(sluice.url, 'PATCH', `/activities/${id}`, { ifMatch: `"${version}"`, body: { total } });
      const told = await Promise.all([edit(21), edit(22)]);
      const winner = told.find(({ status }) => status === 200)!;
      const loser = told.find(({ status }) => status !== 200)!;
      expect(loser.body).toMatchObject({ code: 'old_version', status: 412, activity: { total: winner.body['total'] } });
    }
  });
});
