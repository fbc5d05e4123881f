/** Receipts over HTTP: poll, latest, event stream. Owner only; anybody else's receipt does not exist. */
import Type from 'typebox';
import { Fault } from '../../domain/fault.ts';
import { ID_PATTERN } from '../../domain/ids.ts';
import type { Order } from '../../domain/order.ts';
import { isFinal } from '../../domain/receipt.ts';
import type { Clock, Random } from '../../platform/clock.ts';
import { HEARTBEAT_MS, openEventStream, type EventStream } from '../../platform/http/event-stream.ts';
import { sendBusy, sendProblem } from '../../platform/http/problem.ts';
import type { HttpReply, HttpRequest, Route } from '../../platform/http/server.ts';
import { LOOK_EVERY_MS, type LandingWaits } from './landing-waits.ts';
import type { ReceiptFacts } from './receipt-signature.ts';
import type { Receipts, ReceiptView, TooMany } from './receipts.ts';

/** What these calls need. */
export type ReceiptRoutePorts = {
  /** the buyer who asks, or undefined after having answered 401 */
  readonly buyer: (request: HttpRequest, reply: HttpReply) => Promise<string | undefined>;
  readonly receipts: Receipts;
  readonly waits: LandingWaits;
  readonly clock: Clock;
  readonly random: Random;
  readonly showOrder: (order: Order) => object;
  readonly eventStreamsMax: number;
  /** aborts when the process stops: streams end, and their readers ask another process */
  readonly stopping: AbortSignal;
  /** hears of a bug that ended a stream, where no answer can tell it any more */
  readonly onBug: (error: unknown) => void;
};

// any other text is a receipt that we have not signed: unknown, not malformed
const ReceiptParams = Type.Object({ receipt: Type.String() });
const ActivityParams = Type.Object({ id: Type.String({ pattern: ID_PATTERN }) });
/** A stream looks by itself this often, growing to ten times as long. */
const STREAM_LOOK_MS = LOOK_EVERY_MS * 4;

/** The receipt calls. */
export function receiptRoutes(ports: ReceiptRoutePorts): Route[] {
  const open = new Set<EventStream>();
  ports.stopping.addEventListener('abort', () => open.forEach((stream) => stream.end()), { once: true });

  /** Tells a stream every state that its reader has not heard, until the last one. */
  async function follow(stream: EventStream, facts: ReceiptFacts, heard: string | string[] | undefined): Promise<void> {
    let told = heard;
    let lookMs = STREAM_LOOK_MS;
    let beatAt = ports.clock.monotonic() + HEARTBEAT_MS;
    while (!stream.closed.aborted) {
      const view = await ports.receipts.read(facts).catch((error: unknown): TooMany => {
        if (error instanceof Fault) return { kind: 'too_many' }; // a part of the world is away: look again later
        throw error;
      });
      if (!('kind' in view)) {
        // the state names the event, so a reader who comes back is told only what he has not heard
        const { state, delayed, reason } = view.standing;
        const id = [state, delayed === true ? 'delayed' : '', reason ?? ''].filter((part) => part !== '').join('.');
        if (id !== told && !stream.send({ id, data: show(view) })) return;
        told = id;
        if (isFinal(view.standing)) return;
      }
      const leftMs = beatAt - ports.clock.monotonic();
      if (leftMs <= 0) {
        if (!stream.beat()) return;
        beatAt += HEARTBEAT_MS;
      }
      const waitMs = lookMs * (0.75 + ports.random.fraction() / 2);
      await ports.waits.next(facts.orderId, leftMs > 0 ? Math.min(waitMs, leftMs) : waitMs, stream.closed);
      lookMs = Math.min(lookMs * 1.5, STREAM_LOOK_MS * 10);
    }
  }

  const show = (view: ReceiptView): object => ({
    receipt: view.receipt,
    orderId: view.orderId,
    activityId: view.activityId,
    quantity: view.quantity,
    ...view.standing,
    ...(view.order === undefined ? {} : { order: ports.showOrder(view.order) }),
  });
  const busy = (request: HttpRequest, reply: HttpReply): unknown => sendBusy(request, reply, ports.random);
  const answer = (request: HttpRequest, reply: HttpReply, view: ReceiptView | TooMany | undefined): unknown => {
    if (view === undefined) return sendProblem(request, reply, { status: 404, code: 'unknown_receipt' });
    if ('kind' in view) return busy(request, reply);
    return reply.header('cache-control', 'no-store').send(show(view));
  };

  return [
    {
      method: 'GET',
      path: '/api/v1/receipts/:receipt',
      summary: 'One receipt and where it stands.',
      caller: 'buyer',
      schema: { params: ReceiptParams },
      async handler(request, reply) {
        const buyerId = await ports.buyer(request, reply);
        if (buyerId === undefined) return reply;
        const facts = ports.receipts.facts((request.params as { receipt: string }).receipt, buyerId);
        return answer(request, reply, facts === undefined ? undefined : await ports.receipts.read(facts));
      },
    },
    {
      method: 'GET',
      path: '/api/v1/activities/:id/receipt',
      summary: 'The buyer’s latest receipt of an activity.',
      caller: 'buyer',
      schema: { params: ActivityParams },
      async handler(request, reply) {
        const buyerId = await ports.buyer(request, reply);
        if (buyerId === undefined) return reply;
        return answer(request, reply, await ports.receipts.latest((request.params as { id: string }).id, buyerId));
      },
    },
    {
      method: 'GET',
      path: '/api/v1/receipts/:receipt/events',
      summary: 'The same as server-sent events, until its state is final.',
      caller: 'buyer',
      schema: { params: ReceiptParams },
      async handler(request, reply) {
        const buyerId = await ports.buyer(request, reply);
        if (buyerId === undefined) return reply;
        const facts = ports.receipts.facts((request.params as { receipt: string }).receipt, buyerId);
        if (facts === undefined) return answer(request, reply, undefined);
        if (open.size >= ports.eventStreamsMax || ports.stopping.aborted) return busy(request, reply);
        const stream = openEventStream(reply);
        open.add(stream);
        try {
          if (request.method !== 'HEAD') await follow(stream, facts, request.headers['last-event-id']);
        } catch (error) {
          ports.onBug(error);
        } finally {
          stream.end();
          open.delete(stream);
        }
        return reply;
      },
    },
  ];
}
