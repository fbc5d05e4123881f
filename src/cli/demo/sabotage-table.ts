/** SQL that breaks a sale behind the demo's back (test builds only): the verdict must find each of these out. */
import type { Database, Sql } from '../../platform/postgres/database.ts';

/** Takes away the wall of G1: PostgreSQL no longer refuses what is not there. */
export async function dropSoldWithinTotal(database: Database): Promise<void> {
  await database.script(`alter table activities drop constraint sold_within_total`);
}

/** Takes away the wall of G2: a buyer may have two live orders. */
export async function dropOneLiveOrder(database: Database): Promise<void> {
  await database.script(`drop index orders_one_live_per_buyer`);
}

/** Loses the oldest live order; its id, undefined while there is none. */
export async function loseAnOrder(sql: Sql, activityId: string): Promise<string | undefined> {
  const rows = await sql.query<{ order_id: string }>(
    `delete from orders where order_id = (
       select order_id from orders where activity_id = $1 and state = 'placed' order by order_id limit 1)
     returning order_id`,
    [activityId],
  );
  return rows[0]?.order_id;
}

/** Buyers with a live order, oldest first. */
export async function buyersServed(sql: Sql, activityId: string): Promise<string[]> {
  const rows = await sql.query<{ buyer_id: string }>(
    `select buyer_id from orders where activity_id = $1 and state = 'placed' order by order_id`,
    [activityId],
  );
  return rows.map((row) => row.buyer_id);
}
