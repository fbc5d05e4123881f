/** SQL of taking a preheat back. */
import type { Sql } from '../../platform/postgres/database.ts';

/** An outbox of a run that was taken back, whose gate may not know it yet. */
export type WithdrawnOutbox = {
  readonly activityId: string;
  readonly run: number;
  readonly segment: number;
  /** the activity's present run, later than `run` */
  readonly nextRun: number;
};

/**
 * Takes a preheat back: `none`, the next run number (which has no row of its own), the old run closed, its audit row.
 * @returns false where the row has changed since it was judged
 */
export async function withdrawRun(
  sql: Sql,
  activity: { readonly id: string; readonly version: number },
  by: { readonly actor: string; readonly reason?: string | undefined },
): Promise<boolean> {
  const rows = await sql.query(
    `with back as (
       update activities set preheat = 'none', run = run + 1, version = version + 1
        where id = $1 and version = $2 and state = 'scheduled' and run > 0
       returning id, run - 1 as old_run),
     closed as (update runs r set state = 'closed' from back where r.activity_id = back.id and r.run = back.old_run),
     told as (update gate_changes g set done_at = now() from back where g.activity_id = back.id and g.done_at is null)
     insert into audit (actor, action, activity_id, from_state, to_state, reason, details)
     select $3, 'withdraw', id, 'scheduled', 'scheduled', $4, jsonb_build_object('run', old_run) from back
     returning 1 as moved`,
    [activity.id, activity.version, by.actor, by.reason ?? null],
  );
  return rows.length === 1;
}

/** Open outboxes of runs that were taken back, of one activity where named. */
export async function withdrawnOutboxes(sql: Sql, limit: number, activityId?: string): Promise<WithdrawnOutbox[]> {
  // settling closes run and outboxes in one transaction: a closed run with an open outbox was taken back
  const rows = await sql.query<{ activity_id: string; run: string; segment: number; next_run: string }>(
    `select l.activity_id, l.run, l.segment, a.run as next_run
       from landings l
       join runs r on r.activity_id = l.activity_id and r.run = l.run
       join activities a on a.id = l.activity_id
      where not l.closed and r.state = 'closed' and a.run > l.run and ($2::text is null or l.activity_id = $2)
      order by l.activity_id, l.run, l.segment limit $1`,
    [limit, activityId ?? null],
  );
  return rows.map((row) => ({
    activityId: row.activity_id,
    run: Number(row.run),
    segment: row.segment,
    nextRun: Number(row.next_run),
  }));
}

/** Closes the outbox of a run that was taken back, once its gate is retired. */
export async function closeWithdrawn(sql: Sql, at: Omit<WithdrawnOutbox, 'nextRun'>): Promise<void> {
  await sql.query(`update landings set closed = true where activity_id = $1 and run = $2 and segment = $3`, [
    at.activityId,
    at.run,
    at.segment,
  ]);
}
