/**
 * Carries what was decided in PostgreSQL to the gate: confirm, pause, resume, end, window, limit (design §9).
 *
 * The change itself is a row written by the deciding transaction; what is carried is always the present row of the
 * activity with its version, so changes that overtake each other, or are carried twice, end in the newest state (P21).
 */
import { Fault } from '../../domain/fault.ts';
import type { Clock, Timers } from '../../platform/clock.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { noteGateHas, pendingRules, type GateRules } from './gate-changes-table.ts';

/** What this stage needs of the gate. */
export type ChangeableGate = {
  change(
    segment: { activityId: string; segment: number; run: number; shards: number },
    change: {
      version: number;
      state: GateRules['state'];
      opensAt: number;
      endsAt: number;
      perBuyerLimit: number;
      expiresAt: number;
    },
  ): Promise<'done' | 'older' | 'other_run' | 'missing' | 'role' | 'past'>;
};

const CARRIED_MAX = 200;
const SWEEP_EVERY_MS = 500;

/** Carries changes, on request and by sweeping. */
export class GateChanges {
  readonly #ports: {
    readonly database: Database;
    readonly gate: ChangeableGate;
    readonly clock: Clock;
    readonly timers: Timers;
    readonly keyTtlAfterEndMs: number;
    readonly report: (error: unknown) => void;
  };
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;

  constructor(ports: {
    database: Database;
    gate: ChangeableGate;
    clock: Clock;
    timers: Timers;
    keyTtlAfterEndMs: number;
    report: (error: unknown) => void;
  }) {
    this.#ports = ports;
  }

  start(): void {
    this.#loop ??= this.#sweep();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  /** Carries pending changes; true where every segment of every one of them has its version now. */
  async carry(activityId?: string): Promise<boolean> {
    const rules = await pendingRules(this.#ports.database, {
      limit: CARRIED_MAX,
      ...(activityId === undefined ? {} : { activityId }),
    });
    let all = true;
    for (const one of rules) {
      const has = await this.#carryOne(one);
      if (has) await noteGateHas(this.#ports.database, one.activityId, one.version);
      all &&= has;
    }
    return all;
  }

  async #carryOne(rules: GateRules): Promise<boolean> {
    const expiresAt = Math.max(rules.endsAt, this.#ports.clock.now()) + this.#ports.keyTtlAfterEndMs;
    for (let segment = 0; segment < rules.segments; segment++) {
      try {
        const outcome = await this.#ports.gate.change({ ...rules, segment }, { ...rules, expiresAt });
        if (outcome !== 'done' && outcome !== 'older') return false; // a rebuild will bring the row's state with it
      } catch (error) {
        if (!(error instanceof Fault)) throw error;
        this.#ports.report(error);
        return false;
      }
    }
    return true;
  }

  async #sweep(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.carry();
      } catch (error) {
        this.#ports.report(error);
      }
      await this.#ports.timers.sleep(SWEEP_EVERY_MS, this.#stop.signal);
    }
  }
}
