/**
 * One channel of hints between processes, by Redis publish and subscribe.
 *
 * Promises nothing about delivery: a hint may be lost, late or doubled, and none is kept. It promises to say when some
 * may have been lost, and to notice a connection that fell silent. Who acts on hints must also be right without them.
 *
 * One connection of its own, apart from the link of the scripts, so that a flood of hints delays no purchase; under
 * RESP3 (every server we accept) it publishes and subscribes. In a cluster every node passes every message on, so a
 * plain connection to any node of the URL will do, and unlike ioredis' cluster client it tells when it was lost.
 */
import { Redis } from 'ioredis';
import { systemClock, systemRandom, systemTimers } from '../clock.ts';
import type { Clock, Random, Timer, Timers } from '../clock.ts';
import type { Log } from '../log.ts';
import { must } from '../../domain/fault.ts';
import { connectionFaultLog, parseRedisUrl, RETRY_MS_MAX, retryDelayMs } from './connection.ts';
import type { RedisPlace } from './connection.ts';

/** A channel of hints. */
export type Hints = {
  /** Sends a hint to all subscribers, this process too; dropped without a word while there is no connection. */
  publish(text: string): void;
  close(): Promise<void>;
};

/** How to open a channel of hints. */
export type HintsOptions = {
  /** see `parseRedisUrl`; the nodes of a cluster URL must be members of the cluster */
  url: string;
  /** shown by CLIENT LIST and in the log */
  name: string;
  channel: string;
  log: Log;
  /** called with each hint; what it throws is logged */
  onMessage: (text: string) => void;
  /** called whenever the channel has just been subscribed, the first time too: earlier hints may have been missed */
  onReconnect: () => void;
  /** a ping this often, answered within as long again, or the connection is opened anew (default 5,000) */
  heartbeatMs?: number;
  clock?: Clock;
  timers?: Timers;
  random?: Random;
};

const HEARTBEAT_MS = 5_000;
const CONNECT_TIMEOUT_MS = 2_000;

/** Opens a channel of hints; connecting goes on in the background. */
export function openHints(options: HintsOptions): Hints {
  const { name, channel, log, clock = systemClock, timers = systemTimers, random = systemRandom } = options;
  const heartbeatMs = options.heartbeatMs ?? HEARTBEAT_MS;
  const client = makeClient(options, heartbeatMs, random);
  let closed = false;

  const logFault = connectionFaultLog(log, name, clock);
  client.on('error', (error: Error) => {
    if (!closed) logFault(error);
  });
  client.on('message', (_channel: string, text: string) => guarded(() => options.onMessage(text)));
  // Our own subscription on every connection: ioredis restores only one that was confirmed before the cut.
  client.on('ready', () => {
    client.subscribe(channel).then(
      () => guarded(options.onReconnect),
      (error: Error) => {
        logFault(error);
        if (!closed) client.disconnect(true);
      },
    );
  });

  function guarded(work: () => void): void {
    if (closed) return;
    try {
      work();
    } catch (error) {
      log.error({ redis: name, channel, err: error }, 'a hint was not handled');
    }
  }

  let heartbeat: Timer = timers.after(heartbeatMs, beat);
  function beat(): void {
    if (client.status === 'ready') client.ping().catch(() => undefined); // a cut is told by 'error'
    heartbeat = timers.after(heartbeatMs, beat);
  }

  return {
    publish(text) {
      if (client.status === 'ready') client.publish(channel, text).catch(() => undefined); // best effort
    },
    async close() {
      if (closed) return;
      closed = true;
      heartbeat.cancel();
      const quiet = client.status === 'reconnecting' || client.status === 'end';
      const ended = quiet ? undefined : new Promise<void>((resolve) => client.once('end', () => resolve()));
      client.disconnect();
      await ended;
    },
  };
}

function makeClient(options: HintsOptions, heartbeatMs: number, random: Random): Redis {
  const place = parseRedisUrl(options.url);
  const retryStrategy = (attempt: number): number => {
    if (place.kind === 'cluster') Object.assign(client.options, nodeAt(place.nodes, attempt));
    return retryDelayMs(attempt, random);
  };
  const client = new Redis({
    connectionName: options.name,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    maxRetriesPerRequest: 0,
    commandTimeout: heartbeatMs,
    socketTimeout: heartbeatMs,
    connectTimeout: CONNECT_TIMEOUT_MS,
    disconnectTimeout: CONNECT_TIMEOUT_MS,
    maxLoadingRetryTime: RETRY_MS_MAX,
    retryStrategy,
    ...(place.username === undefined ? {} : { username: place.username }),
    ...(place.password === undefined ? {} : { password: place.password }),
    ...target(place, retryStrategy),
  });
  return client;
}

function target(place: RedisPlace, retryStrategy: (attempt: number) => number) {
  switch (place.kind) {
    case 'single':
      return { ...place.address, db: place.db, ...(place.tls ? { tls: {} } : {}) };
    case 'cluster':
      return nodeAt(place.nodes, 0);
    case 'sentinel':
      return {
        sentinels: place.sentinels,
        name: place.masterName,
        sentinelRetryStrategy: retryStrategy,
        sentinelCommandTimeout: CONNECT_TIMEOUT_MS,
      };
  }
}

/** The nodes of a cluster in turn, so that one lost node does not end the hints. */
function nodeAt<T>(nodes: readonly T[], attempt: number): T {
  return must(nodes[attempt % nodes.length], 'a cluster URL names a node');
}
