/** SQL of cleaning up: which runs have keys that nobody needs any more. */
import type { Sql } from '../../platform/postgres/database.ts';

/** A run whose keys can go. */
export type RunToClean = {
  readonly activityId: string;
  readonly run: number;
  readonly segments: number;
  readonly shards: number;
  /** the last one of an activity that is over: the keys without a run go with it */
  readonly isPresent: boolean;
};

/**
 * Runs of settled activities, and earlier ones that were taken back, whose keys have not been removed.
 * @param onlyAsked those only whose operator did not want to wait
 */
export async function runsToClean(sql: Sql, onlyAsked: boolean, limit: number): Promise<RunToClean[]> {
  const rows = await sql.query<{
    activity_id: string;
    run: string;
    segments: number;
    shards: number;
    present: boolean;
  }>(
    `select r.activity_id, r.run, r.segments, r.shards,
            a.state in ('settled', 'rejected')
              and r.run = (select max(l.run) from runs l where l.activity_id = r.activity_id) as present
       from runs r join activities a on a.id = r.activity_id
      where r.state = 'closed' and r.cleaned_at is null and (a.state in ('settled', 'rejected') or r.run < a.run)
        and (r.clean_now or not $1::boolean)
        and not exists (select from landings l where l.activity_id = r.activity_id and l.run = r.run and not l.closed)
      order by r.activity_id, r.run limit $2`,
    [onlyAsked, limit],
  );
  return rows.map((row) => ({
    activityId: row.activity_id,
    run: Number(row.run),
    segments: row.segments,
    shards: row.shards,
    isPresent: row.present,
  }));
}

/** Notes that a run's keys are gone. */
export async function noteCleaned(sql: Sql, at: { activityId: string; run: number }): Promise<void> {
  await sql.query(`update runs set cleaned_at = clock_timestamp() where activity_id = $1 and run = $2`, [
    at.activityId,
    at.run,
  ]);
}

/** Has the keys of a settled activity removed without waiting for the quiet hours. */
export async function askToCleanNow(sql: Sql, activityId: string): Promise<void> {
  await sql.query(`update runs set clean_now = true where activity_id = $1 and state = 'closed'`, [activityId]);
}
