/**
 * Compares marks and orders by ids, both ways, while the sale goes on.
 *
 * No two stores can be read at one instant, so nothing is named on one look. What has to hold is asked in an order in
 * which it cannot be an accident:
 *
 * - an order that was live before its mark was read, and still is after, was live while the mark was read; live orders
 *   never come back to life, and a mark is there before its order;
 * - a mark that was open before the books were asked, is in no book, is not in the outbox behind the cursor of before, is
 *   still in no book afterwards, and still open, has units that nobody knows of.
 *
 * Cost: a page of orders or a few hundred marks at a time, one statement for each; memory grows with what is on its way.
 */
import { parseMark } from '../../domain/mark.ts';
import type { Sql } from '../../platform/postgres/database.ts';
import { segmentOf } from '../../platform/redis/keys.ts';
import type { Findings } from './findings.ts';
import { isReadable, type GateReader, type VerifiedSegment } from './gate-reader.ts';
import {
  accountedFor,
  buyersWithOrder,
  liveOrders,
  openDeadLetters,
  readBooks,
  stillHeld,
  type Books,
  type Claim,
} from './verify-table.ts';

/** An entry of an outbox, as verify needs it. */
export type ReadEntries = (
  at: VerifiedSegment,
  cursor: string,
  count: number,
) => Promise<
  readonly {
    readonly id: string;
    readonly number: number | undefined;
    readonly holds: readonly { readonly orderId: string; readonly quantity: number }[] | undefined;
  }[]
>;

/** Where things are read from. */
export type VerifySources = { readonly sql: Sql; readonly gate: GateReader; readonly entries: ReadEntries };

const PAGE = 2_000;
/** Entries read at once. */
export const ENTRIES_PER_READ = 500;
/** The largest order id that PostgreSQL can hold; a mark may name a larger one, and nobody has that order. */
const ORDER_ID_MAX = '9223372036854775807';
const isStorable = (orderId: string): boolean => orderId.length < ORDER_ID_MAX.length || orderId <= ORDER_ID_MAX;

/** The segments of a run that can be compared. */
export type Comparable = { readonly books: Books; readonly segments: readonly VerifiedSegment[] };

/** Compares; `units` of open marks are returned. */
export async function compareMarks(
  sources: VerifySources,
  activityId: string,
  comparable: Comparable,
  findings: Findings,
): Promise<{ holds: number }> {
  await eachPage(
    (after: Claim | undefined) => liveOrders(sources.sql, activityId, after?.buyerId ?? '', PAGE),
    (page) => compareClaims(sources, comparable, page, findings),
  );
  await eachPage(
    (after: Claim | undefined) => openDeadLetters(sources.sql, activityId, after?.orderId ?? '0', PAGE),
    (page) => compareClaims(sources, comparable, page, findings),
  );
  return compareTakings(sources, activityId, comparable, findings);
}

async function eachPage<T>(
  read: (after: T | undefined) => Promise<T[]>,
  work: (page: T[]) => Promise<void>,
): Promise<void> {
  for (let last: T | undefined; ;) {
    const page = await read(last);
    if (page.length > 0) await work(page);
    if (page.length < PAGE) return;
    last = page.at(-1);
  }
}

// ------------------------------------------------------------------------------------------- from the books to the gate

/** Each of these orders must have the open mark of its buyer. */
async function compareClaims(
  { sql, gate }: VerifySources,
  { books, segments }: Comparable,
  claims: readonly Claim[],
  findings: Findings,
): Promise<void> {
  const suspects: { claim: Claim; kind: 'order_without_mark' | 'mark_of_other_order' | 'quantity_differs' }[] = [];
  for (const at of segments) {
    const own = claims.filter(
      ({ buyerId }) => segmentOf(buyerId, books.segments) === at.segment && isReadable(at, buyerId),
    );
    if (own.length === 0) continue;
    const marks = await gate.readMarks(
      at,
      own.map((one) => one.buyerId),
    );
    for (const one of own) {
      const text = marks.get(one.buyerId);
      const mark = text === undefined ? undefined : parseMark(text);
      if (text !== undefined && mark === undefined) continue; // named where all marks are read
      if (mark === undefined) suspects.push({ claim: one, kind: 'order_without_mark' });
      else if (mark.orderId !== one.orderId) suspects.push({ claim: one, kind: 'mark_of_other_order' });
      else if (!isOpen(mark.status)) suspects.push({ claim: one, kind: 'order_without_mark' });
      else if (mark.quantity !== one.quantity) suspects.push({ claim: one, kind: 'quantity_differs' });
    }
  }
  if (suspects.length === 0) return;
  // cancelled, given back or replayed while we looked: then it was no fault
  const still = await stillHeld(
    sql,
    suspects.map((one) => one.claim.orderId),
  );
  for (const { claim, kind } of suspects) {
    if (!still.has(claim.orderId)) continue;
    findings.add({ kind, id: claim.orderId, orderId: claim.orderId, buyerId: claim.buyerId });
  }
}

const isOpen = (status: string): boolean => status === status.toLowerCase();

// ------------------------------------------------------------------------------------------- from the gate to the books

type Taking = { readonly orderId: string; readonly buyerId: string; readonly quantity: number };

/** Each open mark must belong to an order, a dead letter, a give-back, or an entry that has not landed yet. */
async function compareTakings(
  sources: VerifySources,
  activityId: string,
  { segments }: Comparable,
  findings: Findings,
): Promise<{ holds: number }> {
  let holds = 0;
  const unknown = new Map<string, { at: VerifiedSegment; taking: Taking }>();
  // where the landing stood before anything was asked: what is in no book afterwards is behind it
  const placesBefore = (await readBooks(sources.sql, activityId))?.places ?? [];
  for (const at of segments) {
    for (let shard = 0; shard < at.shards; shard++) {
      if (at.unreadable.has(shard)) continue;
      for await (const takings of openMarks(sources.gate, at, shard, findings)) {
        holds += takings.reduce((sum, one) => sum + one.quantity, 0);
        const known = await accountedFor(sources.sql, takings.map((one) => one.orderId).filter(isStorable));
        for (const taking of takings) if (!known.has(taking.orderId)) unknown.set(taking.orderId, { at, taking });
      }
    }
  }
  if (unknown.size === 0) return { holds };

  for (const at of segments) {
    const place = placesBefore.find((one) => one.segment === at.segment);
    await eachEntry(sources.entries, at, place?.cursor ?? '0-0', (entry) => {
      for (const hold of entry.holds ?? []) unknown.delete(hold.orderId);
      return unknown.size > 0;
    });
  }
  await nameTakings(sources, activityId, [...unknown.values()], findings);
  return { holds };
}

/** The open marks of a shard, some hundreds at a time, each buyer once. */
async function* openMarks(
  gate: GateReader,
  at: VerifiedSegment,
  shard: number,
  findings: Findings,
): AsyncGenerator<Taking[]> {
  const seen = new Set<string>();
  for (let cursor = '0'; ;) {
    const { next, marks } = await gate.scanMarks(at, shard, cursor);
    const takings: Taking[] = [];
    for (const [buyerId, text] of marks) {
      if (seen.has(buyerId)) continue;
      seen.add(buyerId);
      const mark = parseMark(text);
      if (mark === undefined) findings.add({ kind: 'mark_unreadable', id: buyerId, buyerId });
      else if (isOpen(mark.status)) takings.push({ orderId: mark.orderId, buyerId, quantity: mark.quantity });
    }
    if (takings.length > 0) yield takings;
    if (next === '0') return;
    cursor = next;
  }
}

/** Entries behind a cursor, oldest first, until there are no more or `look` has seen enough. */
export async function eachEntry(
  read: ReadEntries,
  at: VerifiedSegment,
  cursor: string,
  look: (entry: Awaited<ReturnType<ReadEntries>>[number]) => boolean,
): Promise<void> {
  for (let from = cursor; ;) {
    const entries = await read(at, from, ENTRIES_PER_READ);
    for (const entry of entries) if (!look(entry)) return;
    if (entries.length < ENTRIES_PER_READ) return;
    from = entries.at(-1)!.id;
  }
}

/** Names those that are in no book still, and whose mark still stands. */
async function nameTakings(
  { sql, gate }: VerifySources,
  activityId: string,
  suspects: readonly { at: VerifiedSegment; taking: Taking }[],
  findings: Findings,
): Promise<void> {
  for (let from = 0; from < suspects.length; from += PAGE) {
    const page = suspects.slice(from, from + PAGE);
    const buyers = page.map(({ taking }) => taking.buyerId);
    const known = await accountedFor(sql, page.map(({ taking }) => taking.orderId).filter(isStorable));
    // with a live order of his own, the buyer's mark was named from the other side
    const ordered = await buyersWithOrder(sql, activityId, buyers);
    const left = page.filter(({ taking }) => !known.has(taking.orderId) && !ordered.has(taking.buyerId));
    for (const at of new Set(left.map((one) => one.at))) {
      const own = left.filter((one) => one.at === at).map(({ taking }) => taking);
      const marks = await gate.readMarks(
        at,
        own.map((taking) => taking.buyerId),
      );
      for (const { orderId, buyerId, quantity } of own) {
        const mark = parseMark(marks.get(buyerId) ?? '');
        if (mark?.orderId !== orderId || !isOpen(mark.status)) continue;
        findings.add({ kind: 'taken_without_order', id: orderId, orderId, buyerId, units: quantity }, quantity);
      }
    }
  }
}
