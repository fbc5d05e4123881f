/** SQL of the watch: how far the landing of each outbox has come, and what waits for the gate or for a person. */
import type { Row, Sql } from '../platform/postgres/database.ts';
import type { SegmentAddress } from '../platform/redis/keys.ts';

/** Where the landing of an outbox stands. */
export type OutboxPlace = SegmentAddress & { readonly cursor: string; readonly entry: number };

/** Open outboxes of activities that may still have something to land, latest opening first, at most `limit`. */
export async function outboxPlaces(sql: Sql, limit: number): Promise<OutboxPlace[]> {
  const rows = await sql.query<
    Row & { activity_id: string; run: string; segment: number; cursor: string; entry: string }
  >(
    `select l.activity_id, l.run, l.segment, l.cursor, l.entry
       from landings l join activities a on a.id = l.activity_id
      where not l.closed and a.state in ('scheduled', 'open', 'ended')
      order by a.opens_at desc, l.activity_id, l.run desc, l.segment
      limit $1`,
    [limit],
  );
  return rows.map((row) => ({
    activityId: row.activity_id,
    run: Number(row.run),
    segment: row.segment,
    cursor: row.cursor,
    entry: Number(row.entry),
  }));
}

/** Give-backs that the gate does not have yet and dead letters that nobody has ended, each counted up to `countMax`. */
export async function pendingCounts(sql: Sql, countMax: number): Promise<{ giveBacks: number; deadLetters: number }> {
  const [row] = await sql.query<Row & { give_backs: number; dead_letters: number }>(
    `select (select count(*)::int from (select 1 from give_backs where state = 'pending' limit $1) g) as give_backs,
            (select count(*)::int from (select 1 from dead_letters where state = 'open' limit $1) d) as dead_letters`,
    [countMax],
  );
  return { giveBacks: row?.give_backs ?? 0, deadLetters: row?.dead_letters ?? 0 };
}
