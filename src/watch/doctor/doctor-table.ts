/** SQL of the doctor: what PostgreSQL says about itself, and what is open around an activity. */
import type { Sql } from '../../platform/postgres/database.ts';
import type { PostgresReading } from './points.ts';

/** Settings and use of the server; `hostNow` is read before and after by the caller. */
export async function readServer(sql: Sql): Promise<Omit<PostgresReading, 'clock'> & { now: number }> {
  const [row] = await sql.query<{
    version: number;
    standby: boolean;
    fsync: string;
    full_page_writes: string;
    synchronous_commit: string;
    isolation: string;
    connections: number;
    connections_max: number;
    now: Date;
  }>(
    `select current_setting('server_version_num')::int as version, pg_is_in_recovery() as standby,
            current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes,
            current_setting('synchronous_commit') as synchronous_commit,
            current_setting('default_transaction_isolation') as isolation,
            (select count(*) from pg_stat_activity where backend_type = 'client backend')::int as connections,
            current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as connections_max,
            clock_timestamp() as now`,
  );
  return {
    versionNumber: row!.version,
    isStandby: row!.standby,
    fsync: row!.fsync,
    fullPageWrites: row!.full_page_writes,
    synchronousCommit: row!.synchronous_commit,
    isolation: row!.isolation,
    connections: row!.connections,
    connectionsMax: row!.connections_max,
    now: row!.now.getTime(),
  };
}

/** What is open around an activity, and whether a worker is there. */
export async function readAround(
  sql: Sql,
  activityId: string,
): Promise<{ deadLetters: number; gateChanges: number; workerIsThere: boolean }> {
  const [row] = await sql.query<{ dead_letters: number; gate_changes: number; worker: boolean }>(
    `select (select count(*) from dead_letters where activity_id = $1 and state = 'open')::int as dead_letters,
            (select count(*) from gate_changes where activity_id = $1 and done_at is null)::int as gate_changes,
            exists (select from leases where name = 'scheduler' and expires_at > clock_timestamp()) as worker`,
    [activityId],
  );
  return { deadLetters: row!.dead_letters, gateChanges: row!.gate_changes, workerIsThere: row!.worker };
}
