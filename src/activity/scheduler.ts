/**
 * The clock's part of an activity's walk: preheat before the start, confirmation of what preheated by itself, opening and
 * ending at their instants (design §9).
 *
 * One process at a time holds the lease, which only avoids waste: every move is conditional, so two schedulers, or one that
 * slept, change nothing twice. It waits on no long timer: it looks at the absolute instants once a second at least, and
 * sooner where one is near, so a host that slept or whose clock was set is right again with the next look.
 *
 * The gate does not wait for it: it knows its window by itself. What is late here is what people read.
 */
import { stateAt, type ActivityRecord } from '../domain/activity.ts';
import { Fault } from '../domain/fault.ts';
import type { Clock, Timers } from '../platform/clock.ts';
import type { Database } from '../platform/postgres/database.ts';
import { releaseLease, renewLease, takeLease } from '../platform/postgres/leases-table.ts';
import { activitiesInSight, preheatWasBy } from './lifecycle-table.ts';
import { readUpToClock, SCHEDULER, type LifecyclePorts } from './lifecycle.ts';

/** What the scheduler does itself and what it has done. */
export type SchedulerPorts = {
  readonly database: Database;
  readonly clock: Clock;
  readonly timers: Timers;
  /** names the process */
  readonly owner: string;
  readonly lifecycle: LifecyclePorts;
  /** preheats; the first sentence of what is wrong, undefined where it verified or only compared */
  readonly preheat: (activityId: string) => Promise<string | undefined>;
  readonly confirm: (activityId: string) => Promise<boolean>;
  /** carries what was decided to the gate, and notes what an end needs */
  readonly announce: (activityId: string) => Promise<void>;
  /** notes where the outboxes of ended activities end */
  readonly noteEnds: () => Promise<void>;
  /** retires the gates of preheats that were taken back, where that was cut short */
  readonly retireWithdrawn: () => Promise<void>;
  readonly alarm: (activityId: string, reason: 'preheat_failed' | 'not_confirmed', detail: string) => void;
  readonly report: (error: unknown) => void;
};

/** Preheat begins this long before the opening. */
export const PREHEAT_LEAD_MS = 600_000;
const LOOK_EVERY_MS = 1_000;
const LOOK_SOONEST_MS = 10;
const LEASE_NAME = 'scheduler';
const LEASE_MS = 5_000;
const ACTIVITIES_MAX = 1_000;
/** One that came late is given this long to be preheated and confirmed before anybody is alarmed. */
const LATECOMER_MS = 5_000;
/** A preheat that the world did not let through is tried again after this long. */
const PREHEAT_AGAIN_MS = 2_000;

/** Runs the clock's moves. */
export class Scheduler {
  readonly #ports: SchedulerPorts;
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;
  #lease: { readonly token: string; readonly renewedAt: number } | undefined;
  /** by the monotonic clock: since when an activity is in sight, and when its preheat may be tried again */
  #inSight = new Map<string, { since: number; preheatAt: number }>();

  constructor(ports: SchedulerPorts) {
    this.#ports = ports;
  }

  start(): void {
    this.#loop ??= this.#look();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #look(): Promise<void> {
    const { timers, database, owner, report } = this.#ports;
    while (!this.#stop.signal.aborted) {
      let waitMs = LOOK_EVERY_MS;
      try {
        if (await this.#holdLease()) waitMs = await this.lookOnce();
      } catch (error) {
        report(error);
      }
      await timers.sleep(waitMs, this.#stop.signal);
    }
    if (this.#lease === undefined) return;
    const lease = { name: LEASE_NAME, owner, token: this.#lease.token, clean: true };
    await releaseLease(database, lease).catch(report); // it lapses by itself
  }

  async #holdLease(): Promise<boolean> {
    const { clock, database, owner } = this.#ports;
    const askedAt = clock.monotonic();
    const held = this.#lease;
    if (held !== undefined && askedAt - held.renewedAt < LEASE_MS / 3) return true;
    const lease = { name: LEASE_NAME, owner, ttlMs: LEASE_MS };
    if (held !== undefined && (await renewLease(database, { ...lease, token: held.token }))) {
      this.#lease = { token: held.token, renewedAt: askedAt };
      return true;
    }
    const answer = await takeLease(database, lease);
    this.#lease = answer.granted ? { token: answer.token, renewedAt: askedAt } : undefined;
    return answer.granted;
  }

  /** Does what is due now; returns how long to wait, in ms. A fault of one activity does not hold up the others. */
  async lookOnce(): Promise<number> {
    const { database, lifecycle, report, clock } = this.#ports;
    const ids = await activitiesInSight(database, PREHEAT_LEAD_MS, ACTIVITIES_MAX);
    const before = this.#inSight;
    this.#inSight = new Map(
      ids.map((id) => [id, before.get(id) ?? { since: clock.monotonic(), preheatAt: Number.NEGATIVE_INFINITY }]),
    );
    let waitMs = LOOK_EVERY_MS;
    for (const id of ids) {
      if (this.#stop.signal.aborted) break;
      try {
        const activity = await this.#bringUp(id);
        if (activity === undefined) continue;
        const now = lifecycle.now(activity);
        for (const instant of [activity.opensAt, activity.endsAt]) {
          if (instant > now) waitMs = Math.min(waitMs, instant - now);
        }
      } catch (error) {
        report(error);
      }
    }
    await this.#ports.noteEnds();
    await this.#ports.retireWithdrawn();
    return Math.max(LOOK_SOONEST_MS, waitMs);
  }

  async #bringUp(id: string): Promise<ActivityRecord | undefined> {
    const { lifecycle, announce } = this.#ports;
    const before = await lifecycle.find(id);
    let activity = await readUpToClock(lifecycle, id);
    if (activity === undefined || before === undefined) return undefined;
    if (activity.version !== before.version) await announce(id);
    if (activity.state !== 'scheduled' || activity.preheat === 'confirmed') return activity;

    await this.#preheat(activity);
    activity = await readUpToClock(lifecycle, id);
    if (activity !== undefined) this.#alarmUnlessConfirmed(activity);
    return activity;
  }

  async #preheat(activity: ActivityRecord): Promise<void> {
    const { database, clock, preheat, confirm, alarm } = this.#ports;
    const seen = this.#inSight.get(activity.id)!;
    // one that failed is for people to look at; one that was verified by hand is for people to confirm
    if (activity.preheat === 'failed' || clock.monotonic() < seen.preheatAt) return;
    if (activity.preheat === 'verified') {
      if (!activity.autoConfirm || !(await preheatWasBy(database, activity.id, SCHEDULER))) return;
    }
    seen.preheatAt = clock.monotonic() + PREHEAT_AGAIN_MS;
    try {
      const wrong = await preheat(activity.id);
      if (wrong !== undefined) alarm(activity.id, 'preheat_failed', wrong);
      else if (activity.autoConfirm) await confirm(activity.id);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.#ports.report(error); // the world's: tried again while there is time
    }
  }

  #alarmUnlessConfirmed(activity: ActivityRecord): void {
    const now = this.#ports.lifecycle.now(activity);
    if (activity.preheat === 'confirmed' || stateAt(activity, now) !== 'scheduled' || now < activity.opensAt) return;
    const seen = this.#inSight.get(activity.id);
    if (seen === undefined || this.#ports.clock.monotonic() - seen.since < LATECOMER_MS) return;
    this.#ports.alarm(activity.id, 'not_confirmed', activity.preheat);
  }
}
