/** SQL of the give-backs: what is still to be carried to the gate, and the ends of orders and dead letters. */
import type { GiveBackReason, OrderState } from '../../domain/order.ts';
import type { Row, Sql } from '../../platform/postgres/database.ts';

/** A give-back that the gate does not have yet, with the buyer's live order beside it, if any. */
export type PendingGiveBack = {
  readonly orderId: string;
  readonly activityId: string;
  /** the run on which the script works */
  readonly run: number;
  readonly shards: number;
  readonly segments: number;
  readonly buyerId: string;
  readonly units: number;
  readonly reason: GiveBackReason;
  readonly live:
    | {
        readonly orderId: string;
        readonly quantity: number;
        readonly run: number;
        readonly requestId: string;
        readonly paid: boolean;
      }
    | undefined;
};

type PendingRow = Row & {
  order_id: string;
  activity_id: string;
  run: string;
  shards: number;
  segments: number;
  buyer_id: string;
  units: number;
  reason: GiveBackReason;
  live_order_id: string | null;
  live_quantity: number | null;
  live_run: string | null;
  live_request_id: string | null;
  live_state: string | null;
};

/** Pending give-backs that are due, oldest first; of `orderIds` only, where given. */
export async function pendingGiveBacks(
  sql: Sql,
  options: { limit: number; orderIds?: readonly string[] },
): Promise<PendingGiveBack[]> {
  const rows = await sql.query<PendingRow>(
    `select g.order_id, g.activity_id, g.run, r.shards, r.segments, g.buyer_id, g.units, g.reason,
            o.order_id as live_order_id, o.quantity as live_quantity, o.run as live_run,
            o.request_id as live_request_id, o.state as live_state
       from give_backs g
       join runs r on r.activity_id = g.activity_id and r.run = g.run
       left join orders o on o.activity_id = g.activity_id and o.buyer_id = g.buyer_id and o.state in ('placed', 'paid')
      where g.state = 'pending' and (g.order_id = any ($2::bigint[]) or ($2 is null and g.next_try_at <= now()))
      order by g.next_try_at
      limit $1`,
    [options.limit, options.orderIds ?? null],
  );
  return rows.map((row) => ({
    orderId: row.order_id,
    activityId: row.activity_id,
    run: Number(row.run),
    shards: row.shards,
    segments: row.segments,
    buyerId: row.buyer_id,
    units: row.units,
    reason: row.reason,
    live:
      row.live_order_id === null
        ? undefined
        : {
            orderId: row.live_order_id,
            quantity: row.live_quantity!,
            run: Number(row.live_run),
            requestId: row.live_request_id!,
            paid: row.live_state === 'paid',
          },
  }));
}

/** Notes what has reached the gate. */
export async function markGiveBacksDone(sql: Sql, orderIds: readonly string[]): Promise<void> {
  await sql.query(
    `update give_backs set state = 'done', done_at = now() where order_id = any ($1::bigint[]) and state = 'pending'`,
    [orderIds],
  );
}

/** Puts off what the gate could not take now: a second at first, then twice as long, a minute at most. */
export async function postponeGiveBacks(sql: Sql, orderIds: readonly string[]): Promise<void> {
  await sql.query(
    `update give_backs set next_try_at = now() + least(greatest(now() - created_at, interval '1 s'), interval '60 s')
      where order_id = any ($1::bigint[]) and state = 'pending'`,
    [orderIds],
  );
}

/**
 * Ends a live order of a buyer (any buyer where `buyerId` is null); its give-back row is written with it.
 * @returns the order's state afterwards, undefined where there is no such order
 */
export async function endOrder(
  sql: Sql,
  end: { orderId: string; buyerId: string | null; state: 'cancelled' | 'expired'; reason: GiveBackReason },
): Promise<OrderState | undefined> {
  const [row] = await sql.query<{ state: OrderState | null }>(`select end_order($1, $2, $3, $4) as state`, [
    end.orderId,
    end.buyerId,
    end.state,
    end.reason,
  ]);
  return row?.state ?? undefined;
}

/** Gives back dead letters that nobody replayed within `holdSeconds`; returns their order ids. */
export async function endOldDeadLetters(sql: Sql, holdSeconds: number, limit: number): Promise<string[]> {
  const rows = await sql.query<{ order_id: string }>(
    `select order_id from dead_letters
      where state = 'open' and created_at <= now() - make_interval(secs => $1) order by created_at limit $2`,
    [holdSeconds, limit],
  );
  const ended: string[] = [];
  for (const row of rows) {
    const [done] = await sql.query<{ ended: boolean }>(`select give_back_dead_letter($1) as ended`, [row.order_id]);
    if (done?.ended === true) ended.push(row.order_id);
  }
  return ended;
}
