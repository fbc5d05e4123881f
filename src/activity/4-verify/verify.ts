/**
 * Verify: whether all units of an activity are where the books say, by ids and not by sums alone (G9; article 3.6).
 *
 * It may be asked at any time, in mid-sale too. What is on its way is never a finding; what it names is wrong, and named
 * once: units that a named finding explains are not told again as a gap of the equation. It changes nothing: a repair is
 * somebody else's decision.
 */
import type { Timers } from '../../platform/clock.ts';
import { compareMarks, type VerifySources } from './compare-marks.ts';
import { segmentsOf, weigh, type NotWeighed, type Weighed } from './equation.ts';
import { Findings, type VerifyFinding } from './findings.ts';
import type { VerifiedSegment } from './gate-reader.ts';
import { keysHaveExpired, readBooks, readSold, type Books } from './verify-table.ts';

/** What verify says; all numbers are units. */
export type Verified = {
  readonly activityId: string;
  /** 0 where nothing is at the gate yet */
  readonly run: number;
  /** `none`: not preheated; `expired`: the sale is over and the keys have ended by their own time */
  readonly gate: 'read' | 'none' | 'expired' | 'unreadable';
  /** whether the equation was weighed; a sale that never stands still is verified by ids only */
  readonly weighed: boolean;
  readonly total: number;
  readonly surplus: number;
  /** null where the gate cannot be read */
  readonly left: number | null;
  readonly inFlight: {
    readonly outbox: number;
    readonly deadLetters: number;
    readonly giveBacks: number;
    readonly transfers: number;
  };
  readonly live: number;
  /** units of open marks at the gate */
  readonly holds: number;
  readonly findings: readonly VerifyFinding[];
  /** findings beyond those that are told */
  readonly findingsMore: number;
};

/** A difference is weighed again this often before it is named. */
const ROUNDS = 3;
const PAUSE_MS = 50;

/** Verifies an activity; undefined where there is none. Throws faults of Redis and PostgreSQL. */
export async function verify(
  ports: VerifySources & { readonly timers: Timers },
  activityId: string,
): Promise<Verified | undefined> {
  for (;;) {
    const books = await readBooks(ports.sql, activityId);
    if (books === undefined) return undefined;
    const verified = await verifyRun(ports, activityId, books);
    if (verified !== undefined) return verified; // else another run has begun meanwhile
  }
}

async function verifyRun(
  ports: VerifySources & { readonly timers: Timers },
  activityId: string,
  books: Books,
): Promise<Verified | undefined> {
  const findings = new Findings();
  const { sold, live } = await readSold(ports.sql, activityId);
  if (sold !== live) findings.add({ kind: 'sold_differs', id: activityId, units: sold - live });
  const unsold = sold - live; // what the live orders of any instant differ by from that instant's `sold`

  const tell = (
    gate: Verified['gate'],
    units: { books: Books; left: number | null; outbox: number; giveBacks: number },
    more: { holds: number; weighed: boolean },
  ): Verified => ({
    activityId,
    run: units.books.run,
    gate,
    weighed: more.weighed,
    total: units.books.total,
    surplus: units.books.surplus,
    left: units.left,
    inFlight: {
      outbox: units.outbox,
      deadLetters: units.books.deadLetters,
      giveBacks: units.giveBacks,
      transfers: 0,
    },
    live: units.books.sold - unsold,
    holds: more.holds,
    findings: findings.list(),
    findingsMore: findings.more,
  });
  const pending = books.pending.reduce((sum, one) => sum + one.units, 0);
  const byBooks = books.total + books.surplus - (books.sold - unsold) - books.deadLetters - pending;

  if (books.run === 0) {
    return tell('none', { books, left: byBooks, outbox: 0, giveBacks: pending }, { holds: 0, weighed: true });
  }
  const { segments, missing } = await lookAtKeys(ports, activityId, books, findings);
  if (missing === books.segments && (await keysHaveExpired(ports.sql, activityId))) {
    return tell('expired', { books, left: byBooks, outbox: 0, giveBacks: pending }, { holds: 0, weighed: false });
  }
  if (missing > 0) {
    for (let segment = 0; segment < books.segments; segment++) {
      if (!segments.some((at) => at.segment === segment)) findings.add({ kind: 'gate_unreadable', id: `${segment}` });
    }
    return tell('unreadable', { books, left: null, outbox: 0, giveBacks: pending }, { holds: 0, weighed: false });
  }
  const { holds } = await compareMarks(ports, activityId, { books, segments }, findings);
  const result = await weighUntilSure(ports, segments, findings, unsold);
  if (result === undefined) return undefined;
  if (result.kind === 'weighed') return tell('read', result.weighed, { holds, weighed: true });
  if (result.kind === 'unreadable') {
    result.readings.forEach((one, i) => {
      if (one.kind === 'missing') findings.add({ kind: 'gate_unreadable', id: `${i}` });
      if (one.kind === 'read' && one.left === undefined) findings.add({ kind: 'stock_unreadable', id: `${i}` });
    });
  }
  const gate = result.kind === 'unreadable' ? 'unreadable' : 'read';
  return tell(gate, { books: result.books, left: null, outbox: 0, giveBacks: pending }, { holds, weighed: false });
}

/** Which segments are there, and which of their keys cannot be read; `missing` counts segments that are not there. */
async function lookAtKeys(
  { gate }: VerifySources,
  activityId: string,
  books: Books,
  findings: Findings,
): Promise<{ segments: VerifiedSegment[]; missing: number }> {
  const segments: VerifiedSegment[] = [];
  for (const at of segmentsOf(activityId, books)) {
    const reading = await gate.readSegment(at);
    if (reading.kind === 'missing') continue;
    if (reading.kind === 'read' && !reading.outboxIsThere) {
      findings.add({ kind: 'gate_unreadable', id: `${at.segment} outbox` });
    }
    const unreadable = new Set<number>();
    for (let shard = 0; shard < at.shards; shard++) {
      if (await gate.shardIsThere(at, shard)) continue;
      unreadable.add(shard);
      findings.add({ kind: 'gate_unreadable', id: `${at.segment} buyers ${shard}` });
    }
    segments.push({ ...at, unreadable });
  }
  return { segments, missing: books.segments - segments.length };
}

/** Weighs until both sides agree, but for units that are explained already, or differ every time. */
async function weighUntilSure(
  ports: VerifySources & { readonly timers: Timers },
  segments: readonly VerifiedSegment[],
  findings: Findings,
  unsold: number,
): Promise<{ kind: 'weighed'; weighed: Weighed } | NotWeighed | undefined> {
  for (let round = 1; ; round++) {
    const result = await weigh(ports, ports.timers, segments);
    if (result === undefined || result.kind === 'restless') return result;
    if (result.kind === 'weighed') {
      const { books, left, outbox, giveBacks, missing } = result.weighed;
      const units = left + outbox + books.deadLetters + giveBacks + books.sold - unsold;
      const gap = books.total + books.surplus - units - findings.unitsExplained;
      if (gap === 0 && missing.length === 0) return result;
      if (round === ROUNDS) {
        for (const { segment, number } of missing)
          findings.add({ kind: 'entries_missing', id: `${segment} ${number}` });
        // what is missing had units of its own: nobody can say how many
        if (gap !== 0 && missing.length === 0) {
          findings.add({ kind: 'equation_gap', id: segments[0]!.activityId, units: gap });
        }
        return result;
      }
    } else if (round === ROUNDS) return result;
    await ports.timers.sleep(PAUSE_MS);
  }
}
