/** `sluice serve`: one process of production, with a PostgreSQL and a Redis of its own choosing. */
import { Fault } from '../domain/fault.ts';
import { systemTimers } from '../platform/clock.ts';
import type { Log } from '../platform/log.ts';
import type { Config } from './config.ts';
import { openDatabase, wire, type Among, type Overrides, type Role, type Wired } from './wire.ts';

/** A running process of Sluice. `stop` may be called again; it is the same stop. */
export type Serving = { readonly url: string; readonly wired: Wired; stop(): Promise<void> };

/** A stop that takes longer is cut: what is not done then is done by the next process. */
export const stopMsMax = (config: Config): number => config.stopGraceMs + config.landingWaitMs + 30_000;

/** Throws Fault `settings_invalid` where something that a server needs is not set. */
export function requireSettings(config: Config, role: Role): void {
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
}

/** Starts one process, alone or among others. Throws Fault `settings_invalid`. */
export async function serve(
  config: Config,
  role: Role,
  log: Log,
  overrides?: Overrides,
  among?: Among,
): Promise<Serving> {
  requireSettings(config, role);
  const wired = wire(config, {
    role,
    redisUrl: config.redisUrl!,
    database: openDatabase(config, log, undefined),
    log,
    ...(overrides === undefined ? {} : { overrides }),
    ...(among === undefined ? {} : { among }),
  });
  const url = await wired.start({ host: config.host, port: config.port });
  // of several processes the parent says where they are
  log.info(among === undefined ? { url, role } : { address: url, role }, 'serving');

  let stopped: Promise<void> | undefined;
  async function stopInOrder(): Promise<void> {
    wired.leave();
    // nobody is led to a worker: its door is for health calls
    if (role !== 'worker') await systemTimers.sleep(config.stopGraceMs);
    await wired.stop();
  }
  return { url, wired, stop: () => (stopped ??= stopInOrder()) };
}
