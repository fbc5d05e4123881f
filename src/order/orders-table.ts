/** SQL of what buyers ask later: how an order id stands, a buyer's orders, his latest purchase of an activity. */
import type { GiveBackReason, Order, OrderState } from '../domain/order.ts';
import type { KnownOrder } from '../domain/receipt.ts';
import type { Row, Sql } from '../platform/postgres/database.ts';

type OrderRow = Row & {
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
  placed_at: Date;
  closed_at: Date | null;
};

const COLUMNS = `order_id, activity_id, buyer_id, request_id, run, quantity, state, reason, item_name, price_minor, currency,
  placed_at, closed_at`;

const read = (row: OrderRow): Order => ({
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
  placedAt: row.placed_at.getTime(),
  closedAt: row.closed_at?.getTime(),
});

/** An order, a refusal, a dead letter, or nothing; of this buyer only. */
export async function findByOrderId(sql: Sql, orderId: string, buyerId: string): Promise<KnownOrder> {
  const order = await findOrder(sql, orderId, buyerId);
  if (order !== undefined) return { kind: 'order', order };
  // a refusal whose request id belongs to a dead order has no row in `orders`
  const [row] = await sql.query<{ reason: GiveBackReason | null; open: boolean | null }>(
    `select (select g.reason from give_backs g where g.order_id = $1 and g.buyer_id = $2) as reason,
            (select d.state = 'open' from dead_letters d where d.order_id = $1 and d.buyer_id = $2) as open`,
    [orderId, buyerId],
  );
  if (row?.reason != null) return { kind: 'refused', reason: row.reason };
  return { kind: row?.open === true ? 'dead_letter' : 'nothing' };
}

/** One order of a buyer. */
export async function findOrder(sql: Sql, orderId: string, buyerId: string): Promise<Order | undefined> {
  const [row] = await sql.query<OrderRow>(
    `select ${COLUMNS} from orders where order_id = $1 and buyer_id = $2 and state <> 'lost'`,
    [orderId, buyerId],
  );
  return row === undefined ? undefined : read(row);
}

/** A buyer's orders, newest first, before `after` where given. */
export async function listOrders(sql: Sql, buyerId: string, page: { limit: number; after?: string }): Promise<Order[]> {
  const rows = await sql.query<OrderRow>(
    `select ${COLUMNS} from orders
      where buyer_id = $1 and state <> 'lost' and ($3::bigint is null or order_id < $3) order by order_id desc limit $2`,
    [buyerId, page.limit, page.after ?? null],
  );
  return rows.map(read);
}

/** A buyer's latest order of an activity. */
export async function latestOrder(sql: Sql, activityId: string, buyerId: string): Promise<Order | undefined> {
  const [row] = await sql.query<OrderRow>(
    `select ${COLUMNS} from orders
      where activity_id = $1 and buyer_id = $2 and state <> 'lost' order by order_id desc limit 1`,
    [activityId, buyerId],
  );
  return row === undefined ? undefined : read(row);
}
