/** SQL of what the gate must learn. The moves that make changes are in `lifecycle-table.ts`. */
import type { Sql } from '../../platform/postgres/database.ts';

/** The present rules of an activity, for its gate. Instants in epoch ms. */
export type GateRules = {
  readonly activityId: string;
  readonly version: number;
  readonly state: 'open' | 'paused' | 'ended' | 'shut';
  readonly opensAt: number;
  readonly endsAt: number;
  readonly perBuyerLimit: number;
  readonly run: number;
  readonly segments: number;
  readonly shards: number;
};

/** Rules of the activities whose gate is behind, oldest change first; of one activity only, where named. */
export async function pendingRules(sql: Sql, options: { limit: number; activityId?: string }): Promise<GateRules[]> {
  const rows = await sql.query<{
    id: string;
    version: string;
    gate_state: GateRules['state'];
    opens_at: Date;
    ends_at: Date;
    per_buyer_limit: number;
    run: string;
    segments: number;
    shards: number;
  }>(
    `select a.id, a.version, a.opens_at, a.ends_at, a.per_buyer_limit, a.run, r.segments, r.shards,
            case when a.state in ('ended', 'settled') then 'ended'
                 when a.preheat <> 'confirmed' or r.state <> 'open' then 'shut'
                 when a.paused then 'paused' else 'open' end as gate_state
       from activities a join runs r on r.activity_id = a.id and r.run = a.run
      where a.id in (select g.activity_id from gate_changes g where g.done_at is null and ($2::text is null or g.activity_id = $2))
      order by a.id limit $1`,
    [options.limit, options.activityId ?? null],
  );
  return rows.map((row) => ({
    activityId: row.id,
    version: Number(row.version),
    state: row.gate_state,
    opensAt: row.opens_at.getTime(),
    endsAt: row.ends_at.getTime(),
    perBuyerLimit: row.per_buyer_limit,
    run: Number(row.run),
    segments: row.segments,
    shards: row.shards,
  }));
}

/** Notes that the gate has every change up to `version`. */
export async function noteGateHas(sql: Sql, activityId: string, version: number): Promise<void> {
  await sql.query(
    `update gate_changes set done_at = now() where activity_id = $1 and version <= $2 and done_at is null`,
    [activityId, version],
  );
}
