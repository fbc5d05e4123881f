/**
 * One connection to Redis for scripts and commands: the only user of ioredis besides `hints.ts`.
 *
 * Promises
 * - A call is given to a socket at most once. Nothing is queued while there is no connection, nothing is sent again
 *   after a cut, no retry happens inside the client but those that a redirect of the cluster proves harmless.
 * - Every call settles. A call sent at once has `commandTimeoutMs`. Calls of one turn go out together, and those that
 *   arrive while such a bundle is out wait for it (ioredis has one bundle in flight), so a call behind a server that
 *   fell silent settles within twice that.
 * - Every failure is a `Fault`: `redis_refused` proves that nothing ran, `redis_unknown` does not (`refusals.ts`).
 *
 * Does not promise that a call answered `redis_unknown` stays undone: it may run as late as its bytes arrive. Scripts
 * carry their own `notAfter` and are safe to repeat.
 *
 * @source docs/decisions, "fail fast" and "few multiplexed connections"
 */
import { createHash } from 'node:crypto';
import { Cluster, Redis } from 'ioredis';
import type { RedisOptions } from 'ioredis';
import { systemClock, systemRandom, systemTimers } from '../clock.ts';
import type { Clock, Random, Timer, Timers } from '../clock.ts';
import type { Log } from '../log.ts';
import { connectionFaultLog, parseRedisUrl, RETRY_MS_MAX, retryDelayMs } from './connection.ts';
import { faultOf, isNoScript, isStaleMap, NotConnected } from './refusals.ts';

/** A Lua script: its name for the log, its text as sent. */
export type Script = { readonly name: string; readonly text: string };

/** What the stages see of Redis. Replies have the shapes of RESP2: text, numbers, null, arrays; HGETALL is an object. */
export type RedisLink = {
  /**
   * Runs a script by EVALSHA, and by EVAL after NOSCRIPT, which proves that nothing ran.
   * @throws Fault `redis_refused` | `redis_unknown`
   */
  run(script: Script, keys: readonly string[], args: readonly (string | number)[]): Promise<unknown>;
  /**
   * Runs one command, name first. Not for SUBSCRIBE, MULTI or SELECT, which change the connection that all share; and
   * what makes the server wait (WAIT, XREAD BLOCK) holds up all calls behind it: give it a link of its own.
   * @throws Fault `redis_refused` | `redis_unknown`
   */
  command(name: string, ...args: (string | number)[]): Promise<unknown>;
  /** connected and able to send now; in a cluster: to every primary that it knows */
  isReady(): boolean;
  /**
   * Resolves when ready.
   * @throws Fault `redis_refused` after `deadlineMs`, or when the link is closed
   */
  whenReady(deadlineMs: number): Promise<void>;
  /** Cuts the connection. What is in flight ends as `redis_unknown`: drain before. */
  close(): Promise<void>;
};

/** How to open a link. */
export type RedisLinkOptions = {
  /** see `parseRedisUrl` */
  url: string;
  /** shown by CLIENT LIST and in the log */
  name: string;
  /** from writing a call to giving up on its reply; above the BLOCK of any blocking read */
  commandTimeoutMs: number;
  connectTimeoutMs: number;
  log: Log;
  clock?: Clock;
  timers?: Timers;
  random?: Random;
};

/**
 * A socket with calls in flight that brought no byte for this many deadlines is cut and opened anew: a host that died
 * without a word would hold it open for many minutes. Several deadlines, so that a server that merely stalls is not met
 * by all its clients connecting at once.
 */
const SILENT_SOCKET_DEADLINES = 10;

/** Fetching the map of a cluster takes a fresh connection: not once for each of a thousand failed calls. */
const MAP_REFRESH_MS_MIN = 200;
const MAP_REFRESH_MS_MAX = 5_000;

/** Opens a link; connecting goes on in the background, see `whenReady`. */
export function openRedis(options: RedisLinkOptions): RedisLink {
  const { name, clock = systemClock, timers = systemTimers, random = systemRandom } = options;
  const waiting = new Set<() => void>();
  let closed = false;
  let lastFault: Error | undefined;

  const logFault = connectionFaultLog(options.log, name, clock);
  const onFault = (error: Error): void => {
    lastFault = error;
    if (!closed) logFault(error);
  };
  const onReady = (): void => {
    for (const look of waiting) look();
  };
  const client = makeClient(options, random, onFault, onReady);
  const cluster = client instanceof Cluster ? watchCluster(client, onReady, clock, timers) : undefined;

  const isReady = (): boolean => client.status === 'ready' && (cluster?.isComplete() ?? true);

  async function send(name: string, args: (string | number)[]): Promise<unknown> {
    // Our own proof that nothing is written; ioredis would hold a cluster's first calls until it knows the slots.
    if (closed || client.status !== 'ready') throw new NotConnected('not connected to Redis');
    return client.call(name, args);
  }

  function failed(error: unknown, attempted: string): never {
    if (isStaleMap(error)) cluster?.refreshMap();
    // ioredis hangs the call's arguments on the error: buyers' ids, by the thousand, on their way into a log.
    if (error instanceof Error && 'command' in error) delete error.command;
    throw faultOf(error, attempted);
  }

  return {
    async run(script, keys, args) {
      const tail = [keys.length, ...keys, ...args];
      try {
        return await send('evalsha', [shaOf(script), ...tail]);
      } catch (error) {
        if (!isNoScript(error)) return failed(error, `run script ${script.name}`);
      }
      try {
        return await send('eval', [script.text, ...tail]);
      } catch (error) {
        return failed(error, `run script ${script.name}`);
      }
    },

    async command(name, ...args) {
      try {
        // Lower case: ioredis knows its shapes and exceptions by that name.
        return await send(name.toLowerCase(), args);
      } catch (error) {
        return failed(error, `run ${name}`);
      }
    },

    isReady,

    whenReady(deadlineMs) {
      return new Promise((resolve, reject) => {
        const giveUp = (): void => {
          waiting.delete(look);
          const why = closed ? 'the link is closed' : `Redis was not ready within ${deadlineMs} ms`;
          reject(faultOf(new NotConnected(why, { cause: lastFault }), `wait for Redis (${name})`));
        };
        const timer = timers.after(deadlineMs, giveUp);
        const look = (): void => {
          if (!closed && !isReady()) return;
          timer.cancel();
          if (closed) return giveUp();
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
        look();
      });
    },

    async close() {
      if (closed) return;
      closed = true;
      for (const look of waiting) look();
      cluster?.stop();
      // While it waits to connect again there is no socket whose end would be told.
      const quiet = client.status === 'reconnecting' || client.status === 'end';
      const ended = quiet ? undefined : new Promise<void>((resolve) => client.once('end', () => resolve()));
      client.disconnect();
      await ended;
    },
  };
}

/** SHA-1 of each script's text, hex; a script is hashed once, not once a call. */
const shas = new WeakMap<Script, string>();

function shaOf(script: Script): string {
  let sha = shas.get(script);
  if (sha === undefined) {
    sha = createHash('sha1').update(script.text).digest('hex');
    shas.set(script, sha);
  }
  return sha;
}

/** Sees to what ioredis leaves undone in a cluster: fetching its map, and telling whether all of it can be reached. */
function watchCluster(client: Cluster, onMap: () => void, clock: Clock, timers: Timers) {
  let owners: ReadonlySet<string> = new Set();
  let refreshedAt = -Infinity;
  let timer: Timer | undefined;
  let stopped = false;

  /**
   * ioredis fetches the map when it follows a redirect itself. It does not when a bundle holds several slots of which
   * only some have moved, nor after a lost connection (retryDelayOnFailover 0), and it forgets the lost node.
   */
  function refreshMap(): void {
    if (timer !== undefined || stopped) return;
    timer = timers.after(refreshedAt + MAP_REFRESH_MS_MIN - clock.monotonic(), () => {
      timer = undefined;
      refreshedAt = clock.monotonic();
      client.refreshSlotsCache();
    });
  }

  client.on('-node', () => {
    if (client.status === 'ready') refreshMap();
  });
  client.on('refresh', () => {
    owners = new Set(client.slots.map(([owner]) => String(owner)));
    onMap();
  });

  return {
    refreshMap,
    /** connected to each primary that owns slots */
    isComplete(): boolean {
      const open = new Set<string>();
      for (const { options, status } of client.nodes('master')) {
        if (status === 'ready') open.add(`${options.host}:${options.port}`);
      }
      return owners.size > 0 && [...owners].every((owner) => open.has(owner));
    },
    stop(): void {
      stopped = true;
      timer?.cancel();
    },
  };
}

/** Makes the ioredis client. What each setting prevents is shown in `link.redis.test.ts` and `link-cluster.redis.test.ts`. */
function makeClient(
  options: RedisLinkOptions,
  random: Random,
  onFault: (error: Error) => void,
  onReady: () => void,
): Redis | Cluster {
  const place = parseRedisUrl(options.url);
  const retryStrategy = (attempt: number): number => retryDelayMs(attempt, random);
  const settings = {
    connectionName: options.name,
    // Default true: what was in flight when the connection broke is sent again, though it may have run.
    autoResendUnfulfilledCommands: false,
    // With the line above alone, calls in flight at a cut never settle (redis/ioredis#2193); this rejects them.
    maxRetriesPerRequest: 0,
    // Default true: calls made while disconnected run whenever the connection is back, long after their buyers left.
    enableOfflineQueue: false,
    commandTimeout: options.commandTimeoutMs,
    enableAutoPipelining: true,
    connectTimeout: options.connectTimeoutMs,
    // Half-closed by us and not closed by a peer that fell silent: do not wait longer than for a new connection.
    disconnectTimeout: options.connectTimeoutMs,
    socketTimeout: options.commandTimeoutMs * SILENT_SOCKET_DEADLINES,
    // A server that reads its files is asked again as late as it says that it will take, at most ten seconds by default.
    maxLoadingRetryTime: RETRY_MS_MAX,
    retryStrategy,
    ...(place.username === undefined ? {} : { username: place.username }),
    ...(place.password === undefined ? {} : { password: place.password }),
  } satisfies RedisOptions;

  if (place.kind !== 'cluster') {
    const redis =
      place.kind === 'single'
        ? new Redis({ ...settings, ...place.address, db: place.db, ...(place.tls ? { tls: {} } : {}) })
        : new Redis({
            ...settings,
            sentinels: place.sentinels,
            name: place.masterName,
            sentinelRetryStrategy: retryStrategy,
            sentinelCommandTimeout: options.connectTimeoutMs,
          });
    // Without a listener a connection fault would end the process.
    redis.on('error', onFault);
    redis.on('ready', onReady);
    return redis;
  }

  const cluster = new Cluster(place.nodes, {
    redisOptions: settings,
    enableOfflineQueue: false,
    enableAutoPipelining: true,
    // By default calls that already failed are sent again after a pause, executed seconds after their answer.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    retryDelayOnTryAgain: 0,
    // The check asks any one node, and starts all over when that one is still connecting. CLUSTERDOWN says the same a call.
    enableReadyCheck: false,
    clusterRetryStrategy: retryStrategy,
    slotsRefreshTimeout: options.connectTimeoutMs,
    slotsRefreshInterval: MAP_REFRESH_MS_MAX,
  });
  cluster.on('error', onFault);
  cluster.on('node error', onFault);
  cluster.on('ready', onReady);
  cluster.on('+node', (node: Redis) => {
    // ioredis gives every node of a cluster an offline queue whatever it is told, opens it at the first call, and sends
    // what waited there even after its deadline. So: no queue, and open before the first call.
    node.options.enableOfflineQueue = false;
    node.on('ready', onReady);
    node.connect().catch(() => undefined); // told by 'node error'
  });
  return cluster;
}
