/**
 * What Redis' clock says now, as two bounds. Every reply of the gate carries Redis `TIME` and was under way between two
 * readings of our monotonic clock; from that follows an interval for the offset, and intersecting intervals narrows it.
 *
 * Promise: `earliest() ≤ Redis' time ≤ latest()`, as long as Redis' clock does not step between two samples; a step shows
 * at the next sample and starts the interval anew. It does not ask Redis itself: the gate and a ping feed it.
 */
import type { Clock } from '../../platform/clock.ts';

/** Two clocks that are not disciplined together drift by less than this. */
const DRIFT = 200e-6;

/** Tracks the offset between our monotonic clock and Redis' wall clock. */
export class RedisTime {
  readonly #clock: Clock;
  #low = 0;
  #high = 0;
  #at = Number.NaN;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A sample: Redis said `redisMs` (whole ms, cut) between two readings of `clock.monotonic()`. */
  learn(sample: { redisMs: number; sentAt: number; receivedAt: number }): void {
    const low = sample.redisMs - sample.receivedAt;
    // taken as early as `sentAt`, and since then the clocks may have drifted; `low` has that slack already
    const high = sample.redisMs + 1 - sample.sentAt + DRIFT * (sample.receivedAt - sample.sentAt);
    const drift = DRIFT * (sample.receivedAt - this.#at);
    // NaN before the first sample makes both comparisons false: the sample stands alone, as after a step of the clock
    const kept = this.#low - drift <= high && low <= this.#high + drift;
    this.#low = kept ? Math.max(this.#low - drift, low) : low;
    this.#high = kept ? Math.min(this.#high + drift, high) : high;
    this.#at = sample.receivedAt;
  }

  /** Milliseconds since the last sample; Infinity before the first. */
  ageMs(): number {
    return Number.isNaN(this.#at) ? Number.POSITIVE_INFINITY : this.#clock.monotonic() - this.#at;
  }

  /** Redis' time is not before this epoch ms; undefined before the first sample. */
  earliest(): number | undefined {
    if (Number.isNaN(this.#at)) return undefined;
    return this.#clock.monotonic() + this.#low - DRIFT * this.ageMs();
  }

  /** Redis' time is not after this epoch ms; undefined before the first sample. */
  latest(): number | undefined {
    if (Number.isNaN(this.#at)) return undefined;
    return this.#clock.monotonic() + this.#high + DRIFT * this.ageMs();
  }
}
