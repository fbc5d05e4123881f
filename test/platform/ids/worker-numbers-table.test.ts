import { afterAll, beforeAll } from 'vitest';
import { workerNumbersTable } from '../../../src/platform/ids/worker-numbers-table.ts';
import { makeLog } from '../../../src/platform/log.ts';
import type { Database } from '../../../src/platform/postgres/database.ts';
import { openEmbedded } from '../../../src/platform/postgres/embedded.ts';
import { migrate } from '../../../src/platform/postgres/migrate.ts';
import { MIGRATIONS_FOLDER } from '../../support/test-database.ts';
import { workerNumbersKeepTheirPromises } from './worker-numbers-promises.ts';

let database: Database;

beforeAll(async () => {
  const log = makeLog('silent');
  database = openEmbedded({ folder: 'memory', log });
  await migrate(database, MIGRATIONS_FOLDER, log);
}, 120_000);
afterAll(() => database?.close());

workerNumbersKeepTheirPromises('PGlite', () => ({
  numbers: workerNumbersTable(database),
  async lapse(...lapsed) {
    await database.query(`update worker_numbers set expires_at = clock_timestamp() where number = any ($1::int[])`, [
      `{${lapsed.join()}}`,
    ]);
  },
  async holdAll() {
    await database.query(`update worker_numbers set expires_at = clock_timestamp() + interval '1 day'`);
  },
  async clear() {
    await database.query('delete from worker_numbers');
  },
}));
