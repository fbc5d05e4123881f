/**
 * The clock's part of the walk: what is due happens once, by whichever process is there; and what people decide by hand is
 * left to people.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { dueMove, movesAllowed, refusalOf } from '../../src/activity/lifecycle.ts';
import { stateAt, type ActivityRecord } from '../../src/domain/activity.ts';
import { systemClock } from '../../src/platform/clock.ts';
import { ask, buy, startSluice, until, type TestSluice } from '../support/sluice.ts';

let one: TestSluice;
let other: TestSluice;
beforeAll(async () => {
  const prefix = { SLUICE_KEY_PREFIX: `t${randomBytes(4).toString('hex')}` };
  one = await startSluice({ settings: prefix });
  other = await startSluice({ settings: prefix, database: one.database });
});
afterAll(async () => {
  await other.stop();
  await one.stop();
});

const plan = async (change: { opensInMs: number; endsInMs?: number; autoConfirm?: boolean }): Promise<string> => {
  const now = systemClock.now();
  const id = `act${randomBytes(5).toString('hex')}`;
  const planned = await one.wired.activities.plan(
    {
      id,
      itemName: '测试商品',
      priceMinor: 1,
      currency: 'CNY',
      total: 5,
      opensAt: now + change.opensInMs,
      endsAt: now + (change.endsInMs ?? 7_200_000),
      autoConfirm: change.autoConfirm ?? true,
    },
    'maker',
  );
  expect(planned.kind).toBe('planned');
  await one.wired.activities.approve(id, 'setter');
  return id;
};
/** the row as it is, not as the clock would have it */
const rowOf = async (id: string): Promise<Record<string, unknown>> => {
  const [row] = await one.database.database.query('select state, preheat from activities where id = $1', [id]);
  return row!;
};
const acts = async (id: string): Promise<string[]> => {
  const rows = await one.database.database.query<{ actor: string; action: string }>(
    'select actor, action from audit where activity_id = $1 order by id',
    [id],
  );
  return rows.map(({ actor, action }) => `${actor} ${action}`);
};

test('of two processes one makes each of the clock’s moves, and makes it once', { timeout: 60_000 }, async () => {
  const ids = await Promise.all([1, 2, 3].map(() => plan({ opensInMs: 1_500, endsInMs: 3_500 })));
  for (const id of ids) {
    await until('it has ended', async () => (await rowOf(id))['state'] === 'ended');
    expect(await acts(id)).toEqual([
      'maker create',
      'setter approve',
      'scheduler preheat',
      'scheduler confirm',
      'scheduler open',
      'scheduler end',
    ]);
  }
  const leases = await one.database.database.query(`select name from leases where name = 'scheduler'`);
  expect(leases).toHaveLength(1);
});

test('it opens to the moment, on every process', { timeout: 60_000 }, async () => {
  const id = await plan({ opensInMs: 2_500 });
  await until('it is confirmed', async () => (await rowOf(id))['preheat'] === 'confirmed');
  const { opensAt } = (await one.wired.activities.find(id))!;
  for (const sluice of [one, other]) {
    await until(
      'it knows the activity',
      async () => (await ask(sluice.url, `/api/v1/activities/${id}`)).status === 200,
    );
  }
  let early = 0;
  await Promise.all(
    [one, other].map(async (sluice, i) => {
      await until('it sells', async () => {
        const before = systemClock.now();
        const told = await buy(sluice.url, id, `b${i}`);
        if (told.code === 'not_open') early += 1;
        else if (before + 1 < opensAt) expect(systemClock.now()).toBeGreaterThanOrEqual(opensAt);
        return told.status === 202;
      });
    }),
  );
  expect(early).toBeGreaterThan(0);
});

test('beyond ten minutes nothing is preheated; what is verified by hand waits for a second call', async () => {
  const far = await plan({ opensInMs: 3_600_000 });
  const byHand = await plan({ opensInMs: 3_600_000 });
  expect(await one.wired.walk.preheat(byHand, { actor: 'setter' })).toMatchObject({ report: { kind: 'verified' } });
  await one.database.database.query(
    `update activities set opens_at = clock_timestamp() + interval '9 minutes' where id = $1`,
    [byHand],
  );
  const marker = await plan({ opensInMs: 300_000 });
  await until('the scheduler has been round', async () => (await rowOf(marker))['preheat'] === 'confirmed');
  const again = await plan({ opensInMs: 300_000 });
  await until('and again', async () => (await rowOf(again))['preheat'] === 'confirmed');
  expect(await rowOf(far)).toEqual({ state: 'scheduled', preheat: 'none' });
  expect(await rowOf(byHand)).toEqual({ state: 'scheduled', preheat: 'verified' });
});

test('without autoConfirm it preheats and leaves the rest to people', async () => {
  const id = await plan({ opensInMs: 60_000, autoConfirm: false });
  await until('it is verified', async () => (await rowOf(id))['preheat'] === 'verified');
  const marker = await plan({ opensInMs: 60_000 });
  await until('the scheduler has been round', async () => (await rowOf(marker))['preheat'] === 'confirmed');
  expect(await acts(id)).toEqual(['maker create', 'setter approve', 'scheduler preheat']);
});

test('a preheat that was made and not confirmed when its process died is confirmed by the next', async () => {
  const id = await plan({ opensInMs: 3_600_000 });
  expect((await one.wired.walk.preheat(id, { actor: 'scheduler' })).kind).toBe('report');
  expect(await rowOf(id)).toEqual({ state: 'scheduled', preheat: 'verified' });
  await one.database.database.query(
    `update activities set opens_at = clock_timestamp() + interval '9 minutes' where id = $1`,
    [id],
  );
  // the gate has the old start: the preheat is made again, does not agree, and is not confirmed
  await until('it is told', async () => (await rowOf(id))['preheat'] === 'failed');
  const alarms = [...one.log.lines, ...other.log.lines].filter(({ fields }) => fields['activityId'] === id);
  expect(alarms.map(({ fields }) => fields['reason'])).toContain('preheat_failed');

  const good = await plan({ opensInMs: 3_600_000 });
  await one.database.database.query(
    `update activities set opens_at = clock_timestamp() + interval '9 minutes', auto_confirm = false where id = $1`,
    [good],
  );
  await until('it is verified', async () => (await rowOf(good))['preheat'] === 'verified');
  await one.database.database.query('update activities set auto_confirm = true where id = $1', [good]);
  await until('it is confirmed', async () => (await rowOf(good))['preheat'] === 'confirmed');
});

test('a sale that passed while nobody looked is opened and ended, in this order, by who asks first', async () => {
  const api = await startSluice({ role: 'api' });
  const activity = await api.openActivity();
  await api.database.database.query(
    `update activities set state = 'scheduled', opens_at = clock_timestamp() - interval '2 h',
                           ends_at = clock_timestamp() - interval '1 h' where id = $1`,
    [activity.id],
  );
  expect(await api.wired.walk.pause(activity.id, { actor: 'late' })).toMatchObject({
    kind: 'refused',
    reason: 'state',
    activity: { state: 'ended' },
  });
  const rows = await api.database.database.query<{ act: string }>(
    `select actor || ' ' || action || ' ' || from_state || '→' || to_state as act from audit
      where activity_id = $1 order by id desc limit 2`,
    [activity.id],
  );
  expect(rows.map(({ act }) => act)).toEqual(['scheduler end open→ended', 'scheduler open scheduled→open']);
  await api.stop();
});

const T = 1_800_000_000_000;
const record = (change: Partial<ActivityRecord>): ActivityRecord => ({
  id: 'a',
  state: 'scheduled',
  paused: false,
  preheat: 'confirmed',
  itemName: 'x',
  imageUrl: undefined,
  priceMinor: 1,
  currency: 'EUR',
  total: 1,
  sold: 0,
  surplus: 0,
  perBuyerLimit: 1,
  opensAt: T,
  endsAt: T + 1_000,
  answerWhen: 'held',
  overshoot: 1,
  segments: 1,
  autoConfirm: true,
  run: 1,
  shards: 1,
  runState: 'open',
  version: 1,
  createdBy: 'maker',
  editedBy: undefined,
  createdAt: T - 1,
  readAt: T,
  ...change,
});

test.each<[Partial<ActivityRecord>, at: number, state: string, due: string | undefined]>([
  [{}, T - 1, 'scheduled', undefined],
  [{}, T, 'open', 'open_due'],
  [{}, T + 1_000, 'ended', 'open_due'],
  [{ preheat: 'verified' }, T, 'scheduled', undefined],
  [{ preheat: 'verified' }, T + 1_000, 'ended', 'end_due'],
  [{ state: 'open' }, T - 5, 'open', undefined],
  [{ state: 'open' }, T + 999, 'open', undefined],
  [{ state: 'open', paused: true }, T + 1_000, 'ended', 'end_due'],
  [{ state: 'ended' }, T, 'ended', undefined],
  [{ state: 'in_review' }, T + 9_000, 'in_review', undefined],
  [{ state: 'settled' }, T, 'settled', undefined],
  [{ state: 'rejected' }, T, 'rejected', undefined],
])('%j at %i is %s by the clock, and due: %s', (change, at, state, due) => {
  expect(stateAt(record(change), at)).toBe(state);
  expect(dueMove(record(change), at)).toBe(due);
  for (const name of movesAllowed(record(change), at)) {
    expect(refusalOf(name, record(change), { now: at, actor: 'x', selfApproval: true })).toBeUndefined();
  }
});
