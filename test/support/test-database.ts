/**
 * A PostgreSQL database of its own for each test file, cloned from a template that has all migrations.
 * The template is made once per content of migrations/: its name carries their hash, and an advisory lock keeps two
 * workers from making it both. The cluster is the test run's (`postgresUrl`, given by the global set-up).
 */
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { inject } from 'vitest';
import { systemClock, systemTimers } from '../../src/platform/clock.ts';
import { makeLog } from '../../src/platform/log.ts';
import type { Database } from '../../src/platform/postgres/database.ts';
import { migrate } from '../../src/platform/postgres/migrate.ts';
import { openPool } from '../../src/platform/postgres/pool.ts';
import type { PoolOptions } from '../../src/platform/postgres/pool.ts';

/** A database that nobody else uses. */
export interface TestDatabase {
  readonly url: string;
  readonly database: Database;
  /** closes `database` and removes it, whoever else is connected */
  drop(): Promise<void>;
}

/** All migrations of the program. */
export const MIGRATIONS_FOLDER = fileURLToPath(new URL('../../migrations', import.meta.url));

const TEMPLATE_LOCK = 5_190_237;

/** A pool with the tests' limits: far above what any statement needs, far below the runner's patience. */
export function openTestPool(url: string, overrides: Partial<PoolOptions> = {}): Database {
  return openPool({
    url,
    applicationName: 'sluice-test',
    poolMax: 10,
    acquireTimeoutMs: 10_000,
    statementTimeoutMs: 10_000,
    lockTimeoutMs: 5_000,
    log: makeLog('silent'),
    clock: systemClock,
    timers: systemTimers,
    ...overrides,
  });
}

/**
 * Makes a migrated database.
 * @param overrides limits of its pool, where a test is about them
 */
export async function createTestDatabase(overrides: Partial<PoolOptions> = {}): Promise<TestDatabase> {
  return makeDatabase(await templateName(), overrides);
}

/** Makes a database without any table. */
export async function createEmptyDatabase(overrides: Partial<PoolOptions> = {}): Promise<TestDatabase> {
  return makeDatabase('template0', overrides);
}

async function makeDatabase(template: string, overrides: Partial<PoolOptions>): Promise<TestDatabase> {
  const name = `sluice_test_${randomBytes(6).toString('hex')}`;
  await asAdmin((admin) => admin.script(`create database ${name} template ${template}`));
  const url = urlOf(name);
  const database = openTestPool(url, overrides);
  return {
    url,
    database,
    async drop() {
      await database.close();
      await asAdmin((admin) => admin.script(`drop database if exists ${name} with (force)`));
    },
  };
}

async function templateName(): Promise<string> {
  const name = `sluice_template_${hashOfMigrations()}`;
  await asAdmin((admin) =>
    admin.transaction(async (lock) => {
      await lock.query('select pg_advisory_xact_lock($1)', [TEMPLATE_LOCK]);
      const found = await lock.query('select from pg_database where datname = $1', [name]);
      if (found.length === 1) return;
      // Under another name until it is whole: a run that was killed in the middle leaves no half template.
      const draft = `sluice_draft_${randomBytes(6).toString('hex')}`;
      await admin.script(`create database ${draft} template template0`);
      const database = openTestPool(urlOf(draft), { poolMax: 1 });
      await migrate(database, MIGRATIONS_FOLDER, makeLog('silent'));
      await database.close();
      await admin.script(`alter database ${draft} rename to ${name}`);
    }),
  );
  return name;
}

function hashOfMigrations(): string {
  const hash = createHash('sha256');
  for (const file of readdirSync(MIGRATIONS_FOLDER).sort()) {
    hash.update(file).update(readFileSync(`${MIGRATIONS_FOLDER}/${file}`));
  }
  return hash.digest('hex').slice(0, 16);
}

function urlOf(databaseName: string): string {
  const url = new URL(inject('postgresUrl'));
  url.pathname = `/${databaseName}`;
  return url.href;
}

async function asAdmin<T>(work: (admin: Database) => Promise<T>): Promise<T> {
  // Making and cloning databases waits for disks and for other workers.
  const admin = openTestPool(inject('postgresUrl'), {
    poolMax: 2,
    statementTimeoutMs: 60_000,
    lockTimeoutMs: 60_000,
    acquireTimeoutMs: 60_000,
  });
  try {
    return await work(admin);
  } finally {
    await admin.close();
  }
}
