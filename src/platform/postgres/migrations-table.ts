/**
 * The list of migrations that a database has, and the script that adds one. `migrate.ts` decides which.
 */
import type { Database, Sql } from './database.ts';

/** A migration as the database remembers it. */
export interface AppliedMigration {
  number: number;
  name: string;
  checksum: string;
}

/** The key of the advisory lock that migrators take; any constant that no other program on this database uses. */
const MIGRATION_LOCK = 7_364_827_113;

/** Made under the lock: two `create table if not exists` at the same instant can both find it missing, and one fails. */
export async function makeMigrationsTable(database: Database): Promise<void> {
  await database.script(`
    ${patiently}
    create table if not exists schema_migrations (
      number     int         primary key,
      name       text        not null,
      checksum   text        not null,
      applied_at timestamptz not null default now()
    );`);
}

/** All migrations that the database has, in order. */
export async function readApplied(sql: Sql): Promise<AppliedMigration[]> {
  const rows = await sql.query('select number, name, checksum from schema_migrations order by number');
  return rows as unknown as AppliedMigration[];
}

/**
 * Runs one migration and remembers it, both or neither: PostgreSQL runs a script sent as one message in one transaction.
 * The row goes first, so that of two migrators the second fails on `schema_migrations_pkey` before it changes anything.
 * @param migration number, name and checksum consist of digits, letters and underscores (the caller has checked)
 * @throws Fault; constraint `schema_migrations_pkey` where the migration is there already
 */
export async function applyMigration(database: Database, migration: AppliedMigration, text: string): Promise<void> {
  await database.script(`
    ${patiently}
    insert into schema_migrations (number, name, checksum)
    values (${migration.number}, '${migration.name}', '${migration.checksum}');
    ${text}`);
}

/** An index takes as long as it takes, and so does the migrator before us; both limits hold again after the script. */
const patiently = `
    set local statement_timeout = 0;
    set local lock_timeout = 0;
    select pg_advisory_xact_lock(${MIGRATION_LOCK});`;
