/**
 * Ports for the things that make a program hard to test: time, timers and randomness.
 * The only file that may read the host's clock (`test/tidy.test.ts` bans `Date.now` elsewhere).
 */
import { randomBytes, randomUUID } from 'node:crypto';

/** Two clocks: the wall clock names instants, the monotonic one measures spans and never steps. */
export interface Clock {
  /** epoch milliseconds by the host's clock */
  now(): number;
  /** milliseconds since an arbitrary start, with fractions; never steps back */
  monotonic(): number;
}

/** A timer that can be cancelled. */
export interface Timer {
  cancel(): void;
}

/** Timers only wake up a check; the check looks at the clock and re-arms them. */
export interface Timers {
  /** runs `work` once after `delayMs`; delays beyond `TIMER_MS_MAX` are cut to it: the check re-arms */
  after(delayMs: number, work: () => void): Timer;
  /** resolves after `delayMs`, at once when `signal` aborts */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
}

/** Randomness. */
export interface Random {
  /** a number in [0, 1) */
  fraction(): number;
  /** a random UUID */
  uuid(): string;
  /** `length` random bytes as base64url */
  token(length: number): string;
}

/** setTimeout beyond 2^31−1 ms fires at once; a day is far enough for any check. */
export const TIMER_MS_MAX = 86_400_000;

/** The host's clocks. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
};

/** The host's timers. */
export const systemTimers: Timers = {
  after(delayMs, work) {
    const handle = setTimeout(work, Math.min(Math.max(delayMs, 0), TIMER_MS_MAX));
    return { cancel: () => clearTimeout(handle) };
  },
  sleep(delayMs, signal) {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const done = (): void => {
        clearTimeout(handle);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const handle = setTimeout(done, Math.min(Math.max(delayMs, 0), TIMER_MS_MAX));
      signal?.addEventListener('abort', done, { once: true });
    });
  },
};

/** The host's randomness. */
export const systemRandom: Random = {
  fraction: () => Math.random(),
  uuid: () => randomUUID(),
  token: (length) => randomBytes(length).toString('base64url'),
};
