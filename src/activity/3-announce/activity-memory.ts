/**
 * The activities as every process keeps them in memory (article 1.5): no request waits for PostgreSQL, and a process that
 * has not heard of a change is corrected by the gate, which checks run, state and window itself.
 *
 * Read again every `refreshMs`; while PostgreSQL is away the last reading stands.
 */
import type { Activity } from '../../domain/activity.ts';
import type { Clock, Timers } from '../../platform/clock.ts';

/** Keeps activities in memory. */
export class ActivityMemory {
  readonly #load: () => Promise<Activity[]>;
  readonly #timers: Timers;
  readonly #clock: Clock;
  readonly #refreshMs: number;
  readonly #report: (error: unknown) => void;
  readonly #afterReading: () => void;
  readonly #stop = new AbortController();
  #byId: ReadonlyMap<string, Activity> = new Map();
  #readAt = Number.NEGATIVE_INFINITY;
  #loop: Promise<void> | undefined;
  #wake = new AbortController();

  constructor(ports: {
    load: () => Promise<Activity[]>;
    timers: Timers;
    clock: Clock;
    refreshMs: number;
    report: (error: unknown) => void;
    /** called after each reading, with what was read in place */
    afterReading: () => void;
  }) {
    this.#load = ports.load;
    this.#timers = ports.timers;
    this.#clock = ports.clock;
    this.#refreshMs = ports.refreshMs;
    this.#report = ports.report;
    this.#afterReading = ports.afterReading;
  }

  /** An activity that buyers can see, by id. */
  get(id: string): Activity | undefined {
    return this.#byId.get(id);
  }

  /** All of them, latest opening first. */
  all(): Activity[] {
    return [...this.#byId.values()];
  }

  /** Read at least once. */
  isReady(): boolean {
    return this.#readAt !== Number.NEGATIVE_INFINITY;
  }

  /** Milliseconds since the last reading. */
  ageMs(): number {
    return this.#clock.monotonic() - this.#readAt;
  }

  /** Reads all of them now. Throws faults of the database. */
  async refresh(): Promise<void> {
    const activities = await this.#load();
    this.#byId = new Map(activities.map((activity) => [activity.id, activity]));
    this.#readAt = this.#clock.monotonic();
    this.#afterReading();
  }

  /** Reads soon: the gate has told us that we are behind. */
  refreshSoon(): void {
    this.#wake.abort();
  }

  start(): void {
    this.#loop ??= this.#keepFresh();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#wake.abort();
    await this.#loop;
  }

  async #keepFresh(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.refresh();
      } catch (error) {
        this.#report(error);
      }
      // a hint may shorten the pause, but never below a tenth of it: a gate that is shut hints with every batch
      await this.#timers.sleep(this.#refreshMs / 10, this.#stop.signal);
      await this.#timers.sleep(this.#refreshMs * 0.9, this.#wake.signal);
      if (this.#wake.signal.aborted && !this.#stop.signal.aborted) this.#wake = new AbortController();
    }
  }
}
