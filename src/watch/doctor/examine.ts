/**
 * Reads what the doctor judges (`points.ts`): Redis by INFO, CONFIG GET and a bounded SCAN, PostgreSQL by its settings, both
 * clocks between two looks at ours. Changes nothing, and costs either server little. What an ACL does not let us read is
 * not known.
 */
import { Fault } from '../../domain/fault.ts';
import type { Clock } from '../../platform/clock.ts';
import type { Sql } from '../../platform/postgres/database.ts';
import type { RedisLink } from '../../platform/redis/link.ts';
import { readServer } from './doctor-table.ts';
import type { PostgresReading, RedisReading } from './points.ts';

/** Keys that are looked at, at most. */
const KEYS_MAX = 100_000;
const KEYS_PER_SCAN = 500;
const ENDLESS_SHOWN_MAX = 5;
const ROUND_TRIPS = 51;
const SLOW_SHOWN_MAX = 5;

/** Reads Redis. Throws Fault where it cannot be reached at all. */
export async function readRedis(redis: RedisLink, clock: Clock, keyPrefix: string): Promise<RedisReading> {
  const info = fields(String(await redis.command('INFO')));
  const number = (name: string): number | undefined => {
    const value = Number(info.get(name) ?? Number.NaN);
    return Number.isNaN(value) ? undefined : value;
  };
  const config = await readConfig(redis);
  const configured = (name: string): number | undefined => {
    const value = Number(config.get(name) ?? Number.NaN);
    return Number.isNaN(value) ? undefined : value;
  };
  const valkey = info.get('valkey_version');
  return {
    kind: valkey === undefined ? 'redis' : 'valkey',
    version: valkey ?? info.get('redis_version'),
    role: info.get('role'),
    evictionPolicy: info.get('maxmemory_policy'),
    appendOnly: info.has('aof_enabled') ? info.get('aof_enabled') === '1' : undefined,
    slowLogMicros: configured('slowlog-log-slower-than'),
    slowLogLength: configured('slowlog-max-len'),
    slowest: await readable(async () => {
      const entries = (await redis.command('SLOWLOG', 'GET', SLOW_SHOWN_MAX)) as [number, number, number, string[]][];
      return entries.map(([, , micros, command]) => ({ command: command[0] ?? '', micros }));
    }),
    clients: number('connected_clients'),
    clientsMax: number('maxclients'),
    replicas: number('connected_slaves'),
    replicasToWriteMin: configured('min-replicas-to-write'),
    clock: await readable(() =>
      offsetOf(clock, async () => {
        const [seconds, micros] = (await redis.command('TIME')) as [string, string];
        return Number(seconds) * 1_000 + Number(micros) / 1_000;
      }),
    ),
    roundTripMs: await readable(async () => {
      const took: number[] = [];
      for (let i = 0; i < ROUND_TRIPS; i++) {
        const at = clock.monotonic();
        await redis.command('PING');
        took.push(clock.monotonic() - at);
      }
      return took.toSorted((a, b) => a - b)[Math.floor(ROUND_TRIPS / 2)];
    }),
    keys: await readable(() => readKeys(redis, keyPrefix)),
  };
}

/** Reads PostgreSQL. Throws faults of the database. */
export async function readPostgres(sql: Sql, clock: Clock): Promise<PostgresReading> {
  let server: Awaited<ReturnType<typeof readServer>> | undefined;
  await readServer(sql); // the first connection is slow, and its clock would be read late
  const offset = await offsetOf(clock, async () => {
    server = await readServer(sql);
    return server.now;
  });
  return { ...server!, clock: offset };
}

/** Another clock's reading minus ours: the answer was made between our two looks. */
async function offsetOf(
  clock: Clock,
  read: () => Promise<number>,
): Promise<{ readonly offsetMs: number; readonly errorMs: number }> {
  const before = clock.now();
  const there = await read();
  const after = clock.now();
  return { offsetMs: there - (before + after) / 2, errorMs: (after - before) / 2 };
}

async function readKeys(redis: RedisLink, keyPrefix: string): Promise<NonNullable<RedisReading['keys']>> {
  const endless: string[] = [];
  let looked = 0;
  let cursor = '0';
  do {
    const [next, names] = (await redis.command('SCAN', cursor, 'MATCH', `${keyPrefix}:*`, 'COUNT', KEYS_PER_SCAN)) as [
      string,
      string[],
    ];
    const ends = await Promise.all(names.map(async (name) => Number(await redis.command('PTTL', name))));
    looked += names.length;
    endless.push(...names.filter((_, i) => ends[i] === -1));
    cursor = next;
  } while (cursor !== '0' && looked < KEYS_MAX && endless.length < ENDLESS_SHOWN_MAX);
  return { looked, all: cursor === '0', endless: endless.slice(0, ENDLESS_SHOWN_MAX) };
}

async function readConfig(redis: RedisLink): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>();
  for (const name of ['slowlog-log-slower-than', 'slowlog-max-len', 'min-replicas-to-write']) {
    const reply = await readable(async () => (await redis.command('CONFIG', 'GET', name)) as string[]);
    if (Array.isArray(reply) && reply.length === 2) found.set(name, reply[1]!);
  }
  return found;
}

/** Lines `name:value` of INFO. */
function fields(info: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const line of info.split(/\r?\n/)) {
    const at = line.indexOf(':');
    if (at > 0 && !line.startsWith('#')) found.set(line.slice(0, at), line.slice(at + 1));
  }
  return found;
}

/** What may be refused by an ACL. */
async function readable<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof Fault) return undefined;
    throw error;
  }
}
