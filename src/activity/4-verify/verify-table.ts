/** SQL of what is compared with the gate: the books of an activity at one instant, and orders in pages, never one by one. */
import type { Row, Sql } from '../../platform/postgres/database.ts';

/** Units on their way back that the gate may or may not have yet. */
export type PendingReturn = { readonly orderId: string; readonly buyerId: string; readonly units: number };

/** An activity's books, all of one instant. */
export type Books = {
  /** 0 where there is nothing at the gate yet: never preheated, or not successfully */
  readonly run: number;
  readonly segments: number;
  readonly shards: number;
  readonly total: number;
  readonly surplus: number;
  readonly sold: number;
  /** units of dead letters that are open */
  readonly deadLetters: number;
  /** of the present run, at most `PENDING_MAX` */
  readonly pending: readonly PendingReturn[];
  readonly places: readonly { readonly segment: number; readonly cursor: string; readonly entry: number }[];
};

/** Pending give-backs that are looked at one by one; with more the equation is not weighed now. */
export const PENDING_MAX = 5_000;

/** Reads the books. One statement, so one snapshot: what one row has given, another has received. */
export async function readBooks(sql: Sql, activityId: string): Promise<Books | undefined> {
  const [row] = await sql.query<
    Row & {
      run: string;
      segments: number;
      shards: number | null;
      total: number;
      surplus: number;
      sold: number;
      dead_letters: string;
      pending: string;
      places: string;
    }
  >(
    `select case when a.preheat in ('verified', 'confirmed') then a.run else 0 end as run, a.segments, r.shards, a.total, a.surplus, a.sold,
            (select coalesce(sum(d.quantity), 0)::bigint from dead_letters d
              where d.activity_id = a.id and d.state = 'open') as dead_letters,
            (select coalesce(json_agg(json_build_array(g.order_id::text, g.buyer_id, g.units)), '[]')::text
               from (select order_id, buyer_id, units from give_backs
                      where activity_id = a.id and run = a.run and state = 'pending' limit $2) g) as pending,
            (select coalesce(json_agg(json_build_array(l.segment, l.cursor, l.entry) order by l.segment), '[]')::text
               from landings l where l.activity_id = a.id and l.run = a.run) as places
       from activities a left join runs r on r.activity_id = a.id and r.run = a.run
      where a.id = $1`,
    [activityId, PENDING_MAX],
  );
  if (row === undefined) return undefined;
  const pending = JSON.parse(row.pending) as [string, string, number][];
  const places = JSON.parse(row.places) as [number, string, number][];
  return {
    run: Number(row.run),
    segments: row.segments,
    shards: row.shards ?? 1,
    total: row.total,
    surplus: row.surplus,
    sold: row.sold,
    deadLetters: Number(row.dead_letters),
    pending: pending.map(([orderId, buyerId, units]) => ({ orderId, buyerId, units })),
    places: places.map(([segment, cursor, entry]) => ({ segment, cursor, entry })),
  };
}

/** `sold`, and what it should be; of one instant. */
export async function readSold(sql: Sql, activityId: string): Promise<{ sold: number; live: number }> {
  const [row] = await sql.query<{ sold: number; live: string }>(
    `select a.sold, (select coalesce(sum(o.quantity), 0)::bigint from orders o
                      where o.activity_id = a.id and o.state in ('placed', 'paid')) as live
       from activities a where a.id = $1`,
    [activityId],
  );
  return { sold: row?.sold ?? 0, live: Number(row?.live ?? 0) };
}

/** An order, or an open dead letter, that should have a mark. */
export type Claim = { readonly orderId: string; readonly buyerId: string; readonly quantity: number };

type ClaimRow = Row & { order_id: string; buyer_id: string; quantity: number };
const claim = (row: ClaimRow): Claim => ({ orderId: row.order_id, buyerId: row.buyer_id, quantity: row.quantity });

/** The live orders of an activity, a page at a time in the order of their buyers. */
export async function liveOrders(sql: Sql, activityId: string, afterBuyer: string, limit: number): Promise<Claim[]> {
  const rows = await sql.query<ClaimRow>(
    `select order_id, buyer_id, quantity from orders
      where activity_id = $1 and state in ('placed', 'paid') and buyer_id > $2 order by buyer_id limit $3`,
    [activityId, afterBuyer, limit],
  );
  return rows.map(claim);
}

/** Open dead letters of an activity, a page at a time. */
export async function openDeadLetters(sql: Sql, activityId: string, after: string, limit: number): Promise<Claim[]> {
  const rows = await sql.query<ClaimRow>(
    `select order_id, buyer_id, quantity from dead_letters
      where activity_id = $1 and state = 'open' and order_id > $2::bigint order by order_id limit $3`,
    [activityId, after, limit],
  );
  return rows.map(claim);
}

/** Which of these order ids are accounted for now: live, set aside, or on their way back to the gate. */
export async function accountedFor(sql: Sql, orderIds: readonly string[]): Promise<Set<string>> {
  const rows = await sql.query<{ id: string }>(
    `select u.id from unnest($1::bigint[]) as u (id)
      where exists (select from orders o where o.order_id = u.id and o.state in ('placed', 'paid'))
         or exists (select from dead_letters d where d.order_id = u.id and d.state = 'open')
         or exists (select from give_backs g where g.order_id = u.id and g.state = 'pending')`,
    [orderIds],
  );
  return new Set(rows.map((row) => row.id));
}

/** Which of these order ids still hold units: live, or set aside. */
export async function stillHeld(sql: Sql, orderIds: readonly string[]): Promise<Set<string>> {
  const rows = await sql.query<{ id: string }>(
    `select u.id from unnest($1::bigint[]) as u (id)
      where exists (select from orders o where o.order_id = u.id and o.state in ('placed', 'paid'))
         or exists (select from dead_letters d where d.order_id = u.id and d.state = 'open')`,
    [orderIds],
  );
  return new Set(rows.map((row) => row.id));
}

/** Which of these buyers have a live order. */
export async function buyersWithOrder(sql: Sql, activityId: string, buyerIds: readonly string[]): Promise<Set<string>> {
  const rows = await sql.query<{ buyer_id: string }>(
    `select buyer_id from orders where activity_id = $1 and buyer_id = any ($2) and state in ('placed', 'paid')`,
    [activityId, buyerIds],
  );
  return new Set(rows.map((row) => row.buyer_id));
}

/** Whether the keys of an activity that has ended have ended too, by their own time. */
export async function keysHaveExpired(sql: Sql, activityId: string): Promise<boolean> {
  const [row] = await sql.query<{ expired: boolean }>(
    `select r.expires_at <= clock_timestamp() and a.state in ('ended', 'settled') as expired
       from activities a join runs r on r.activity_id = a.id and r.run = a.run where a.id = $1`,
    [activityId],
  );
  return row?.expired === true;
}
