/**
 * Leases: who does a thing that one process should do, by the database's clock.
 *
 *   free ──take──→ held ──release(clean)──→ free, and remembers whether it was left in order
 *                   │ └──renew──→ held
 *                   └──ttl passes──→ free, left in disorder
 *
 * Promises: of any number of takers at most one is granted until the lease is released or has lapsed; `token` grows with
 * each taking, so that a guard can tell an old holder from a new one; no host's clock takes part. All functions may run
 * on their own or inside a transaction.
 *
 * Does not make anything safe by itself: a holder that sleeps past its ttl learns it late. A holder counts the ttl from
 * before it asked, on its own monotonic clock, and stops by itself when that has passed; what must not happen twice needs
 * a guard of its own (the landing's cursor, a token).
 */
import { must } from '../../domain/fault.ts';
import type { Sql } from './database.ts';

/** The answer to a taker. */
export interface LeaseAnswer {
  granted: boolean;
  /** true where the last owner gave it up in order, or where there was none; false after a crash, and if not granted */
  clean: boolean;
  /** decimal; the taking's number, `0` if not granted */
  token: string;
}

/** Who holds what. */
export interface HeldLease {
  name: string;
  /** as granted */
  token: string;
}

const NOT_GRANTED: LeaseAnswer = { granted: false, clean: false, token: '0' };

/**
 * Takes one lease if it is free. The owner of a lease that is held gets it no sooner than others: whoever lost the answer
 * to a taking waits out its ttl.
 * @param lease.owner names the process, not the machine: it shows who was last, and guards renewals
 */
export async function takeLease(sql: Sql, lease: { name: string; owner: string; ttlMs: number }): Promise<LeaseAnswer> {
  const answers = await takeLeases(sql, { names: [lease.name], owner: lease.owner, ttlMs: lease.ttlMs });
  return must(answers.get(lease.name), 'every name that is asked for has an answer');
}

/** Takes those of many leases that are free, in one statement. @returns an answer for each name */
export async function takeLeases(
  sql: Sql,
  lease: { names: readonly string[]; owner: string; ttlMs: number },
): Promise<Map<string, LeaseAnswer>> {
  const rows = await sql.query<{ name: string; clean: boolean; token: string }>(
    // `before` locks in the order of names, so two takers of the same names wait and do not deadlock. It reads the row as
    // it is after that wait; a lease that the other has taken meanwhile is no longer lapsed, and drops out.
    `with before as materialized (
       select name, clean from leases
        where name = any ($1::text[]) and expires_at <= clock_timestamp()
        order by name for update),
     taken as (
       update leases l
          set owner = $2, token = l.token + 1, clean = false,
              expires_at = clock_timestamp() + $3::bigint * interval '1 millisecond'
         from before where l.name = before.name
       returning l.name, before.clean, l.token),
     made as (
       insert into leases (name, owner, token, expires_at, clean)
       select name, $2, 1, clock_timestamp() + $3::bigint * interval '1 millisecond', false
         from (select distinct unnest($1::text[]) as name order by 1) wanted
       on conflict (name) do nothing
       returning name, true as clean, token)
     select name, clean, token from taken union all select name, clean, token from made`,
    [lease.names, lease.owner, lease.ttlMs],
  );
  const answers = new Map(lease.names.map((name) => [name, NOT_GRANTED]));
  for (const { name, clean, token } of rows) answers.set(name, { granted: true, clean, token });
  return answers;
}

/** Prolongs one lease. @returns false where it has lapsed, been released or been taken: its holder must stop at once */
export async function renewLease(sql: Sql, lease: HeldLease & { owner: string; ttlMs: number }): Promise<boolean> {
  const held = await renewLeases(sql, { leases: [lease], owner: lease.owner, ttlMs: lease.ttlMs });
  return held.has(lease.name);
}

/** Prolongs many leases in one statement. @returns the names of those that are still held */
export async function renewLeases(
  sql: Sql,
  { leases, owner, ttlMs }: { leases: readonly HeldLease[]; owner: string; ttlMs: number },
): Promise<Set<string>> {
  const rows = await sql.query<{ name: string }>(
    // Locked in the order of names, as in taking.
    `with held as materialized (
       select l.name from leases l
         join unnest($1::text[], $2::bigint[]) as mine (name, token) on mine.name = l.name and mine.token = l.token
        where l.owner = $3 and l.expires_at > clock_timestamp()
        order by l.name for update of l)
     update leases l set expires_at = clock_timestamp() + $4::bigint * interval '1 millisecond'
       from held where l.name = held.name
     returning l.name`,
    [leases.map(({ name }) => name), leases.map(({ token }) => token), owner, ttlMs],
  );
  return new Set(rows.map(({ name }) => name));
}

/**
 * Gives a lease up, if it is still this taking's.
 * @param lease.clean whether everything was left in order; the next taker is told
 * @returns false where it has been taken by another since
 */
export async function releaseLease(sql: Sql, lease: HeldLease & { owner: string; clean: boolean }): Promise<boolean> {
  const rows = await sql.query(
    `update leases set expires_at = clock_timestamp(), clean = $4
      where name = $1 and token = $2 and owner = $3 returning name`,
    [lease.name, lease.token, lease.owner, lease.clean],
  );
  return rows.length === 1;
}
