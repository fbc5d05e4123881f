/**
 * Order ids: 64 bits, ordered by time, written as decimal strings (a JSON number cannot hold them).
 *
 * ```
 *  63 62                                        22 21          12 11            0
 * ┌──┬────────────────────────────────────────────┬──────────────┬───────────────┐
 * │0 │ 41 bits: ms since 2025-01-01T00:00:00Z     │ 10 bits:     │ 12 bits:      │
 * │  │ until 2094                                 │ worker number│ sequence      │
 * └──┴────────────────────────────────────────────┴──────────────┴───────────────┘
 * ```
 *
 * The sign bit stays 0, so the ids fit int8 and sort by time; time comes first so that inserts touch the end of the index.
 *
 * Promises: never a repeat, across processes, restarts and clocks that step (worker-number.ts keeps the instants of two
 * processes apart, this file those within one); ids of one process only grow. A clock that steps back is waited for up to
 * `clockWaitMsMax`, counted from the first id that was not to be had; from then on the process is not ready, and asks at
 * the gate fail at once, until the clock has caught up.
 * Does not promise order between processes beyond their clocks, nor ids without gaps.
 */
import { assert, Fault } from '../../domain/fault.ts';
import type { Clock, Timers } from '../clock.ts';

/** Instant 0 of the ids: 2025-01-01T00:00:00Z in epoch ms. */
export const ORDER_ID_EPOCH_MS = 1_735_689_600_000;
/** Ids of one process within one ms: 12 bits. */
export const ORDER_IDS_PER_MS = 4_096;
/** How long a clock that stepped back is waited for. */
export const CLOCK_WAIT_MS_MAX = 1_000;

/** Last instant that fits 41 bits. */
const INSTANT_MS_MAX = ORDER_ID_EPOCH_MS + 2 ** 41 - 1;
const WAIT_STEP_MS = 5;

/**
 * Why an instant may not be stamped: no number held, or its lease may have lapsed; before the number's first instant, or
 * the process's last; not yet reserved (or beyond 2094); all sequence numbers of this ms are used.
 */
export type StampRefusal = 'not_held' | 'too_early' | 'too_late' | 'used_up';

/** Port: grants instants under a worker number. */
export interface Stamper {
  /** the number under which `instantMs` (epoch ms) may be stamped now; the instant then counts as used */
  stamp(instantMs: number): number | StampRefusal;
  /** what `stamp` would refuse, using up nothing */
  refusal(instantMs: number): StampRefusal | undefined;
}

/** Draws order ids. One per process. */
export class OrderIds {
  readonly #worker: Stamper;
  readonly #clock: Clock;
  readonly #timers: Timers;
  readonly #clockWaitMsMax: number;
  /** the last instant stamped; the very first instant is never stamped, so that no id is "0" */
  #lastMs = ORDER_ID_EPOCH_MS;
  #number = -1;
  /** next sequence number of `#lastMs` under `#number` */
  #sequence = ORDER_IDS_PER_MS;
  /** `#lastMs` and `#number` in their places, sequence 0 */
  #base = 0n;
  /** by the monotonic clock: since when no id was to be had */
  #refusedSinceMs: number | undefined;
  #lastRefusal: StampRefusal | undefined;

  constructor(options: { worker: Stamper; clock: Clock; timers: Timers; clockWaitMsMax?: number }) {
    this.#worker = options.worker;
    this.#clock = options.clock;
    this.#timers = options.timers;
    this.#clockWaitMsMax = options.clockWaitMsMax ?? CLOCK_WAIT_MS_MAX;
  }

  /**
   * Draws ids at this very moment; all carry the same instant. The hot path: once per batch of purchases.
   * @param count 1 to ORDER_IDS_PER_MS
   * @returns undefined when there are none to be had now: `take` waits for them
   */
  tryTake(count: number): string[] | undefined {
    assert(Number.isInteger(count) && count >= 1 && count <= ORDER_IDS_PER_MS, 'a draw asks for 1 to 4096 order ids');
    const now = this.#clock.now();
    const number = this.#refusal(now, count) ?? this.#worker.stamp(now);
    if (typeof number === 'string') return this.#refused(number);
    if (now !== this.#lastMs || number !== this.#number) {
      // Another number in an instant already used: its ids could be smaller than those just drawn. Next ms.
      if (now === this.#lastMs) return this.#refused('used_up');
      this.#lastMs = now;
      this.#number = number;
      this.#sequence = 0;
      this.#base = (BigInt(now - ORDER_ID_EPOCH_MS) << 22n) | (BigInt(number) << 12n);
    }
    this.#refusedSinceMs = undefined;
    const first = this.#sequence;
    this.#sequence = first + count;
    const ids: string[] = [];
    for (let i = first; i < this.#sequence; i += 1) ids.push((this.#base + BigInt(i)).toString());
    return ids;
  }

  /**
   * Draws ids, waiting for the next ms, for a clock that stepped back, or for a worker number.
   * @param count 1 to ORDER_IDS_PER_MS
   * @throws Fault `ids_unavailable` when none were to be had for `clockWaitMsMax`; at once, if others have waited that long
   */
  async take(count: number): Promise<string[]> {
    for (;;) {
      const ids = this.tryTake(count);
      if (ids !== undefined) return ids;
      const leftMs = this.#clockWaitMsMax - this.#refusedForMs();
      if (leftMs <= 0) {
        throw new Fault('ids_unavailable', `draw order ids: ${REFUSAL_WORDS[this.#lastRefusal ?? 'not_held']}`, {
          retryable: true,
        });
      }
      await this.#timers.sleep(this.#lastRefusal === 'used_up' ? 1 : Math.min(WAIT_STEP_MS, leftMs));
    }
  }

  /** Whether ids are to be had: now, or, unless the worker number is missing, probably within `clockWaitMsMax`. */
  isReady(): boolean {
    const now = this.#clock.now();
    const refusal = this.#refusal(now, 1) ?? this.#worker.refusal(now);
    if (refusal === undefined) {
      this.#refusedSinceMs = undefined;
      return true;
    }
    return refusal !== 'not_held' && this.#refusedForMs() < this.#clockWaitMsMax;
  }

  /** What this process's own history refuses. */
  #refusal(now: number, count: number): StampRefusal | undefined {
    if (now < this.#lastMs) return 'too_early';
    if (now > INSTANT_MS_MAX) return 'too_late';
    if (now === this.#lastMs && this.#sequence + count > ORDER_IDS_PER_MS) return 'used_up';
    return undefined;
  }

  #refused(refusal: StampRefusal): undefined {
    this.#refusedForMs();
    this.#lastRefusal = refusal;
    return undefined;
  }

  /** ms for which no id was to be had; begins the count */
  #refusedForMs(): number {
    const nowMonotonic = this.#clock.monotonic();
    this.#refusedSinceMs ??= nowMonotonic;
    return nowMonotonic - this.#refusedSinceMs;
  }
}

const REFUSAL_WORDS: Record<StampRefusal, string> = {
  not_held: 'no worker number is held',
  too_early: 'the clock is behind the last id',
  too_late: 'the clock is ahead of the instants reserved',
  used_up: 'the clock stands still',
};
