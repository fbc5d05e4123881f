/**
 * The verdict: what the clients were told, what PostgreSQL holds and what Redis holds, compared by ids. Pure.
 *
 * Every number is the contract's: `accepted` buyers told `held` or `ordered`, `lost` of them without a live order and without a
 * told end, `duplicates` buyers with more than one live order or above their limit, `oversold` live units above the total,
 * `wrongAnswers` answers that contradict the order of answers, the ledger or an earlier answer. What is left of the
 * equation when those have explained their part is drift, and only that is called so.
 */
import type { Mark } from '../../domain/mark.ts';
import { judge, type BookedOrder, type SaleFacts, type WrongAnswer } from './auditor.ts';
import type { BuyerEvidence } from './crowd/evidence.ts';
import type { GateBooks } from './gate-witness.ts';
import type { Ledger } from './ledger-table.ts';

/** The ways in which a sale can be broken; `--sabotage` takes them by these names, and the verdict gives them back. */
export const BREAKS = ['oversell', 'lose', 'duplicate', 'wrong-answer', 'drift'] as const;
/** One of them. */
export type Break = (typeof BREAKS)[number];

/** The numbers of the verdict. */
export type Verdict = {
  readonly buyers: number;
  readonly requests: number;
  readonly stock: number;
  readonly accepted: number;
  readonly ordersStored: number;
  /** answers that were neither a yes nor the repeat of one */
  readonly refused: number;
  readonly refusedByCode: Readonly<Record<string, number>>;
  readonly replayed: number;
  readonly oversold: number;
  readonly lost: number;
  readonly duplicates: number;
  readonly wrongAnswers: number;
  /** from the opening to the last yes; null where units are left */
  readonly secondsToSellOut: number | null;
  /** from the last yes to the last landed entry */
  readonly secondsToLand: number;
  readonly equationHolds: boolean;
  /** holds that PostgreSQL refused: in strict mode what the surplus admitted, elsewhere drift */
  readonly refusedAtLanding: number;
  /** requests to which no answer came */
  readonly unanswered: number;
  readonly equation: {
    readonly total: number;
    readonly surplus: number;
    readonly left: number;
    readonly inFlight: number;
    readonly live: number;
  };
  /** orders or marks that the three witnesses have, by ids */
  readonly witnesses: { readonly clients: number; readonly postgresql: number; readonly redis: number };
  readonly broken: readonly Break[];
  /** what is wrong, a sentence each; at most `FINDINGS_MAX` of a kind */
  readonly findings: readonly { readonly kind: Break; readonly says: string }[];
  readonly holds: boolean;
};

/** Findings of one kind that are spelt out; the numbers count them all. */
const FINDINGS_MAX = 10;
/** A hold sent this long after somebody heard `sold_out` was certainly decided after it. */
const CERTAINLY_LATER_MS = 50;

/** What the verdict is made of, but for the clients' evidence. */
export type VerdictBooks = {
  readonly ledger: Ledger;
  readonly gate: GateBooks;
  readonly sale: SaleFacts;
  /** strict mode: PostgreSQL may refuse what the surplus admitted */
  readonly admitsSurplus: boolean;
  /** when the crowd was let in: at the opening, or later where the crowd was late; epoch ms of the crowd's clock */
  readonly letInAt: number;
  /** when the last entry was seen landed, by the same clock */
  readonly landedAt: number;
  /** what the product says of itself: its verification, its settling */
  readonly saysItself: readonly { readonly holds: boolean; readonly says: string }[];
};

/** Hears the clients one by one, then gives the verdict. */
export async function reachVerdict(
  books: VerdictBooks,
  clients: AsyncIterable<BuyerEvidence> | Iterable<BuyerEvidence>,
): Promise<Verdict> {
  const { ledger, gate, sale } = books;
  const findings: { kind: Break; says: string }[] = [];
  const spelt = new Map<Break, number>();
  const find = (kind: Break, says: string): void => {
    const times = (spelt.get(kind) ?? 0) + 1;
    spelt.set(kind, times);
    if (times <= FINDINGS_MAX) findings.push({ kind, says });
  };

  const ordersOf = new Map<string, BookedOrder[]>();
  const ownerOf = new Map<string, string>();
  for (const order of ledger.orders) {
    ownerOf.set(order.orderId, order.buyerId);
    const all = ordersOf.get(order.buyerId);
    if (all === undefined) ordersOf.set(order.buyerId, [order]);
    else all.push(order);
  }

  let [buyers, requests, accepted, replayed, refused, unanswered, clientOrders] = [0, 0, 0, 0, 0, 0, 0];
  const refusedByCode: Record<string, number> = {};
  const wrong: WrongAnswer[] = [];
  const lostBuyers = new Set<string>();
  const duplicateBuyers = new Set<string>();
  const heardOf = new Set<string>();
  const yeses: { buyerId: string; sentAt: number; gotAt: number }[] = [];
  let lastYesAt = Number.NEGATIVE_INFINITY;
  let soldOutAt = Number.POSITIVE_INFINITY;
  let soldOuts = 0;

  for await (const evidence of clients) {
    buyers += 1;
    heardOf.add(evidence.buyerId);
    for (const one of evidence.heard) {
      requests += 1;
      if (one.code === '') unanswered += 1;
      else if (one.code === 'replayed') replayed += 1;
      else if (one.code === 'held' || one.code === 'ordered') {
        yeses.push({ buyerId: evidence.buyerId, sentAt: one.sentAt, gotAt: one.gotAt });
      } else {
        refused += 1;
        refusedByCode[one.code] = (refusedByCode[one.code] ?? 0) + 1;
        if (one.code === 'sold_out') {
          soldOuts += 1;
          soldOutAt = Math.min(soldOutAt, one.gotAt);
        }
      }
    }
    const judged = judge(evidence, ordersOf.get(evidence.buyerId) ?? [], (id) => ownerOf.get(id), sale);
    wrong.push(...judged.wrong);
    if (judged.lost) lostBuyers.add(evidence.buyerId);
    if (judged.duplicate) duplicateBuyers.add(evidence.buyerId);
    if (judged.accepted) {
      accepted += 1;
      lastYesAt = Math.max(lastYesAt, judged.acceptedAt!);
    }
    if (judged.believesInAnOrder) clientOrders += 1;
  }
  if (sale.stockOnlyFalls) wrong.push(...contradictions(yeses, soldOutAt, soldOuts, gate.left));

  const live = ledger.orders.filter(isLive);
  const liveUnits = units(live);
  const oversold = Math.max(0, liveUnits - ledger.total);
  if (oversold > 0) find('oversell', `${liveUnits} units are sold, ${ledger.total} there were`);
  for (const buyerId of lostBuyers) find('lose', `${buyerId} was told of an order, and has none`);
  for (const buyerId of duplicateBuyers) {
    const orders = (ordersOf.get(buyerId) ?? []).filter(isLive).map(({ orderId }) => orderId);
    find('duplicate', `${buyerId} has ${orders.length} live orders: ${orders.join(', ')}`);
  }
  for (const one of wrong) find('wrong-answer', `${one.buyerId}: ${one.why}`);

  const { inFlight, gone } = underWay(ledger, gate, ownerOf);
  for (const hold of gone) {
    if (!lostBuyers.has(hold.buyerId)) find('drift', `order ${hold.orderId} was landed, and is nowhere`);
  }
  const gap = ledger.total + ledger.surplus - gate.left - inFlight - liveUnits;
  const explained = lostUnits(gate, lostBuyers) - oversold;
  if (gap !== explained) {
    const sides = `${ledger.total} + ${ledger.surplus} ≠ ${gate.left} left + ${inFlight} in flight + ${liveUnits} live`;
    find('drift', `the equation is off by ${gap - explained}: ${sides}`);
  }
  for (const says of gate.damage) find('drift', says);
  if (ledger.sold !== liveUnits)
    find('drift', `PostgreSQL counts ${ledger.sold} sold, its live orders are ${liveUnits}`);
  const strangers = live.filter(({ buyerId }) => !heardOf.has(buyerId));
  for (const order of strangers) find('drift', `order ${order.orderId} is ${order.buyerId}'s, who never came`);
  for (const says of compareMarks(live, gate, (buyerId) => lostBuyers.has(buyerId) || duplicateBuyers.has(buyerId))) {
    find('drift', says);
  }
  const refusedAtLanding = ledger.orders.filter(({ state }) => state === 'refused').length;
  if (refusedAtLanding > 0 && !books.admitsSurplus) {
    find('drift', `PostgreSQL refused ${refusedAtLanding} holds that the gate had sold`);
  }
  const broken = BREAKS.filter((kind) => spelt.has(kind));
  // what the product says of itself is heard last: alone it is drift, beside a finding of ours it only agrees
  for (const one of books.saysItself) {
    if (one.holds || broken.some((kind) => kind !== 'drift')) continue;
    find('drift', one.says);
    if (broken.length === 0) broken.push('drift');
  }

  const isSoldOut = gate.left === 0 && liveUnits >= ledger.total;
  const seconds = (ms: number): number => Math.round(Math.max(0, ms)) / 1_000;
  return {
    buyers,
    requests,
    stock: ledger.total,
    accepted,
    ordersStored: live.length,
    refused,
    refusedByCode,
    replayed,
    oversold,
    lost: lostBuyers.size,
    duplicates: duplicateBuyers.size,
    wrongAnswers: wrong.length,
    secondsToSellOut: isSoldOut && accepted > 0 ? seconds(lastYesAt - books.letInAt) : null,
    secondsToLand: accepted > 0 ? seconds(books.landedAt - lastYesAt) : 0,
    equationHolds: gap === 0 && !broken.includes('drift'),
    refusedAtLanding,
    unanswered,
    equation: { total: ledger.total, surplus: ledger.surplus, left: gate.left, inFlight, live: liveUnits },
    witnesses: { clients: clientOrders, postgresql: live.length, redis: openMarks(gate).length },
    broken,
    findings,
    holds: broken.length === 0 && gap === 0,
  };
}

const isLive = (order: BookedOrder): boolean => order.state === 'placed' || order.state === 'paid';
const units = (orders: readonly { quantity: number }[]): number =>
  orders.reduce((sum, { quantity }) => sum + quantity, 0);
const isOpen = (mark: Mark): boolean => mark.status === mark.status.toLowerCase();
const openMarks = (gate: GateBooks): [string, Mark][] => [...gate.marks].filter(([, mark]) => isOpen(mark));

/** Units that left the gate and are not an order yet, by ids; and holds that were landed and are nowhere. */
function underWay(
  ledger: Ledger,
  gate: GateBooks,
  ownerOf: ReadonlyMap<string, string>,
): { inFlight: number; gone: { orderId: string; buyerId: string }[] } {
  const kept = new Set(ledger.deadLetters.map(({ orderId }) => orderId));
  const back = new Set(ledger.givingBack.map(({ orderId }) => orderId));
  const notLanded: { quantity: number }[] = [];
  const gone: { orderId: string; buyerId: string }[] = [];
  for (const hold of gate.holds) {
    if (ownerOf.has(hold.orderId) || kept.has(hold.orderId) || back.has(hold.orderId)) continue;
    if (hold.entry > (ledger.landed[hold.segment] ?? 0)) notLanded.push(hold);
    else gone.push(hold);
  }
  const returning = ledger.givingBack.reduce((sum, row) => sum + row.units, 0);
  return { inFlight: units(notLanded) + units(ledger.deadLetters) + returning, gone };
}

/** Units of the orders that are lost: the gate's marks still know how many. */
function lostUnits(gate: GateBooks, lostBuyers: ReadonlySet<string>): number {
  let sum = 0;
  for (const buyerId of lostBuyers) {
    const mark = gate.marks.get(buyerId);
    if (mark !== undefined && isOpen(mark)) sum += mark.quantity;
  }
  return sum;
}

/** Redis against PostgreSQL, by buyer and order id. */
function compareMarks(
  live: readonly BookedOrder[],
  gate: GateBooks,
  isExplained: (buyerId: string) => boolean,
): string[] {
  const says: string[] = [];
  const byBuyer = new Map(live.map((order) => [order.buyerId, order]));
  for (const order of byBuyer.values()) {
    if (isExplained(order.buyerId)) continue;
    const mark = gate.marks.get(order.buyerId);
    if (mark === undefined) says.push(`the gate does not know ${order.buyerId}, who has order ${order.orderId}`);
    else if (mark.orderId !== order.orderId || mark.quantity !== order.quantity || !isOpen(mark)) {
      says.push(`the gate has order ${mark.orderId} of ${order.buyerId}, PostgreSQL has ${order.orderId}`);
    }
  }
  for (const [buyerId, mark] of openMarks(gate)) {
    if (!byBuyer.has(buyerId) && !isExplained(buyerId)) {
      says.push(`the gate has order ${mark.orderId} of ${buyerId}, PostgreSQL has none`);
    }
  }
  return says;
}

/** What no buyer can see alone: sold after sold out, and sold out with units left. */
function contradictions(
  yeses: readonly { buyerId: string; sentAt: number }[],
  soldOutAt: number,
  soldOuts: number,
  left: number,
): WrongAnswer[] {
  const late = yeses.filter(({ sentAt }) => sentAt > soldOutAt + CERTAINLY_LATER_MS);
  const wrong = late.map(({ buyerId }) => ({ buyerId, heard: undefined, why: 'sold to after others heard sold_out' }));
  if (left > 0 && soldOuts > 0) {
    const why = `${soldOuts} answers say sold_out, and ${left} units are left`;
    return [...wrong, { buyerId: 'everybody', heard: undefined, why }];
  }
  return wrong;
}
