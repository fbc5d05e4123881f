/**
 * The composition root: builds every part from the settings and hands each the ports it needs. The only file that knows
 * all rooms of the house; nothing is decided here.
 */
import { hostname } from 'node:os';
import { fileURLToPath } from 'node:url';
import { shownActivities } from '../activity/1-plan/activities-table.ts';
import { ActivityMemory } from '../activity/3-announce/activity-memory.ts';
import { GateChanges } from '../activity/3-announce/gate-changes.ts';
import type { Activity } from '../domain/activity.ts';
import { Fault } from '../domain/fault.ts';
import { findByOrderId, latestOrder } from '../order/orders-table.ts';
import { systemClock, systemRandom, systemTimers, type Clock } from '../platform/clock.ts';
import { makeHttpServer, type HttpServer } from '../platform/http/server.ts';
import { OrderIds } from '../platform/ids/order-ids.ts';
import { WorkerNumber } from '../platform/ids/worker-number.ts';
import { workerNumbersTable } from '../platform/ids/worker-numbers-table.ts';
import type { Log } from '../platform/log.ts';
import type { Database } from '../platform/postgres/database.ts';
import { openEmbedded } from '../platform/postgres/embedded.ts';
import { migrate } from '../platform/postgres/migrate.ts';
import { openPool } from '../platform/postgres/pool.ts';
import { openHints } from '../platform/redis/hints.ts';
import { makeKeys } from '../platform/redis/keys.ts';
import { openRedis } from '../platform/redis/link.ts';
import { Gate } from '../purchase/4-gate/gate.ts';
import { makeGateScripts } from '../purchase/4-gate/gate-scripts.ts';
import { RedisTime } from '../purchase/4-gate/redis-time.ts';
import { LandingWaits } from '../purchase/5-receipt/landing-waits.ts';
import { ReceiptSigner } from '../purchase/5-receipt/receipt-signature.ts';
import { ReadBudget, Receipts } from '../purchase/5-receipt/receipts.ts';
import type { Step } from '../purchase/6-landing/place-orders.ts';
import { Alarms } from '../watch/alarms.ts';
import { healthRoutes, waitingFor, type Part } from '../watch/health-routes.ts';
import type { Config } from './config.ts';
import { wireConsole } from './wire-console.ts';
import { doorRoutes } from './wire-door.ts';
import { wireLanding } from './wire-landing.ts';
import { wireWatch, type Gather } from './wire-watch.ts';

/** What a process does: answer buyers, land orders, or both. */
export type Role = 'api' | 'worker' | 'all';

/** Stand-ins that tests bring; production brings none. */
export type Overrides = {
  readonly clock?: Clock;
  /** called around each step of the landing; the crash matrix kills the process in it */
  readonly step?: Step;
};

/** This process's name among several on one address, and how it gets the metrics of all of them. */
export type Among = { readonly name: string; readonly gather: Gather };

/** The migrations, from sources and from the build alike. */
const MIGRATIONS = fileURLToPath(new URL('../../migrations', import.meta.url));
/** Redis' time is asked for when nothing else has told it for this long. */
const TIME_PING_MS = 1_000;
/** A database that neither answers nor refuses for this long is away. */
const DATABASE_SILENCE_MS_MAX = 5_000;
/** What the gate said of the units left is told to the page for this long, and then PostgreSQL's number. */
const LEFT_AGE_MS_MAX = 2_000;
/** Memory older than this is no longer trusted to be ready. */
const MEMORY_AGE_MS_MAX = 60_000;
/** A process that starts keeps its door shut until it can sell, but not for longer: then its door says what is amiss. */
const READY_WAIT_MS_MAX = 5_000;
/** What a request may take beyond the wait for its landing, before a door that closes cuts it off. */
const REQUEST_MS_MAX = 5_000;

/** Everything around one process's work. */
export type Wired = ReturnType<typeof wire>;

/** Opens the database that the settings name: PostgreSQL, or PGlite in the data folder. */
export function openDatabase(config: Config, log: Log, embeddedFolder: string | undefined): Database {
  if (config.databaseUrl === undefined) {
    if (embeddedFolder === undefined) {
      throw new Fault('settings_invalid', 'DATABASE_URL is needed here: only `npm start` brings its own database', {
        retryable: false,
      });
    }
    return openEmbedded({ folder: embeddedFolder, log });
  }
  return openPool({
    url: config.databaseUrl,
    applicationName: 'sluice',
    poolMax: config.databasePoolMax,
    acquireTimeoutMs: config.databaseAcquireTimeoutMs,
    statementTimeoutMs: config.databaseStatementTimeoutMs,
    lockTimeoutMs: config.databaseLockTimeoutMs,
    log,
    clock: systemClock,
    timers: systemTimers,
  });
}

/** Builds the parts of one process. Nothing runs before `start`. */
export function wire(
  config: Config,
  options: { role: Role; redisUrl: string; database: Database; log: Log; overrides?: Overrides; among?: Among },
) {
  const { role, redisUrl, database, log } = options;
  const clock = options.overrides?.clock ?? systemClock;
  const timers = systemTimers;
  const random = systemRandom;
  const owner = `${role}@${hostname()}:${process.pid}`;
  const alarms = new Alarms(log, clock);
  const keys = makeKeys(config.keyPrefix);
  const keyTtlAfterEndMs = config.keyTtlAfterEndSeconds * 1_000;
  const stop = new AbortController();
  const watch = wireWatch({ config, log, clock, timers, alarms });
  let leaving = false;

  const linkOptions = {
    url: redisUrl,
    commandTimeoutMs: config.gateTimeoutMs,
    connectTimeoutMs: config.connectTimeoutMs,
    log,
  };
  // The landing's reads and marks have a connection of their own: they never stand before a purchase.
  const gateLink = openRedis({ ...linkOptions, name: 'sluice-gate' });
  const landingLink =
    role === 'api' ? gateLink : openRedis({ ...linkOptions, commandTimeoutMs: 5_000, name: 'sluice-landing' });
  const scripts = makeGateScripts(gateLink, keys);
  const landingScripts = makeGateScripts(landingLink, keys);
  const redisTime = new RedisTime(clock);

  const report = (what: string) => (error: unknown) => {
    if (error instanceof Fault) log.warn({ fault: error.code, cause: error.message }, `${what}: will be tried again`);
    else alarms.raise('bug', { error: String(error), stack: (error as Error)?.stack }, `${what}: a bug`);
  };

  const worker = new WorkerNumber({
    numbers: workerNumbersTable(database),
    clock,
    timers,
    random,
    log,
    ownerName: owner,
    leaseTtlMs: config.workerNumberLeaseSeconds * 1_000,
    leaseMarginMs: (config.workerNumberLeaseSeconds * 1_000) / 6,
  });
  const orderIds = new OrderIds({ worker, clock, timers });

  const sayMoves = watch.movesOf(() => memory.all());
  const memory: ActivityMemory = new ActivityMemory({
    load: () => shownActivities(database),
    timers,
    clock,
    refreshMs: config.activityRefreshMs,
    report: report('reading activities'),
    afterReading: role === 'api' ? () => {} : sayMoves,
  });
  const leftByGate = new Map<string, { left: number; at: number }>();

  const gate = new Gate({
    scripts: watch.timed(scripts),
    ids: orderIds,
    time: redisTime,
    clock,
    onTurnEnd: setImmediate,
    limits: { batchMax: config.gateBatchMax, pendingMax: config.gatePendingMax, timeoutMs: config.gateTimeoutMs },
    reports: {
      notReady(activityId, reason) {
        if (memory.get(activityId)?.state === 'settled') return; // its keys are gone, as they should be
        memory.refreshSoon();
        // another run, or a script that started late, corrects itself; everything else needs eyes
        if (reason !== 'late') alarms.raise('gate_not_ready', { activityId, reason }, 'the gate is not ready');
      },
      broken(activityId, error) {
        alarms.raise('gate_broken', { activityId, error: String(error) }, 'the gate answered what it never should');
      },
      decided(activityId, codes, left) {
        leftByGate.set(activityId, { left, at: clock.monotonic() });
        if (codes.includes(-7)) {
          alarms.raise('gate_broken', { activityId }, 'a quantity reached the gate that the door should have refused');
        }
      },
    },
  });

  const waits = new LandingWaits(timers);
  const signer = new ReceiptSigner(config.receiptSecrets);
  const budget = new ReadBudget(clock, config.receiptReadsPerSecond);
  const receipts = new Receipts(
    {
      activity: (id) => memory.get(id),
      readMark: scripts.readMark,
      findByOrderId: (orderId, buyerId) => findByOrderId(database, orderId, buyerId),
      latestOrder: (activityId, buyerId) => latestOrder(database, activityId, buyerId),
    },
    signer,
    budget,
  );

  const hints = openHints({
    url: redisUrl,
    name: 'sluice-hints',
    channel: keys.hints(),
    log,
    onMessage: (text) => waits.hint(text.split(' ')),
    onReconnect: () => waits.hintAll(),
  });
  const hint = (_activityId: string, orderIds: readonly string[]): void => {
    for (let from = 0; from < orderIds.length; from += 200) hints.publish(orderIds.slice(from, from + 200).join(' '));
  };

  const { giveBacks, landingPorts, landing } = wireLanding({
    config,
    log,
    database,
    clock,
    timers,
    random,
    owner,
    link: landingLink,
    keys,
    scripts: landingScripts,
    memory,
    alarms,
    watch,
    hint,
    report,
    step: options.overrides?.step,
  });
  const gateChanges = new GateChanges({
    database,
    gate: landingScripts,
    clock,
    timers,
    keyTtlAfterEndMs,
    report: report('telling the gate'),
  });

  const operators = wireConsole({
    config,
    log,
    database,
    clock,
    timers,
    random,
    owner,
    link: landingLink,
    keys,
    scripts: landingScripts,
    gateChanges,
    giveBacks,
    memory,
    redisTime,
    alarms,
    report,
  });

  /** Redis' time for display: the middle of what we know, the host's clock before we know anything. */
  const now = (): number => {
    const earliest = redisTime.earliest();
    const latest = redisTime.latest();
    return earliest === undefined || latest === undefined ? clock.now() : (earliest + latest) / 2;
  };

  const onBug = (error: unknown): void =>
    alarms.raise('bug', { error: String(error), stack: (error as Error)?.stack }, 'a request met a bug');

  const parts: Part[] = [];
  const left = (activity: Activity): number | undefined => {
    if (activity.run === 0) return undefined;
    const heard = leftByGate.get(activity.id);
    // while PostgreSQL is away what it last said is older than anything that the gate has told us since
    const behind = memory.ageMs() > Math.max(LEFT_AGE_MS_MAX, 3 * config.activityRefreshMs);
    if (heard !== undefined && (behind || clock.monotonic() - heard.at < LEFT_AGE_MS_MAX)) return heard.left;
    return behind ? undefined : activity.total - activity.sold;
  };

  function routes(server: HttpServer): void {
    parts.push(
      { name: 'redis', isReady: () => gateLink.isReady() && landingLink.isReady() },
      {
        name: 'database',
        isReady: () =>
          memory.ageMs() < MEMORY_AGE_MS_MAX && clock.monotonic() - databaseAnsweredAt < DATABASE_SILENCE_MS_MAX,
      },
    );
    if (role !== 'worker') {
      parts.push({ name: 'redis time', isReady: () => redisTime.ageMs() < 10 * TIME_PING_MS });
      parts.push({ name: 'order ids', isReady: () => orderIds.isReady() });
      parts.push({ name: 'activities', isReady: () => memory.isReady() });
    }
    parts.push({ name: 'stopping', isReady: () => !leaving });
    server.route(healthRoutes(parts));
    if (role === 'worker') return;

    server.route(
      doorRoutes({
        config,
        database,
        clock,
        random,
        memory,
        redisTime,
        gate,
        scripts,
        receipts,
        waits,
        budget,
        counted: watch.counted,
        now,
        left,
        stopping: stop.signal,
        onBug,
      }),
    );
    server.route(operators.routes());
  }

  const server = makeHttpServer({
    bodyBytesMax: config.bodyBytesMax,
    random,
    timers,
    onBug,
  });
  routes(server);
  const watched = watch.over({
    sells: role !== 'worker',
    lands: role !== 'api',
    server,
    database,
    redis: role === 'api' ? { gate: gateLink } : { gate: gateLink, landing: landingLink },
    gate,
    landing,
    landingPorts,
    memory,
    now,
    left,
    health: parts,
    process: options.among?.name,
    gather: options.among?.gather,
    report: report('measuring the backlog'),
  });

  let databaseAnsweredAt = Number.NEGATIVE_INFINITY;
  let timeLoop: Promise<void> | undefined;
  async function keepTime(): Promise<void> {
    while (!stop.signal.aborted) {
      if (redisTime.ageMs() > TIME_PING_MS) {
        try {
          const sentAt = clock.monotonic();
          const redisMs = await scripts.time();
          redisTime.learn({ redisMs, sentAt, receivedAt: clock.monotonic() });
        } catch (error) {
          report('asking Redis for the time')(error);
        }
      }
      await timers.sleep(TIME_PING_MS, stop.signal);
    }
  }

  /** A loop of its own: a database that hangs must not keep us from Redis' time. */
  let databaseLoop: Promise<void> | undefined;
  async function watchDatabase(): Promise<void> {
    while (!stop.signal.aborted) {
      try {
        await database.query('select 1');
        databaseAnsweredAt = clock.monotonic();
      } catch (error) {
        databaseAnsweredAt = Number.NEGATIVE_INFINITY;
        report('asking PostgreSQL')(error);
      }
      await timers.sleep(TIME_PING_MS, stop.signal);
    }
  }

  /** Brings the tables up to date and takes the worker number; waits for a database that is not there yet. */
  async function waitForDatabase(): Promise<void> {
    let waitMs = 200;
    while (!stop.signal.aborted) {
      try {
        await migrate(database, MIGRATIONS, log);
        return;
      } catch (error) {
        if (!(error instanceof Fault) || !error.code.startsWith('database_') || error.code === 'database_refused')
          throw error;
        report('preparing the database')(error);
        await timers.sleep(waitMs * (0.5 + random.fraction()), stop.signal);
        waitMs = Math.min(5_000, waitMs * 2);
      }
    }
  }

  return {
    config,
    database,
    log,
    alarms,
    counts: watch.purchases,
    lagMs: watch.lagMs,
    metrics: watched.read,
    memory,
    scripts,
    gate,
    giveBacks,
    gateChanges,
    landing,
    landingPorts,
    receipts,
    redisTime,
    orderIds,

    /** Starts in dependency order; the door last. Returns the address. */
    async start(where: { host: string; port: number }): Promise<string> {
      await waitForDatabase();
      if (role !== 'worker') {
        await worker.start().catch(report('leasing a worker number'));
        memory.start();
      }
      timeLoop = keepTime();
      databaseLoop = watchDatabase();
      if (role !== 'api') {
        landing.start();
        giveBacks.start();
        gateChanges.start();
        operators.start();
        if (role === 'worker') memory.start(); // for what the landing needs to know about an activity
      }
      watched.start();
      const until = clock.monotonic() + READY_WAIT_MS_MAX;
      while (waitingFor(parts).length > 0 && clock.monotonic() < until) await timers.sleep(10, stop.signal);
      return server.listen(where);
    },

    /** Not ready from here: callers are asked to move on, and are served until `stop`. Safe to repeat. */
    leave(): void {
      leaving = true;
      server.leave();
    },

    /** Stops in reverse: unready, door, landing with its batch, connections. Safe to call once. */
    async stop(): Promise<void> {
      leaving = true;
      stop.abort();
      await server.close(config.landingWaitMs + REQUEST_MS_MAX);
      await watched.stop();
      await landing.stop();
      await giveBacks.stop();
      await operators.stop();
      await gateChanges.stop();
      await memory.stop();
      await timeLoop;
      await databaseLoop;
      await worker.release();
      await hints.close();
      await gateLink.close();
      if (landingLink !== gateLink) await landingLink.close();
      await database.close();
    },

    walk: operators.walk,
    verify: operators.verify,
    activities: operators.activities,
  };
}
