/**
 * Puts the operators' part together: the activity's walk as commands, verify, the scheduler, and the operator API over them.
 * Nothing is decided here.
 */
import { findActivity, listActivities } from '../activity/1-plan/activities-table.ts';
import type { ActivityPlan, Planned } from '../activity/1-plan/plan.ts';
import { confirmPreheat, preheat, type PreheatReport } from '../activity/2-preheat/preheat.ts';
import { retireWithdrawn, withdrawPreheat, type WithdrawPorts } from '../activity/2-preheat/withdraw.ts';
import type { ActivityMemory } from '../activity/3-announce/activity-memory.ts';
import type { GateChanges } from '../activity/3-announce/gate-changes.ts';
import { makeGateReader } from '../activity/4-verify/gate-reader.ts';
import { verify, type Verified } from '../activity/4-verify/verify.ts';
import { askToCleanNow } from '../activity/6-settle/cleanup-table.ts';
import { Cleanup, parseHours, quietHour } from '../activity/6-settle/cleanup.ts';
import { noteEnds } from '../activity/6-settle/settle.ts';
import { SCHEDULER, type LifecyclePorts } from '../activity/lifecycle.ts';
import { Scheduler } from '../activity/scheduler.ts';
import { activityConsoleRoutes } from '../console/activity-console-routes.ts';
import { makeActivityWalk, type WalkPorts } from '../console/activity-walk.ts';
import { liveNumbers } from '../console/live.ts';
import { operatorDoor } from '../console/operator-door.ts';
import { recordRoutes } from '../console/record-routes.ts';
import {
  findAudit,
  findDeadLetters,
  findOrders,
  giveBackDeadLetter,
  readLiveNumbers,
} from '../console/records-table.ts';
import type { ActivityRecord } from '../domain/activity.ts';
import { must } from '../domain/fault.ts';
import { isId } from '../domain/ids.ts';
import type { GiveBacks } from '../order/3-give-back/give-back.ts';
import type { Clock, Random, Timers } from '../platform/clock.ts';
import type { Route } from '../platform/http/server.ts';
import type { Log } from '../platform/log.ts';
import { makeOperatorIdentity } from '../platform/identity/operators.ts';
import { ORDER_ID_EPOCH_MS } from '../platform/ids/order-ids.ts';
import type { Database } from '../platform/postgres/database.ts';
import type { Keys } from '../platform/redis/keys.ts';
import type { RedisLink } from '../platform/redis/link.ts';
import type { GateScripts } from '../purchase/4-gate/gate-scripts.ts';
import type { RedisTime } from '../purchase/4-gate/redis-time.ts';
import { makeOutbox } from '../purchase/6-landing/outbox.ts';
import type { Alarms } from '../watch/alarms.ts';
import type { Config } from './config.ts';

/** Order ids begin with an instant: an activity's lie between its planning and its end, and this much for clocks. */
const ORDER_ID_MARGIN_MS = 86_400_000;
const orderIdFloor = (instantMs: number): bigint => {
  const ms = BigInt(Math.max(0, Math.floor(instantMs) - ORDER_ID_EPOCH_MS));
  return ms << 22n;
};

/** Builds the operators' part of one process. */
export function wireConsole(basis: {
  config: Config;
  log: Log;
  database: Database;
  clock: Clock;
  timers: Timers;
  random: Random;
  /** names this process */
  owner: string;
  /** not the purchases' own where there is another: preheats and readings never stand before a purchase */
  link: RedisLink;
  keys: Keys;
  /** over `link` */
  scripts: GateScripts;
  gateChanges: GateChanges;
  giveBacks: GiveBacks;
  memory: ActivityMemory;
  redisTime: RedisTime;
  alarms: Alarms;
  report: (what: string) => (error: unknown) => void;
}) {
  const { config, log, database, clock, timers, random, memory, redisTime, alarms } = basis;
  const keyTtlAfterEndMs = config.keyTtlAfterEndSeconds * 1_000;
  const gate = makeGateReader(basis.link, basis.keys);
  const outbox = makeOutbox(basis.link, basis.keys);

  const find = (id: string): Promise<ActivityRecord | undefined> =>
    isId(id) ? findActivity(database, id) : Promise.resolve(undefined);
  const lifecycle: LifecyclePorts = {
    database,
    find,
    // The database's clock, one for all processes; but never ahead of the gate's: nothing is called ended that still sells.
    now: (activity) => Math.min(activity.readAt, Math.floor(redisTime.earliest() ?? Number.POSITIVE_INFINITY)),
    selfApproval: config.selfApproval,
  };

  const underWay = new Map<string, Promise<Verified | undefined>>();
  /** Verifies; who asks while it is under way gets the same answer, so that a crowd of askers costs one reading. */
  function verifyOnce(id: string): Promise<Verified | undefined> {
    const present = underWay.get(id);
    if (present !== undefined) return present;
    const started = verify(
      { sql: database, gate, entries: (at, cursor, count) => outbox.read(at, cursor, count), timers },
      id,
    ).finally(() => underWay.delete(id));
    underWay.set(id, started);
    return started;
  }

  const preheatBy = (id: string, by?: { actor: string; reason?: string | undefined }): Promise<PreheatReport> =>
    preheat({ database, gate: basis.scripts, clock, keyTtlAfterEndMs }, id, by);
  const withdrawPorts: WithdrawPorts = {
    database,
    gate: basis.scripts,
    wasSold: (activityId, run) =>
      alarms.raise(
        'gate_not_ready',
        { activityId, run, reason: 'withdrawn' },
        'units were sold under a preheat that was taken back',
      ),
  };
  const walkPorts: WalkPorts = {
    database,
    clock,
    timers,
    lifecycle,
    preheat: preheatBy,
    confirm: (id, by) => confirmPreheat(database, id, by.actor, by.reason),
    carry: (id) => basis.gateChanges.carry(id),
    withdraw: (activity, by) => withdrawPreheat(withdrawPorts, activity, by),
    gate,
    noteEnds: (id) => noteEnds({ gate }, database, id),
    // a verification that began before the sale came to rest is not this one's
    cleanNow: (id) => askToCleanNow(database, id),
    verify: (id) => verify({ sql: database, gate, entries: (at, cursor, n) => outbox.read(at, cursor, n), timers }, id),
    refresh: () => memory.refresh(),
    keyTtlAfterEndMs,
    report: basis.report('telling the gate'),
  };
  const walk = makeActivityWalk(walkPorts);
  const walkOfOne = makeActivityWalk({ ...walkPorts, lifecycle: { ...lifecycle, selfApproval: true } });

  const scheduler = new Scheduler({
    database,
    clock,
    timers,
    owner: `${basis.owner} ${random.uuid()}`,
    lifecycle,
    async preheat(id) {
      const report = await preheatBy(id, { actor: SCHEDULER });
      if (report.kind === 'refused') return undefined; // moved on meanwhile
      const wrong = report.checks.find((check) => !check.holds);
      return wrong === undefined ? undefined : `${wrong.name}: ${wrong.expected} expected, ${wrong.found} found`;
    },
    confirm: async (id) => (await walk.confirm(id, { actor: SCHEDULER })).kind === 'moved',
    announce: async (id) => {
      await walk.announce(id);
    },
    noteEnds: () => noteEnds({ gate }, database),
    retireWithdrawn: () => retireWithdrawn(withdrawPorts),
    alarm: (activityId, reason, detail) =>
      alarms.raise(
        'gate_not_ready',
        { activityId, reason, detail },
        reason === 'not_confirmed'
          ? 'the activity should be open and its preheat is not confirmed'
          : 'the preheat does not agree with the database',
      ),
    report: basis.report('keeping activities to the clock'),
  });

  const cleanup = new Cleanup({
    database,
    clock,
    timers,
    owner: `${basis.owner} ${random.uuid()}`,
    keysOf: (run) => basis.scripts.keysOf(run),
    remove: (keys) => basis.scripts.removeKeys(keys),
    isQuietHour: quietHour({
      ...must(parseHours(config.cleanupHours), 'the settings are checked'),
      zone: config.cleanupZone,
    }),
    progress: ({ activityId, run }, removed, of) => log.info({ activityId, run, removed, of }, 'keys removed'),
    report: basis.report('cleaning up'),
  });

  /** Orders of an activity are looked for where their ids can be. */
  async function orders(wanted: Parameters<typeof findOrders>[1]) {
    if (wanted.activityId === undefined || wanted.buyerId !== undefined) return findOrders(database, wanted);
    const activity = await find(wanted.activityId);
    if (activity === undefined) return [];
    const above = orderIdFloor(Math.max(activity.endsAt, activity.createdAt) + ORDER_ID_MARGIN_MS);
    const below = wanted.below === undefined || BigInt(wanted.below) > above ? String(above) : wanted.below;
    return findOrders(database, {
      ...wanted,
      from: String(orderIdFloor(activity.createdAt - ORDER_ID_MARGIN_MS)),
      below,
    });
  }

  function routes(): Route[] {
    if (config.operatorSecret === undefined) return []; // without a secret there are no operators
    const door = operatorDoor(makeOperatorIdentity({ secrets: [config.operatorSecret], clock }));
    return [
      ...activityConsoleRoutes({
        door,
        walk,
        find,
        list: (page) => listActivities(database, page),
        verify: verifyOnce,
        live: (activity) =>
          liveNumbers(
            {
              readSegment: (at) => gate.readSegment(at),
              books: (id) => readLiveNumbers(database, id),
              now: lifecycle.now,
            },
            activity,
          ),
        now: lifecycle.now,
        newId: () => `act-${random.uuid().replaceAll('-', '').slice(0, 12)}`,
      }),
      ...recordRoutes({
        door,
        orders,
        deadLetters: (wanted) => findDeadLetters(database, wanted),
        async giveBack(letter) {
          if (!(await database.transaction((tx) => giveBackDeadLetter(tx, letter)))) return false;
          // the row is there: what does not reach the gate now is carried by the sweeper
          await basis.giveBacks.carry([letter.orderId]).catch(basis.report('giving back'));
          return true;
        },
        audit: (wanted) => findAudit(database, wanted),
      }),
    ];
  }

  return {
    walk,
    verify: verifyOnce,
    routes,

    /** what goes on by itself, on processes that land */
    start(): void {
      scheduler.start();
      cleanup.start();
    },
    async stop(): Promise<void> {
      await scheduler.stop();
      await cleanup.stop();
    },

    /** The walk as plain functions, for `npm start` and tests: whoever walks by them confirms by them too. */
    activities: {
      plan: (plan: ActivityPlan, actor: string): Promise<Planned> =>
        walk.create({ autoConfirm: false, ...plan }, actor),
      /** Approves whoever planned it. */
      approve: async (id: string, actor: string): Promise<boolean> =>
        (await walkOfOne.approve(id, { actor })).kind === 'moved',
      preheat: (id: string): Promise<PreheatReport> => preheatBy(id),
      /** Confirms a verified preheat and tells the gate; false where there was none to confirm. */
      confirm: async (id: string, actor: string): Promise<boolean> =>
        (await walk.confirm(id, { actor })).kind === 'moved',
      /** Pauses, resumes or ends; the reply waits for the gate. */
      change: async (id: string, action: 'pause' | 'resume' | 'end', actor: string): Promise<boolean> =>
        (await walk[action](id, { actor })).kind === 'moved',
      /** cleans up what is due; returns how many runs are done */
      cleanUp: (): Promise<number> => cleanup.cleanOnce(),
      find,
    },
  };
}
