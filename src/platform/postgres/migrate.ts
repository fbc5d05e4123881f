/**
 * Brings a database to the schema of this program: runs `NNNN_name.sql` files once each, in order.
 *
 * Promises: each migration applies whole or not at all; two migrators at once, also from two processes, apply each file
 * once; a database whose history is not a beginning of this program's is refused untouched: an applied file that has
 * changed or is missing, one slipped in before an applied one, or a database newer than the program.
 *
 * Does not go back: a mistake is undone by the next migration. Does not run what PostgreSQL refuses inside a transaction
 * (`create index concurrently`).
 *
 * Plain files and not a library's migrator, since files, a table and a lock are all there is: behind our Database port
 * Kysely's needs two dialects (driver, adapter, introspector each), checks the names of applied files but not their
 * contents, and runs all new files in one transaction or each in none.
 */
import { createHash } from 'node:crypto';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Fault, assert } from '../../domain/fault.ts';
import type { Log } from '../log.ts';
import type { Database } from './database.ts';
import { applyMigration, makeMigrationsTable, readApplied } from './migrations-table.ts';
import type { AppliedMigration } from './migrations-table.ts';

/** A migration as it stands in the folder. */
interface MigrationFile extends AppliedMigration {
  file: string;
  text: string;
}

const FILE_NAME = /^(\d{4})_([a-z0-9_]+)\.sql$/;

/** A file that ended its transaction itself would no longer apply whole; `begin` alone on a line is plpgsql's. */
const OWN_TRANSACTION = /^\s*(begin|start\s+transaction|commit|rollback)(\s+(work|transaction))?\s*;/im;

/**
 * Applies what is missing.
 * @param folder holds the files and nothing else that ends in `.sql`
 * @returns the files that this call applied, in order; empty when the database was up to date
 * @throws Fault `settings_invalid` where the database's history is not this program's (one line says how);
 *   `database_*` where a migration fails, naming its file: those before it stay applied
 */
export async function migrate(database: Database, folder: string, log: Log): Promise<string[]> {
  const files = await readMigrations(folder);
  await makeMigrationsTable(database);
  const applied: string[] = [];
  for (;;) {
    const history = await readApplied(database);
    refuseOtherHistory(history, files);
    const next = files[history.length];
    if (!next) return applied;
    try {
      await applyMigration(database, next, next.text);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      if (error.constraint === 'schema_migrations_pkey') continue; // another migrator was faster: look again
      throw new Fault(error.code, `apply migration ${next.file}: ${error.message}`, {
        retryable: error.retryable,
        cause: error,
        sqlstate: error.sqlstate,
        constraint: error.constraint,
      });
    }
    log.info({ migration: next.file }, 'migration applied');
    applied.push(next.file);
  }
}

async function readMigrations(folder: string): Promise<MigrationFile[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort();
  const files = await Promise.all(
    names.map(async (file) => {
      const parts = FILE_NAME.exec(file);
      assert(parts?.[1] && parts[2], `a migration is named NNNN_name.sql, not ${file}`);
      const text = (await readFile(join(folder, file), 'utf8')).replaceAll('\r\n', '\n'); // git may turn line ends
      assert(!OWN_TRANSACTION.test(text), `${file} leaves its transaction to the migrator`);
      return { file, text, number: Number(parts[1]), name: parts[2], checksum: checksumOf(text) };
    }),
  );
  files.forEach((file, at) => assert(file.number !== files[at - 1]?.number, `two migrations are ${file.number}`));
  return files;
}

function checksumOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** The history must be a beginning of the files. */
function refuseOtherHistory(history: readonly AppliedMigration[], files: readonly MigrationFile[]): void {
  const newest = files.at(-1)?.number ?? 0;
  history.forEach((row, at) => {
    const label = `${String(row.number).padStart(4, '0')}_${row.name}`;
    const file = files[at];
    if (row.number > newest) {
      throw refusal(`the database is newer than this program: it has ${label}, this program ends at ${newest}`);
    }
    if (!file || file.number > row.number) throw refusal(`applied migration ${label} is missing from this program`);
    if (file.number < row.number) throw refusal(`migration ${file.file} was slipped in before the applied ${label}`);
    if (file.checksum !== row.checksum) throw refusal(`migration ${file.file} has changed since it was applied`);
  });
}

function refusal(sentence: string): Fault {
  return new Fault('settings_invalid', sentence, { retryable: false });
}
