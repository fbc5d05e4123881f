/**
 * The one equation, `total + surplus = left + in flight + live` (G9), weighed exactly while the sale goes on.
 *
 * Books and gate cannot be read at one instant, so the gate is read twice, around the books, and what lies between is
 * accounted for by ids:
 *
 * - holds: the gate's second reading belongs to an entry number; every entry behind the books' cursor up to that number is
 *   in flight, later ones have not been taken from `left` either;
 * - give-backs: `moved` counts them. Where it is the same in both readings, each pending give-back either had reached the
 *   gate before the first or has not, and its mark says which. Where it is not, the weighing is void and made again.
 */
import { parseMark } from '../../domain/mark.ts';
import type { Timers } from '../../platform/clock.ts';
import type { Sql } from '../../platform/postgres/database.ts';
import { segmentOf } from '../../platform/redis/keys.ts';
import { eachEntry, type VerifySources } from './compare-marks.ts';
import { FINDINGS_MAX } from './findings.ts';
import type { GateReader, SegmentReading, VerifiedSegment } from './gate-reader.ts';
import { PENDING_MAX, readBooks, type Books } from './verify-table.ts';

/** Both sides, in units. */
export type Weighed = {
  readonly books: Books;
  readonly left: number;
  readonly outbox: number;
  readonly giveBacks: number;
  /** numbers that are missing between cursor and the gate's number, by segment */
  readonly missing: readonly { readonly segment: number; readonly number: number }[];
};

/** Why it could not be weighed. */
export type NotWeighed =
  | { readonly kind: 'unreadable'; readonly books: Books; readonly readings: readonly SegmentReading[] }
  /** the sale never stood still for long enough */
  | { readonly kind: 'restless'; readonly books: Books };

const TRIES_MAX = 25;
const PAUSE_MS = 20;

/** The segments of a run. */
export const segmentsOf = (activityId: string, books: Books): VerifiedSegment[] =>
  Array.from({ length: books.segments }, (_, segment) => ({
    activityId,
    segment,
    run: books.run,
    shards: books.shards,
    unreadable: new Set<number>(),
  }));

/** Weighs. Undefined where the run of these segments is not the activity's any more. Throws faults of the world. */
export async function weigh(
  sources: VerifySources,
  timers: Timers,
  segments: readonly VerifiedSegment[],
): Promise<{ kind: 'weighed'; weighed: Weighed } | NotWeighed | undefined> {
  const { activityId, run } = segments[0]!;
  let books: Books | undefined;
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const before = await readAll(sources.gate, segments);
    books = await readBooks(sources.sql, activityId);
    if (books?.run !== run) return undefined;
    const giveBacks = await unitsNotReturned(sources.gate, segments, books);
    const after = await readAll(sources.gate, segments);
    if (after.some((one) => one.kind === 'missing' || (one.kind === 'read' && one.left === undefined))) {
      return { kind: 'unreadable', books, readings: after };
    }
    const steady =
      books.pending.length < PENDING_MAX &&
      after.every((one, i) => one.kind === 'read' && before[i]?.kind === 'read' && one.moved === before[i].moved);
    if (steady) {
      const read = after as Extract<SegmentReading, { kind: 'read' }>[];
      const { units, missing } = await unitsInOutbox(sources, segments, books, read);
      const left = read.reduce((sum, one) => sum + one.left!, 0);
      if (missing.length === 0 || !(await haveLanded(sources.sql, segments, missing))) {
        return { kind: 'weighed', weighed: { books, left, outbox: units, giveBacks, missing } };
      }
    }
    await timers.sleep(PAUSE_MS);
  }
  return books === undefined ? undefined : { kind: 'restless', books };
}

const readAll = (gate: GateReader, segments: readonly VerifiedSegment[]): Promise<SegmentReading[]> =>
  Promise.all(segments.map((at) => gate.readSegment(at)));

/** Units of pending give-backs that the gate does not have: their mark is still open. */
async function unitsNotReturned(gate: GateReader, segments: readonly VerifiedSegment[], books: Books): Promise<number> {
  let units = 0;
  for (const at of segments) {
    const own = books.pending.filter((one) => segmentOf(one.buyerId, books.segments) === at.segment);
    if (own.length === 0) continue;
    const marks = await gate.readMarks(
      at,
      own.map((one) => one.buyerId),
    );
    for (const one of own) {
      const mark = parseMark(marks.get(one.buyerId) ?? '');
      const isClosed = mark?.orderId !== one.orderId || mark.status !== mark.status.toLowerCase();
      if (!isClosed) units += one.units;
    }
  }
  return units;
}

/** Whether one of these entries has landed since the books were read, and been trimmed before it was looked for. */
async function haveLanded(
  sql: Sql,
  segments: readonly VerifiedSegment[],
  missing: readonly { readonly segment: number; readonly number: number }[],
): Promise<boolean> {
  const places = (await readBooks(sql, segments[0]!.activityId))?.places ?? [];
  return missing.some(({ segment, number }) => places.some((one) => one.segment === segment && one.entry >= number));
}

/** Units of the entries behind the books' cursors up to the gate's numbers. */
async function unitsInOutbox(
  { entries }: VerifySources,
  segments: readonly VerifiedSegment[],
  books: Books,
  readings: readonly { readonly seq: number; readonly outboxIsThere: boolean }[],
): Promise<{ units: number; missing: { segment: number; number: number }[] }> {
  let units = 0;
  const missing: { segment: number; number: number }[] = [];
  for (const [i, at] of segments.entries()) {
    const place = books.places.find((one) => one.segment === at.segment);
    const { seq, outboxIsThere } = readings[i]!;
    if (place === undefined || !outboxIsThere || place.entry >= seq) continue;
    let expected = place.entry + 1;
    const miss = (until: number): void => {
      for (; expected < until; expected++) {
        if (missing.length < FINDINGS_MAX) missing.push({ segment: at.segment, number: expected });
      }
    };
    await eachEntry(entries, at, place.cursor, (entry) => {
      if (entry.number === undefined || entry.number < expected) return true;
      if (entry.number > seq) return false;
      miss(entry.number);
      expected = entry.number + 1;
      units += (entry.holds ?? []).reduce((sum, hold) => sum + hold.quantity, 0);
      return true;
    });
    miss(seq + 1);
  }
  return { units, missing };
}
