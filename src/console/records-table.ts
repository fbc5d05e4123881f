/** SQL of what operators look up: orders, dead letters, the audit. Newest first, a page at a time. */
import type { GiveBackReason, Order, OrderState } from '../domain/order.ts';
import type { Row, Sql } from '../platform/postgres/database.ts';

/** An order with who has it. */
export type OrderRecord = Omit<Order, 'requestId' | 'run'> & {
  readonly requestId: string;
  readonly run: number;
  /** Redis' time of the hold */
  readonly heldAt: number;
};

/** Orders of an activity, a buyer, a state, or all of these. */
export async function findOrders(
  sql: Sql,
  wanted: {
    activityId?: string;
    buyerId?: string;
    state?: OrderState;
    /** only ids from here on: ids begin with the instant of the hold */
    from?: string;
    /** only ids below: the page before, or what is above every id of the activity */
    below?: string;
    limit: number;
  },
): Promise<OrderRecord[]> {
  const rows = await sql.query<
    Row & {
      order_id: string;
      activity_id: string;
      buyer_id: string;
      request_id: string;
      run: string;
      quantity: number;
      state: OrderState;
      reason: GiveBackReason | null;
      item_name: string;
      price_minor: string;
      currency: string;
      held_at: Date;
      placed_at: Date;
      closed_at: Date | null;
    }
  >(
    `select order_id, activity_id, buyer_id, request_id, run, quantity, state, reason, item_name, price_minor, currency,
            held_at, placed_at, closed_at
       from orders
      where ($1::text is null or activity_id = $1) and ($2::text is null or buyer_id = $2)
        and ($3::text is null or state = $3)
        and ($4::bigint is null or order_id >= $4) and ($5::bigint is null or order_id < $5)
      order by order_id desc limit $6`,
    [
      wanted.activityId ?? null,
      wanted.buyerId ?? null,
      wanted.state ?? null,
      wanted.from ?? null,
      wanted.below ?? null,
      wanted.limit,
    ],
  );
  return rows.map((row) => ({
    orderId: row.order_id,
    activityId: row.activity_id,
    buyerId: row.buyer_id,
    requestId: row.request_id,
    run: Number(row.run),
    quantity: row.quantity,
    state: row.state,
    reason: row.reason ?? undefined,
    itemName: row.item_name,
    priceMinor: Number(row.price_minor),
    currency: row.currency,
    heldAt: row.held_at.getTime(),
    placedAt: row.placed_at.getTime(),
    closedAt: row.closed_at?.getTime(),
  }));
}

/** States of a dead letter. */
export const DEAD_LETTER_STATES = ['open', 'replayed', 'given_back'] as const;
/** State of a dead letter. */
export type DeadLetterState = (typeof DEAD_LETTER_STATES)[number];

/** A hold that was set aside. */
export type DeadLetterRecord = {
  readonly orderId: string;
  readonly activityId: string;
  readonly run: number;
  readonly buyerId: string;
  readonly requestId: string;
  readonly quantity: number;
  readonly state: DeadLetterState;
  readonly error: string;
  readonly tries: number;
  readonly heldAt: number;
  readonly createdAt: number;
  readonly endedAt: number | undefined;
};

/** Dead letters; of an activity, a state, or one by its order id. */
export async function findDeadLetters(
  sql: Sql,
  wanted: { orderId?: string; activityId?: string; state?: DeadLetterState; below?: string; limit: number },
): Promise<DeadLetterRecord[]> {
  const rows = await sql.query<
    Row & {
      order_id: string;
      activity_id: string;
      run: string;
      buyer_id: string;
      request_id: string;
      quantity: number;
      state: DeadLetterState;
      error: string;
      tries: number;
      held_at: Date;
      created_at: Date;
      ended_at: Date | null;
    }
  >(
    `select order_id, activity_id, run, buyer_id, request_id, quantity, state, error, tries, held_at, created_at, ended_at
       from dead_letters
      where ($1::bigint is null or order_id = $1) and ($2::text is null or activity_id = $2)
        and ($3::text is null or state = $3) and ($4::bigint is null or order_id < $4)
      order by order_id desc limit $5`,
    [wanted.orderId ?? null, wanted.activityId ?? null, wanted.state ?? null, wanted.below ?? null, wanted.limit],
  );
  return rows.map((row) => ({
    orderId: row.order_id,
    activityId: row.activity_id,
    run: Number(row.run),
    buyerId: row.buyer_id,
    requestId: row.request_id,
    quantity: row.quantity,
    state: row.state,
    error: row.error,
    tries: row.tries,
    heldAt: row.held_at.getTime(),
    createdAt: row.created_at.getTime(),
    endedAt: row.ended_at?.getTime(),
  }));
}

/** Gives an open dead letter back, with its audit row; false where it is not open. Inside a transaction. */
export async function giveBackDeadLetter(
  tx: Sql,
  letter: { orderId: string; activityId: string; actor: string; reason: string | undefined },
): Promise<boolean> {
  const [row] = await tx.query<{ ended: boolean }>(`select give_back_dead_letter($1) as ended`, [letter.orderId]);
  if (row?.ended !== true) return false;
  await tx.query(
    `insert into audit (actor, action, activity_id, from_state, to_state, reason, details)
     values ($1, 'dead_letter_give_back', $2, 'open', 'given_back', $3, jsonb_build_object('orderId', $4::text))`,
    [letter.actor, letter.activityId, letter.reason ?? null, letter.orderId],
  );
  return true;
}

/** One audited act. */
export type AuditRecord = {
  readonly id: string;
  readonly at: number;
  readonly actor: string;
  readonly action: string;
  readonly activityId: string | undefined;
  readonly from: string | undefined;
  readonly to: string | undefined;
  readonly reason: string | undefined;
  readonly details: unknown;
};

/** Audited acts, of one activity where named. */
export async function findAudit(
  sql: Sql,
  wanted: { activityId?: string; below?: string; limit: number },
): Promise<AuditRecord[]> {
  const rows = await sql.query<
    Row & {
      id: string;
      at: Date;
      actor: string;
      action: string;
      activity_id: string | null;
      from_state: string | null;
      to_state: string | null;
      reason: string | null;
      details: string | null;
    }
  >(
    `select id, at, actor, action, activity_id, from_state, to_state, reason, details::text as details from audit
      where ($1::text is null or activity_id = $1) and ($2::bigint is null or id < $2) order by id desc limit $3`,
    [wanted.activityId ?? null, wanted.below ?? null, wanted.limit],
  );
  return rows.map((row) => ({
    id: row.id,
    at: row.at.getTime(),
    actor: row.actor,
    action: row.action,
    activityId: row.activity_id ?? undefined,
    from: row.from_state ?? undefined,
    to: row.to_state ?? undefined,
    reason: row.reason ?? undefined,
    details: row.details === null ? undefined : (JSON.parse(row.details) as unknown),
  }));
}

/** Numbers of a sale as its books have them. */
export async function readLiveNumbers(
  sql: Sql,
  activityId: string,
): Promise<{ deadLetters: number; giveBacks: number; gateChanges: number; entry: number | undefined }> {
  const [row] = await sql.query<{
    dead_letters: string;
    give_backs: string;
    gate_changes: string;
    entry: string | null;
  }>(
    `select (select coalesce(sum(quantity), 0) from dead_letters where activity_id = $1 and state = 'open')::bigint as dead_letters,
            (select coalesce(sum(units), 0) from give_backs where activity_id = $1 and state = 'pending')::bigint as give_backs,
            (select count(*) from gate_changes where activity_id = $1 and done_at is null)::bigint as gate_changes,
            (select sum(l.entry) from landings l join activities a on a.id = l.activity_id and a.run = l.run
              where l.activity_id = $1)::bigint as entry`,
    [activityId],
  );
  return {
    deadLetters: Number(row?.dead_letters ?? 0),
    giveBacks: Number(row?.give_backs ?? 0),
    gateChanges: Number(row?.gate_changes ?? 0),
    entry: row?.entry == null ? undefined : Number(row.entry),
  };
}
