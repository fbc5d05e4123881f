/**
 * Nothing between request and reply touches PostgreSQL (design G8; the purchase's walk). Shown in two ways: a thousand
 * purchases, accepted and refused, add no statement to those of an idle process; and with a PostgreSQL that answers
 * nothing at all every purchase is answered as before.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import type { Activity } from '../../src/domain/activity.ts';
import { systemClock } from '../../src/platform/clock.ts';
import { makeLog } from '../../src/platform/log.ts';
import type { Database, Row, Sql } from '../../src/platform/postgres/database.ts';
import { wire, type Wired } from '../../src/main/wire.ts';
import { ask, buy, openActivity, testConfig, until } from '../support/sluice.ts';
import { createTestDatabase, openTestPool, type TestDatabase } from '../support/test-database.ts';

/** A database that writes down what it is asked, and can be made to answer nothing any more. */
class WatchedDatabase implements Database {
  readonly kind = 'postgres';
  readonly statements: string[] = [];
  #silent = false;
  readonly #behind: Database;
  constructor(behind: Database) {
    this.#behind = behind;
  }
  async #ask<T>(text: string, work: () => Promise<T>): Promise<T> {
    this.statements.push(text.replace(/\s+/g, ' ').trim());
    return this.#silent ? new Promise<T>(() => undefined) : work();
  }
  query<R extends Row>(text: string, values?: readonly unknown[]): Promise<R[]> {
    return this.#ask(text, () => this.#behind.query<R>(text, values));
  }
  transaction<T>(work: (tx: Sql) => Promise<T>): Promise<T> {
    return this.#ask('begin', () => this.#behind.transaction(work));
  }
  script(text: string): Promise<void> {
    return this.#ask(text, () => this.#behind.script(text));
  }
  stats = (): ReturnType<Database['stats']> => this.#behind.stats();
  close = (): Promise<void> => this.#behind.close();
  fallSilent(): void {
    this.#silent = true;
  }
}

let books: TestDatabase;
let watched: WatchedDatabase;
let wired: Wired;
let url: string;
let soldOut: Activity;
let open: Activity;
let notOpen: Activity;
let strict: Activity;
beforeAll(async () => {
  books = await createTestDatabase();
  watched = new WatchedDatabase(openTestPool(books.url));
  const config = testConfig(books.url, inject('redisUrl'));
  // the api role: what the landing asks is none of the door's business
  wired = wire(config, { role: 'api', redisUrl: inject('redisUrl'), database: watched, log: makeLog('silent') });
  url = await wired.start({ host: '127.0.0.1', port: 0 });
  await until('ready', async () => (await fetch(`${url}/readyz`)).status === 200);
  soldOut = await openActivity(wired, { total: 1 });
  open = await openActivity(wired, { total: 1_000, perBuyerLimit: 2 });
  const opensAt = systemClock.now() + 3_600_000;
  notOpen = await openActivity(wired, { opensAt, endsAt: opensAt + 1 });
  strict = await openActivity(wired, { answerWhen: 'ordered' });
  await buy(url, soldOut.id, 'winner');
});
afterAll(async () => {
  // its queries never end, so it is not stopped in order: its connections go with this process
  await books.drop();
});

/** Ten purchases, one of each kind of answer or two. */
async function purchases(round: number): Promise<string[]> {
  const buyer = `buyer-${round}-${randomBytes(3).toString('hex')}`;
  const key = 'the-first-key';
  const first = (await buy(url, open.id, buyer, { key })).code;
  const rest = await Promise.all([
    buy(url, open.id, buyer, { key }),
    buy(url, open.id, buyer, { key, quantity: 2 }),
    buy(url, open.id, buyer),
    buy(url, soldOut.id, buyer),
    buy(url, soldOut.id, `${buyer}-too`),
    buy(url, notOpen.id, buyer),
    buy(url, 'no-such', buyer),
    buy(url, open.id, buyer, { quantity: 3 }),
    buy(url, open.id, `${buyer}-too`, { quantity: 0 }),
  ]);
  return [first, ...rest.map((told) => told.code)];
}
const ANSWERS = [
  ...['held', 'replayed', 'key_reused', 'already_bought', 'sold_out', 'sold_out', 'not_open', 'unknown_activity'],
  ...['invalid', 'invalid'],
];

test('a thousand purchases ask PostgreSQL nothing that an idle process does not ask', async () => {
  watched.statements.length = 0;
  const idleFrom = performance.now();
  await until('it has asked all that it asks by itself', () => watched.statements.length >= 25);
  const idleMs = performance.now() - idleFrom;
  const idle = watched.statements.splice(0);

  const from = performance.now();
  for (let round = 0; round < 100; round++) expect(await purchases(round)).toEqual(ANSWERS);
  const ms = performance.now() - from;
  const asked = watched.statements.splice(0);

  // the lease of the worker number is renewed every few seconds: by the clock, too, but not in every while
  const byTheClock = (statement: string): boolean =>
    idle.includes(statement) || statement.startsWith('update worker_numbers ');
  expect([...new Set(asked)].filter((statement) => !byTheClock(statement))).toEqual([]);
  // by the clock and not by the purchase: no more in a while than an idle process asks, half as much again and a few
  expect(asked.length).toBeLessThan((idle.length * ms * 1.5) / idleMs + 10);
  expect(asked.length).toBeLessThan(500);
}, 60_000);

test('with a PostgreSQL that answers nothing every purchase is answered as before, and so are the public pages', async () => {
  watched.fallSilent();
  for (let round = 0; round < 20; round++) expect(await purchases(round)).toEqual(ANSWERS);
  expect((await ask(url, `/api/v1/activities/${open.id}`)).body['availability']).toBe('available');
  expect((await ask(url, `/api/v1/activities/${soldOut.id}`)).body['availability']).toBe('sold_out');
  expect((await ask(url, '/api/v1/activities')).status).toBe(200);
  expect((await ask(url, '/api/v1/time')).status).toBe(200);
  // the strict reply waits for a landing that does not come, and no longer than it may
  const told = await buy(url, strict.id, 'ann');
  expect(told).toMatchObject({ status: 202, code: 'held', body: { state: 'queued' } });
  // a receipt that is still queued is read from its mark
  const receipt = String(told.body['receipt']);
  expect((await ask(url, `/api/v1/receipts/${receipt}`, 'ann')).body['state']).toBe('queued');
});
