/**
 * The backlog: what the gate has sold and PostgreSQL does not have yet. Measured by each worker every few seconds and not
 * when it is asked for, so that scraping costs no store anything. All workers measure the same: take the largest.
 *
 * A reading that could not be renewed is dropped rather than shown: no value is better than an old one.
 */
import type { Clock, Timers } from '../platform/clock.ts';
import type { Sql } from '../platform/postgres/database.ts';
import type { SegmentAddress } from '../platform/redis/keys.ts';
import { outboxPlaces, pendingCounts } from './backlog-table.ts';

/** What waits. */
export type Backlog = {
  /** entries (batches of holds) that have not landed */
  readonly entries: number;
  /** age of the oldest of them, 0 where there is none */
  readonly oldestSeconds: number;
  readonly giveBacks: number;
  readonly deadLetters: number;
};

/** What measuring needs. */
export type BacklogPorts = {
  readonly sql: Sql;
  /** number of the last entry that the gate wrote; undefined without a gate */
  readonly lastEntry: (at: SegmentAddress) => Promise<number | undefined>;
  /** id of the first entry behind a cursor, undefined where there is none */
  readonly firstBehind: (at: SegmentAddress, cursor: string) => Promise<string | undefined>;
  /** Redis' time in epoch ms */
  readonly now: () => number;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly report: (error: unknown) => void;
};

const MEASURE_EVERY_MS = 2_000;
/** A reading older than this is not shown. */
const AGE_MS_MAX = 15_000;
/** Outboxes looked at in one go, latest openings first. */
const OUTBOXES_MAX = 200;
/** Counting more would cost more than it tells. */
const COUNT_MAX = 100_000;

/** Measures once. Throws faults of both stores. */
export async function measureBacklog(
  ports: Pick<BacklogPorts, 'sql' | 'lastEntry' | 'firstBehind' | 'now'>,
): Promise<Backlog> {
  const counts = await pendingCounts(ports.sql, COUNT_MAX);
  const places = await outboxPlaces(ports.sql, OUTBOXES_MAX);
  const waiting = await Promise.all(
    places.map(async (at) => {
      const last = await ports.lastEntry(at);
      if (last === undefined || last <= at.entry) return { entries: 0, ageMs: 0 };
      const first = await ports.firstBehind(at, at.cursor);
      // the time of an entry is the first half of its id
      const ageMs = first === undefined ? 0 : Math.max(0, ports.now() - Number(first.split('-')[0]));
      return { entries: last - at.entry, ageMs };
    }),
  );
  return {
    entries: waiting.reduce((sum, one) => sum + one.entries, 0),
    oldestSeconds: waiting.reduce((most, one) => Math.max(most, one.ageMs), 0) / 1_000,
    ...counts,
  };
}

/** Measures from `start` to `stop`. */
export class BacklogWatch {
  readonly #ports: BacklogPorts;
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;
  #reading: { readonly backlog: Backlog; readonly at: number } | undefined;

  constructor(ports: BacklogPorts) {
    this.#ports = ports;
  }

  /** The last reading, undefined where it is too old. */
  reading(): Backlog | undefined {
    if (this.#reading === undefined || this.#ports.clock.monotonic() - this.#reading.at > AGE_MS_MAX) return undefined;
    return this.#reading.backlog;
  }

  start(): void {
    this.#loop ??= this.#measure();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #measure(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        const at = this.#ports.clock.monotonic();
        this.#reading = { backlog: await measureBacklog(this.#ports), at };
      } catch (error) {
        this.#ports.report(error);
      }
      await this.#ports.timers.sleep(MEASURE_EVERY_MS, this.#stop.signal);
    }
  }
}
