/**
 * Puts the landing and the way back together: outbox to orders, what is refused goes back to the gate, and whoever waits
 * for a landing is told. Nothing is decided here.
 */
import type { ActivityMemory } from '../activity/3-announce/activity-memory.ts';
import { Fault } from '../domain/fault.ts';
import { GiveBacks } from '../order/3-give-back/give-back.ts';
import type { Clock, Random, Timers } from '../platform/clock.ts';
import type { Log } from '../platform/log.ts';
import type { Database } from '../platform/postgres/database.ts';
import { isHoldsOwnFault } from '../platform/postgres/sql-errors.ts';
import type { Keys } from '../platform/redis/keys.ts';
import type { RedisLink } from '../platform/redis/link.ts';
import type { GateScripts } from '../purchase/4-gate/gate-scripts.ts';
import { LandingWorker } from '../purchase/6-landing/landing-worker.ts';
import type { LandingPorts } from '../purchase/6-landing/landing.ts';
import { makeOutbox } from '../purchase/6-landing/outbox.ts';
import type { Step } from '../purchase/6-landing/place-orders.ts';
import type { Alarms } from '../watch/alarms.ts';
import type { Config } from './config.ts';
import type { wireWatch } from './wire-watch.ts';

/** Builds the landing of one process. Nothing runs before its parts' `start`. */
export function wireLanding(basis: {
  config: Config;
  log: Log;
  database: Database;
  clock: Clock;
  timers: Timers;
  random: Random;
  /** this process among all, for leases and the log */
  owner: string;
  link: RedisLink;
  keys: Keys;
  scripts: GateScripts;
  memory: ActivityMemory;
  alarms: Alarms;
  watch: ReturnType<typeof wireWatch>;
  /** tells whoever waits that these orders have moved */
  hint: (activityId: string, orderIds: readonly string[]) => void;
  /** a fault of the world is logged, anything else is a bug and raises an alarm */
  report: (what: string) => (error: unknown) => void;
  step: Step | undefined;
}) {
  const { config, log, database, clock, timers, random, owner, link, keys, scripts, memory, alarms, watch } = basis;
  const { hint, report } = basis;

  const giveBacks = new GiveBacks(database, scripts, timers, {
    deadLetterHoldSeconds: config.deadLetterHoldSeconds,
    hint(activityId, orderIds) {
      watch.givenBack(activityId, orderIds);
      hint(activityId, orderIds);
    },
    report: report('giving back'),
  });
  const landingPorts: LandingPorts = watch.landing({
    database,
    outbox: makeOutbox(link, keys),
    gate: scripts,
    clock,
    timers,
    random,
    giveBack: async (orderIdsToReturn) => {
      await giveBacks.carry(orderIdsToReturn);
    },
    hint,
    isHoldsOwnFault,
    step: basis.step ?? ((_name, work) => work()),
    limits: {
      idleMs: config.landingIdleMs,
      holdsMax: config.landingHoldsMax,
      triesMax: config.landingTriesMax,
      outboxKeepMs: config.outboxKeepSeconds * 1_000,
    },
    reports: {
      landed: (at, counted) => log.debug({ ...at, ...counted }, 'landed'),
      refused: (at, refusals) => {
        const strict = (memory.get(at.activityId)?.overshoot ?? 1) > 1;
        const drift = refusals.filter((one) => one.outcome === 'refused' && !(strict && one.reason === 'sold_out'));
        if (drift.length > 0) {
          alarms.raise(
            'landing_refused',
            { ...at, refused: drift.length, first: drift[0] },
            'PostgreSQL refused what the gate had sold: Redis is wrong about this activity',
          );
        }
      },
      deadLetters: (at, letters) => {
        for (const letter of letters) {
          alarms.raise(
            'dead_letter',
            { ...at, orderId: letter.hold.orderId, error: letter.error, tries: letter.tries },
            'a hold could not be placed and was set aside',
          );
        }
      },
      lost: (at, reason) => alarms.raise('run_lost', { ...at, reason }, 'entries of the outbox are lost: rebuild'),
      retrying: (at, error, waitMs) => {
        if (!(error instanceof Fault)) report('landing')(error);
        else {
          alarms.raise(
            'landing_retrying',
            { ...at, fault: error.code, sqlstate: error.sqlstate, cause: error.message, waitMs },
            'the landing meets faults and tries again',
          );
        }
      },
    },
  });
  const landing = new LandingWorker(landingPorts, {
    owner: `${owner} ${random.uuid()}`,
    leaseMs: config.landingLeaseSeconds * 1_000,
    report: report('looking for outboxes'),
  });

  return { giveBacks, landingPorts, landing };
}
