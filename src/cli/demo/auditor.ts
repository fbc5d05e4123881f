/**
 * The auditor: judges what one buyer heard by the contract's order of answers, by PostgreSQL's orders, and by what the
 * buyer had been told before. Pure: the demo and its tests give him evidence, books and facts.
 *
 * A deviation is counted once, under the first name that explains it: two live orders are a duplicate, and the two answers
 * that told of them are not wrong besides; an order that is gone is lost, and whoever spoke of it spoke the truth then.
 */
import type { Heard, BuyerEvidence } from './crowd/evidence.ts';
import type { OrderState } from '../../domain/order.ts';
import type { PurchaseCode } from '../../domain/results.ts';

/** An order as PostgreSQL has it. */
export type BookedOrder = {
  readonly orderId: string;
  readonly buyerId: string;
  readonly requestId: string;
  readonly quantity: number;
  readonly state: OrderState;
  readonly reason: string | undefined;
};

/** The sale, in the crowd's clock (epoch ms). */
export type SaleFacts = {
  readonly opensAt: number;
  /** when its end was asked for, and when that call had been answered; undefined: it was not ended by hand */
  readonly endAskedAt: number;
  readonly endToldAt: number;
  /** how far the crowd's clock and the gate's may be apart */
  readonly skewMs: number;
  readonly answerWhen: 'held' | 'ordered';
  readonly perBuyerLimit: number;
  /** nothing comes back to the gate: once sold out is sold out for ever */
  readonly stockOnlyFalls: boolean;
};

/** One wrong answer. */
export type WrongAnswer = {
  readonly buyerId: string;
  /** the answer, as heard; undefined where what is wrong is that none came */
  readonly heard: Heard | undefined;
  readonly why: string;
};

/** What the auditor finds about one buyer. */
export type Judgement = {
  /** told yes: `held` or `ordered`, or, where that answer did not arrive, what a repeat said of it */
  readonly accepted: boolean;
  /** when he first heard so */
  readonly acceptedAt: number | undefined;
  /** told of an order that has not ended, as far as he knows */
  readonly believesInAnOrder: boolean;
  /** accepted, without a live order and without a told end */
  readonly lost: boolean;
  /** more than one live order, or more units than the limit */
  readonly duplicate: boolean;
  readonly wrong: readonly WrongAnswer[];
};

/** Statuses of the contract, by code; a second table on purpose: the servers' own would agree with itself. */
const STATUS_OF: Readonly<Record<PurchaseCode, number>> = {
  busy: 503,
  invalid: 400,
  blocked: 403,
  unauthenticated: 401,
  unknown_activity: 404,
  limited: 429,
  ticket_required: 403,
  ticket_invalid: 403,
  not_ready: 503,
  key_reused: 422,
  replayed: 200,
  already_bought: 409,
  not_open: 409,
  paused: 409,
  ended: 410,
  sold_out: 409,
  held: 202,
  ordered: 201,
  in_doubt: 503,
};

const LIVE = new Set<string>(['placed', 'paid']);
/** Answers that leave the buyer where he was, and must say when to come back. */
const NOT_NOW = new Set(['busy', 'in_doubt', 'not_ready', 'limited']);
/** Answers that name an order of the caller's own. */
const TELLING = new Set(['held', 'ordered', 'replayed', 'already_bought']);
/** A process may refuse from memory for as long as its lease of `sold_out` lasts after the end. */
const LATCH_MS_MAX = 2_000;

const isLive = (order: BookedOrder): boolean => LIVE.has(order.state);

/**
 * Judges one buyer.
 * @param orders his orders in PostgreSQL, in any state
 * @param ownerOf whose an order is, by id, where it is somebody's
 */
export function judge(
  evidence: BuyerEvidence,
  orders: readonly BookedOrder[],
  ownerOf: (orderId: string) => string | undefined,
  sale: SaleFacts,
): Judgement {
  const { buyerId } = evidence;
  // in the order of their answers, whatever order they are given in
  const heard = evidence.heard.toSorted((a, b) => a.gotAt - b.gotAt);
  const wrong: WrongAnswer[] = [];
  const accused = new Set<Heard>();
  const accuse = (one: Heard | undefined, why: string): void => {
    if (one !== undefined && accused.has(one)) return; // one answer is wrong once
    if (one !== undefined) accused.add(one);
    wrong.push({ buyerId, heard: one, why });
  };

  const live = orders.filter(isLive);
  const duplicate = live.length > 1 || live.reduce((units, order) => units + order.quantity, 0) > sale.perBuyerLimit;
  const telling = heard.filter((one) => one.kind === 'good' && TELLING.has(one.code) && one.orderId !== undefined);
  const yes = telling.find((one) => isYes(one, heard));
  const accepted = yes !== undefined;
  const endTold = evidence.ends.some((end) => isToldEnd(end.state, end.reason));
  const lost = accepted && live.length === 0 && !endTold;

  for (const one of heard) {
    const why = wrongByItself(one) ?? wrongInTime(one, sale, live.length > 0);
    if (why !== undefined) accuse(one, why);
  }
  if (!duplicate) {
    judgeOrders({ heard, telling, orders, live, lost, ownerOf, sale, accuse, buyerId });
    judgeMemory({ heard, telling, orders, lost, accuse });
  }
  judgeEnds({ evidence, live, accuse, duplicate });
  judgePatience(heard, accuse);
  if (telling.length === 0 && live.length > 0 && wrong.length === 0) {
    accuse(heard.at(-1), 'an order is stored that the buyer was never told of');
  }
  const believesInAnOrder = telling.length > 0 && !endTold;
  return { accepted, acceptedAt: yes?.gotAt, believesInAnOrder, lost, duplicate, wrong };
}

/**
 * In strict mode a second key may hear `already_bought` of a first one that still waits, and that PostgreSQL then refuses:
 * a word about an order is a yes only where it stands for an answer that did not come.
 */
const isYes = (one: Heard, heard: readonly Heard[]): boolean =>
  one.code === 'held' ||
  one.code === 'ordered' ||
  heard.some(
    (other) => other.kind === 'good' && (other.code === '' || other.code === 'in_doubt') && other.sentAt < one.gotAt,
  );

const isToldEnd = (state: string, reason: string | undefined): boolean =>
  (state === 'failed' || state === 'given_back') && reason !== undefined;

/** What is wrong with an answer whoever gets it: code, status, wait, and what the press was. */
function wrongByItself(one: Heard): string | undefined {
  if (one.code === '' && one.status === 0) return undefined;
  if (!Object.hasOwn(STATUS_OF, one.code)) return `"${one.code}" is no answer to a purchase`;
  const code = one.code as PurchaseCode;
  if (STATUS_OF[code] !== one.status) return `${code} with status ${one.status}`;
  if (NOT_NOW.has(code)) return one.saysWhen ? undefined : `${code} does not say when to come back`;
  switch (one.kind) {
    case 'bad_body':
      return code === 'invalid' ? undefined : `${code} to a request that is none`;
    case 'wrong_token':
      // what is the same for everybody may be said before the token is looked at
      return ['unauthenticated', 'not_open', 'sold_out', 'ended'].includes(code)
        ? undefined
        : `${code} to somebody who is nobody`;
    case 'unknown_activity':
      return code === 'unknown_activity' ? undefined : `${code} for an activity that there is not`;
    case 'good':
      break;
  }
  switch (code) {
    case 'invalid':
    case 'unauthenticated':
    case 'unknown_activity':
      return `${code} to a good request`;
    case 'blocked':
    case 'ticket_required':
    case 'ticket_invalid':
    case 'paused':
      return `${code}, which this sale does not have`;
    case 'held':
    case 'ordered':
    case 'replayed':
      if (one.orderId === undefined || one.receiptEnd === undefined) return `${code} without order or receipt`;
      if (code === 'replayed' && !one.saysReplayed) return 'replayed without Idempotent-Replayed';
      return one.toldQuantity === one.quantity ? undefined : `${code} of ${one.toldQuantity} for ${one.quantity} asked`;
    case 'already_bought':
      return one.orderId === undefined || one.receiptEnd === undefined
        ? 'already_bought without order or receipt'
        : undefined;
    default:
      return undefined;
  }
}

/** What is wrong with an answer at its time: before the opening, after the end. */
function wrongInTime(one: Heard, sale: SaleFacts, isWinner: boolean): string | undefined {
  const { code, sentAt, gotAt } = one;
  const beforeOpening = gotAt < sale.opensAt - sale.skewMs;
  const afterEnd = sentAt > sale.endToldAt + sale.skewMs;
  switch (code) {
    case 'not_open':
      return sentAt > sale.opensAt + sale.skewMs ? 'not_open after the opening' : undefined;
    case 'ended':
      if (gotAt < sale.endAskedAt - sale.skewMs) return 'ended before the end';
      return isWinner && one.kind === 'good' ? 'ended to somebody who has an order' : undefined;
    case 'sold_out':
      if (beforeOpening) return 'sold_out before the opening';
      return sentAt > sale.endToldAt + sale.skewMs + LATCH_MS_MAX ? 'sold_out after the end' : undefined;
    case 'held':
    case 'ordered':
      if (beforeOpening) return `${code} before the opening`;
      if (code === 'ordered' && sale.answerWhen !== 'ordered') return 'ordered, which this sale does not promise';
      return afterEnd ? `${code} after the end` : undefined;
    case 'replayed':
    case 'already_bought':
      return beforeOpening ? `${code} before the opening` : undefined;
    default:
      return undefined;
  }
}

type Accuse = (one: Heard | undefined, why: string) => void;

/** Every order that was told, against the books. */
function judgeOrders(at: {
  buyerId: string;
  heard: readonly Heard[];
  telling: readonly Heard[];
  orders: readonly BookedOrder[];
  live: readonly BookedOrder[];
  lost: boolean;
  ownerOf: (orderId: string) => string | undefined;
  sale: SaleFacts;
  accuse: Accuse;
}): void {
  const booked = new Map(at.orders.map((order) => [order.orderId, order]));
  const firstTold = new Map<string, Heard>();
  for (const one of at.telling) {
    const orderId = one.orderId!;
    const order = booked.get(orderId);
    const before = firstTold.get(orderId);
    if (before === undefined) firstTold.set(orderId, one);
    else if (before.receiptEnd !== one.receiptEnd) at.accuse(one, 'another receipt for the same order');
    if (order === undefined) {
      const owner = at.ownerOf(orderId);
      if (owner !== undefined && owner !== at.buyerId) at.accuse(one, `told of order ${orderId}, which is ${owner}'s`);
      else if (!at.lost) at.accuse(one, `told of order ${orderId}, which is stored nowhere`);
      else if (firstTold.size > 1) at.accuse(one, `told of order ${orderId} after another one`);
      continue;
    }
    const isItsKey = order.requestId === one.key;
    if (one.code === 'already_bought' ? isItsKey : !isItsKey) {
      at.accuse(one, `${one.code} for key ${one.key}, but order ${orderId} is of key ${order.requestId}`);
    }
    if (one.code === 'held' || one.code === 'ordered') {
      if (order.quantity !== one.quantity) at.accuse(one, `${one.quantity} asked, ${order.quantity} stored`);
      if (before !== undefined && before.gotAt < one.sentAt) at.accuse(one, `${one.code} for the second time`);
    }
  }
  if (!at.sale.stockOnlyFalls) return;
  for (const one of at.heard) {
    // in no order of events can a buyer hear that all is gone and have one: what is gone does not come back here
    if (one.code === 'sold_out' && one.kind === 'good' && at.live.length > 0) {
      at.accuse(one, 'sold_out to somebody who has an order');
    }
  }
}

/** What was told once is told again, whatever happened since; and nothing is repeated that was not. */
function judgeMemory(at: {
  heard: readonly Heard[];
  telling: readonly Heard[];
  orders: readonly BookedOrder[];
  lost: boolean;
  accuse: Accuse;
}): void {
  const good = at.heard.filter((one) => one.kind === 'good');
  for (const one of good) {
    const elder = good.filter((other) => other !== one && other.sentAt <= one.gotAt);
    if (one.code === 'replayed' && !elder.some((other) => other.key === one.key)) {
      at.accuse(one, 'replayed, but this key was never sent before');
    }
    if (one.code === 'already_bought' && !elder.some((other) => other.key !== one.key)) {
      at.accuse(one, 'already_bought, but there was no other request');
    }
    if (one.code === 'key_reused' && !elder.some((other) => other.key === one.key && other.quantity !== one.quantity)) {
      at.accuse(one, 'key_reused, but the key came with one quantity only');
    }
  }
  const stored = at.telling.find((one) => one.state === 'ordered' || one.state === 'paid');
  for (const one of at.telling) {
    if (stored !== undefined && one.state === 'queued' && one.sentAt > stored.gotAt && one.orderId === stored.orderId) {
      at.accuse(one, 'queued, after the order had been stored');
    }
  }
  const [first] = at.telling;
  if (first === undefined) return;
  const order = at.orders.find(({ orderId }) => orderId === first.orderId);
  // an order that ended lets the buyer try anew
  if (order !== undefined && !isLive(order)) return;
  const key = order?.requestId ?? (first.code === 'already_bought' ? undefined : first.key);
  if (key === undefined) return;
  for (const one of good) {
    if (one.sentAt <= first.gotAt || NOT_NOW.has(one.code) || one.code === '') continue;
    const due = one.key === key ? 'replayed' : 'already_bought';
    if (one.code !== due) at.accuse(one, `${one.code} where ${due} was due: order ${first.orderId} had been told`);
  }
}

/** What receipts said in the end. */
function judgeEnds(at: {
  evidence: BuyerEvidence;
  live: readonly BookedOrder[];
  accuse: Accuse;
  duplicate: boolean;
}): void {
  for (const end of at.evidence.ends) {
    const isStored = at.live.some(({ orderId }) => orderId === end.orderId);
    // without a live order the buyer is lost, or his end was told: both are counted elsewhere
    if (!isStored || at.duplicate) continue;
    if (end.state !== 'ordered' && end.state !== 'paid') {
      at.accuse(undefined, `order ${end.orderId} is stored, but its receipt says "${end.state}"`);
    } else if (end.listed === false) {
      at.accuse(
        undefined,
        `order ${end.orderId} is missing in the buyer's list, though its receipt says "${end.state}"`,
      );
    }
  }
}

/** Nobody is left with "not now". */
function judgePatience(heard: readonly Heard[], accuse: Accuse): void {
  const lastOfKey = new Map<string, Heard>();
  for (const one of heard) if (one.kind === 'good') lastOfKey.set(one.key, one);
  for (const one of lastOfKey.values()) {
    if (one.code === '' || NOT_NOW.has(one.code)) accuse(one, `left with ${one.code === '' ? 'no answer' : one.code}`);
  }
}
