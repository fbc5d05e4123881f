/**
 * Taking a preheat back, so that an activity may leave `scheduled` again (design §9).
 *
 * ```
 * the row: preheat none, the next run number, the old run closed ─► every segment of the gate retired ─► its outboxes closed
 * ```
 *
 * Promise: what was preheated before an edit is never sold by. The row moves first, so a crash in between leaves an activity
 * that waits for its preheat, which is made again in time; the gate is retired before anything else is done with the row, so
 * it cannot open on the values of yesterday (P20). Not for the last minute before the opening: `lifecycle.ts` refuses that.
 */
import type { Sql } from '../../platform/postgres/database.ts';
import { closeWithdrawn, withdrawnOutboxes, withdrawRun } from './withdraw-table.ts';

/** What withdrawing needs of the gate. */
export type RetiringGate = {
  /** closes a run for good; false where units were taken under it */
  retire(segment: { activityId: string; segment: number; run: number }, nextRun: number): Promise<boolean>;
};

/** What withdrawing needs. */
export type WithdrawPorts = {
  readonly database: Sql;
  readonly gate: RetiringGate;
  /** a run under which units were taken stays as it is, for people to look at */
  readonly wasSold: (activityId: string, run: number) => void;
};

const OUTBOXES_MAX = 500;

/**
 * Takes the preheat of an activity back, on the row as it was judged.
 * @returns false where the row is not as it was: judge again. Throws faults of both stores; the row may have moved then, and
 *   the sweep retires the gate.
 */
export async function withdrawPreheat(
  ports: WithdrawPorts,
  activity: { readonly id: string; readonly version: number },
  by: { readonly actor: string; readonly reason?: string | undefined },
): Promise<boolean> {
  if (!(await withdrawRun(ports.database, activity, by))) return false;
  await retireWithdrawn(ports, activity.id);
  return true;
}

/** Retires the gates of runs that were taken back, of one activity or of all; safe to repeat. Throws faults of both stores. */
export async function retireWithdrawn(ports: WithdrawPorts, activityId?: string): Promise<void> {
  for (const at of await withdrawnOutboxes(ports.database, OUTBOXES_MAX, activityId)) {
    if (await ports.gate.retire(at, at.nextRun)) await closeWithdrawn(ports.database, at);
    else ports.wasSold(at.activityId, at.run);
  }
}
