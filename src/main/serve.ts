/** `sluice serve`: one process of production, with a PostgreSQL and a Redis of its own choosing. */
import { Fault } from '../domain/fault.ts';
import type { Log } from '../platform/log.ts';
import type { Config } from './config.ts';
import { openDatabase, wire, type Overrides, type Role, type Wired } from './wire.ts';

/** A running process of Sluice. */
export type Serving = { readonly url: string; readonly wired: Wired; stop(): Promise<void> };

/** Starts one process. Throws Fault `settings_invalid` where something that a server needs is not set. */
export async function serve(config: Config, role: Role, log: Log, overrides?: Overrides): Promise<Serving> {
  const missing = [
    config.databaseUrl === undefined ? 'DATABASE_URL' : undefined,
    config.redisUrl === undefined ? 'REDIS_URL' : undefined,
    config.receiptSecrets.length === 0 ? 'SLUICE_RECEIPT_SECRETS' : undefined,
    role !== 'worker' && config.buyerAlgorithm === 'HS256' && config.buyerSecrets.length === 0
      ? 'SLUICE_BUYER_SECRETS (or SLUICE_BUYER_JWKS_URL)'
      : undefined,
  ].filter((name) => name !== undefined);
  if (missing.length > 0) {
    throw new Fault('settings_invalid', `not set: ${missing.join(', ')}`, { retryable: false });
  }
  const wired = wire(config, {
    role,
    redisUrl: config.redisUrl!,
    database: openDatabase(config, log, undefined),
    log,
    ...(overrides === undefined ? {} : { overrides }),
  });
  const url = await wired.start({ host: config.host, port: config.port });
  log.info({ url, role }, 'serving');
  return { url, wired, stop: () => wired.stop() };
}
