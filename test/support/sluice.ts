/**
 * A whole Sluice for tests, built by the product's own composition root over the run's real Redis and PostgreSQL: own
 * database, own key prefix, own port. Nothing is mocked; single parts are stopped, cut or overridden by the tests.
 */
import { randomBytes } from 'node:crypto';
import { inject } from 'vitest';
import { loadConfig, type Config } from '../../src/main/config.ts';
import { wire, type Overrides, type Role, type Wired } from '../../src/main/wire.ts';
import type { ActivityPlan } from '../../src/activity/1-plan/plan.ts';
import type { Activity } from '../../src/domain/activity.ts';
import { issueDevelopmentToken } from '../../src/platform/identity/development.ts';
import { systemClock } from '../../src/platform/clock.ts';
import { makeLog, type Log } from '../../src/platform/log.ts';
import { openRedis, type RedisLink } from '../../src/platform/redis/link.ts';
import { makeKeys, type Keys } from '../../src/platform/redis/keys.ts';
import { createTestDatabase, openTestPool, type TestDatabase } from './test-database.ts';

/** Secret of the tests' buyers and receipts. */
export const TEST_SECRET = 'test-secret-test-secret-test-secret-0';
/** Secret of the tests' operators. */
export const TEST_OPERATOR_SECRET = 'test-operator-secret-test-operator-secret';

/** Settings of a test process; everything short. */
export function testConfig(databaseUrl: string, redisUrl: string, more: Readonly<Record<string, string>> = {}): Config {
  return loadConfig({
    environment: {
      DATABASE_URL: databaseUrl,
      REDIS_URL: redisUrl,
      SLUICE_PORT: '0',
      SLUICE_LOG: 'silent',
      SLUICE_BUYER_SECRETS: TEST_SECRET,
      SLUICE_RECEIPT_SECRETS: TEST_SECRET,
      SLUICE_OPERATOR_SECRET: TEST_OPERATOR_SECRET,
      SLUICE_DEV_IDENTITY: 'true',
      SLUICE_KEY_PREFIX: `t${randomBytes(4).toString('hex')}`,
      SLUICE_LANDING_LEASE_SECONDS: '1',
      SLUICE_ACTIVITY_REFRESH_MS: '100',
      SLUICE_LANDING_IDLE_MS: '2',
      SLUICE_RECEIPT_READS_PER_SECOND: '100000',
      ...more,
    },
  }).config;
}

/** A log that keeps its error lines: alarms are read from it. */
export type KeptLog = Log & {
  readonly lines: readonly { level: string; fields: Record<string, unknown>; sentence: string }[];
};

/** Makes a log that keeps warnings and errors. */
export function keptLog(): KeptLog {
  const lines: { level: string; fields: Record<string, unknown>; sentence: string }[] = [];
  const keep = (level: string) => (fields: object, sentence: string) => {
    lines.push({ level, fields: fields as Record<string, unknown>, sentence });
  };
  const log: KeptLog = {
    lines,
    debug: () => undefined,
    info: () => undefined,
    warn: keep('warn'),
    error: keep('error'),
    child: () => log,
  };
  return log;
}

/** A running test Sluice. */
export type TestSluice = {
  readonly wired: Wired;
  readonly config: Config;
  readonly url: string;
  readonly log: KeptLog;
  readonly keys: Keys;
  /** a Redis connection of the test's own, straight to the server */
  readonly redis: RedisLink;
  readonly database: TestDatabase;
  /** names of alarms raised so far */
  alarms(): string[];
  /** plans, approves, preheats, confirms; open since a second unless `plan` says otherwise */
  openActivity(plan?: Partial<ActivityPlan>): Promise<Activity>;
  stop(): Promise<void>;
};

/** Starts one. `redisUrl` may lead through a fault proxy; the test's own connection goes to `directRedisUrl`. */
export async function startSluice(
  options: {
    role?: Role;
    redisUrl?: string;
    directRedisUrl?: string;
    settings?: Readonly<Record<string, string>>;
    overrides?: Overrides;
    database?: TestDatabase;
  } = {},
): Promise<TestSluice> {
  const database = options.database ?? (await createTestDatabase());
  const redisUrl = options.redisUrl ?? inject('redisUrl');
  const config = testConfig(database.url, redisUrl, options.settings);
  const log = keptLog();
  const wired = wire(config, {
    role: options.role ?? 'all',
    redisUrl,
    database: openTestPool(database.url),
    log,
    ...(options.overrides === undefined ? {} : { overrides: options.overrides }),
  });
  const url = await wired.start({ host: '127.0.0.1', port: 0 });
  const redis = openRedis({
    url: options.directRedisUrl ?? redisUrl,
    name: 'test',
    commandTimeoutMs: 10_000,
    connectTimeoutMs: 2_000,
    log: makeLog('silent'),
  });
  await redis.whenReady(10_000);
  await until('the process is ready', async () => (await fetch(`${url}/readyz`)).status === 200);
  return {
    wired,
    config,
    url,
    log,
    redis,
    database,
    keys: makeKeys(config.keyPrefix),
    alarms: () =>
      log.lines.map((line) => line.fields['alarm']).filter((name): name is string => typeof name === 'string'),
    async openActivity(plan = {}) {
      // a test before may have cut connections: they come back by themselves, in their own time
      await until('the process is ready', async () => (await fetch(`${url}/readyz`)).status === 200);
      return openActivity(wired, plan);
    },
    async stop() {
      await wired.stop();
      await redis.close();
      if (options.database === undefined) await database.drop();
    },
  };
}

/** Plans, approves, preheats and confirms an activity; on sale since a second unless the plan says otherwise. */
export async function openActivity(wired: Wired, plan: Partial<ActivityPlan> = {}): Promise<Activity> {
  const now = systemClock.now();
  const id = plan.id ?? `act${randomBytes(4).toString('hex')}`;
  const planned = await wired.activities.plan(
    {
      id,
      itemName: '测试商品',
      priceMinor: 9_900,
      currency: 'CNY',
      total: 10,
      opensAt: now - 1_000,
      endsAt: now + 3_600_000,
      ...plan,
    },
    'test',
  );
  if (planned.kind !== 'planned') throw new Error(`not planned: ${JSON.stringify(planned)}`);
  await wired.activities.approve(id, 'test');
  const report = await wired.activities.preheat(id);
  if (report.kind !== 'verified') throw new Error(`not preheated: ${JSON.stringify(report)}`);
  await wired.activities.confirm(id, 'test');
  await wired.memory.refresh();
  return wired.memory.get(id)!;
}

/** A buyer's bearer token. */
export const tokenOf = (buyerId: string): string =>
  issueDevelopmentToken(buyerId, { secret: TEST_SECRET, clock: systemClock });

/** What a purchase was answered. */
export type Told = {
  readonly status: number;
  readonly code: string;
  readonly body: Record<string, unknown>;
  readonly headers: Headers;
};

/** One purchase over HTTP. */
export async function buy(
  url: string,
  activityId: string,
  buyerId: string,
  purchase: { key?: string; quantity?: unknown; language?: string } = {},
): Promise<Told> {
  const response = await fetch(`${url}/api/v1/activities/${activityId}/purchases`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${tokenOf(buyerId)}`,
      'idempotency-key': purchase.key ?? `key-${randomBytes(6).toString('hex')}`,
      'content-type': 'application/json',
      ...(purchase.language === undefined ? {} : { 'accept-language': purchase.language }),
    },
    body: JSON.stringify({ quantity: 'quantity' in purchase ? purchase.quantity : 1 }),
  });
  const body = (await response.json()) as Record<string, unknown>;
  return { status: response.status, code: String(body['code']), body, headers: response.headers };
}

/** A GET or POST by a buyer. */
export async function ask(url: string, path: string, buyerId?: string, init: RequestInit = {}): Promise<Told> {
  const response = await fetch(`${url}${path}`, {
    ...init,
    headers: {
      ...(buyerId === undefined ? {} : { authorization: `Bearer ${tokenOf(buyerId)}` }),
      ...(init.headers as Record<string, string> | undefined),
    },
  });
  const text = await response.text();
  const body = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>;
  return { status: response.status, code: String(body['code'] ?? ''), body, headers: response.headers };
}

/** Waits until something holds, looking every few milliseconds; fails with `what` after the deadline. */
export async function until(what: string, holds: () => Promise<unknown> | unknown, deadlineMs = 20_000): Promise<void> {
  const end = systemClock.now() + deadlineMs;
  for (;;) {
    if (await holds()) return;
    if (systemClock.now() > end) throw new Error(`not within ${deadlineMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Units and orders as PostgreSQL has them. */
export async function books(
  database: TestDatabase,
  activityId: string,
): Promise<{
  total: number;
  sold: number;
  surplus: number;
  liveUnits: number;
  liveOrders: number;
  liveBuyers: number;
}> {
  const [row] = await database.database.query<Record<string, number>>(
    `select a.total, a.sold, a.surplus,
            (select coalesce(sum(quantity), 0)::int from orders o where o.activity_id = a.id and o.state in ('placed', 'paid')) as live_units,
            (select count(*)::int from orders o where o.activity_id = a.id and o.state in ('placed', 'paid')) as live_orders,
            (select count(distinct buyer_id)::int from orders o where o.activity_id = a.id and o.state in ('placed', 'paid')) as live_buyers
       from activities a where a.id = $1`,
    [activityId],
  );
  return {
    total: row!['total']!,
    sold: row!['sold']!,
    surplus: row!['surplus']!,
    liveUnits: row!['live_units']!,
    liveOrders: row!['live_orders']!,
    liveBuyers: row!['live_buyers']!,
  };
}

/** Whether every hold of an activity has landed, its mark has been told, and nothing is on its way back. */
export async function isQuiet(
  sluice: Pick<TestSluice, 'redis' | 'keys' | 'database'>,
  activity: Activity,
): Promise<boolean> {
  const meta = sluice.keys.meta({ activityId: activity.id, segment: 0 });
  const [seq, landed] = (await sluice.redis.command('HMGET', meta, 'seq', 'landed')) as string[];
  const [row] = await sluice.database.database.query<{ entry: string; pending: number }>(
    `select l.entry, (select count(*)::int from give_backs g where g.activity_id = l.activity_id and g.state = 'pending') as pending
       from landings l where l.activity_id = $1 and l.run = $2`,
    [activity.id, activity.run],
  );
  return row !== undefined && seq === row.entry && landed === row.entry && row.pending === 0;
}
