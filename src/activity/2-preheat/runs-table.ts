/** SQL of runs: beginning one, noting what the gate reported, confirming. */
import type { Sql } from '../../platform/postgres/database.ts';

/** A run that is being built or was built. Instants in epoch ms. */
export type Run = {
  readonly run: number;
  readonly state: 'building' | 'open' | 'lost' | 'closed';
  readonly segments: number;
  readonly shards: number;
  readonly tickets: number;
  /** what is promised to buyers of this run */
  readonly itemName: string;
  readonly priceMinor: number;
  readonly currency: string;
  readonly expiresAt: number;
};

/** What preheat needs of the activity's row, read under its lock. */
export type PlannedActivity = {
  readonly state: string;
  readonly preheat: string;
  readonly autoConfirm: boolean;
  readonly itemName: string;
  readonly priceMinor: number;
  readonly currency: string;
  readonly total: number;
  readonly surplus: number;
  readonly perBuyerLimit: number;
  readonly opensAt: number;
  readonly endsAt: number;
  readonly segments: number;
  readonly run: number;
  readonly version: number;
};

/** Locks an activity's row and reads it. */
export async function lockActivity(tx: Sql, id: string): Promise<PlannedActivity | undefined> {
  const [row] = await tx.query<{
    state: string;
    preheat: string;
    auto_confirm: boolean;
    item_name: string;
    price_minor: string;
    currency: string;
    total: number;
    surplus: number;
    per_buyer_limit: number;
    opens_at: Date;
    ends_at: Date;
    segments: number;
    run: string;
    version: string;
  }>(`select * from activities where id = $1 for update`, [id]);
  return row === undefined
    ? undefined
    : {
        state: row.state,
        preheat: row.preheat,
        autoConfirm: row.auto_confirm,
        itemName: row.item_name,
        priceMinor: Number(row.price_minor),
        currency: row.currency,
        total: row.total,
        surplus: row.surplus,
        perBuyerLimit: row.per_buyer_limit,
        opensAt: row.opens_at.getTime(),
        endsAt: row.ends_at.getTime(),
        segments: row.segments,
        run: Number(row.run),
        version: Number(row.version),
      };
}

/** A run by number. */
export async function findRun(sql: Sql, activityId: string, run: number): Promise<Run | undefined> {
  const [row] = await sql.query<{
    run: string;
    state: Run['state'];
    segments: number;
    shards: number;
    tickets: number;
    item_name: string;
    price_minor: string;
    currency: string;
    expires_at: Date;
  }>(
    `select run, state, segments, shards, tickets, item_name, price_minor, currency, expires_at
       from runs where activity_id = $1 and run = $2`,
    [activityId, run],
  );
  return row === undefined
    ? undefined
    : {
        run: Number(row.run),
        state: row.state,
        segments: row.segments,
        shards: row.shards,
        tickets: row.tickets,
        itemName: row.item_name,
        priceMinor: Number(row.price_minor),
        currency: row.currency,
        expiresAt: row.expires_at.getTime(),
      };
}

/** Begins a run: its row with what is promised, its landings, and the activity's `run`. */
export async function beginRun(tx: Sql, activityId: string, run: Omit<Run, 'state'>): Promise<void> {
  await tx.query(
    `insert into runs (activity_id, run, state, segments, shards, fences, timeline, tickets, item_name, price_minor, currency, expires_at)
     values ($1, $2, 'building', $3, $4, '{}', (select timeline_id from pg_control_checkpoint()), $5, $6, $7, $8, $9)`,
    [
      activityId,
      run.run,
      run.segments,
      run.shards,
      run.tickets,
      run.itemName,
      run.priceMinor,
      run.currency,
      new Date(run.expiresAt).toISOString(),
    ],
  );
  await tx.query(
    `insert into landings (activity_id, run, segment) select $1, $2, s from generate_series(0, $3 - 1) s`,
    [activityId, run.run, run.segments],
  );
  await tx.query(`update activities set run = $2, version = version + 1 where id = $1`, [activityId, run.run]);
}

/** Notes the outcome of a preheat that is not confirmed yet, with its audit row where an actor is named. */
export async function notePreheat(
  tx: Sql,
  activityId: string,
  note: {
    run: number;
    fences: readonly string[];
    outcome: 'verified' | 'failed';
    actor?: string | undefined;
    reason?: string | undefined;
  },
): Promise<boolean> {
  const rows = await tx.query(
    `update activities set preheat = $3 where id = $1 and run = $2 and state = 'scheduled' and preheat <> 'confirmed'
     returning 1 as noted`,
    [activityId, note.run, note.outcome],
  );
  if (rows.length === 0) return false;
  await tx.query(`update runs set fences = $3 where activity_id = $1 and run = $2 and state = 'building'`, [
    activityId,
    note.run,
    note.fences,
  ]);
  if (note.actor !== undefined) {
    await tx.query(
      `insert into audit (actor, action, activity_id, from_state, to_state, reason, details)
       values ($1, 'preheat', $2, 'scheduled', 'scheduled', $3, jsonb_build_object('run', $4::bigint, 'outcome', $5::text))`,
      [note.actor, activityId, note.reason ?? null, note.run, note.outcome],
    );
  }
  return true;
}

/**
 * Confirms a verified preheat: the run is open and the gate must learn it.
 * @returns false where it was not verified, or where the activity was edited since its run was begun. Window and limit may
 *   differ: the gate learns them with the confirmation.
 */
export async function confirmRun(tx: Sql, activityId: string, actor: string, reason?: string): Promise<boolean> {
  const rows = await tx.query<{ version: string; run: string }>(
    `update activities a set preheat = 'confirmed', version = version + 1 from runs r
      where a.id = $1 and a.state = 'scheduled' and a.preheat = 'verified'
        and r.activity_id = a.id and r.run = a.run and r.state = 'building'
        and (r.tickets, r.segments, r.item_name, r.price_minor, r.currency)
          = (a.total + a.surplus, a.segments, a.item_name, a.price_minor, a.currency)
      returning a.version, a.run`,
    [activityId],
  );
  const [row] = rows;
  if (row === undefined) return false;
  await tx.query(`update runs set state = 'open' where activity_id = $1 and run = $2 and state = 'building'`, [
    activityId,
    row.run,
  ]);
  await tx.query(`insert into gate_changes (activity_id, version) values ($1, $2)`, [activityId, row.version]);
  await tx.query(
    `insert into audit (actor, action, activity_id, from_state, to_state, reason)
     values ($1, 'confirm', $2, 'scheduled', 'scheduled', $3)`,
    [actor, activityId, reason ?? null],
  );
  return true;
}
