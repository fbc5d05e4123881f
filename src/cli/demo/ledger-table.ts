/** PostgreSQL's word: activity, orders and what is under way, read by SQL of the demo's own. */
import type { OrderState } from '../../domain/order.ts';
import type { Database, Sql } from '../../platform/postgres/database.ts';
import type { BookedOrder } from './auditor.ts';

/** What PostgreSQL holds of one activity. */
export type Ledger = {
  readonly state: string;
  readonly total: number;
  readonly sold: number;
  readonly surplus: number;
  readonly run: number;
  readonly segments: number;
  readonly shards: number;
  readonly orders: readonly BookedOrder[];
  readonly deadLetters: readonly { readonly orderId: string; readonly buyerId: string; readonly quantity: number }[];
  /** units that are on their way back to the gate */
  readonly givingBack: readonly { readonly orderId: string; readonly units: number }[];
  /** number of the last landed entry, by segment */
  readonly landed: readonly number[];
};

/** Reads all of it, in one transaction. Throws where there is no such activity. */
export function readLedger(database: Database, activityId: string): Promise<Ledger> {
  return database.transaction(async (tx) => {
    const [activity] = await tx.query<{
      state: string;
      total: number;
      sold: number;
      surplus: number;
      run: string;
      segments: number;
      shards: number | null;
    }>(
      `select a.state, a.total, a.sold, a.surplus, a.run, a.segments, r.shards
         from activities a left join runs r on r.activity_id = a.id and r.run = a.run where a.id = $1`,
      [activityId],
    );
    if (activity === undefined) throw new Error(`there is no activity ${activityId} in PostgreSQL`);
    return {
      state: activity.state,
      total: activity.total,
      sold: activity.sold,
      surplus: activity.surplus,
      run: Number(activity.run),
      segments: activity.segments,
      shards: activity.shards ?? 0,
      orders: await readOrders(tx, activityId),
      deadLetters: await readDeadLetters(tx, activityId),
      givingBack: await readGivingBack(tx, activityId),
      landed: await readLanded(tx, activityId, activity.run),
    };
  });
}

async function readOrders(sql: Sql, activityId: string): Promise<BookedOrder[]> {
  const rows = await sql.query<{
    order_id: string;
    buyer_id: string;
    request_id: string;
    quantity: number;
    state: OrderState;
    reason: string | null;
  }>(`select order_id, buyer_id, request_id, quantity, state, reason from orders where activity_id = $1`, [activityId]);
  return rows.map((row) => ({
    orderId: row.order_id,
    buyerId: row.buyer_id,
    requestId: row.request_id,
    quantity: row.quantity,
    state: row.state,
    reason: row.reason ?? undefined,
  }));
}

async function readDeadLetters(sql: Sql, activityId: string): Promise<Ledger['deadLetters']> {
  const rows = await sql.query<{ order_id: string; buyer_id: string; quantity: number }>(
    `select order_id, buyer_id, quantity from dead_letters where activity_id = $1 and state = 'open'`,
    [activityId],
  );
  return rows.map((row) => ({ orderId: row.order_id, buyerId: row.buyer_id, quantity: row.quantity }));
}

async function readGivingBack(sql: Sql, activityId: string): Promise<Ledger['givingBack']> {
  const rows = await sql.query<{ order_id: string; units: number }>(
    `select order_id, units from give_backs where activity_id = $1 and state = 'pending'`,
    [activityId],
  );
  return rows.map((row) => ({ orderId: row.order_id, units: row.units }));
}

async function readLanded(sql: Sql, activityId: string, run: string): Promise<number[]> {
  const rows = await sql.query<{ entry: string }>(
    `select entry from landings where activity_id = $1 and run = $2 order by segment`,
    [activityId, run],
  );
  return rows.map((row) => Number(row.entry));
}

/** Whether give-backs of the activity are still on their way to the gate. */
export async function areGiveBacksOpen(sql: Sql, activityId: string): Promise<boolean> {
  const rows = await sql.query(
    `select 1 as open from give_backs where activity_id = $1 and state = 'pending' limit 1`,
    [activityId],
  );
  return rows.length > 0;
}

/** Connections of Sluice processes to this database, as PostgreSQL shows them to us. */
export async function sluiceConnections(sql: Sql): Promise<number> {
  const [row] = await sql.query<{ n: number }>(
    `select count(*)::int as n from pg_stat_activity
      where datname = current_database() and application_name = 'sluice'`,
  );
  return row?.n ?? 0;
}

/** PostgreSQL's version, as it names itself. */
export async function databaseVersion(sql: Sql): Promise<string> {
  const [row] = await sql.query<{ version: string }>(`select current_setting('server_version') as version`);
  return row?.version.split(' ')[0] ?? '?';
}
