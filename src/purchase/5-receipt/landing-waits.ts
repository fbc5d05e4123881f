/**
 * Whoever waits for a purchase to land: the strict reply (`answerWhen: ordered`) and the event streams.
 *
 * Hints of the landing wake waiters by order id. A hint is never relied upon: a waiter looks again by itself every
 * `LOOK_EVERY_MS`, and reads the truth in either case.
 */
import type { Timers } from '../../platform/clock.ts';

/** A waiter looks by itself this often, should a hint be lost. */
export const LOOK_EVERY_MS = 250;

/** Wakes waiters by order id. */
export class LandingWaits {
  readonly #timers: Timers;
  readonly #waiters = new Map<string, Set<() => void>>();

  constructor(timers: Timers) {
    this.#timers = timers;
  }

  /** Waiters now. */
  get size(): number {
    return this.#waiters.size;
  }

  /** Something happened to these orders. */
  hint(orderIds: readonly string[]): void {
    for (const orderId of orderIds) for (const wake of this.#waiters.get(orderId) ?? []) wake();
  }

  /** Everybody looks again: hints may have been lost. */
  hintAll(): void {
    for (const wakes of this.#waiters.values()) for (const wake of wakes) wake();
  }

  /** Resolves at the next hint for this order, after `maxMs`, or when `signal` aborts. */
  async next(orderId: string, maxMs: number, signal?: AbortSignal): Promise<void> {
    const stop = new AbortController();
    const wake = (): void => stop.abort();
    const wakes = this.#waiters.get(orderId) ?? new Set();
    wakes.add(wake);
    this.#waiters.set(orderId, wakes);
    signal?.addEventListener('abort', wake, { once: true });
    if (signal?.aborted) wake();
    await this.#timers.sleep(maxMs, stop.signal);
    signal?.removeEventListener('abort', wake);
    wakes.delete(wake);
    if (wakes.size === 0) this.#waiters.delete(orderId);
  }
}
