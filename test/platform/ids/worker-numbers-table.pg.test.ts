import { afterAll, beforeAll, expect, test } from 'vitest';
import { workerNumbersTable } from '../../../src/platform/ids/worker-numbers-table.ts';
import type { WorkerNumbers } from '../../../src/platform/ids/worker-numbers-table.ts';
import { createTestDatabase, openTestPool } from '../../support/test-database.ts';
import type { TestDatabase } from '../../support/test-database.ts';
import { workerNumbersKeepTheirPromises } from './worker-numbers-promises.ts';

let made: TestDatabase;
let numbers: WorkerNumbers;

beforeAll(async () => {
  made = await createTestDatabase();
  numbers = workerNumbersTable(made.database);
});
afterAll(() => made?.drop());

workerNumbersKeepTheirPromises('PostgreSQL', () => ({
  numbers,
  async lapse(...lapsed) {
    await made.database.query(
      `update worker_numbers set expires_at = clock_timestamp() where number = any ($1::int[])`,
      [`{${lapsed.join()}}`],
    );
  },
  async holdAll() {
    await made.database.query(`update worker_numbers set expires_at = clock_timestamp() + interval '1 day'`);
  },
  async clear() {
    await made.database.query('delete from worker_numbers');
  },
}));

test('PostgreSQL: takers of several processes meet on an empty table, and each gets another number', async () => {
  await made.database.query('delete from worker_numbers');
  const pools = Array.from({ length: 4 }, () => openTestPool(made.url, { poolMax: 5 }));
  try {
    const taken = await Promise.all(
      pools.flatMap((pool, p) =>
        Array.from({ length: 5 }, (_, i) =>
          workerNumbersTable(pool).take({ owner: `${p}.${i}`, ttlMs: 30_000, pastMs: 0, untilMs: 1 }),
        ),
      ),
    );
    expect(new Set(taken.map((one) => one?.number))).toEqual(new Set(Array.from({ length: 20 }, (_, n) => n)));
  } finally {
    for (const pool of pools) await pool.close();
  }
});

test('PostgreSQL: a taker does not wait for another one in mid-taking', async () => {
  await made.database.query('delete from worker_numbers');
  await numbers.take({ owner: 'makes the rows', ttlMs: 30_000, pastMs: 0, untilMs: 1 });
  await made.database.transaction(async (tx) => {
    const slow = await workerNumbersTable(tx).take({ owner: 'slow', ttlMs: 30_000, pastMs: 0, untilMs: 1 });
    const quick = await numbers.take({ owner: 'quick', ttlMs: 30_000, pastMs: 0, untilMs: 1 });
    expect([slow?.number, quick?.number]).toEqual([1, 2]);
  });
});
