/**
 * PostgreSQL restarted in mid-batch, again and again, under a running sale: the same orders, once. A cluster of the
 * test's own, since others use the run's.
 */
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { makeLog } from '../../../src/platform/log.ts';
import { migrate } from '../../../src/platform/postgres/migrate.ts';
import { launchPostgres, type RunningPostgres } from '../../../src/platform/servers/launch-postgres.ts';
import { books, buy, isQuiet, startSluice, until, type TestSluice } from '../../support/sluice.ts';
import { MIGRATIONS_FOLDER, openTestPool, type TestDatabase } from '../../support/test-database.ts';

const BUYERS = 400;

let postgres: RunningPostgres;
let database: TestDatabase;
let sluice: TestSluice;
beforeAll(async () => {
  postgres = await launchPostgres({ binFolder: inject('postgresBinFolder') });
  const url = postgres.url('postgres');
  const pool = openTestPool(url);
  await migrate(pool, MIGRATIONS_FOLDER, makeLog('silent'));
  database = { url, database: pool, drop: () => pool.close() };
  sluice = await startSluice({ database, settings: { SLUICE_LANDING_HOLDS_MAX: '20' } });
});
afterAll(async () => {
  await sluice?.stop();
  await database?.drop();
  await postgres?.stop();
});

test('restarts in mid-batch lose no order and double none', { timeout: 120_000 }, async () => {
  const activity = await sluice.openActivity({ total: BUYERS });
  let restarts = 0;
  let selling = true;
  const restarting = (async () => {
    while (selling || restarts < 3) {
      await postgres.restart('immediate');
      restarts += 1;
    }
  })();
  const told: string[] = [];
  for (let from = 0; from < BUYERS; from += 20) {
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => buy(sluice.url, activity.id, `buyer${from + i}`)),
    );
    // the gate needs no PostgreSQL: every one of them is held all the while
    expect(answers.map((one) => one.code)).toEqual(answers.map(() => 'held'));
    told.push(...answers.map((one) => one.body['orderId'] as string));
  }
  selling = false;
  await restarting;
  await until('landed', () => isQuiet(sluice, activity).catch(() => false), 60_000);
  expect(await books(database, activity.id)).toMatchObject({ sold: BUYERS, liveOrders: BUYERS, liveBuyers: BUYERS });
  const stored = await database.database.query<{ order_id: string }>(
    `select order_id from orders where activity_id = $1 and state = 'placed'`,
    [activity.id],
  );
  expect(new Set(stored.map((row) => row.order_id))).toEqual(new Set(told));
  expect(await database.database.query(`select 1 from dead_letters`)).toEqual([]);
});
