/**
 * The worker's part: finds the outboxes that are not closed, takes the lease of each, and lands it.
 *
 * The lease only avoids waste; what makes landing safe is the cursor's compare-and-set (`landing.ts`). A lease that lapsed
 * without being given up tells the next owner that its predecessor may have been killed by what it was reading.
 */
import type { Clock, Random, Timers } from '../../platform/clock.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { releaseLease, renewLeases, takeLeases } from '../../platform/postgres/leases-table.ts';
import { Landing, type LandingPorts } from './landing.ts';
import { openOutboxes, type OpenOutbox } from './orders-table.ts';

type Running = {
  outbox: OpenOutbox;
  readonly token: string;
  readonly stop: AbortController;
  readonly ended: Promise<void>;
  renewedAt: number;
};

/** How often the worker looks for new outboxes, as part of the lease. */
const LOOKS_PER_LEASE = 5;
/** Pause of a landing whose activity is not on sale. */
const OFF_SALE_IDLE_MS = 500;

/** Lands every outbox that it can get the lease of. */
export class LandingWorker {
  readonly #database: Database;
  readonly #ports: LandingPorts;
  readonly #owner: string;
  readonly #leaseMs: number;
  readonly #report: (error: unknown) => void;
  readonly #timers: Timers;
  readonly #random: Random;
  readonly #clock: Clock;
  readonly #running = new Map<string, Running>();
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;

  constructor(ports: LandingPorts, options: { owner: string; leaseMs: number; report: (error: unknown) => void }) {
    this.#database = ports.database;
    this.#ports = ports;
    this.#owner = options.owner;
    this.#leaseMs = options.leaseMs;
    this.#report = options.report;
    this.#timers = ports.timers;
    this.#random = ports.random;
    this.#clock = ports.clock;
  }

  /** Outboxes landed by this worker now. */
  get outboxes(): number {
    return this.#running.size;
  }

  start(): void {
    this.#loop ??= this.#look();
  }

  /** Finishes the batches under way and gives the leases up in order. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    await Promise.all([...this.#running.keys()].map((name) => this.#end(name, true)));
  }

  async #look(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#lookOnce();
      } catch (error) {
        this.#report(error);
      }
      // Our own clock ends a lease that we could not renew: the next owner may be at work already.
      for (const [name, running] of this.#running) {
        if (this.#clock.monotonic() - running.renewedAt > this.#leaseMs) await this.#end(name, false);
      }
      const pauseMs = this.#leaseMs / LOOKS_PER_LEASE;
      await this.#timers.sleep(Math.min(1_000, pauseMs) * (0.75 + this.#random.fraction() / 2), this.#stop.signal);
    }
  }

  async #lookOnce(): Promise<void> {
    const open = new Map((await openOutboxes(this.#database)).map((outbox) => [leaseName(outbox), outbox]));
    const lease = { owner: this.#owner, ttlMs: this.#leaseMs };
    const askedAt = this.#clock.monotonic();

    for (const [name, running] of this.#running) {
      const outbox = open.get(name);
      if (outbox === undefined) await this.#end(name, true);
      else running.outbox = outbox;
    }
    const due = [...this.#running].filter(([, running]) => askedAt - running.renewedAt >= this.#leaseMs / 3);
    if (due.length > 0) {
      const held = await renewLeases(this.#database, {
        ...lease,
        leases: due.map(([name, { token }]) => ({ name, token })),
      });
      for (const [name, running] of due) {
        if (held.has(name)) running.renewedAt = askedAt;
        else await this.#end(name, false);
      }
    }
    const wanted = [...open.keys()].filter((name) => !this.#running.has(name));
    if (wanted.length === 0 || this.#stop.signal.aborted) return;
    const answers = await takeLeases(this.#database, { ...lease, names: wanted });
    for (const [name, answer] of answers) {
      if (answer.granted) this.#begin(name, open.get(name)!, answer.token, askedAt, !answer.clean);
    }
  }

  #begin(name: string, outbox: OpenOutbox, token: string, renewedAt: number, suspicious: boolean): void {
    const stop = new AbortController();
    const landing = new Landing(outbox, this.#ports, suspicious);
    const running: Running = {
      outbox,
      token,
      stop,
      renewedAt,
      ended: landing.run(stop.signal, () =>
        running.outbox.onSale ? this.#ports.limits.idleMs : Math.max(OFF_SALE_IDLE_MS, this.#ports.limits.idleMs),
      ),
    };
    this.#running.set(name, running);
  }

  async #end(name: string, clean: boolean): Promise<void> {
    const running = this.#running.get(name);
    if (running === undefined) return;
    this.#running.delete(name);
    running.stop.abort();
    await running.ended;
    try {
      if (clean) await releaseLease(this.#database, { name, token: running.token, owner: this.#owner, clean: true });
    } catch (error) {
      this.#report(error); // it lapses by itself
    }
  }
}

const leaseName = (at: OpenOutbox): string => `landing:${at.activityId}:${at.run}:${at.segment}`;
