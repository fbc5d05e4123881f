/**
 * `npm start`: a whole Sluice for trying out, in one process that needs nothing: PGlite as the database, a private Redis,
 * secrets of its own, and an activity that opens in seconds. With DATABASE_URL or REDIS_URL it uses those instead.
 */
import { join, resolve } from 'node:path';
import { Fault, must } from '../domain/fault.ts';
import { systemClock, systemRandom } from '../platform/clock.ts';
import { makeOperatorIdentity } from '../platform/identity/operators.ts';
import type { Log } from '../platform/log.ts';
import { openDataFolder } from '../platform/servers/data-folder.ts';
import { firstFreePort } from '../platform/servers/free-port.ts';
import { ensureRedis, thisHost } from '../platform/servers/install.ts';
import { launchRedis } from '../platform/servers/launch-redis.ts';
import type { RunningServer } from '../platform/servers/private-server.ts';
import type { Config } from './config.ts';
import { developmentSecrets } from './secrets.ts';
import type { Serving } from './serve.ts';
import { openDatabase, wire } from './wire.ts';

/** The try-out activity opens this long after the start. */
const OPENS_IN_MS = 5_000;
const SALE_MS = 2 * 3_600_000;
const OPERATOR_HOURS = 12;

/** Starts everything and says where it is. */
export async function start(settings: Config, log: Log, say: (line: string) => void): Promise<Serving> {
  const folder = await openDataFolder(resolve(settings.dataFolder));
  let redis: RunningServer | undefined;
  try {
    const secrets = developmentSecrets(folder.path, systemRandom);
    const operatorSecret = settings.operatorSecret ?? secrets.operatorSecret;
    const config: Config = {
      ...settings,
      buyerSecrets: settings.buyerSecrets.length > 0 ? settings.buyerSecrets : [secrets.buyerSecret],
      receiptSecrets: settings.receiptSecrets.length > 0 ? settings.receiptSecrets : [secrets.receiptSecret],
      operatorSecret,
    };
    if (config.redisUrl === undefined) {
      redis = await launchRedis({ bin: (await ensureRedis(thisHost())).path, folder: join(folder.path, 'redis') });
      folder.nameServer({ name: 'redis', pid: redis.pid });
    }
    if (config.databaseUrl === undefined) {
      say(
        'Database: PGlite inside this process, for trying out only (it does not sync to disk). Set DATABASE_URL for PostgreSQL.',
      );
    }
    const database = openDatabase(config, log, join(folder.path, 'pglite'));
    const wired = wire(config, {
      role: 'all',
      redisUrl: must(config.redisUrl ?? redis?.url, 'a Redis'),
      database,
      log,
    });
    const port = config.port === 0 ? 0 : await firstFreePort(config.port);
    const url = await wired.start({ host: config.host, port });
    const token = makeOperatorIdentity({ secrets: [operatorSecret], clock: systemClock }).issueOperatorToken({
      name: 'npm-start',
      role: 'approver',
      hours: OPERATOR_HOURS,
    });
    folder.writeRunFile({ url, token });
    const activityId = await openTrial(wired);

    say(`API:            ${url}`);
    say(`Operator token: ${token}`);
    say(`Activity:       ${activityId} (100 units, opens in ${OPENS_IN_MS / 1_000} seconds)`);
    if (config.developmentIdentity)
      say(`Buyers:         POST ${url}/api/v1/dev/login {"buyerId": "ann"} gives a token`);
    let stopped: Promise<void> | undefined;
    const stop = (): Promise<void> =>
      (stopped ??= (async () => {
        await wired.stop();
        await redis?.stop();
        folder.close();
      })());
    return { url, wired, stop };
  } catch (error) {
    await redis?.stop();
    folder.close();
    throw error;
  }
}

/** Plans, approves, preheats and confirms an activity that opens by itself. */
async function openTrial(wired: Serving['wired']): Promise<string> {
  const now = systemClock.now();
  const id = `try-${Math.floor(now / 1_000).toString(36)}`;
  const actor = 'npm-start';
  const planned = await wired.activities.plan(
    {
      id,
      itemName: '试用商品 Trial item',
      priceMinor: 9_900,
      currency: 'CNY',
      total: 100,
      perBuyerLimit: 2,
      opensAt: now + OPENS_IN_MS,
      endsAt: now + SALE_MS,
    },
    actor,
  );
  if (planned.kind === 'invalid')
    throw new Fault('not_ready', `plan the trial: ${planned.field} must ${planned.must}`, { retryable: false });
  await wired.activities.approve(id, actor);
  const report = await wired.activities.preheat(id);
  if (report.kind !== 'verified') {
    const failed = report.kind === 'failed' ? report.checks.filter((check) => !check.holds) : report;
    throw new Fault('not_ready', `preheat the trial: ${JSON.stringify(failed)}`, { retryable: false });
  }
  await wired.activities.confirm(id, actor);
  await wired.memory.refresh();
  return id;
}
