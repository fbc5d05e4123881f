/**
 * SQL of the landing: cursor, orders, dead letters, tries. The functions called here are in `migrations/0004`.
 * All of it runs inside the landing's transaction but the counting of tries, which comes before it.
 */
import type { Row, Sql } from '../../platform/postgres/database.ts';
import type { SegmentAddress } from '../../platform/redis/keys.ts';
import type { OutboxHold } from './outbox.ts';

/** Where the landing of one outbox stands. */
export type LandingPlace = { readonly cursor: string; readonly entry: number };

/** A hold that did not become an order. */
export type NotPlaced =
  | { readonly orderId: string; readonly outcome: 'known' }
  | {
      readonly orderId: string;
      readonly outcome: 'refused';
      readonly reason: 'sold_out' | 'already_bought';
      readonly units: number;
    };

/** Reads the place; undefined where the outbox is closed or unknown. */
export async function readPlace(sql: Sql, at: SegmentAddress): Promise<LandingPlace | undefined> {
  const [row] = await sql.query<{ cursor: string; entry: string }>(
    `select cursor, entry from landings where activity_id = $1 and run = $2 and segment = $3 and not closed`,
    [at.activityId, at.run, at.segment],
  );
  return row === undefined ? undefined : { cursor: row.cursor, entry: Number(row.entry) };
}

/** Moves the cursor if it still stands where it was read and the outbox is not closed; false: stop, somebody else did. */
export async function moveCursor(sql: Sql, at: SegmentAddress, from: LandingPlace, to: LandingPlace): Promise<boolean> {
  const rows = await sql.query(
    `update landings set cursor = $5, entry = $6
      where activity_id = $1 and run = $2 and segment = $3 and cursor = $4 and not closed
      returning 1 as moved`,
    [at.activityId, at.run, at.segment, from.cursor, to.cursor, to.entry],
  );
  return rows.length === 1;
}

/** Places holds as orders, in the order given; returns those that did not become one. */
export async function placeOrders(sql: Sql, at: SegmentAddress, holds: readonly OutboxHold[]): Promise<NotPlaced[]> {
  if (holds.length === 0) return [];
  const rows = await sql.query<{ order_id: string; outcome: string; reason: string | null; units: number }>(
    `select order_id, outcome, reason, units
       from place_orders($1, $2, $3::bigint[], $4::text[], $5::text[], $6::int[], $7::timestamptz[])`,
    [
      at.activityId,
      at.run,
      holds.map((hold) => hold.orderId),
      holds.map((hold) => hold.buyerId),
      holds.map((hold) => hold.requestId),
      holds.map((hold) => hold.quantity),
      holds.map((hold) => new Date(hold.heldAt).toISOString()),
    ],
  );
  return rows.map((row) =>
    row.outcome === 'known'
      ? { orderId: row.order_id, outcome: 'known' }
      : {
          orderId: row.order_id,
          outcome: 'refused',
          reason: row.reason as 'sold_out' | 'already_bought',
          units: row.units,
        },
  );
}

/** Keeps a hold that cannot be placed, with why. */
export async function insertDeadLetter(
  sql: Sql,
  at: SegmentAddress,
  letter: { hold: OutboxHold; entryId: string; error: string; tries: number },
): Promise<void> {
  const { hold } = letter;
  await sql.query(
    `insert into dead_letters (order_id, activity_id, run, segment, entry_id, buyer_id, request_id, quantity, held_at, error, tries)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) on conflict do nothing`,
    [
      hold.orderId,
      at.activityId,
      at.run,
      at.segment,
      letter.entryId,
      hold.buyerId,
      hold.requestId,
      hold.quantity,
      new Date(hold.heldAt).toISOString(),
      letter.error.slice(0, 1_000),
      letter.tries,
    ],
  );
}

/** Counts a try of each hold before it is made; returns tries so far, this one included, and the last error, by order id. */
export async function countTries(
  sql: Sql,
  orderIds: readonly string[],
): Promise<Map<string, { tries: number; error: string | undefined }>> {
  const rows = await sql.query<{ order_id: string; tries: number; error: string | null }>(
    `insert into landing_tries as t (order_id, tries) select unnest($1::bigint[]), 1
     on conflict (order_id) do update set tries = t.tries + 1, last_at = now()
     returning order_id, tries, error`,
    [orderIds],
  );
  return new Map(rows.map((row) => [row.order_id, { tries: row.tries, error: row.error ?? undefined }]));
}

/** Notes why a counted try failed. */
export async function noteTryError(sql: Sql, orderId: string, error: string): Promise<void> {
  await sql.query(`update landing_tries set error = $2 where order_id = $1`, [orderId, error.slice(0, 1_000)]);
}

/** Takes a counted try back: the fault was the world's. */
export async function uncountTries(sql: Sql, orderIds: readonly string[]): Promise<void> {
  await sql.query(`update landing_tries set tries = tries - 1 where order_id = any ($1::bigint[])`, [orderIds]);
}

/** Forgets the tries of holds that are through. */
export async function clearTries(sql: Sql, orderIds: readonly string[]): Promise<void> {
  await sql.query(`delete from landing_tries where order_id = any ($1::bigint[])`, [orderIds]);
}

/** How landed holds stand, for their marks: `o` an order that is live, `d` set aside; what was given back is not told here. */
export async function readLandedHolds(sql: Sql, orderIds: readonly string[]): Promise<Map<string, 'o' | 'd'>> {
  if (orderIds.length === 0) return new Map();
  const rows = await sql.query<{ order_id: string; status: 'o' | 'd' }>(
    `select order_id, 'o' as status from orders where order_id = any ($1::bigint[]) and state in ('placed', 'paid')
     union all
     select order_id, 'd' from dead_letters where order_id = any ($1::bigint[]) and state = 'open'`,
    [orderIds],
  );
  return new Map(rows.map((row) => [row.order_id, row.status]));
}

/** Notes that a run has lost something and needs a rebuild; true for the one call that noted it first. */
export async function noteLostRun(sql: Sql, at: SegmentAddress, reason: string): Promise<boolean> {
  const rows = await sql.query(
    `update runs set state = 'lost', lost_reason = $3 where activity_id = $1 and run = $2 and state in ('building', 'open')
     returning 1 as noted`,
    [at.activityId, at.run, reason.slice(0, 500)],
  );
  return rows.length === 1;
}

/** An outbox to land. */
export type OpenOutbox = SegmentAddress & { readonly shards: number; readonly onSale: boolean };

/** Every outbox that is not closed; `onSale` where holds are to be expected now. */
export async function openOutboxes(sql: Sql): Promise<OpenOutbox[]> {
  const rows = await sql.query<
    Row & { activity_id: string; run: string; segment: number; shards: number; on_sale: boolean }
  >(
    `select l.activity_id, l.run, l.segment, r.shards,
            (a.opens_at < now() + interval '5 s' and a.ends_at > now() - interval '60 s') as on_sale
       from landings l
       join runs r on r.activity_id = l.activity_id and r.run = l.run
       join activities a on a.id = l.activity_id
      where not l.closed and a.state in ('scheduled', 'open', 'ended')
      order by l.activity_id, l.run, l.segment
      limit 5000`,
  );
  return rows.map((row) => ({
    activityId: row.activity_id,
    run: Number(row.run),
    segment: row.segment,
    shards: row.shards,
    onSale: row.on_sale,
  }));
}
