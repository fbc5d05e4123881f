/** Orders over HTTP: a buyer's own list, one of them, and its cancellation. An order is fetched together with its owner. */
import Type from 'typebox';
import { isOrderId, ORDER_ID_PATTERN } from '../domain/ids.ts';
import type { Order, OrderState } from '../domain/order.ts';
import { instant } from '../platform/http/instant.ts';
import { sendInvalid, sendProblem } from '../platform/http/problem.ts';
import { NO_BODY, type HttpReply, type HttpRequest, type Route } from '../platform/http/server.ts';

/** What these calls need. */
export type OrderRoutePorts = {
  /** the buyer who asks, or undefined after having answered 401 */
  readonly buyer: (request: HttpRequest, reply: HttpReply) => Promise<string | undefined>;
  /** a read of PostgreSQL may be made; otherwise `busy` has been answered */
  readonly mayRead: (request: HttpRequest, reply: HttpReply) => boolean;
  readonly find: (orderId: string, buyerId: string) => Promise<Order | undefined>;
  readonly list: (buyerId: string, page: { limit: number; after?: string }) => Promise<Order[]>;
  /** ends a placed order of this buyer; the state afterwards, undefined where it is not his */
  readonly cancel: (orderId: string, buyerId: string) => Promise<OrderState | undefined>;
};

const Params = Type.Object({ id: Type.String({ pattern: ORDER_ID_PATTERN }) });
// query values are text: no coercion at the edge
const Page = Type.Object(
  {
    limit: Type.Optional(Type.String({ pattern: '^([1-9][0-9]?|1[0-9]{2}|200)$' })),
    after: Type.Optional(Type.String({ pattern: ORDER_ID_PATTERN })),
  },
  { additionalProperties: false },
);

/** An order as its owner sees it (contract "Orders"). */
export function showOrder(order: Order): object {
  return {
    orderId: order.orderId,
    activityId: order.activityId,
    quantity: order.quantity,
    item: { name: order.itemName },
    priceMinor: order.priceMinor,
    amountMinor: order.priceMinor * order.quantity,
    currency: order.currency,
    state: order.state,
    ...(order.reason === undefined ? {} : { reason: order.reason }),
    ...instant('placedAt', order.placedAt),
    ...instant('closedAt', order.closedAt),
  };
}

/** The order calls. */
export function orderRoutes(ports: OrderRoutePorts): Route[] {
  /** A handler that answers for one order of the buyer who asks. */
  const ofOwner =
    (work: (request: HttpRequest, reply: HttpReply, own: { orderId: string; buyerId: string }) => Promise<unknown>) =>
    async (request: HttpRequest, reply: HttpReply): Promise<unknown> => {
      const buyerId = await ports.buyer(request, reply);
      if (buyerId === undefined || !ports.mayRead(request, reply)) return reply;
      const { id: orderId } = request.params as { id: string };
      if (!isOrderId(orderId)) return unknown(request, reply);
      reply.header('cache-control', 'no-store');
      return work(request, reply, { orderId, buyerId });
    };
  const unknown = (request: HttpRequest, reply: HttpReply): unknown =>
    sendProblem(request, reply, { status: 404, code: 'unknown_order' });

  return [
    {
      method: 'GET',
      path: '/api/v1/orders',
      summary: 'The buyer’s orders, newest first.',
      caller: 'buyer',
      schema: { querystring: Page },
      async handler(request, reply) {
        const query = request.query as { limit?: string; after?: string };
        if (query.after !== undefined && !isOrderId(query.after)) {
          return sendInvalid(request, reply, { kind: 'pattern', field: 'after' });
        }
        const buyerId = await ports.buyer(request, reply);
        if (buyerId === undefined || !ports.mayRead(request, reply)) return reply;
        const limit = Number(query.limit ?? 50);
        const orders = await ports.list(buyerId, {
          limit: limit + 1,
          ...(query.after === undefined ? {} : { after: query.after }),
        });
        const items = orders.slice(0, limit);
        const next = orders.length > limit ? { next: items.at(-1)!.orderId } : {};
        return reply.header('cache-control', 'no-store').send({ items: items.map(showOrder), ...next });
      },
    },
    {
      method: 'GET',
      path: '/api/v1/orders/:id',
      summary: 'One order.',
      caller: 'buyer',
      schema: { params: Params },
      handler: ofOwner(async (request, reply, { orderId, buyerId }) => {
        const order = await ports.find(orderId, buyerId);
        return order === undefined ? unknown(request, reply) : reply.send(showOrder(order));
      }),
    },
    {
      method: 'POST',
      path: '/api/v1/orders/:id/cancel',
      summary: 'Cancels an order; its units go back on sale.',
      caller: 'buyer',
      schema: { params: Params, body: NO_BODY },
      handler: ofOwner(async (request, reply, { orderId, buyerId }) => {
        const state = await ports.cancel(orderId, buyerId);
        const order = state === undefined ? undefined : await ports.find(orderId, buyerId);
        if (order === undefined) return unknown(request, reply);
        // of several cancels one wins, and the others are told the same end
        if (order.state === 'cancelled') return reply.send(showOrder(order));
        return sendProblem(request, reply, { status: 409, code: 'order_closed', more: { state: order.state } });
      }),
    },
    {
      method: 'POST',
      path: '/api/v1/orders/:id/pay',
      summary: 'Pays for an order, where payment is offered.',
      caller: 'buyer',
      schema: { params: Params, body: NO_BODY },
      handler: ofOwner(async (request, reply, { orderId, buyerId }) => {
        const order = await ports.find(orderId, buyerId);
        if (order === undefined) return unknown(request, reply);
        // activities without `payWithinSeconds` take no payment here: `placed` is final but for cancel
        return sendProblem(request, reply, { status: 409, code: 'payment_not_offered' });
      }),
    },
  ];
}
