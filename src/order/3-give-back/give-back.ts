/**
 * Carries give-backs from PostgreSQL, where an order's end is decided, to the gate (design §6; article 3.5).
 *
 * Each row names an order id and the run in which its end was decided. The script works only on that run and only on the
 * open mark that names the order, so a repeat, two sweepers at once, or a crash between the two stores change nothing.
 */
import { CLOSED_STATUS, type Mark } from '../../domain/mark.ts';
import { Fault } from '../../domain/fault.ts';
import type { Timers } from '../../platform/clock.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { segmentOf } from '../../platform/redis/keys.ts';
import {
  endOldDeadLetters,
  markGiveBacksDone,
  pendingGiveBacks,
  postponeGiveBacks,
  type PendingGiveBack,
} from './give-backs-table.ts';

/** The gate's part, as this stage uses it. */
export type GiveBackGate = {
  giveBack(
    segment: { activityId: string; segment: number; run: number; shards: number },
    order: { buyerId: string; orderId: string; units: number; closedStatus: string; liveMark: Mark | undefined },
  ): Promise<'done' | 'nothing' | 'not_now'>;
};

/** Rows carried in one sweep: bounded, the rest follows in the next. */
const SWEEP_MAX = 500;
/** Pause between sweeps: a freed unit is on sale again within a second. */
const SWEEP_EVERY_MS = 250;

/** Carries give-backs, on request and by sweeping. */
export class GiveBacks {
  readonly #database: Database;
  readonly #gate: GiveBackGate;
  readonly #timers: Timers;
  readonly #options: {
    readonly deadLetterHoldSeconds: number;
    readonly hint: (activityId: string, orderIds: readonly string[]) => void;
    readonly report: (error: unknown) => void;
  };
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;

  constructor(
    database: Database,
    gate: GiveBackGate,
    timers: Timers,
    options: {
      deadLetterHoldSeconds: number;
      hint: (activityId: string, orderIds: readonly string[]) => void;
      report: (error: unknown) => void;
    },
  ) {
    this.#database = database;
    this.#gate = gate;
    this.#timers = timers;
    this.#options = options;
  }

  start(): void {
    this.#loop ??= this.#sweep();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  /** Carries what is due, or these orders only. Returns how many are through. Throws faults of the world. */
  async carry(orderIds?: readonly string[]): Promise<number> {
    const rows = await pendingGiveBacks(this.#database, {
      limit: SWEEP_MAX,
      ...(orderIds === undefined ? {} : { orderIds }),
    });
    // One pipeline: they are independent, and a refused crowd must not wait for as many round trips.
    const reached = await Promise.all(rows.map((row) => this.#carryOne(row)));
    const through = rows.filter((_, i) => reached[i]);
    const later = rows.filter((_, i) => !reached[i]);
    if (through.length > 0)
      await markGiveBacksDone(
        this.#database,
        through.map((row) => row.orderId),
      );
    if (later.length > 0)
      await postponeGiveBacks(
        this.#database,
        later.map((row) => row.orderId),
      );
    for (const row of through) this.#options.hint(row.activityId, [row.orderId]);
    return through.length;
  }

  /** Whether the gate has it now; unknown or refused: the row stays, and the script knows whether it ran. */
  async #carryOne(row: PendingGiveBack): Promise<boolean> {
    const segment = {
      activityId: row.activityId,
      segment: segmentOf(row.buyerId, row.segments),
      run: row.run,
      shards: row.shards,
    };
    const liveMark: Mark | undefined =
      row.live === undefined
        ? undefined
        : {
            orderId: row.live.orderId,
            quantity: row.live.quantity,
            run: row.live.run,
            status: row.live.paid ? 'p' : 'o',
            requestId: row.live.requestId,
          };
    try {
      const closedStatus = CLOSED_STATUS[row.reason];
      return (await this.#gate.giveBack(segment, { ...row, closedStatus, liveMark })) !== 'not_now';
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      return false;
    }
  }

  async #sweep(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await endOldDeadLetters(this.#database, this.#options.deadLetterHoldSeconds, SWEEP_MAX);
        await this.carry();
      } catch (error) {
        this.#options.report(error);
        await this.#timers.sleep(1_000, this.#stop.signal);
      }
      await this.#timers.sleep(SWEEP_EVERY_MS, this.#stop.signal);
    }
  }
}
