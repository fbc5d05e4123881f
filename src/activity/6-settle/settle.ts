/**
 * Settling: closing the books of an ended activity for good (design §9).
 *
 * ```
 * gate told that it has ended ─► its last entry number noted ─► landed to that number ─► nothing on its way ─► verified
 *   ─► one transaction: outboxes locked, all of it asked again, ended → settled, outboxes closed
 * ```
 *
 * Promise: nothing lands after the books are closed, and nothing that the gate has sold is left out (P22): the numbers are
 * compared under the lock that every worker needs to move its cursor. What is open keeps the activity `ended`, and is named.
 *
 * A gate that has ended sells nothing more, so the number noted then is the last one. It is noted soon after the end, while
 * the keys live, and outlives them: a sale may be settled days later.
 */
import { Fault } from '../../domain/fault.ts';
import type { Timers } from '../../platform/clock.ts';
import type { Database, Sql } from '../../platform/postgres/database.ts';
import {
  closeLandings,
  lockLandings,
  noteLastEntry,
  openMatters,
  outboxesNotEnded,
  type OpenMatters,
} from './settle-table.ts';

/** What settling reads of the gate; `left` and the rest of it are verify's. */
export type EndedGate = {
  readSegment(at: {
    activityId: string;
    segment: number;
    run: number;
  }): Promise<
    | { readonly kind: 'missing' | 'restless' }
    | { readonly kind: 'read'; readonly state: string; readonly seq: number; readonly version: number }
  >;
};

/** What became of it. */
export type Settled =
  | { readonly kind: 'settled' }
  /** something is open; `findings` are verify's */
  | { readonly kind: 'unsettled'; readonly open: OpenMatters; readonly findings: readonly object[] }
  /** the activity is not `ended` any more */
  | { readonly kind: 'moved_on' };

/** What settling needs. */
export type SettlePorts = {
  readonly database: Database;
  readonly timers: Timers;
  readonly gate: EndedGate;
  /** carries changes to the gate */
  readonly carry: (activityId: string) => Promise<boolean>;
  readonly verify: (
    activityId: string,
  ) => Promise<{ readonly findings: readonly object[]; readonly gate: string; readonly weighed: boolean } | undefined>;
  /** ended → settled with its audit row, in this transaction; false where the row is not as it was judged */
  readonly move: (tx: Sql) => Promise<boolean>;
};

/** How long the reply waits for workers that land what is left. */
const WAIT_MS_MAX = 5_000;
const LOOK_EVERY_MS = 50;
const OUTBOXES_MAX = 500;

/** Notes where ended outboxes end, of one activity or of all; safe to repeat. Throws faults of both stores. */
export async function noteEnds(ports: Pick<SettlePorts, 'gate'>, sql: Sql, activityId?: string): Promise<void> {
  const outboxes = await outboxesNotEnded(sql, {
    limit: OUTBOXES_MAX,
    ...(activityId === undefined ? {} : { activityId }),
  });
  for (const at of outboxes) {
    const reading = await ports.gate.readSegment(at);
    // state and number come from one reading of `meta`: nothing is sold once it says so
    if (reading.kind === 'read' && reading.state === 'ended') await noteLastEntry(sql, at, reading.seq);
  }
}

class NotNow extends Error {
  readonly outcome: Settled;
  constructor(outcome: Settled) {
    super('not settled');
    this.outcome = outcome;
  }
}

/** Settles an activity that is `ended`. Throws faults of both stores. */
export async function settle(ports: SettlePorts, activityId: string): Promise<Settled> {
  const { database, timers } = ports;
  await ports.carry(activityId);
  await noteEnds(ports, database, activityId);

  let open = await openMatters(database, activityId);
  for (let waitedMs = 0; !isClear(open) && waitedMs < WAIT_MS_MAX && isMoving(open); waitedMs += LOOK_EVERY_MS) {
    await timers.sleep(LOOK_EVERY_MS);
    open = await openMatters(database, activityId);
  }
  if (!isClear(open)) return { kind: 'unsettled', open, findings: [] };

  const verified = await ports.verify(activityId);
  if (verified === undefined) return { kind: 'moved_on' };
  if (verified.findings.length > 0) return { kind: 'unsettled', open, findings: verified.findings };
  if (verified.gate === 'read' && !verified.weighed) {
    throw new Fault('not_ready', `settle ${activityId}: its gate does not stand still`, { retryable: true });
  }

  try {
    await database.transaction(async (tx) => {
      await lockLandings(tx, activityId);
      if (!(await ports.move(tx))) throw new NotNow({ kind: 'moved_on' });
      // asked again with both locks in hand: no cursor moves, no order or dead letter ends
      const now = await openMatters(tx, activityId);
      if (!isClear(now)) throw new NotNow({ kind: 'unsettled', open: now, findings: [] });
      await closeLandings(tx, activityId);
    });
    return { kind: 'settled' };
  } catch (error) {
    if (error instanceof NotNow) return error.outcome;
    throw error;
  }
}

const isClear = (open: OpenMatters): boolean =>
  open.outboxEntries === 0 && open.giveBacks === 0 && open.deadLetters === 0 && open.gateChanges === 0;

/** Whether waiting a little can help: a dead letter waits for an operator. */
const isMoving = (open: OpenMatters): boolean => open.deadLetters === 0;
