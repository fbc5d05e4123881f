/**
 * Alarms: what a person must know now, as one error line of the log with a stable `alarm` name. The same alarm of the same
 * activity is said at most once in `QUIET_MS`, with the number of times it was held back: a crowd must not fill a disk.
 */
import type { Clock } from '../platform/clock.ts';
import type { Log } from '../platform/log.ts';

/** Names of alarms (docs/telemetry.md). */
export type AlarmName =
  | 'gate_not_ready' // the gate looked at nothing: keys lost, another run, another server
  | 'gate_broken' // a bug, or a server that answers nonsense
  | 'run_lost' // something of a run was lost: a rebuild is needed
  | 'landing_refused' // PostgreSQL refused what the gate had sold: drift
  | 'landing_retrying' // the landing meets faults
  | 'dead_letter' // a hold was set aside
  | 'process_ended' // a process of `serve --workers` ended by itself
  | 'replacement_failed' // a process of `serve --workers` could not be replaced
  | 'bug'; // an assertion failed

/** All of them, so that each is a series from the start. */
const NAMES: Readonly<Record<AlarmName, true>> = {
  gate_not_ready: true,
  gate_broken: true,
  run_lost: true,
  landing_refused: true,
  landing_retrying: true,
  dead_letter: true,
  process_ended: true,
  replacement_failed: true,
  bug: true,
};

const QUIET_MS = 10_000;
/** Names kept apart; more would be a leak. */
const KEPT_MAX = 10_000;

/** Raises alarms. */
export class Alarms {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #said = new Map<string, { at: number; heldBack: number }>();
  readonly #counts = new Map<AlarmName, number>((Object.keys(NAMES) as AlarmName[]).map((name) => [name, 0]));

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** Times each alarm was raised, held back or not; 0 for those that never were. */
  counts(): ReadonlyMap<AlarmName, number> {
    return this.#counts;
  }

  raise(alarm: AlarmName, about: { activityId?: string } & Readonly<Record<string, unknown>>, sentence: string): void {
    this.#counts.set(alarm, (this.#counts.get(alarm) ?? 0) + 1);
    const key = `${alarm} ${about.activityId ?? ''}`;
    const now = this.#clock.monotonic();
    const before = this.#said.get(key);
    if (before !== undefined && now - before.at < QUIET_MS) {
      before.heldBack += 1;
      return;
    }
    if (this.#said.size >= KEPT_MAX) this.#said.clear();
    this.#said.set(key, { at: now, heldBack: 0 });
    this.#log.error({ alarm, ...about, heldBack: before?.heldBack ?? 0 }, sentence);
  }
}
