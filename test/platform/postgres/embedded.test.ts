import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { clearInterval, setInterval } from 'node:timers';
import type { Worker } from 'node:worker_threads';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { makeLog } from '../../../src/platform/log.ts';
import type { Database } from '../../../src/platform/postgres/database.ts';
import { openEmbedded } from '../../../src/platform/postgres/embedded.ts';
import { databaseConforms } from '../../conformance/database.ts';

const log = makeLog('silent');

/** Making a database costs seconds of computing; most tests open a copy of the one that is made here. */
let root: string;
let copies = 0;
const made = (): string => join(root, 'not', 'there', 'yet');

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'sluice-embedded-'));
  const first = openEmbedded({ folder: made(), log });
  await first.script('create table kept (id int8); insert into kept values (1);');
  await first.close();
}, 180_000);
afterAll(() => rm(root, { recursive: true, force: true }));

async function copy(): Promise<string> {
  const folder = join(root, String((copies += 1)));
  await cp(made(), folder, { recursive: true });
  return folder;
}

databaseConforms('pglite', async () => openEmbedded({ folder: await copy(), log }));

describe('the embedded database', { timeout: 60_000 }, () => {
  const opened: Database[] = [];
  const open = (folder: string, acquireTimeoutMs = 30_000): Database => {
    const database = openEmbedded({ folder, log, acquireTimeoutMs });
    opened.push(database);
    return database;
  };

  afterEach(async () => {
    for (const database of opened.splice(0)) await database.close();
  });

  test('keeps its rows in the folder, which it makes', async () => {
    expect(await open(await copy()).query('select id from kept')).toEqual([{ id: '1' }]);
  });

  test('in memory starts empty', { timeout: 180_000 }, async () => {
    const database = open('memory');
    await expect(database.query('select id from kept')).rejects.toMatchObject({ sqlstate: '42P01' });
    await database.close();
  });

  test('works beside this thread and does not stop it', async () => {
    const database = open(await copy());
    await database.query('select 1');
    let turns = 0;
    const beat = setInterval(() => (turns += 1), 1);
    // Some hundred milliseconds of pure computing in PostgreSQL.
    await database.query('select sum(i::numeric ^ 2) from generate_series(1, 300000) i');
    clearInterval(beat);
    expect(turns).toBeGreaterThan(50); // in this thread it would be none
  });

  test('settles every waiting call when its thread dies, and refuses all later ones', async () => {
    const folder = await copy();
    const starting = new Promise<Worker>((resolve) => void process.once('worker', resolve));
    const database = open(folder);
    const thread = await starting;
    await database.query('select 1');
    const calls = Promise.allSettled([
      database.query('select pg_sleep(600)'),
      database.transaction((tx) => tx.query('select 1')),
      database.script('select 1'),
    ]);
    await thread.terminate();
    const unavailable = { status: 'rejected', reason: { code: 'database_unavailable', retryable: true } };
    expect(await calls).toMatchObject([unavailable, unavailable, unavailable]);
    await expect(database.query('select 1')).rejects.toMatchObject({ code: 'database_unavailable' });
    expect(database.stats()).toEqual({ open: 0, idle: 0, waiting: 0 });
  });

  test('that cannot open its folder is unavailable, and ends', async () => {
    const database = open('/dev/null/folder');
    await expect(database.query('select 1')).rejects.toMatchObject({ code: 'database_unavailable' });
    await database.close();
  });

  test('a statement outside a transaction that waits for it from inside is refused, not stuck', async () => {
    const database = open(await copy(), 200);
    const work = database.transaction(() => database.query('select 1'));
    await expect(work).rejects.toMatchObject({ code: 'database_busy', retryable: true });
    expect(await database.query('select 1 as one')).toEqual([{ one: 1 }]);
  });

  test('that was never used closes all the same', async () => {
    await open(await copy()).close();
  });
});
