/**
 * What a demo runs on: Redis, PostgreSQL and server processes, all of them real.
 *
 * ```
 *            DATABASE_URL given        PostgreSQL found           neither
 * database   yours                     a throwaway cluster        PGlite, inside the one server
 * servers    N × serve --role api, 1 × serve --role worker        one, both roles
 * Redis      yours with REDIS_URL (a prefix of the demo's own), else a private one
 * ```
 *
 * Promises: everything started here ends by `close`, and with us, however we end; of what is not ours only rows of one
 * activity stay, in your database. Does not: run beside other Sluice processes on one database, whose workers would look
 * for the demo's keys under a prefix of their own.
 */
import { mkdirSync, mkdtempSync, openSync, closeSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Fault } from '../../domain/fault.ts';
import type { Clock, Random, Timers } from '../../platform/clock.ts';
import { makeLog } from '../../platform/log.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { openEmbedded } from '../../platform/postgres/embedded.ts';
import { openPool } from '../../platform/postgres/pool.ts';
import { makeKeys, type Keys } from '../../platform/redis/keys.ts';
import { openRedis, type RedisLink } from '../../platform/redis/link.ts';
import { findPostgres } from '../../platform/servers/binaries.ts';
import { freePrivatePort } from '../../platform/servers/free-port.ts';
import { ensureRedis, thisHost } from '../../platform/servers/install.ts';
import { launchPostgres, type RunningPostgres } from '../../platform/servers/launch-postgres.ts';
import { launchRedis } from '../../platform/servers/launch-redis.ts';
import { LOOPBACK, PORT_TRIES_MAX, type RunningServer } from '../../platform/servers/private-server.ts';
import { lastLines } from '../../platform/servers/run-command.ts';
import { startWatched, type WatchedProcess } from '../../platform/servers/watched-process.ts';
import { databaseVersion, sluiceConnections } from './ledger-table.ts';

/** What to set up. */
export type StageRequest = {
  /** API processes */
  readonly workers: number;
  readonly databaseUrl: string | undefined;
  readonly redisUrl: string | undefined;
  /** PGlite even where PostgreSQL is found */
  readonly embedded: boolean;
};

/** What setting up needs. */
export type StagePorts = {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** the command's own file, to be run again as a server */
  readonly program: string;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly tell: (line: string) => void;
};

/** What a demo runs on. */
export type Stage = {
  /** addresses of the API processes */
  readonly urls: readonly string[];
  readonly buyerSecret: string;
  readonly operatorSecret: string;
  readonly redis: RedisLink;
  readonly keys: Keys;
  /** in words */
  readonly redisName: string;
  readonly databaseName: string;
  /** whether the Redis outlives the demo: then its keys must be deleted */
  readonly sharesRedis: boolean;
  /** PostgreSQL, read beside the servers; undefined for PGlite, which one process owns at a time */
  readonly database: Database | undefined;
  /** the database without the servers: for PGlite it ends them first */
  databaseAlone(): Promise<Database>;
  /** for files of the demo; goes with it */
  readonly folder: string;
  /** alarms in the servers' logs so far, by name */
  alarms(): Record<string, number>;
  close(): Promise<void>;
};

const SERVER_READY_MS_MAX = 120_000;
const SERVER_GRACE_MS = 20_000;
const LOOK_AGAIN_MS = 50;
const REDIS_READY_MS_MAX = 10_000;

/**
 * Sets everything up.
 * @throws Fault where something cannot be had, with what was tried
 */
export async function setStage(request: StageRequest, ports: StagePorts): Promise<Stage> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-demo-'));
  const ends: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    // last started, first ended
    for (const end of ends.splice(0).toReversed()) await end();
    rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  };
  try {
    return await raise(request, ports, folder, ends, close);
  } catch (error) {
    await close();
    throw error;
  }
}

async function raise(
  request: StageRequest,
  ports: StagePorts,
  folder: string,
  ends: (() => Promise<void>)[],
  close: () => Promise<void>,
): Promise<Stage> {
  const { random, tell } = ports;
  const silent = makeLog('silent');

  let own: RunningServer | undefined;
  let redisName = 'your Redis (REDIS_URL)';
  if (request.redisUrl === undefined) {
    const binary = await ensureRedis(thisHost());
    own = await launchRedis({ bin: binary.path, folder: join(folder, 'redis'), temporary: true });
    ends.push(own.stop);
    redisName = `a private ${binary.product === 'valkey' ? 'Valkey' : 'Redis'} ${binary.version}`;
  }
  const redisUrl = request.redisUrl ?? own!.url;

  const postgres = await openPostgres(request, ports, ends);
  const embeddedFolder = join(folder, 'pglite');
  let database: Database | undefined;
  let databaseName = 'PGlite inside the one server process (no PostgreSQL was found)';
  if (postgres !== undefined) {
    database = openPool({
      url: postgres.url,
      applicationName: 'demo of sluice',
      poolMax: 2,
      acquireTimeoutMs: 10_000,
      statementTimeoutMs: 60_000,
      lockTimeoutMs: 10_000,
      log: silent,
      clock: ports.clock,
      timers: ports.timers,
    });
    ends.push(database.close);
    databaseName = `${postgres.name} ${await databaseVersion(database)}`;
    if (postgres.isYours && (await sluiceConnections(database)) > 0) {
      throw new Fault(
        'not_ready',
        'setting up the demo: other Sluice processes run on this database, and their workers would take its orders; ' +
          'stop them, or name another database by DATABASE_URL',
        { retryable: false },
      );
    }
  } else if (request.embedded) databaseName = 'PGlite inside the one server process (--embedded)';
  tell(`Database: ${databaseName}. Redis: ${redisName}.`);

  const keyPrefix = `demo${random.token(6).replaceAll(/[^A-Za-z0-9]/g, '0')}`;
  const secrets = { buyer: random.token(32), receipt: random.token(32), operator: random.token(32) };
  const env: NodeJS.ProcessEnv = {
    ...ownSettings(ports.environment),
    REDIS_URL: redisUrl,
    SLUICE_KEY_PREFIX: keyPrefix,
    SLUICE_BUYER_SECRETS: secrets.buyer,
    SLUICE_RECEIPT_SECRETS: secrets.receipt,
    SLUICE_OPERATOR_SECRET: secrets.operator,
    SLUICE_HOST: LOOPBACK,
    ...(postgres === undefined ? {} : { DATABASE_URL: postgres.url }),
  };
  const verbs: string[][] =
    postgres === undefined
      ? [['demo-server', '--data', embeddedFolder]]
      : [...Array.from({ length: request.workers }, () => ['serve', '--role', 'api']), ['serve', '--role', 'worker']];
  tell(`Starting ${verbs.length} server ${verbs.length === 1 ? 'process' : 'processes'} …`);
  mkdirSync(join(folder, 'logs'));
  const servers = await Promise.all(
    verbs.map((verb, i) => {
      const logFile = join(folder, 'logs', `server-${i}.log`);
      // so that the folder goes with us also when we are killed; PGlite's is read after its server has ended
      const removeFolder = postgres === undefined ? {} : { removeFolder: folder };
      return startServer({ verb, env, logFile, ...removeFolder }, ports, ends);
    }),
  );

  const redis = openRedis({
    url: redisUrl,
    name: 'demo',
    commandTimeoutMs: 10_000,
    connectTimeoutMs: 5_000,
    log: silent,
  });
  ends.push(redis.close);
  await redis.whenReady(REDIS_READY_MS_MAX);

  return {
    urls: servers.slice(0, postgres === undefined ? 1 : request.workers).map(({ url }) => url),
    buyerSecret: secrets.buyer,
    operatorSecret: secrets.operator,
    redis,
    keys: makeKeys(keyPrefix),
    redisName,
    databaseName,
    sharesRedis: own === undefined,
    database,
    async databaseAlone() {
      if (database !== undefined) return database;
      await Promise.all(servers.map(({ process }) => process.stop()));
      const alone = openEmbedded({ folder: embeddedFolder, log: silent });
      ends.push(alone.close);
      return alone;
    },
    folder,
    alarms: () => countAlarms(servers.map(({ logFile }) => logFile)),
    close,
  };
}

type FoundPostgres = { readonly url: string; readonly name: string; readonly isYours: boolean };

async function openPostgres(
  request: StageRequest,
  ports: StagePorts,
  ends: (() => Promise<void>)[],
): Promise<FoundPostgres | undefined> {
  if (request.embedded) return undefined;
  if (request.databaseUrl !== undefined) {
    return { url: request.databaseUrl, name: 'your PostgreSQL (DATABASE_URL)', isYours: true };
  }
  const binaries = await findPostgres({ ...ports.environment });
  if (binaries === undefined) return undefined;
  const running: RunningPostgres = await launchPostgres({ binFolder: binaries.folder });
  ends.push(running.stop);
  return { url: running.adminUrl, name: 'a throwaway PostgreSQL', isYours: false };
}

/** What the caller has set for Sluice, and what a program needs to run; nothing that would lead it elsewhere. */
function ownSettings(environment: StagePorts['environment']): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = {};
  for (const [name, value] of Object.entries(environment)) {
    const isOurs = name.startsWith('SLUICE_') || ['PATH', 'HOME', 'TMPDIR', 'TZ'].includes(name);
    if (isOurs && value !== undefined) env[name] = value;
  }
  delete env['SLUICE_PORT'];
  delete env['SLUICE_DATA'];
  return env;
}

type Server = { readonly url: string; readonly logFile: string; readonly process: WatchedProcess };

/** Starts one server and waits until it can serve; another port where ours was lost. */
async function startServer(
  server: { verb: readonly string[]; env: NodeJS.ProcessEnv; logFile: string; removeFolder?: string },
  ports: StagePorts,
  ends: (() => Promise<void>)[],
): Promise<Server> {
  const { logFile } = server;
  for (let tries = 1; ; tries++) {
    const port = await freePrivatePort(ports.random);
    const logFd = openSync(logFile, 'w', 0o600);
    const child = await startWatched({
      command: process.execPath,
      args: [...process.execArgv, ports.program, ...server.verb, '--port', String(port)],
      env: server.env,
      logFd,
      stopSignal: 'SIGTERM',
      graceMs: SERVER_GRACE_MS,
      ...(server.removeFolder === undefined ? {} : { removeFolder: server.removeFolder }),
      cwd: process.cwd(),
      timers: ports.timers,
    }).finally(() => closeSync(logFd));
    ends.push(child.stop);
    const url = `http://${LOOPBACK}:${port}`;
    if (await becomesReady(url, child, ports)) return { url, logFile, process: child };
    const log = readFileSync(logFile, 'utf8');
    if (!log.includes('EADDRINUSE') || tries === PORT_TRIES_MAX) {
      const why = child.end === undefined ? 'it does not become ready' : 'it ended';
      throw new Fault('not_ready', `starting sluice ${server.verb.join(' ')}: ${why}: ${lastLines(log)}`, {
        retryable: false,
      });
    }
  }
}

async function becomesReady(url: string, child: WatchedProcess, ports: StagePorts): Promise<boolean> {
  const until = ports.clock.monotonic() + SERVER_READY_MS_MAX;
  while (child.end === undefined && ports.clock.monotonic() < until) {
    const ready = await fetch(`${url}/readyz`).then(
      (response) => response.body?.cancel().then(() => response.status === 200),
      () => false,
    );
    if (ready === true) return true;
    await ports.timers.sleep(LOOK_AGAIN_MS);
  }
  return false;
}

function countAlarms(logFiles: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const file of logFiles) {
    for (const line of readFileSync(file, 'utf8').split('\n')) {
      if (!line.includes('"alarm"')) continue;
      try {
        const { alarm, heldBack } = JSON.parse(line) as { alarm?: unknown; heldBack?: unknown };
        if (typeof alarm === 'string') {
          counts[alarm] = (counts[alarm] ?? 0) + 1 + (typeof heldBack === 'number' ? heldBack : 0);
        }
      } catch {
        // half a line, still being written
      }
    }
  }
  return counts;
}
