/**
 * Cleaning up at the gate after a sale (article 2.4): the keys of closed runs go before their time, slowly, in the quiet
 * hours, or at once where the settlement said so.
 *
 * Promises: only keys of runs whose books are closed, so nothing that is removed could still be needed; never more than
 * a few keys at a time with a pause after each, so that a sale beside it notices nothing: a shard holds 10,000 buyers at most
 * and is freed by Redis' own background thread (UNLINK). Cut short, it goes on where it stood. What is not removed ends by its
 * own expiry.
 *
 * Keys are named, not looked for: SCAN would read every key of every other sale to find these.
 */
import type { Clock, Timers } from '../../platform/clock.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { releaseLease, renewLease, takeLease } from '../../platform/postgres/leases-table.ts';
import { noteCleaned, runsToClean, type RunToClean } from './cleanup-table.ts';

/** What cleaning up needs. */
export type CleanupPorts = {
  readonly database: Database;
  readonly clock: Clock;
  readonly timers: Timers;
  /** names the process */
  readonly owner: string;
  /** every key of a run, a few that belong together in each list; `isPresent`: those without a run too */
  readonly keysOf: (run: RunToClean) => string[][];
  /** removes keys of one slot; how many were there */
  readonly remove: (keys: readonly string[]) => Promise<number>;
  readonly isQuietHour: (now: number) => boolean;
  readonly progress: (run: RunToClean, removed: number, of: number) => void;
  readonly report: (error: unknown) => void;
};

const LOOK_EVERY_MS = 1_000;
const RUNS_MAX = 20;
/** A pause after each list: 400 keys a second at most. */
const PAUSE_MS = 10;
const PROGRESS_EVERY = 100;
const LEASE = { name: 'cleanup', ttlMs: 15_000 };

/** Cleans up by itself. */
export class Cleanup {
  readonly #ports: CleanupPorts;
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;

  constructor(ports: CleanupPorts) {
    this.#ports = ports;
  }

  start(): void {
    this.#loop ??= this.#look();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #look(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.cleanOnce();
      } catch (error) {
        this.#ports.report(error);
      }
      await this.#ports.timers.sleep(LOOK_EVERY_MS, this.#stop.signal);
    }
  }

  /** Cleans what is due, if no other process does; returns how many runs are done. Throws faults of both stores. */
  async cleanOnce(): Promise<number> {
    const { database, clock, owner, isQuietHour } = this.#ports;
    const due = await runsToClean(database, !isQuietHour(clock.now()), RUNS_MAX);
    if (due.length === 0) return 0;
    // removing twice changes nothing; the lease is for the pace
    const lease = await takeLease(database, { ...LEASE, owner });
    if (!lease.granted) return 0;
    const held = { name: LEASE.name, owner, token: lease.token };
    let done = 0;
    try {
      for (const run of due) {
        if (!(await this.#cleanRun(run, () => renewLease(database, { ...held, ttlMs: LEASE.ttlMs })))) break;
        await noteCleaned(database, run);
        done += 1;
      }
    } finally {
      await releaseLease(database, { ...held, clean: true }).catch(this.#ports.report); // it lapses by itself
    }
    return done;
  }

  /** Removes the keys of a run; false where it was stopped, or where the lease is another's. */
  async #cleanRun(run: RunToClean, renew: () => Promise<boolean>): Promise<boolean> {
    const { keysOf, remove, timers, clock, progress } = this.#ports;
    const lists = keysOf(run);
    const of = lists.reduce((sum, list) => sum + list.length, 0);
    let removed = 0;
    let renewedAt = clock.monotonic();
    for (const [i, list] of lists.entries()) {
      if (this.#stop.signal.aborted) return false;
      removed += await remove(list);
      await timers.sleep(PAUSE_MS, this.#stop.signal);
      if ((i + 1) % PROGRESS_EVERY === 0) progress(run, removed, of);
      if (clock.monotonic() - renewedAt > LEASE.ttlMs / 3) {
        if (!(await renew())) return false;
        renewedAt = clock.monotonic();
      }
    }
    progress(run, removed, of);
    return true;
  }
}

/** Hours of a day in a zone, half-open, by the wall clock there; may pass midnight. */
export type QuietHours = { readonly from: number; readonly to: number; readonly zone: string };

/** Reads `02-06`; undefined where it is none. `00-24` is the whole day. */
export function parseHours(text: string): { from: number; to: number } | undefined {
  const [, from, to] = /^([01][0-9]|2[0-3])-([01][0-9]|2[0-4])$/.exec(text) ?? [];
  if (from === undefined || to === undefined || from === to) return undefined;
  return { from: Number(from), to: Number(to) };
}

/** Makes the test of an instant, epoch ms. A clock that jumps at a change of summer time is read as it shows. */
export function quietHour({ from, to, zone }: QuietHours): (now: number) => boolean {
  const hour = new Intl.DateTimeFormat('en-GB', { timeZone: zone, hour: '2-digit', hourCycle: 'h23' });
  return (now) => {
    const present = Number(hour.format(now));
    return from < to ? present >= from && present < to : present >= from || present < to;
  };
}
