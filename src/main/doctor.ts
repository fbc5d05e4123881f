/** Puts the doctor together: its own connections to the stores that the settings name, closed when it has looked. */
import { findActivity } from '../activity/1-plan/activities-table.ts';
import { Fault } from '../domain/fault.ts';
import { systemClock } from '../platform/clock.ts';
import type { Log } from '../platform/log.ts';
import type { Database } from '../platform/postgres/database.ts';
import { makeKeys } from '../platform/redis/keys.ts';
import { openRedis, type RedisLink } from '../platform/redis/link.ts';
import { makeGateScripts } from '../purchase/4-gate/gate-scripts.ts';
import { readAround } from '../watch/doctor/doctor-table.ts';
import { readPostgres, readRedis } from '../watch/doctor/examine.ts';
import {
  activityPoints,
  postgresPoints,
  redisPoints,
  settingsPoints,
  type ActivityReading,
  type Point,
  type SettingsReading,
} from '../watch/doctor/points.ts';
import type { Config } from './config.ts';
import { openDatabase } from './wire.ts';

const CONNECT_MS_MAX = 5_000;
const COMMAND_MS_MAX = 5_000;
/** A process of role all opens three: purchases, landing, hints. */
const REDIS_CONNECTIONS_PER_PROCESS = 3;

/** Looks at everything once. Throws Fault where a store cannot be reached or is not named. */
export async function examine(config: Config, log: Log, activityId: string | undefined): Promise<Point[]> {
  if (config.redisUrl === undefined || config.databaseUrl === undefined) {
    const missing = config.redisUrl === undefined ? 'REDIS_URL' : 'DATABASE_URL';
    throw new Fault('settings_invalid', `not set: ${missing}`, { retryable: false });
  }
  const database = openDatabase(config, log, undefined);
  const redis = openRedis({
    url: config.redisUrl,
    name: 'sluice-doctor',
    commandTimeoutMs: COMMAND_MS_MAX,
    connectTimeoutMs: CONNECT_MS_MAX,
    log,
  });
  try {
    await redis.whenReady(CONNECT_MS_MAX);
    const settings = settingsOf(config);
    return [
      ...settingsPoints(settings),
      ...redisPoints(await readRedis(redis, systemClock, config.keyPrefix), settings),
      ...postgresPoints(await readPostgres(database, systemClock), settings),
      ...(activityId === undefined ? [] : activityPoints(await readActivity(config, database, redis, activityId))),
    ];
  } finally {
    await redis.close();
    await database.close();
  }
}

const settingsOf = (config: Config): SettingsReading => ({
  // with several, one more lands
  processes: config.workers === 0 ? 1 : config.workers + 1,
  redisConnectionsPerProcess: REDIS_CONNECTIONS_PER_PROCESS,
  databasePoolMax: config.databasePoolMax,
  devIdentity: config.developmentIdentity,
  knowsBuyers: config.buyerSecrets.length > 0 || config.buyerJwksUrl !== undefined,
  signsReceipts: config.receiptSecrets.length > 0,
  hasOperators: config.operatorSecret !== undefined,
});

async function readActivity(
  config: Config,
  database: Database,
  redis: RedisLink,
  activityId: string,
): Promise<ActivityReading> {
  const activity = await findActivity(database, activityId);
  const around = await readAround(database, activityId);
  const scripts = makeGateScripts(redis, makeKeys(config.keyPrefix));
  const gate: { run: string; state: string; left: number | undefined }[] = [];
  const ends: number[] = [];
  for (let segment = 0; activity !== undefined && activity.shards > 0 && segment < activity.segments; segment++) {
    const { id, run, shards } = activity;
    // in this mode it reads and writes nothing
    const found = await scripts.preheat({ activityId: id, segment, run, shards }, 'compare', {
      ...activity,
      units: 0,
      expiresAt: 0,
    });
    if (found.kind === 'refused') {
      gate.push({ run: '', state: found.reason, left: undefined });
      continue;
    }
    const left = /^(0|[1-9][0-9]*)$/.test(found.stock) ? Number(found.stock) : undefined;
    gate.push({ run: found.run, state: found.state, left });
    ends.push(Number(found.lowestExpiry));
  }
  const keysEndAt = ends.length === 0 || ends.some((at) => !(at > 0)) ? undefined : Math.min(...ends);
  return { activity, gate, keysEndAt, ...around, now: activity?.readAt ?? systemClock.now() };
}
