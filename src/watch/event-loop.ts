/**
 * Lag of the event loop: the longest delay within each second, by Node's own monitor, which costs the loop nothing.
 * The histogram of these seconds is for operators, `lagMs` for whoever must decide whether this process can take more.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Timer, Timers } from '../platform/clock.ts';
import { Histogram } from './histogram.ts';

/** The monitor looks this often; a delay is what a look came late by. */
const LOOK_EVERY_MS = 20;
/** The longest delay is taken once in this time. */
const WINDOW_MS = 1_000;
const BOUNDS_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5] as const;

/** Tells the longest time, in ms, between two looks since it was last asked. */
export type LongestGap = () => number;

/** Node's monitor as a `LongestGap`. */
function nodeMonitor(): LongestGap {
  const monitor = monitorEventLoopDelay({ resolution: LOOK_EVERY_MS });
  monitor.enable();
  return () => {
    const longestMs = monitor.max / 1e6;
    monitor.reset();
    return longestMs;
  };
}

/** Measures from `start` to `stop`. */
export class EventLoopLag {
  readonly #timers: Timers;
  readonly #longestGap: LongestGap;
  #lagMs = 0;
  #timer: Timer | undefined;
  /** one observation a second: its longest delay, in seconds */
  readonly seconds = new Histogram(BOUNDS_SECONDS);

  constructor(timers: Timers, longestGap: LongestGap = nodeMonitor()) {
    this.#timers = timers;
    this.#longestGap = longestGap;
  }

  /** The longest delay within the last whole second, in ms. */
  lagMs(): number {
    return this.#lagMs;
  }

  start(): void {
    this.#longestGap(); // what came before is not ours
    this.#arm();
  }

  stop(): void {
    this.#timer?.cancel();
  }

  #arm(): void {
    this.#timer = this.#timers.after(WINDOW_MS, () => {
      this.#lagMs = Math.max(0, this.#longestGap() - LOOK_EVERY_MS);
      this.seconds.observe(this.#lagMs / 1_000);
      this.#arm();
    });
  }
}
