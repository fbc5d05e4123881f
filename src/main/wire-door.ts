/**
 * Puts the buyers' door together: who is asking, the purchase's walk, receipts, activities and orders as they are told.
 * Nothing is decided here.
 */
import type { ActivityMemory } from '../activity/3-announce/activity-memory.ts';
import { activityRoutes } from '../activity/3-announce/activity-routes.ts';
import type { Activity } from '../domain/activity.ts';
import { Fault } from '../domain/fault.ts';
import type { Mark } from '../domain/mark.ts';
import type { PurchaseCode } from '../domain/results.ts';
import { endOrder } from '../order/3-give-back/give-backs-table.ts';
import { orderRoutes, showOrder } from '../order/order-routes.ts';
import { findOrder, listOrders } from '../order/orders-table.ts';
import type { Clock, Random } from '../platform/clock.ts';
import { sendBusy, sendProblem } from '../platform/http/problem.ts';
import type { HttpReply, HttpRequest, Route } from '../platform/http/server.ts';
import { makeBuyerIdentity } from '../platform/identity/buyers.ts';
import { developmentRoute } from '../platform/identity/development-route.ts';
import type { Database } from '../platform/postgres/database.ts';
import { segmentOf } from '../platform/redis/keys.ts';
import { purchaseRoute } from '../purchase/1-door/purchase-route.ts';
import { refuseByWindow } from '../purchase/2-window/window.ts';
import type { GateScripts } from '../purchase/4-gate/gate-scripts.ts';
import type { Gate } from '../purchase/4-gate/gate.ts';
import type { RedisTime } from '../purchase/4-gate/redis-time.ts';
import { replyTo, type PurchaseAnswer } from '../purchase/5-receipt/answer.ts';
import { LOOK_EVERY_MS, type LandingWaits } from '../purchase/5-receipt/landing-waits.ts';
import { receiptRoutes } from '../purchase/5-receipt/receipt-routes.ts';
import type { ReadBudget, Receipts } from '../purchase/5-receipt/receipts.ts';
import { purchase } from '../purchase/purchase.ts';
import type { Config } from './config.ts';

/** The routes of the buyer API. */
export function doorRoutes(basis: {
  config: Config;
  database: Database;
  clock: Clock;
  random: Random;
  memory: ActivityMemory;
  redisTime: RedisTime;
  gate: Gate;
  scripts: GateScripts;
  receipts: Receipts;
  waits: LandingWaits;
  budget: ReadBudget;
  /** counts an answer to a purchase */
  counted: (code: PurchaseCode) => void;
  /** Redis' time for display, epoch ms */
  now: () => number;
  /** units left as far as is known, for display */
  left: (activity: Activity) => number | undefined;
  stopping: AbortSignal;
  onBug: (error: unknown) => void;
}): Route[] {
  const { config, database, clock, random, memory, redisTime, gate, scripts, receipts, waits } = basis;
  const { budget, now, left, onBug } = basis;

  async function awaitLanding(activity: Activity, buyerId: string, mark: Mark): Promise<Mark | undefined> {
    const until = clock.monotonic() + config.landingWaitMs;
    const segment = {
      activityId: activity.id,
      segment: segmentOf(buyerId, activity.segments),
      run: activity.run,
      shards: activity.shards,
    };
    for (;;) {
      const leftMs = until - clock.monotonic();
      if (leftMs <= 0) return undefined;
      await waits.next(mark.orderId, Math.min(leftMs, LOOK_EVERY_MS));
      try {
        const present = await scripts.readMark(segment, buyerId);
        if (present !== undefined && (present.orderId !== mark.orderId || present.status !== 'q')) return present;
      } catch (error) {
        if (!(error instanceof Fault)) throw error; // Redis is away: the wait goes on, the answer is `held`
      }
    }
  }

  const identity = makeBuyerIdentity({
    keys:
      config.buyerAlgorithm === 'HS256'
        ? { hs256Secrets: config.buyerSecrets }
        : { jwksUrl: config.buyerJwksUrl!, algorithm: config.buyerAlgorithm },
    clock,
    ...(config.buyerClaim === undefined ? {} : { claim: config.buyerClaim }),
    ...(config.buyerIssuer === undefined ? {} : { issuer: config.buyerIssuer }),
    ...(config.buyerAudience === undefined ? {} : { audience: config.buyerAudience }),
  });
  const buyer = async (request: HttpRequest, reply: HttpReply): Promise<string | undefined> => {
    const who = await identity.identify(request.headers.authorization);
    if (who.kind === 'buyer') return who.buyerId;
    if (who.reason === 'unavailable') {
      sendBusy(request, reply, random);
      return undefined;
    }
    reply.header('www-authenticate', 'Bearer');
    sendProblem(request, reply, { status: 401, code: 'unauthenticated', more: { reason: who.reason } });
    return undefined;
  };
  const mayRead = (request: HttpRequest, reply: HttpReply): boolean => {
    if (budget.take()) return true;
    sendBusy(request, reply, random);
    return false;
  };

  const routes: Route[] = [
    purchaseRoute<PurchaseAnswer>({
      identify: (authorization) => identity.identify(authorization),
      activity: (id) => memory.get(id),
      purchase: (activityId, request) =>
        purchase(
          {
            knowsActivities: () => memory.isReady(),
            activity: (id) => memory.get(id),
            refuseByWindow: (activity) => refuseByWindow(activity, redisTime),
            hold: (activity, hold) => gate.hold(activity, hold),
            receiptOf: (id, buyerId, mark) => receipts.ofMark(id, buyerId, mark),
            awaitLanding,
          },
          activityId,
          request,
        ),
      replyTo: (answer, acceptLanguage) => replyTo(answer, acceptLanguage, random.fraction()),
      counted: basis.counted,
    }),
    ...receiptRoutes({
      buyer,
      receipts,
      waits,
      clock,
      random,
      showOrder,
      eventStreamsMax: config.eventStreamsMax,
      stopping: basis.stopping,
      onBug,
    }),
    ...activityRoutes({
      find: (id) => memory.get(id),
      all: () => memory.all(),
      now,
      left,
    }),
    ...orderRoutes({
      buyer,
      mayRead,
      find: (orderId, buyerId) => findOrder(database, orderId, buyerId),
      list: (buyerId, page) => listOrders(database, buyerId, page),
      cancel: (orderId, buyerId) => endOrder(database, { orderId, buyerId, state: 'cancelled', reason: 'cancelled' }),
    }),
  ];
  if (config.developmentIdentity) {
    routes.push(developmentRoute({ config, clock }));
  }
  return routes;
}
