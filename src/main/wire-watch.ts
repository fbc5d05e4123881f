/**
 * Puts the watch together with what it watches: the parts report to plain counters here, and `over` says how each metric
 * is read from them. Nothing is decided here, and nothing waits for a metric.
 *
 * In the log: at `info` what ends or moves something (refusals by PostgreSQL, dead letters, give-backs, moves of an
 * activity), at `debug` each batch with its order ids, so that a hold, its landing and its end can be joined.
 */
import type { ActivityMemory } from '../activity/3-announce/activity-memory.ts';
import type { Activity } from '../domain/activity.ts';
import { Fault } from '../domain/fault.ts';
import { GATE_CODES, PURCHASE_CODES, type PurchaseCode } from '../domain/results.ts';
import type { Clock, Timers } from '../platform/clock.ts';
import type { HttpServer } from '../platform/http/server.ts';
import type { Log } from '../platform/log.ts';
import type { Database } from '../platform/postgres/database.ts';
import type { RedisLink } from '../platform/redis/link.ts';
import { VERSION } from '../platform/version.ts';
import type { Gate } from '../purchase/4-gate/gate.ts';
import type { GateScripts } from '../purchase/4-gate/gate-scripts.ts';
import type { LandingPorts, LandingReports } from '../purchase/6-landing/landing.ts';
import type { LandingWorker } from '../purchase/6-landing/landing-worker.ts';
import type { Alarms } from '../watch/alarms.ts';
import { BacklogWatch } from '../watch/backlog.ts';
import { EventLoopLag } from '../watch/event-loop.ts';
import { waitingFor, type Part } from '../watch/health-routes.ts';
import { Histogram, SECONDS, SIZES } from '../watch/histogram.ts';
import { Metrics, type MetricSnapshot, type Readings } from '../watch/metrics.ts';
import { metricsRoute } from '../watch/metrics-route.ts';
import { stateMoves } from '../watch/state-moves.ts';
import type { Config } from './config.ts';

/** Activities whose units are a series of their own. */
export const ACTIVITIES_SHOWN_MAX = 50;

/** Brings the readings of every process behind this address, this one's among them. */
export type Gather = (own: () => Promise<MetricSnapshot[]>) => Promise<readonly (readonly MetricSnapshot[])[]>;

const counters = <N extends string>(names: readonly N[]): Map<N, number> => new Map(names.map((name) => [name, 0]));
const add = <N extends string>(counts: Map<N, number>, name: N, more = 1): void => {
  counts.set(name, (counts.get(name) ?? 0) + more);
};

/** Makes the counters of one process. */
export function wireWatch(basis: { config: Config; log: Log; clock: Clock; timers: Timers; alarms: Alarms }) {
  const { config, log, clock, timers, alarms } = basis;
  const isLoud = config.logLevel === 'debug';
  const purchases = counters<PurchaseCode>(PURCHASE_CODES);
  const gateCalls = counters(['decided', 'not_ready', 'refused', 'unknown']);
  const gateBatch = new Histogram(SIZES.slice(0, 8));
  const gateSeconds = new Histogram(SECONDS);
  const landed = counters(['ordered', 'refused', 'known', 'dead_letter']);
  const landingSeconds = new Histogram(SECONDS);
  const landingHolds = new Histogram(SIZES);
  let landingFaults = 0;
  let givenBack = 0;
  const lag = new EventLoopLag(timers);

  return {
    purchases: purchases as ReadonlyMap<PurchaseCode, number>,
    /** the look for moves, to be called after each reading: on processes that land, so that each move is said once */
    movesOf: (activities: () => readonly Activity[]): (() => void) => stateMoves(activities, log),
    /** the longest delay of the event loop within the last second, in ms */
    lagMs: (): number => lag.lagMs(),

    /** counts an answer to a purchase */
    counted: (code: PurchaseCode): void => add(purchases, code),

    /** the scripts with their calls counted and timed */
    timed: (scripts: Pick<GateScripts, 'hold'>): Pick<GateScripts, 'hold'> => ({
      async hold(segment, candidates, notAfter) {
        gateBatch.observe(candidates.length);
        const sentAt = clock.monotonic();
        try {
          const reply = await scripts.hold(segment, candidates, notAfter);
          add(gateCalls, reply.kind);
          if (isLoud && reply.kind === 'decided') {
            const { activityId, run } = segment;
            const orderIds = candidates
              .filter((_, i) => reply.codes[i] === GATE_CODES.held)
              .map(({ orderId }) => orderId);
            log.debug({ activityId, run, purchases: candidates.length, left: reply.left, orderIds }, 'gate decided');
          }
          return reply;
        } catch (error) {
          add(gateCalls, error instanceof Fault && error.code === 'redis_refused' ? 'refused' : 'unknown');
          throw error;
        } finally {
          gateSeconds.observe((clock.monotonic() - sentAt) / 1_000);
        }
      },
    }),

    /** the landing's ports with its reports counted and written down before they go on */
    landing: (ports: LandingPorts): LandingPorts => ({
      ...ports,
      reports: watchLanding(ports.reports),
      hint(activityId, orderIds) {
        if (isLoud) log.debug({ activityId, orderIds }, 'holds landed');
        ports.hint(activityId, orderIds);
      },
    }),

    /** counts and says that units of these orders are back at the gate */
    givenBack(activityId: string, orderIds: readonly string[]): void {
      givenBack += orderIds.length;
      log.info({ activityId, orderIds }, 'given back');
    },

    /** what is watched, once all of it is there */
    over(parts: {
      sells: boolean;
      lands: boolean;
      server: HttpServer;
      database: Database;
      redis: Readonly<Record<string, RedisLink>>;
      gate: Gate;
      landing: LandingWorker;
      landingPorts: LandingPorts;
      memory: ActivityMemory;
      now: () => number;
      left: (activity: Activity) => number | undefined;
      health: readonly Part[];
      /** name of this process among several */
      process: string | undefined;
      gather: Gather | undefined;
      report: (error: unknown) => void;
    }) {
      const { sells, lands, server, database, redis, gate, landing, landingPorts, memory } = parts;
      const backlog = new BacklogWatch({
        sql: database,
        lastEntry: (at) => landingPorts.gate.readSeq(at),
        firstBehind: async (at, cursor) => (await landingPorts.outbox.read(at, cursor, 1))[0]?.id,
        now: parts.now,
        clock,
        timers,
        report: parts.report,
      });
      const basics: Readings = {
        build: () => new Map([[VERSION, 1]]),
        ready: () => (waitingFor(parts.health).length === 0 ? 1 : 0),
        alarms: () => alarms.counts(),
        lag: () => lag.seconds,
        httpRequests: () => server.stats().requests,
        httpConnections: () => server.stats().connections,
        httpReplies: () => server.stats().replies,
        databaseOpen: () => database.stats().open,
        databaseIdle: () => database.stats().idle,
        databaseWaiting: () => database.stats().waiting,
        redisReady: () => new Map(Object.entries(redis).map(([name, link]) => [name, link.isReady() ? 1 : 0] as const)),
      };
      const selling: Readings = {
        unitsLeft: () => unitsLeft(memory.all(), parts.left, parts.now()),
        purchases: () => purchases,
        gateCalls: () => gateCalls,
        gateBatch: () => gateBatch,
        gateSeconds: () => gateSeconds,
        gatePending: () => gate.pending,
      };
      const working: Readings = {
        landed: () => landed,
        landingSeconds: () => landingSeconds,
        landingHolds: () => landingHolds,
        landingFaults: () => landingFaults,
        outboxes: () => landing.outboxes,
        backlogEntries: () => backlog.reading()?.entries,
        backlogAge: () => backlog.reading()?.oldestSeconds,
        giveBacks: () => backlog.reading()?.giveBacks,
        deadLetters: () => backlog.reading()?.deadLetters,
        givenBack: () => givenBack,
      };
      const readings = { ...basics, ...(sells ? selling : {}), ...(lands ? working : {}) };
      const metrics = new Metrics(readings, { process: parts.process, withNode: true });
      const own = (): Promise<MetricSnapshot[]> => metrics.read();
      server.route([metricsRoute(async () => (await parts.gather?.(own)) ?? [await own()])]);

      return {
        read: own,
        start(): void {
          metrics.start();
          lag.start();
          if (!lands) return;
          backlog.start();
        },
        async stop(): Promise<void> {
          lag.stop();
          await backlog.stop();
        },
      };
    },
  };

  function watchLanding(reports: LandingReports): LandingReports {
    return {
      ...reports,
      landed(at, counts) {
        add(landed, 'ordered', counts.orders);
        add(landed, 'refused', counts.refused);
        add(landed, 'known', counts.known);
        landingSeconds.observe(counts.tookMs / 1_000);
        landingHolds.observe(counts.orders + counts.refused + counts.known);
        reports.landed(at, counts);
      },
      refused(at, refusals) {
        const { activityId, run } = at;
        const refused = refusals
          .filter((one) => one.outcome === 'refused')
          .map(({ orderId, reason }) => ({ orderId, reason }));
        log.info({ activityId, run, refused }, 'PostgreSQL refused holds');
        reports.refused(at, refusals);
      },
      deadLetters(at, letters) {
        add(landed, 'dead_letter', letters.length);
        const { activityId, run } = at;
        log.info({ activityId, run, orderIds: letters.map(({ hold }) => hold.orderId) }, 'holds set aside');
        reports.deadLetters(at, letters);
      },
      retrying(at, error, waitMs) {
        landingFaults += 1;
        reports.retrying(at, error, waitMs);
      },
    };
  }
}

/** Units left of the newest activities on sale: few enough to be series. */
export function unitsLeft(
  activities: readonly Activity[],
  left: (activity: Activity) => number | undefined,
  now: number,
): Map<string, number> {
  const onSale = activities.filter(({ run, opensAt, endsAt }) => run > 0 && opensAt <= now && now < endsAt);
  const newest = onSale.toSorted((a, b) => b.opensAt - a.opensAt).slice(0, ACTIVITIES_SHOWN_MAX);
  return new Map(newest.map((activity) => [activity.id, left(activity) ?? 0]));
}
