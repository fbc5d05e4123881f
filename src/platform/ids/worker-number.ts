/**
 * The life of one process's worker number: taken, renewed in the background, given up.
 *
 * ```
 *   start ──► none ──take──► held ──renew every ttl/3──► held … ──release──► given up
 *              ▲  │            │ ttl − margin since the last renewal was sent, by the own monotonic clock
 *              └──┘            ▼
 *        growing random     lapsed: stamps nothing; renewed if the number is still ours, else ──► none
 *        waits
 * ```
 *
 * Maintained invariant: an instant is stamped under a number only inside `floorMs <= instant < untilMs`, where `untilMs`
 * was stored in PostgreSQL before it was used and `floorMs` is what the holder before had stored. Two holders of a number,
 * one after another or (one of them frozen and unaware) at once, therefore never share an instant, whatever their wall
 * clocks, their monotonic clocks and the database's clock say. The lease itself only avoids waste.
 *
 * Limits: a database that loses acknowledged commits forgets `untilMs` with them. A wall clock that runs far ahead takes
 * its number's floor along; the number is usable again when the clocks get there, and takers prefer others until then.
 */
import { assert, Fault } from '../../domain/fault.ts';
import type { Clock, Random, Timers } from '../clock.ts';
import type { Log } from '../log.ts';
import type { Stamper, StampRefusal } from './order-ids.ts';
import type { WorkerNumbers } from './worker-numbers-table.ts';

/** How long a number stays ours without a renewal; also how far ahead of the clock instants are reserved. */
export const LEASE_TTL_MS = 30_000;
/** How long before the lease can lapse ids end: covers the drift of two clocks over one ttl, many times over. */
export const LEASE_MARGIN_MS = 5_000;

const RETRY_MS_MIN = 100;
const RETRY_MS_MAX = 5_000;
/** A number whose last instant is this far behind the own clock will not be in the way of a small step back. */
const SAFELY_PAST_MS = 1_000;

/** What a worker number is made of. */
export type WorkerNumberOptions = {
  readonly numbers: WorkerNumbers;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly log: Log;
  /** names the process to people who read the table, such as `api@host:pid`; made unique by a random part */
  readonly ownerName: string;
  /** @defaultValue LEASE_TTL_MS */
  readonly leaseTtlMs?: number;
  /** @defaultValue LEASE_MARGIN_MS */
  readonly leaseMarginMs?: number;
};

type Holding = {
  readonly number: number;
  readonly floorMs: number;
  untilMs: number;
  /** by the monotonic clock: from here on nothing is stamped */
  lapsesAtMs: number;
  /** first instant that has not been stamped; never below `floorMs` */
  unusedFromMs: number;
};

/** One process's worker number. */
export class WorkerNumber implements Stamper {
  readonly #options: WorkerNumberOptions;
  readonly #ttlMs: number;
  readonly #marginMs: number;
  readonly #owner: string;
  #holding: Holding | undefined;
  #life: Promise<void> | undefined;
  #stopping = false;
  /** instants beyond `untilMs` were asked for since the last attempt began */
  #wantsMore = false;
  /** ends the wait for the next renewal; undefined while attempting and while waiting after a failure */
  #endRest: (() => void) | undefined;
  #endRetryWait: (() => void) | undefined;

  constructor(options: WorkerNumberOptions) {
    this.#options = options;
    this.#ttlMs = options.leaseTtlMs ?? LEASE_TTL_MS;
    this.#marginMs = options.leaseMarginMs ?? LEASE_MARGIN_MS;
    assert(
      this.#marginMs > 0 && this.#ttlMs / 3 + this.#marginMs < this.#ttlMs,
      'a lease is renewed before its margin begins',
    );
    this.#owner = `${options.ownerName} ${options.random.uuid()}`;
  }

  /**
   * Begins the number's life. Settles with the first attempt; the life goes on either way, so a caller that would
   * rather come up unready than not at all may ignore the fault.
   * @throws Fault `ids_unavailable` when no number is free, or the database's fault
   */
  start(): Promise<void> {
    assert(this.#life === undefined, 'a worker number is started once');
    const first = this.#attempt();
    this.#life = this.#live(first);
    return first;
  }

  /** Whether a number is held and its lease cannot have lapsed. */
  isReady(): boolean {
    return this.#holding !== undefined && this.#options.clock.monotonic() < this.#holding.lapsesAtMs;
  }

  /** Why `instantMs` may not be stamped now; undefined when it may. Asking for more than is reserved fetches more. */
  refusal(instantMs: number): StampRefusal | undefined {
    const holding = this.#holding;
    if (holding === undefined || this.#options.clock.monotonic() >= holding.lapsesAtMs) return 'not_held';
    if (instantMs < holding.floorMs) return 'too_early';
    if (instantMs >= holding.untilMs) {
      this.#wantsMore = true;
      this.#endRest?.();
      return 'too_late';
    }
    return undefined;
  }

  /** The number under which `instantMs` (epoch ms) may be stamped now; the instant then counts as used. */
  stamp(instantMs: number): number | StampRefusal {
    const refusal = this.refusal(instantMs);
    const holding = this.#holding;
    if (refusal !== undefined) return refusal;
    assert(holding !== undefined, 'an instant is granted only under a number');
    if (instantMs >= holding.unusedFromMs) holding.unusedFromMs = instantMs + 1;
    return holding.number;
  }

  /**
   * Stamps nothing from here on and gives the number up, so that the next process can have it at once. A database that
   * is away is logged, not thrown: the lease lapses by itself. Waits for an attempt under way, which the database's
   * own deadlines bound.
   */
  async release(): Promise<void> {
    this.#stopping = true;
    this.#endRest?.();
    this.#endRetryWait?.();
    await this.#life;
    const holding = this.#holding;
    // Before the statement is sent: an instant stamped after it could be the next holder's too.
    this.#holding = undefined;
    if (holding === undefined) return;
    const { number, unusedFromMs } = holding;
    try {
      await this.#options.numbers.giveUp({ number, owner: this.#owner, untilMs: unusedFromMs });
      this.#options.log.info({ number }, 'gave the worker number up');
    } catch (cause) {
      if (!(cause instanceof Fault)) throw cause;
      this.#options.log.warn({ number, err: cause }, 'could not give the worker number up; its lease will lapse');
    }
  }

  /** Attempt, wait, attempt … until released. Faults end here. */
  async #live(first: Promise<void>): Promise<void> {
    let attempt = first;
    let failures = 0;
    for (;;) {
      try {
        await attempt;
        failures = 0;
      } catch (cause) {
        failures += 1;
        this.#options.log.warn({ err: cause, failures, ready: this.isReady() }, 'no worker number, or none renewed');
      }
      if (!this.#stopping) await (failures === 0 ? this.#rest() : this.#waitForRetry(failures));
      if (this.#stopping) return;
      attempt = this.#attempt();
    }
  }

  /** Renews the number held, or takes one. */
  async #attempt(): Promise<void> {
    const { numbers, clock, log } = this.#options;
    const owner = this.#owner;
    const ttlMs = this.#ttlMs;
    this.#wantsMore = false;
    // Both clocks are read before the statement leaves: the database counts the ttl from a later moment, never earlier.
    const lapsesAt = (): number => clock.monotonic() + ttlMs - this.#marginMs;
    if (this.#holding !== undefined) {
      const holding = this.#holding;
      const lapsesAtMs = lapsesAt();
      const { number } = holding;
      const renewed = await numbers.renew({ number, owner, ttlMs, untilMs: this.#wantedUntilMs(holding) });
      if (renewed !== undefined) {
        holding.untilMs = renewed.untilMs;
        holding.lapsesAtMs = lapsesAtMs;
        return;
      }
      this.#holding = undefined;
      log.error({ number }, 'another process has taken the worker number, whose lease had lapsed; taking another');
    }
    const lapsesAtMs = lapsesAt();
    const pastMs = clock.now() - SAFELY_PAST_MS;
    const taken = await numbers.take({ owner, ttlMs, pastMs, untilMs: this.#wantedUntilMs() });
    if (taken === undefined)
      throw new Fault('ids_unavailable', 'take a worker number: none is free', { retryable: true });
    this.#holding = { ...taken, lapsesAtMs, unusedFromMs: taken.floorMs };
    log.info({ number: taken.number, floorMs: taken.floorMs }, 'took a worker number');
  }

  /** One ttl ahead: the reserve then lasts as long as the lease, unless the wall clock jumps (`too_late`). */
  #wantedUntilMs(holding?: Holding): number {
    return Math.max(this.#options.clock.now() + this.#ttlMs, holding?.untilMs ?? 0);
  }

  /** Until the next renewal, or until more instants are wanted. */
  async #rest(): Promise<void> {
    if (this.#wantsMore) return;
    const wake = new AbortController();
    this.#endRest = () => wake.abort();
    await this.#options.timers.sleep(this.#ttlMs / 3, wake.signal);
    this.#endRest = undefined;
  }

  /** Growing and random, so that a database coming back is not met by all processes at once. */
  async #waitForRetry(failures: number): Promise<void> {
    const { timers, random } = this.#options;
    const longestMs = Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** Math.min(failures, 10), this.#ttlMs / 3);
    const wake = new AbortController();
    this.#endRetryWait = () => wake.abort();
    await timers.sleep(longestMs * (0.5 + random.fraction() / 2), wake.signal);
    this.#endRetryWait = undefined;
  }
}
