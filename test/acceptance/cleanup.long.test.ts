/**
 * Cleaning up beside a sale (article 2.4): the keys of an activity with very many marks are removed while somebody else asks
 * the same Redis one thing after another. What he waits is printed and must not multiply, and nothing may be left.
 *
 * The verdict can fail: one shard that holds all the marks, deleted in the foreground, is shown to be felt.
 * Size: marks (short form 60,000); full size: 1000000.
 */
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { systemClock } from '../../src/platform/clock.ts';
import { openTestGate, type TestGate } from '../support/gate.ts';
import { startSluice, type TestSluice } from '../support/sluice.ts';

const SIZE = Number(process.env['SLUICE_TEST_SIZE'] ?? 60_000);
const RISE_MAX = 3;
const FIELDS_A_COMMAND = 1_000;

let sluice: TestSluice;
let gate: TestGate;
beforeAll(async () => {
  sluice = await startSluice({ role: 'api' }); // the cleaning is called by this test
  gate = await openTestGate(inject('redisUrl'), { prefix: sluice.config.keyPrefix });
}, 120_000);
afterAll(async () => {
  await gate.close();
  await sluice.stop();
});

async function fill(key: string, marks: number): Promise<void> {
  for (let from = 0; from < marks; from += FIELDS_A_COMMAND) {
    const fields: string[] = [];
    for (let i = from; i < Math.min(marks, from + FIELDS_A_COMMAND); i++) {
      fields.push(
        `buyer${String(i).padStart(7, '0')}`,
        `25357${String(i).padStart(13, '0')}|1|1|o|key-${i}-0123456789`,
      );
    }
    await sluice.redis.command('HSET', key, ...fields);
  }
}

/** Asks one thing after another while `work` runs; the 99th percentile in ms, of at least a thousand. */
async function p99While(work: () => Promise<unknown>): Promise<number> {
  const took: number[] = [];
  let isOver = false;
  const worked = work().finally(() => (isOver = true));
  while (!isOver || took.length < 1_000) {
    const at = systemClock.monotonic();
    await gate.redis.command('GET', 'nothing');
    took.push(systemClock.monotonic() - at);
  }
  await worked;
  return took.toSorted((a, b) => a - b)[Math.floor(took.length * 0.99)]!;
}

test('nobody beside it notices', { timeout: 600_000 }, async () => {
  const activity = await sluice.openActivity({ total: SIZE });
  const at = { activityId: activity.id, segment: 0, run: activity.run, shards: activity.shards };
  const perShard = Math.ceil(SIZE / activity.shards);
  for (let shard = 0; shard < activity.shards; shard++) await fill(sluice.keys.buyers(at, shard), perShard);
  const { database } = sluice.database;
  await database.query(`update activities set state = 'settled' where id = $1`, [activity.id]);
  await database.query(`update landings set closed = true where activity_id = $1`, [activity.id]);
  await database.query(`update runs set state = 'closed', clean_now = true where activity_id = $1`, [activity.id]);

  // before and after, so that a neighbour who comes or goes is seen
  const before = await p99While(() => Promise.resolve());
  const during = await p99While(() => sluice.wired.activities.cleanUp());
  const after = await p99While(() => Promise.resolve());
  const left = Object.keys(await gate.dump(at));
  process.stderr.write(
    `${SIZE} marks in ${activity.shards} shards: p99 ${before.toFixed(3)} ms before, ${during.toFixed(3)} ms while cleaning, ${after.toFixed(3)} ms after; ${left.length} keys left\n`,
  );
  expect(left).toEqual([]);
  // a ratio, since the machine is not ours alone; the figures are above
  expect(during / Math.max(before, after)).toBeLessThan(RISE_MAX);
});

test(
  'and the look would show it: one hash of all the marks, deleted in the foreground',
  { timeout: 600_000 },
  async () => {
    const key = `${sluice.config.keyPrefix}:all`;
    await fill(key, 1_000_000);
    let longest = 0;
    const asking = p99While(async () => {
      const at = systemClock.monotonic();
      await sluice.redis.command('DEL', key);
      longest = systemClock.monotonic() - at;
    });
    await asking;
    process.stderr.write(`DEL of a million in one hash: ${longest.toFixed(1)} ms\n`);
    expect(longest).toBeGreaterThan(10);
  },
);
