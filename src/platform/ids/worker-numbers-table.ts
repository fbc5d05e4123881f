/**
 * Worker numbers of order ids, in PostgreSQL: who may stamp which instants under which number.
 *
 * ```
 * worker_numbers
 *   number       0..1023    the 10 bits in the middle of an order id
 *   owner        text       one holding of one process; '' = nobody's
 *   expires_at   timestamp  judged by the database's clock alone: from here on another may take the number
 *   id_until_ms  epoch ms   judged by the holders' clocks: every instant ever stamped under this number is below it
 * ```
 *
 * Promises that a number has one owner at a time, that `id_until_ms` falls only when its owner gives the number up and
 * says what he used, and that many takers at once each get another number.
 * Does not promise that a former owner knows that he is one: that is why the next one starts at `id_until_ms`, and why a
 * repeat needs a database that lost acknowledged commits.
 */
import type { Sql } from '../postgres/database.ts';

/** Numbers there are: 10 bits of an order id. */
export const WORKER_NUMBERS = 1_024;

/** A number just taken, and the instants that may be stamped under it: `floorMs <= instant < untilMs`, epoch ms. */
export type TakenNumber = { readonly number: number; readonly floorMs: number; readonly untilMs: number };

/** Port of the table. All of it may throw the database's faults; the statement may have run all the same. */
export interface WorkerNumbers {
  /**
   * Takes a number that is nobody's by the database's clock.
   * @param request.owner unique for this holding
   * @param request.ttlMs how long it stays the owner's
   * @param request.pastMs numbers whose `id_until_ms` is not above it come first, lowest first; then those that end soonest
   * @param request.untilMs the instants wanted end here (the floor, where that is later)
   * @returns undefined when all numbers have an owner
   */
  take(request: { owner: string; ttlMs: number; pastMs: number; untilMs: number }): Promise<TakenNumber | undefined>;
  /**
   * Prolongs a holding, lapsed or not, as long as no other has taken the number, and moves its end of instants up.
   * @returns undefined when the number has another owner by now
   */
  renew(request: {
    number: number;
    owner: string;
    ttlMs: number;
    untilMs: number;
  }): Promise<{ readonly untilMs: number } | undefined>;
  /**
   * Gives a number up for the next taker, whose first instant is `untilMs`.
   * @returns false when it had another owner by now; nothing changed then
   */
  giveUp(request: { number: number; owner: string; untilMs: number }): Promise<boolean>;
}

/** The table in PostgreSQL or PGlite, each call one statement and its own transaction. */
export function workerNumbersTable(sql: Sql): WorkerNumbers {
  return {
    async take({ owner, ttlMs, pastMs, untilMs }) {
      const takeFree = (): Promise<TakenRow[]> => sql.query<TakenRow>(TAKE, [owner, ttlMs, pastMs, untilMs]);
      let [row] = await takeFree();
      if (row === undefined) {
        // A young database has no rows yet. Once they exist this finds nothing to add, and every number is in use.
        await sql.query(ADD_MISSING, [WORKER_NUMBERS]);
        [row] = await takeFree();
      }
      if (row === undefined) return undefined;
      return { number: row.number, floorMs: Number(row.floor_ms), untilMs: Number(row.until_ms) };
    },
    async renew({ number, owner, ttlMs, untilMs }) {
      const [row] = await sql.query<{ until_ms: string }>(RENEW, [number, owner, ttlMs, untilMs]);
      return row === undefined ? undefined : { untilMs: Number(row.until_ms) };
    },
    async giveUp({ number, owner, untilMs }) {
      const rows = await sql.query(GIVE_UP, [number, owner, untilMs]);
      return rows.length === 1;
    },
  };
}

type TakenRow = { number: number; floor_ms: string; until_ms: string };

// `for update skip locked` in a CTE: it is evaluated once, passes over rows that another taker is just taking, and looks
// at the locked row's present version, so a row taken a moment ago no longer counts as free.
const TAKE = `
  with free as (
    select number, id_until_ms
      from worker_numbers
     where expires_at <= clock_timestamp()
     order by greatest(id_until_ms, $3::bigint), number
     limit 1
       for update skip locked
  )
  update worker_numbers w
     set owner = $1,
         expires_at = clock_timestamp() + $2::bigint * interval '1 millisecond',
         id_until_ms = greatest(free.id_until_ms, $4::bigint)
    from free
   where w.number = free.number
  returning w.number, free.id_until_ms as floor_ms, w.id_until_ms as until_ms`;

const ADD_MISSING = `
  insert into worker_numbers (number, owner, expires_at, id_until_ms)
  select n, '', 'epoch', 0 from generate_series(0, $1::int - 1) n
  on conflict (number) do nothing`;

// No look at expires_at: while the owner is still written there, nobody else has stamped anything under this number.
const RENEW = `
  update worker_numbers
     set expires_at = clock_timestamp() + $3::bigint * interval '1 millisecond',
         id_until_ms = greatest(id_until_ms, $4::bigint)
   where number = $1 and owner = $2
  returning id_until_ms as until_ms`;

// The owner's name goes, so that a late renewal of this holding (a resent or slow statement) finds nothing.
const GIVE_UP = `
  update worker_numbers
     set owner = '', expires_at = clock_timestamp(), id_until_ms = $3::bigint
   where number = $1 and owner = $2
  returning number`;
