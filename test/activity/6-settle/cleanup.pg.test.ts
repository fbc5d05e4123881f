/**
 * Speaks for `cleanup.ts` over a real database and a real gate: after the settlement nothing of the activity is left in
 * Redis, at once or in the quiet hours, and nothing of another one is touched.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Activity } from '../../../src/domain/activity.ts';
import { systemClock } from '../../../src/platform/clock.ts';
import { admin } from '../../console/operator.ts';
import { buy, isQuiet, startSluice, until, type TestSluice } from '../../support/sluice.ts';

const hourIn = (hours: number): string => {
  const hour = (new Date(systemClock.now()).getUTCHours() + hours) % 24;
  return String(hour).padStart(2, '0');
};
/** quiet in twelve hours, for an hour */
const LATER = { SLUICE_CLEANUP_ZONE: 'UTC', SLUICE_CLEANUP_HOURS: `${hourIn(12)}-${hourIn(13)}` };

let sluice: TestSluice;
beforeAll(async () => {
  sluice = await startSluice({ settings: LATER });
});
afterAll(async () => {
  await sluice.stop();
});

/** Names of all keys that name the activity, whoever made them. */
async function keysOf({ id }: Activity): Promise<string[]> {
  const found: string[] = [];
  let cursor = '0';
  do {
    const pattern = `${sluice.config.keyPrefix}:*${id}*`;
    const [next, names] = (await sluice.redis.command('SCAN', cursor, 'MATCH', pattern, 'COUNT', 1_000)) as [
      string,
      string[],
    ];
    found.push(...names);
    cursor = next;
  } while (cursor !== '0');
  return found.toSorted();
}
async function endedSale(): Promise<Activity> {
  const activity = await sluice.openActivity({ total: 20_000, perBuyerLimit: 2 });
  for (const buyer of ['ann', 'bob', 'cyd']) await buy(sluice.url, activity.id, buyer);
  await until('landed', () => isQuiet(sluice, activity));
  await sluice.wired.activities.change(activity.id, 'end', 'op');
  return activity;
}
const settle = (id: string, body: object = {}) => admin(sluice.url, 'POST', `/activities/${id}/settle`, { body });

test('settled with `now`, no key of the activity is left; others keep theirs', { timeout: 60_000 }, async () => {
  const other = await sluice.openActivity();
  const before = await keysOf(other);
  const activity = await endedSale();
  expect((await keysOf(activity)).length).toBeGreaterThan(7); // meta, stock, outbox, lent, item, three shards
  expect((await settle(activity.id, { now: true })).body).toMatchObject({ state: 'settled' });
  await until('its keys are gone', async () => (await keysOf(activity)).length === 0);
  expect(await keysOf(other)).toEqual(before);
  await until('it is noted', async () => {
    const [row] = await sluice.database.database.query<{ cleaned_at: Date | null }>(
      'select cleaned_at from runs where activity_id = $1',
      [activity.id],
    );
    return row!.cleaned_at !== null;
  });
  // the books stay
  expect((await admin(sluice.url, 'GET', `/activities/${activity.id}`)).body).toMatchObject({ sold: 3 });
});

test('otherwise they go in the quiet hours, and not before', { timeout: 60_000 }, async () => {
  const activity = await endedSale();
  expect((await settle(activity.id)).body).toMatchObject({ state: 'settled' });
  expect(await sluice.wired.activities.cleanUp()).toBe(0);
  expect((await keysOf(activity)).length).toBeGreaterThan(7);

  const atNight = await startSluice({
    role: 'api', // the look is made by this test
    database: sluice.database,
    settings: { SLUICE_CLEANUP_HOURS: '00-24', SLUICE_KEY_PREFIX: sluice.config.keyPrefix },
  });
  expect(await atNight.wired.activities.cleanUp()).toBe(1);
  expect(await keysOf(activity)).toEqual([]);
  expect(await atNight.wired.activities.cleanUp()).toBe(0);
  await atNight.stop();
});

test('what is not settled keeps its keys, whatever the hour', async () => {
  const activity = await endedSale();
  const before = await keysOf(activity);
  await sluice.database.database.query('update runs set clean_now = true where activity_id = $1', [activity.id]);
  expect(await sluice.wired.activities.cleanUp()).toBe(0);
  expect(await keysOf(activity)).toEqual(before);
});
