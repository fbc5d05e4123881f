import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeLog } from '../../../src/platform/log.ts';
import { openEmbedded } from '../../../src/platform/postgres/embedded.ts';
import { migrate } from '../../../src/platform/postgres/migrate.ts';
import { createEmptyDatabase, MIGRATIONS_FOLDER, openTestPool } from '../../support/test-database.ts';
import type { TestDatabase } from '../../support/test-database.ts';

const log = makeLog('silent');
let made: TestDatabase;
let folder: string;

beforeEach(async () => {
  made = await createEmptyDatabase();
  folder = await mkdtemp(join(tmpdir(), 'sluice-migrate-'));
});
afterEach(async () => {
  await made.drop();
  await rm(folder, { recursive: true, force: true });
});

const put = (file: string, content: string): Promise<void> => writeFile(join(folder, file), content);
const run = (): Promise<string[]> => migrate(made.database, folder, log);
const tables = async (): Promise<unknown[]> => {
  const rows = await made.database.query(
    `select tablename as name from pg_tables where schemaname = 'public' and tablename <> 'schema_migrations' order by 1`,
  );
  return rows.map(({ name }) => name);
};

describe('migrate', () => {
  test('applies the files once each, in order, and says which', async () => {
    await put('0002_b.sql', 'create table b (id int references a (id));');
    await put('0001_a.sql', 'create table a (id int primary key); insert into a values (1);');
    expect(await run()).toEqual(['0001_a.sql', '0002_b.sql']);
    expect(await run()).toEqual([]);
    await put('0003_c.sql', 'create table c ();');
    expect(await run()).toEqual(['0003_c.sql']);
    expect(await tables()).toEqual(['a', 'b', 'c']);
  });

  test('leaves nothing of a migration that fails, keeps those before it, and names it', async () => {
    await put('0001_a.sql', 'create table a ();');
    await put('0002_b.sql', 'create table b (); select 1/0; create table c ();');
    await expect(run()).rejects.toMatchObject({
      code: 'database_refused',
      sqlstate: '22012',
      message: expect.stringContaining('0002_b.sql') as string,
    });
    expect(await tables()).toEqual(['a']);
    await put('0002_b.sql', 'create table b ();');
    expect(await run()).toEqual(['0002_b.sql']);
  });

  test('takes a file whose last line has no end, or is a comment', async () => {
    await put('0001_a.sql', 'create table a () -- the end');
    await put('0002_b.sql', 'create table b ();\n-- the end');
    expect(await run()).toEqual(['0001_a.sql', '0002_b.sql']);
  });

  describe('refuses, and touches nothing,', () => {
    beforeEach(async () => {
      await put('0001_a.sql', 'create table a ();');
      await put('0003_c.sql', 'create table c ();');
      await run();
      await put('0004_d.sql', 'create table d ();');
    });
    const refuses = async (sentence: string): Promise<void> => {
      await expect(run()).rejects.toMatchObject({ code: 'settings_invalid', retryable: false, message: sentence });
      expect(await tables()).toEqual(['a', 'c']);
    };

    test('an applied migration that has changed', async () => {
      await put('0001_a.sql', 'create table a (id int);');
      await refuses('migration 0001_a.sql has changed since it was applied');
    });

    test('an applied migration that is missing', async () => {
      await rm(join(folder, '0001_a.sql'));
      await refuses('applied migration 0001_a is missing from this program');
    });

    test('a migration slipped in before an applied one', async () => {
      await put('0002_b.sql', 'create table b ();');
      await refuses('migration 0002_b.sql was slipped in before the applied 0003_c');
    });

    test('a database that is newer than the program', async () => {
      await run();
      await rm(join(folder, '0004_d.sql'));
      await made.database.script('drop table d');
      await refuses('the database is newer than this program: it has 0004_d, this program ends at 3');
    });
  });

  test('does not mind line ends that git has turned', async () => {
    await put('0001_a.sql', 'create table a ();\n-- end\n');
    await run();
    await put('0001_a.sql', 'create table a ();\r\n-- end\r\n');
    expect(await run()).toEqual([]);
  });

  test.each([
    ['0001_a.sql', 'begin;\ncreate table a ();\ncommit;', 'transaction'],
    ['0001_a.sql', 'create table a ();\n  COMMIT ;', 'transaction'],
    ['1_a.sql', 'create table a ();', 'NNNN_name.sql'],
  ])('takes %s with %o for a bug', async (file, content, word) => {
    await put(file, content);
    await expect(run()).rejects.toMatchObject({ name: 'Bug', message: expect.stringContaining(word) as string });
    expect(await tables()).toEqual([]);
  });

  test('from two processes at the same instant: each file is applied once', async () => {
    const files = ['0001_a.sql', '0002_b.sql', '0003_c.sql', '0004_d.sql'];
    // Slower than the processes' statement and lock timeouts, so that one really waits for the other.
    for (const file of files) await put(file, `create table ${file.slice(5, 6)} (); select pg_sleep(1.2);`);
    const script = fileURLToPath(new URL('./migrating-process.ts', import.meta.url));
    const children = [1, 2].map(() =>
      spawn(process.execPath, ['--import', 'tsx', script, made.url, folder], { stdio: ['pipe', 'pipe', 'inherit'] }),
    );
    await Promise.all(children.map((child) => once(child.stdout, 'data')));
    const answers = children.map(async (child) => {
      child.stdin.end('go\n');
      return JSON.parse(await text(child.stdout)) as string[];
    });
    const [one, two] = await Promise.all(answers);
    expect([...one!, ...two!].sort()).toEqual(files);
    expect(await tables()).toEqual(['a', 'b', 'c', 'd']);
  });

  test('from eight at once on a database without a table: each file is applied once', async () => {
    const files = Array.from({ length: 5 }, (_, i) => `000${i + 1}_t.sql`);
    for (const [i, file] of files.entries()) await put(file, `create table t${i} ();`);
    const pools = Array.from({ length: 8 }, () => openTestPool(made.url, { poolMax: 1 }));
    const applied = await Promise.all(pools.map((pool) => migrate(pool, folder, log)));
    for (const pool of pools) await pool.close();
    expect(applied.flat().sort()).toEqual(files);
  });
});

describe('the program’s migrations', () => {
  const shape = `
    select table_name, column_name, data_type, is_nullable, column_default from information_schema.columns
     where table_schema = 'public' order by table_name, ordinal_position`;
  const guards = `
    select conrelid::regclass::text as of, conname, pg_get_constraintdef(oid) as def from pg_constraint
     where connamespace = 'public'::regnamespace and contype <> 'n'
    union all
    select tablename, indexname, indexdef from pg_indexes where schemaname = 'public'
    union all
    select event_object_table, trigger_name, event_manipulation from information_schema.triggers order by 1, 2, 3`;

  test('make the same tables, constraints and triggers on PostgreSQL and on PGlite', { timeout: 180_000 }, async () => {
    const files = (await readdir(MIGRATIONS_FOLDER)).filter((file) => file.endsWith('.sql')).sort();
    const embedded = openEmbedded({ folder: 'memory', log });
    try {
      expect(await migrate(embedded, MIGRATIONS_FOLDER, log)).toEqual(files);
      expect(await migrate(embedded, MIGRATIONS_FOLDER, log)).toEqual([]);
      expect(await migrate(made.database, MIGRATIONS_FOLDER, log)).toEqual(files);
      expect(await embedded.query(shape)).toEqual(await made.database.query(shape));
      expect(await embedded.query(guards)).toEqual(await made.database.query(guards));
    } finally {
      await embedded.close();
    }
  });

  test('are known to the program by the content they had', async () => {
    await migrate(made.database, MIGRATIONS_FOLDER, log);
    const [first] = (await readdir(MIGRATIONS_FOLDER)).sort();
    await put(first!, `${await readFile(join(MIGRATIONS_FOLDER, first!), 'utf8')}\n`);
    await expect(run()).rejects.toMatchObject({ code: 'settings_invalid' });
  });
});
