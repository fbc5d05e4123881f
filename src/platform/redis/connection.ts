/**
 * What every Redis client of ours shares: where the servers are, how long to wait before connecting again, and a log
 * that a flapping server cannot flood.
 */
import type { Clock, Random } from '../clock.ts';
import type { Log } from '../log.ts';
import { Fault } from '../../domain/fault.ts';

/** Host and port of one server. */
export type Address = { host: string; port: number };

/** Whom to log in as; empty username is the server's default user. */
type Login = { username?: string; password?: string };

/** Where the servers of one URL are. */
export type RedisPlace =
  | ({ readonly kind: 'single'; readonly address: Address; readonly db: number; readonly tls: boolean } & Login)
  | ({ readonly kind: 'sentinel'; readonly sentinels: Address[]; readonly masterName: string } & Login)
  | ({ readonly kind: 'cluster'; readonly nodes: Address[] } & Login);

const SENTINEL_PORT = 26_379;
const REDIS_PORT = 6_379;

/**
 * Reads a Redis URL. A login goes before the hosts (`user:password@`, percent-encoded) and is used for the data servers.
 * Query parts are refused: ioredis would take them as settings and let them overrule the mandatory ones.
 * @param url `redis://host[:port][/db]`, `rediss://…` (TLS), `redis+sentinel://host[:port][,…]/masterName`,
 *   `redis+cluster://host[:port][,…]`; IPv6 hosts in brackets
 * @throws Fault `settings_invalid`; its text never holds the URL, which may hold a password
 */
export function parseRedisUrl(url: string): RedisPlace {
  const parts = /^(rediss?|redis\+sentinel|redis\+cluster):\/\/(?:([^@/]*)@)?([^/?#]+)(?:\/([^/?#]*))?$/.exec(url);
  if (!parts) throw invalid('want redis://, rediss://, redis+sentinel:// or redis+cluster://, hosts, no query');
  const [, scheme, userinfo, hosts = '', path = ''] = parts;
  const login = parseLogin(userinfo);

  if (scheme === 'redis+sentinel') {
    if (path === '') throw invalid('a sentinel URL ends in /masterName');
    return { kind: 'sentinel', sentinels: parseAddresses(hosts, SENTINEL_PORT), masterName: path, ...login };
  }
  const addresses = parseAddresses(hosts, REDIS_PORT);
  if (scheme === 'redis+cluster') {
    if (path !== '') throw invalid('a cluster has no numbered databases');
    return { kind: 'cluster', nodes: addresses, ...login };
  }
  const [address] = addresses;
  if (!address || addresses.length > 1) throw invalid('several hosts need redis+sentinel:// or redis+cluster://');
  if (!/^\d{0,4}$/.test(path)) throw invalid('the path of a redis:// URL is the number of a database');
  return { kind: 'single', address, db: Number(path), tls: scheme === 'rediss', ...login };
}

function parseLogin(userinfo: string | undefined): Login {
  if (userinfo === undefined) return {};
  const colon = userinfo.indexOf(':');
  if (colon === -1) throw invalid('a login is user:password or :password');
  try {
    const username = decodeURIComponent(userinfo.slice(0, colon));
    const password = decodeURIComponent(userinfo.slice(colon + 1));
    return username === '' ? { password } : { username, password };
  } catch {
    throw invalid('the login is not percent-encoded');
  }
}

function parseAddresses(hosts: string, defaultPort: number): Address[] {
  return hosts.split(',').map((text) => {
    const parts = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:[\]]+))(?::(\d{1,5}))?$/.exec(text);
    const host = parts?.[1] ?? parts?.[2];
    const port = parts?.[3] === undefined ? defaultPort : Number(parts[3]);
    if (host === undefined || port < 1 || port > 65_535) throw invalid('each host is name, name:port or [IPv6]:port');
    return { host, port };
  });
}

function invalid(rule: string): Fault {
  return new Fault('settings_invalid', `Redis URL: ${rule}`, { retryable: false });
}

const RETRY_MS_MIN = 50;
/** How long, at most, a server that is back goes unnoticed. */
export const RETRY_MS_MAX = 2_000;

/**
 * How long to wait before the next attempt to connect: random, so that processes cut off together do not return
 * together, and bounded, so that a server that is back is found within two seconds.
 * @param attempt 1 for the first attempt after the loss
 * @returns milliseconds, 50 to 2,000
 */
export function retryDelayMs(attempt: number, random: Random): number {
  const ceiling = Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** Math.min(attempt, 10));
  return RETRY_MS_MIN + Math.floor(random.fraction() * (ceiling - RETRY_MS_MIN));
}

/** Logs connection faults, at most one line a second; a line says how many it stands for. */
export function connectionFaultLog(log: Log, name: string, clock: Clock): (error: Error) => void {
  let lastLineAt = -Infinity;
  let unsaid = 0;
  return (error) => {
    const now = clock.monotonic();
    unsaid += 1;
    if (now - lastLineAt < 1_000) return;
    log.warn({ redis: name, fault: error.message, count: unsaid }, 'Redis connection fault');
    lastLineAt = now;
    unsaid = 0;
  };
}
