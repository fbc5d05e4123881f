/** SQL of a move: one statement, conditional on the row exactly as it was judged. */
import type { ActivityRecord, ActivityState, AnswerWhen } from '../domain/activity.ts';
import type { Sql } from '../platform/postgres/database.ts';

/** Columns of the plan that a move changes with the state; what is not named stays. Instants in epoch ms. */
export type PlanChanges = {
  readonly itemName?: string;
  /** null takes the picture away */
  readonly imageUrl?: string | null;
  readonly priceMinor?: number;
  readonly currency?: string;
  readonly total?: number;
  readonly surplus?: number;
  readonly perBuyerLimit?: number;
  readonly opensAt?: number;
  readonly endsAt?: number;
  readonly answerWhen?: AnswerWhen;
  readonly overshoot?: number;
  readonly autoConfirm?: boolean;
  /** who changed the plan */
  readonly editedBy?: string;
  /** when the keys of the present run end, where the end of the sale has moved */
  readonly keysExpireAt?: number;
};

const iso = (at: number | undefined): string | null => (at === undefined ? null : new Date(at).toISOString());

/**
 * Moves the row, writes the audit and, where `tellsGate`, what is to be carried to the gate.
 * @returns false where the row is not as `before` any more: nothing was changed
 */
export async function applyMove(
  sql: Sql,
  move: {
    readonly before: ActivityRecord;
    readonly to: ActivityState;
    readonly paused: boolean;
    readonly changes: PlanChanges;
    readonly tellsGate: boolean;
    readonly actor: string;
    readonly action: string;
    readonly reason: string | undefined;
  },
): Promise<boolean> {
  const { before, changes } = move;
  const details = Object.keys(changes).length === 0 ? null : JSON.stringify(changes);
  const rows = await sql.query(
    `with moved as (
       update activities
          set state = $6, paused = $7, version = version + 1,
              item_name = coalesce($8, item_name),
              image_url = case when $9::boolean then $10 else image_url end,
              price_minor = coalesce($11, price_minor),
              currency = coalesce($12, currency),
              total = coalesce($13, total),
              surplus = coalesce($14, surplus),
              per_buyer_limit = coalesce($15, per_buyer_limit),
              opens_at = coalesce($16::timestamptz, opens_at),
              ends_at = coalesce($17::timestamptz, ends_at),
              answer_when = coalesce($18, answer_when),
              overshoot = coalesce($19::numeric, overshoot),
              auto_confirm = coalesce($20::boolean, auto_confirm),
              edited_by = coalesce($21, edited_by)
        where id = $1 and version = $2 and state = $3 and paused = $4 and preheat = $5
       returning id, version, run),
     told as (insert into gate_changes (activity_id, version) select id, version from moved where $22::boolean),
     kept as (
       update runs r set expires_at = $23::timestamptz from moved
        where r.activity_id = moved.id and r.run = moved.run and $23::timestamptz is not null)
     insert into audit (actor, action, activity_id, from_state, to_state, reason, details)
     select $24, $25, id, $3, $6, $26, $27::jsonb from moved returning 1 as moved`,
    [
      before.id,
      before.version,
      before.state,
      before.paused,
      before.preheat,
      move.to,
      move.paused,
      changes.itemName ?? null,
      changes.imageUrl !== undefined,
      changes.imageUrl ?? null,
      changes.priceMinor ?? null,
      changes.currency ?? null,
      changes.total ?? null,
      changes.surplus ?? null,
      changes.perBuyerLimit ?? null,
      iso(changes.opensAt),
      iso(changes.endsAt),
      changes.answerWhen ?? null,
      changes.overshoot ?? null,
      changes.autoConfirm ?? null,
      changes.editedBy ?? null,
      move.tellsGate,
      iso(changes.keysExpireAt),
      move.actor,
      move.action,
      move.reason ?? null,
      details,
    ],
  );
  return rows.length === 1;
}

/** Ids of the activities that the clock concerns within `leadMs`: due to be preheated, to open, or to end. */
export async function activitiesInSight(sql: Sql, leadMs: number, limit: number): Promise<string[]> {
  const rows = await sql.query<{ id: string }>(
    `select id from activities
      where state in ('scheduled', 'open') and opens_at <= clock_timestamp() + $1::bigint * interval '1 millisecond'
      order by opens_at limit $2`,
    [leadMs, limit],
  );
  return rows.map((row) => row.id);
}

/** Whether the last preheat of an activity was the scheduler's: it is then its own to confirm. */
export async function preheatWasBy(sql: Sql, activityId: string, actor: string): Promise<boolean> {
  const [row] = await sql.query<{ actor: string }>(
    `select actor from audit where activity_id = $1 and action = 'preheat' order by id desc limit 1`,
    [activityId],
  );
  return row?.actor === actor;
}
