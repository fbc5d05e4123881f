/** SQL of settling: where ended outboxes end, what is still open, and the lock under which the books are closed. */
import type { Sql } from '../../platform/postgres/database.ts';

/** What keeps the books open. */
export type OpenMatters = {
  /** entries that the gate has written and that have not landed; null while the gate's last number is not known */
  readonly outboxEntries: number | null;
  readonly giveBacks: number;
  readonly deadLetters: number;
  readonly gateChanges: number;
};

/** An ended outbox whose last number is not noted yet. */
export type UnnotedOutbox = {
  readonly activityId: string;
  readonly run: number;
  readonly segment: number;
  readonly version: number;
};

/** Ended activities with outboxes whose end is not noted, while their keys live; of one activity, where named. */
export async function outboxesNotEnded(
  sql: Sql,
  options: { limit: number; activityId?: string },
): Promise<UnnotedOutbox[]> {
  const rows = await sql.query<{ activity_id: string; run: string; segment: number; version: string }>(
    `select l.activity_id, l.run, l.segment, a.version
       from landings l
       join activities a on a.id = l.activity_id and a.run = l.run
       join runs r on r.activity_id = l.activity_id and r.run = l.run
      where l.last_entry is null and not l.closed and a.state = 'ended'
        and r.expires_at > clock_timestamp() - interval '1 day' and ($2::text is null or l.activity_id = $2)
      order by a.ends_at desc limit $1`,
    [options.limit, options.activityId ?? null],
  );
  return rows.map((row) => ({
    activityId: row.activity_id,
    run: Number(row.run),
    segment: row.segment,
    version: Number(row.version),
  }));
}

/** Notes the number of the last entry that the gate of an ended activity has written. */
export async function noteLastEntry(
  sql: Sql,
  at: { activityId: string; run: number; segment: number },
  lastEntry: number,
): Promise<void> {
  await sql.query(
    `update landings set last_entry = $4
      where activity_id = $1 and run = $2 and segment = $3 and last_entry is null`,
    [at.activityId, at.run, at.segment, lastEntry],
  );
}

/** What is open now. */
export async function openMatters(sql: Sql, activityId: string): Promise<OpenMatters> {
  const [row] = await sql.query<{
    entries: string | null;
    unknown: boolean;
    give_backs: string;
    dead_letters: string;
    gate_changes: string;
  }>(
    `select (select sum(greatest(l.last_entry - l.entry, 0)) from landings l where l.activity_id = a.id and not l.closed)::bigint as entries,
            exists (select from landings l where l.activity_id = a.id and not l.closed and l.last_entry is null) as unknown,
            (select count(*) from give_backs g where g.activity_id = a.id and g.state = 'pending')::bigint as give_backs,
            (select count(*) from dead_letters d where d.activity_id = a.id and d.state = 'open')::bigint as dead_letters,
            (select count(*) from gate_changes c where c.activity_id = a.id and c.done_at is null)::bigint as gate_changes
       from activities a where a.id = $1`,
    [activityId],
  );
  return {
    outboxEntries: row?.unknown === true ? null : Number(row?.entries ?? 0),
    giveBacks: Number(row?.give_backs ?? 0),
    deadLetters: Number(row?.dead_letters ?? 0),
    gateChanges: Number(row?.gate_changes ?? 0),
  };
}

/** Locks every outbox of an activity: until this transaction ends no worker moves a cursor. */
export async function lockLandings(tx: Sql, activityId: string): Promise<void> {
  // the landing's own order: outboxes first, then the activity
  await tx.query(`select 1 as locked from landings where activity_id = $1 order by run, segment for update`, [
    activityId,
  ]);
}

/** Closes the outboxes and the run: what comes late cannot land any more. */
export async function closeLandings(tx: Sql, activityId: string): Promise<void> {
  await tx.query(`update landings set closed = true where activity_id = $1 and not closed`, [activityId]);
  await tx.query(`update runs set state = 'closed' where activity_id = $1 and state in ('building', 'open')`, [
    activityId,
  ]);
}
