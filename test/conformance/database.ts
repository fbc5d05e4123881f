/**
 * What every Database must do, PostgreSQL by pg and PGlite alike.
 * `open` gives an empty database with one or more connections; the suite closes it.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Bug, Fault } from '../../src/domain/fault.ts';
import type { Database } from '../../src/platform/postgres/database.ts';

/** Runs the suite. */
export function databaseConforms(kind: Database['kind'], open: () => Promise<Database>): void {
  describe(`${kind} as Database`, () => {
    let database: Database;

    beforeAll(async () => {
      database = await open();
    });
    beforeEach(() =>
      database.script(`
        drop table if exists child, parent;
        create table parent (id int constraint parent_key primary key, n int not null constraint n_small check (n < 100));
        create table child (
          id int primary key,
          parent_id int constraint child_parent references parent (id) deferrable initially deferred
        );`),
    );
    afterAll(() => database?.close());

    test('says what it is', () => {
      expect(database.kind).toBe(kind);
    });

    describe('values come out', () => {
      test.each<[string, unknown]>([
        ['9223372036854775807::int8', '9223372036854775807'],
        ['count(*)', '1'],
        ['12.340::numeric', '12.340'],
        ['7::int4', 7],
        ['7::int2', 7],
        ['0.1::float8', 0.1],
        ["'a'::text", 'a'],
        ["'a'::varchar(3)", 'a'],
        ['true', true],
        ['null::int8', null],
        ["'2026-12-01 20:00:00.125+08'::timestamptz", new Date('2026-12-01T12:00:00.125Z')],
        ["'0099-01-02 00:00:00+00'::timestamptz", new Date('0099-01-02T00:00:00Z')],
        ["'infinity'::timestamptz", new Date(8.64e15)],
        ["'2026-12-01'::date", '2026-12-01'],
        ["'2026-12-01 20:00:00'::timestamp", '2026-12-01 20:00:00'],
        [`'{"a":[1]}'::jsonb`, { a: [1] }],
        ["'6f2a0b0e-0000-4000-8000-000000000000'::uuid", '6f2a0b0e-0000-4000-8000-000000000000'],
        ["'\\x00ff'::bytea", Buffer.from([0, 255])],
        ['array[1, null, 9223372036854775807]::int8[]', ['1', null, '9223372036854775807']],
        ['array[1, 2]::int4[]', [1, 2]],
        ["array['a,b', 'c\"d', 'e\\f', 'null', '', null]::text[]", ['a,b', 'c"d', 'e\\f', 'null', '', null]],
        ["array['2026-12-01 00:00:00+00'::timestamptz]", [new Date('2026-12-01T00:00:00Z')]],
        ['array[[1,2],[3,4]]::int4[]', [[1, 2], [3, 4]]], // prettier-ignore
        ["'{}'::text[]", []],
      ])('%s', async (expression, value) => {
        expect(await database.query(`select ${expression} as value`)).toEqual([{ value }]);
      });

      test('also those of a table made a moment ago', async () => {
        await database.query('insert into parent values (1, 2)');
        expect(await database.query('select parent, array[parent] as parents from parent')).toEqual([
          { parent: '(1,2)', parents: '{"(1,2)"}' },
        ]);
      });
    });

    describe('values go in', () => {
      test.each<[type: string, value: unknown, comesBack: unknown]>([
        ['int8', '9223372036854775807', '9223372036854775807'],
        ['int8', 9007199254740993n, '9007199254740993'],
        ['int4', 7, 7],
        ['text', "it's 'quoted' 中文 \\ \"x\"", "it's 'quoted' 中文 \\ \"x\""],
        ['text', 7, '7'],
        ['bool', false, false],
        ['int8', null, null],
        ['int8', undefined, null],
        ['timestamptz', new Date('2026-12-01T12:00:00.125Z'), new Date('2026-12-01T12:00:00.125Z')],
        ['jsonb', { a: 'x' }, { a: 'x' }],
        ['jsonb', JSON.stringify([1, 'x']), [1, 'x']],
        ['bytea', new Uint8Array([0, 255]), Buffer.from([0, 255])],
        ['int8[]', ['1', '9223372036854775807'], ['1', '9223372036854775807']],
        ['int4[]', [], []],
        ['text[]', ['a,b', 'c"d', 'e\\f', 'null', '', null, '{}'], ['a,b', 'c"d', 'e\\f', 'null', '', null, '{}']],
        ['timestamptz[]', [new Date('2026-12-01T00:00:00Z')], [new Date('2026-12-01T00:00:00Z')]],
      ])('%s from %o', async (type, value, comesBack) => {
        expect(await database.query(`select $1::${type} as value`, [value])).toEqual([{ value: comesBack }]);
      });

      test('side by side through unnest, the way batches are written', async () => {
        const rows = await database.query('select * from unnest($1::int8[], $2::text[]) as b (id, buyer)', [
          ['1', '2'],
          ['ann', 'bob'],
        ]);
        expect(rows).toEqual([{ id: '1', buyer: 'ann' }, { id: '2', buyer: 'bob' }]); // prettier-ignore
      });

      test('an invalid date is a bug of ours and goes nowhere', async () => {
        await expect(database.query('select $1::timestamptz', [new Date('x')])).rejects.toBeInstanceOf(Bug);
        expect(await database.query('select 1 as one')).toEqual([{ one: 1 }]);
      });
    });

    describe('faults carry what PostgreSQL said', () => {
      test.each<[string, string, Partial<Fault>]>([
        ['a value out of range', 'select 1/0', { code: 'database_refused', sqlstate: '22012', retryable: false }],
        [
          'a broken check',
          'insert into parent values (1, 100)',
          { code: 'database_refused', sqlstate: '23514', constraint: 'n_small', retryable: false },
        ],
        [
          'a second row under one key',
          'insert into parent values (1, 1), (1, 1)',
          { code: 'database_refused', sqlstate: '23505', constraint: 'parent_key', retryable: false },
        ],
        ['a missing table', 'select from nowhere', { code: 'database_refused', sqlstate: '42P01', retryable: true }],
        ['a second statement', 'select 1; select 2', { code: 'database_refused', sqlstate: '42601', retryable: true }],
        ['a missing parameter', 'select $1::int', { code: 'database_refused', sqlstate: '08P01', retryable: true }],
        [
          'a raised error',
          `do $$ begin raise exception 'no' using errcode = 'P0001'; end $$`,
          { code: 'database_refused', sqlstate: 'P0001', retryable: false },
        ],
        [
          'a serialization failure',
          `do $$ begin raise exception 'no' using errcode = '40001'; end $$`,
          { code: 'database_busy', sqlstate: '40001', retryable: true },
        ],
      ])('%s', async (_name, text, fault) => {
        const error: unknown = await database.query(text).catch((e: unknown) => e);
        expect(error).toBeInstanceOf(Fault);
        expect(error).toMatchObject(fault);
        expect(await database.query('select 1 as one')).toEqual([{ one: 1 }]);
      });

      test('a message names the statement and no parameter', async () => {
        const error = (await database
          .query('insert into parent values ($1::int, $2::int)', [4711, 100])
          .catch((e: unknown) => e)) as Fault;
        expect(error.message).toContain('insert into parent values');
        expect(error.message).not.toContain('4711');
      });
    });

    describe('a transaction', () => {
      test('commits when its work returns, and gives its result', async () => {
        const result = await database.transaction(async (tx) => {
          await tx.query('insert into parent values (1, 1)');
          return 'done';
        });
        expect(result).toBe('done');
        expect(await database.query('select id from parent')).toEqual([{ id: 1 }]);
      });

      test('rolls back when its work throws, and passes the error on', async () => {
        const thrown = new Error('changed my mind');
        const work = database.transaction(async (tx) => {
          await tx.query('insert into parent values (1, 1)');
          throw thrown;
        });
        await expect(work).rejects.toBe(thrown);
        expect(await database.query('select id from parent')).toEqual([]);
      });

      test('that swallows a failed statement does not pass for stored', async () => {
        const work = database.transaction(async (tx) => {
          await tx.query('insert into parent values (1, 1)');
          await tx.query('select 1/0').catch(() => undefined);
        });
        await expect(work).rejects.toBeInstanceOf(Bug);
        expect(await database.query('select id from parent')).toEqual([]);
      });

      test('goes on after a failed statement behind a savepoint', async () => {
        await database.transaction(async (tx) => {
          await tx.query('insert into parent values (1, 1)');
          await tx.query('savepoint s');
          await tx.query('insert into parent values (1, 1)').catch(() => tx.query('rollback to savepoint s'));
        });
        expect(await database.query('select id from parent')).toEqual([{ id: 1 }]);
      });

      test('refused at its commit by a deferred constraint says so, and leaves a usable connection', async () => {
        const work = database.transaction((tx) => tx.query('insert into child values (1, 99)'));
        await expect(work).rejects.toMatchObject({
          code: 'database_refused',
          sqlstate: '23503',
          constraint: 'child_parent',
        });
        expect(await database.query('select id from child')).toEqual([]);
      });

      test('runs statements started side by side one after another', async () => {
        const answers = await database.transaction((tx) =>
          Promise.all([1, 2, 3].map((id) => tx.query('insert into parent values ($1, 1) returning id', [id]))),
        );
        expect(answers).toEqual([[{ id: 1 }], [{ id: 2 }], [{ id: 3 }]]);
      });

      test('is at READ COMMITTED, whatever the database prefers', async () => {
        // One call after another, so both are on the connection that has just come back.
        await database.script(
          `set default_transaction_isolation = 'serializable'; set default_transaction_read_only = on`,
        );
        const [row] = await database.transaction((tx) =>
          tx.query(`select current_setting('transaction_isolation') as level,
                           current_setting('transaction_read_only') as read_only`),
        );
        await database.script('reset default_transaction_isolation; reset default_transaction_read_only');
        expect(row).toEqual({ level: 'read committed', read_only: 'off' });
      });

      test('cannot be used after its end', async () => {
        const tx = await database.transaction(async (sql) => sql);
        await expect(tx.query('select 1')).rejects.toBeInstanceOf(Bug);
      });

      test('of many at once each sees what the one before it has committed', async () => {
        await database.query('insert into parent values (1, 0)');
        await Promise.all(
          Array.from({ length: 20 }, () =>
            database.transaction(async (tx) => {
              const [row] = await tx.query<{ n: number }>('select n from parent where id = 1 for update');
              await tx.query('update parent set n = $1 where id = 1', [row!.n + 1]);
            }),
          ),
        );
        expect(await database.query('select n from parent')).toEqual([{ n: 20 }]);
      });
    });

    describe('a script', () => {
      test('runs many statements, all or none', async () => {
        const script = database.script('insert into parent values (1, 1); insert into parent values (2, 100);');
        await expect(script).rejects.toMatchObject({ sqlstate: '23514', constraint: 'n_small' });
        expect(await database.query('select id from parent')).toEqual([]);
      });

      test('that fails inside a transaction of its own leaves none open', async () => {
        await expect(database.script('begin; insert into parent values (1, 1); select 1/0;')).rejects.toMatchObject({
          sqlstate: '22012',
        });
        expect(await Promise.all([1, 2, 3].map(() => database.query('select id from parent')))).toEqual([[], [], []]);
      });
    });

    test('after its close every call is unavailable, and closing again does nothing', async () => {
      const other = await open();
      const running = other.query('select pg_sleep(0.05), 1 as one');
      await other.query('select 1').catch(() => undefined);
      await Promise.all([other.close(), other.close()]);
      expect(await running).toMatchObject([{ one: 1 }]);
      for (const call of [other.query('select 1'), other.script('select 1'), other.transaction(async () => 1)]) {
        await expect(call).rejects.toMatchObject({ code: 'database_unavailable', retryable: true });
      }
      expect(other.stats()).toEqual({ open: 0, idle: 0, waiting: 0 });
    });
  });
}
