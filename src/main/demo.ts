/**
 * The one server process of a demo without PostgreSQL: both roles on a PGlite in a folder of the demo's. A hidden verb; for
 * nothing else, since PGlite does not sync to disk.
 */
import type { Log } from '../platform/log.ts';
import type { Config } from './config.ts';
import type { Serving } from './serve.ts';
import { openDatabase, wire } from './wire.ts';
import { Fault } from '../domain/fault.ts';

/** Starts it. Throws Fault `settings_invalid` without a Redis. */
export async function serveEmbedded(config: Config, folder: string, log: Log): Promise<Serving> {
  if (config.redisUrl === undefined) {
    throw new Fault('settings_invalid', 'not set: REDIS_URL', { retryable: false });
  }
  const wired = wire(
    { ...config, databaseUrl: undefined },
    {
      role: 'all',
      redisUrl: config.redisUrl,
      database: openDatabase({ ...config, databaseUrl: undefined }, log, folder),
      log,
    },
  );
  const url = await wired.start({ host: config.host, port: config.port });
  log.info({ url, role: 'all' }, 'serving');
  return { url, wired, stop: () => wired.stop() };
}
