/**
 * A histogram cheap enough for the hot path: fixed bounds, one loop over a dozen numbers an observation, nothing
 * allocated. It becomes one of Prometheus when it is read (`metrics.ts`).
 */
import { assert } from '../domain/fault.ts';

/** Seconds from half a millisecond to five: a script at the gate, a batch of the landing. */
export const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5] as const;
/** Powers of two: sizes of batches. */
export const SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024] as const;

/** Counts observations by size. */
export class Histogram {
  /** upper bounds, inclusive, ascending; what is larger than the last counts in the total only */
  readonly bounds: readonly number[];
  readonly #counts: Float64Array;
  #count = 0;
  #sum = 0;

  constructor(bounds: readonly number[]) {
    assert(
      bounds.every((bound, i) => i === 0 || bound > bounds[i - 1]!),
      'bounds of a histogram ascend',
    );
    this.bounds = bounds;
    this.#counts = new Float64Array(bounds.length);
  }

  observe(value: number): void {
    this.#count += 1;
    this.#sum += value;
    for (let i = 0; i < this.bounds.length; i++) {
      if (value <= this.bounds[i]!) {
        this.#counts[i]! += 1;
        return;
      }
    }
  }

  /** Observations at or below each bound, all of them, and their sum. */
  read(): { upTo: number[]; count: number; sum: number } {
    let sum = 0;
    return { upTo: Array.from(this.#counts, (count) => (sum += count)), count: this.#count, sum: this.#sum };
  }
}
