/** Orders, dead letters and the audit over the operator API: looking up, and giving a dead letter back. */
import Type from 'typebox';
import { ID_PATTERN, isOrderId, ORDER_ID_PATTERN } from '../domain/ids.ts';
import { ORDER_STATES, type OrderState } from '../domain/order.ts';
import { instant } from '../platform/http/instant.ts';
import { sendInvalid, sendProblem } from '../platform/http/problem.ts';
import type { HttpRequest, Route } from '../platform/http/server.ts';
import { readReason, WhyBody } from './activity-forms.ts';
import type { OperatorDoor } from './operator-door.ts';
import {
  DEAD_LETTER_STATES,
  type AuditRecord,
  type DeadLetterRecord,
  type DeadLetterState,
  type OrderRecord,
} from './records-table.ts';

/** What these calls need. */
export type RecordPorts = {
  readonly door: OperatorDoor;
  readonly orders: (wanted: {
    activityId?: string;
    buyerId?: string;
    state?: OrderState;
    below?: string;
    limit: number;
  }) => Promise<OrderRecord[]>;
  readonly deadLetters: (wanted: {
    orderId?: string;
    activityId?: string;
    state?: DeadLetterState;
    below?: string;
    limit: number;
  }) => Promise<DeadLetterRecord[]>;
  /** gives an open dead letter back and carries its units to the gate; false where it is not open */
  readonly giveBack: (letter: {
    orderId: string;
    activityId: string;
    actor: string;
    reason: string | undefined;
  }) => Promise<boolean>;
  readonly audit: (wanted: { activityId?: string; below?: string; limit: number }) => Promise<AuditRecord[]>;
};

const strict = { additionalProperties: false };
// query values are text: no coercion at the edge
const limit = Type.Optional(Type.String({ pattern: '^([1-9][0-9]?|1[0-9]{2}|200)$' }));
// of orders and dead letters an order id, of the audit its own number: the same form, the same 63 bits
const after = Type.Optional(Type.String({ pattern: ORDER_ID_PATTERN }));
const activityId = Type.Optional(Type.String({ pattern: ID_PATTERN }));
const oneOf = (values: readonly string[]) => Type.Optional(Type.Unsafe<string>({ type: 'string', enum: [...values] }));

const OrdersQuery = Type.Object(
  {
    activityId,
    buyerId: Type.Optional(Type.String({ pattern: ID_PATTERN })),
    state: oneOf(ORDER_STATES),
    limit,
    after,
  },
  strict,
);
const DeadLettersQuery = Type.Object({ activityId, state: oneOf(DEAD_LETTER_STATES), limit, after }, strict);
const AuditQuery = Type.Object({ activityId, limit, after }, strict);
const OneDeadLetter = Type.Object({ id: Type.String({ pattern: ORDER_ID_PATTERN }) });

const PAGE_DEFAULT = 50;

type PageQuery = { readonly limit?: string; readonly after?: string };

/** The calls. */
export function recordRoutes(ports: RecordPorts): Route[] {
  const { door } = ports;
  const caller = 'operator' as const;

  /** A list, newest first; one more than the page is read, to know whether there is a next one. */
  const listing = <T, W>(
    list: (wanted: W & { below?: string; limit: number }) => Promise<T[]>,
    show: (item: T) => object,
    idOf: (item: T) => string,
  ) =>
    door('viewer', async (request: HttpRequest, reply) => {
      const { limit: asked, after: from, ...wanted } = request.query as PageQuery & W;
      if (from !== undefined && !isOrderId(from)) return sendInvalid(request, reply, { kind: 'other', field: 'after' });
      const most = Number(asked ?? PAGE_DEFAULT);
      const below = from === undefined ? {} : { below: from };
      const found = await list({ ...(wanted as W), ...below, limit: most + 1 });
      const items = found.slice(0, most);
      const next = found.length > most ? { next: idOf(items.at(-1)!) } : {};
      return reply.send({ items: items.map(show), ...next });
    });

  return [
    {
      method: 'GET',
      path: '/api/v1/admin/orders',
      summary: 'Orders of an activity, a buyer, a state, or all of these, newest first.',
      caller,
      schema: { querystring: OrdersQuery },
      handler: listing(ports.orders, showOrderRecord, (order) => order.orderId),
    },
    {
      method: 'GET',
      path: '/api/v1/admin/dead-letters',
      summary: 'Holds that could not become orders and were set aside, newest first.',
      caller,
      schema: { querystring: DeadLettersQuery },
      handler: listing(ports.deadLetters, showDeadLetter, (letter) => letter.orderId),
    },
    {
      method: 'POST',
      path: '/api/v1/admin/dead-letters/:id/give-back',
      summary: 'Ends a dead letter: its units go back on sale, its buyer is told.',
      caller,
      schema: { params: OneDeadLetter, body: WhyBody },
      handler: door('operator', async (request, reply, operator) => {
        const why = readReason(request.body);
        if ('fault' in why) return sendInvalid(request, reply, { kind: why.fault, field: why.field, limit: why.limit });
        const { id: orderId } = request.params as { id: string };
        const read = async (): Promise<DeadLetterRecord | undefined> =>
          isOrderId(orderId) ? (await ports.deadLetters({ orderId, limit: 1 }))[0] : undefined;
        const letter = await read();
        if (letter === undefined) return sendProblem(request, reply, { status: 404, code: 'unknown_dead_letter' });
        const ended = await ports.giveBack({
          orderId,
          activityId: letter.activityId,
          actor: operator.name,
          reason: why.reason,
        });
        const present = (await read()) ?? letter;
        if (ended) return reply.send(showDeadLetter(present));
        return sendProblem(request, reply, {
          status: 409,
          code: 'dead_letter_closed',
          more: { state: present.state },
        });
      }),
    },
    {
      method: 'GET',
      path: '/api/v1/admin/audit',
      summary: 'Who did what, when and why, newest first.',
      caller,
      schema: { querystring: AuditQuery },
      handler: listing(ports.audit, showAudit, (act) => act.id),
    },
  ];
}

function showOrderRecord(order: OrderRecord): object {
  return {
    orderId: order.orderId,
    activityId: order.activityId,
    buyerId: order.buyerId,
    requestId: order.requestId,
    run: order.run,
    quantity: order.quantity,
    item: { name: order.itemName },
    priceMinor: order.priceMinor,
    amountMinor: order.priceMinor * order.quantity,
    currency: order.currency,
    state: order.state,
    ...(order.reason === undefined ? {} : { reason: order.reason }),
    ...instant('heldAt', order.heldAt),
    ...instant('placedAt', order.placedAt),
    ...instant('closedAt', order.closedAt),
  };
}

function showDeadLetter(letter: DeadLetterRecord): object {
  const { orderId, activityId, run, buyerId, requestId, quantity, state, error, tries } = letter;
  return {
    id: orderId,
    orderId,
    activityId,
    run,
    buyerId,
    requestId,
    quantity,
    state,
    error,
    tries,
    ...instant('heldAt', letter.heldAt),
    ...instant('createdAt', letter.createdAt),
    ...instant('endedAt', letter.endedAt),
  };
}

function showAudit(act: AuditRecord): object {
  return {
    id: act.id,
    ...instant('at', act.at),
    actor: act.actor,
    action: act.action,
    ...(act.activityId === undefined ? {} : { activityId: act.activityId }),
    ...(act.from === undefined ? {} : { from: act.from }),
    ...(act.to === undefined ? {} : { to: act.to }),
    ...(act.reason === undefined ? {} : { reason: act.reason }),
    ...(act.details === undefined ? {} : { details: act.details }),
  };
}
