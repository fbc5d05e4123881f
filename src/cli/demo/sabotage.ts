/**
 * `--sabotage`: breaks a sale behind the demo's back, in the middle of it, so that everybody can see that the verdict can
 * fail. Offered in test builds only, and only on servers of the demo's own.
 */
import { Fault } from '../../domain/fault.ts';
import type { Timers } from '../../platform/clock.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { shardOf, type Keys } from '../../platform/redis/keys.ts';
import type { RedisLink } from '../../platform/redis/link.ts';
import type { GateRun } from './gate-witness.ts';
import { buyersServed, dropOneLiveOrder, dropSoldWithinTotal, loseAnOrder } from './sabotage-table.ts';
import type { Break } from './verdict.ts';

/** Units that are sold twice, and buyers whose marks go. */
const UNITS = 3;
const LANDING_MS_MAX = 30_000;
const LOOK_AGAIN_MS = 20;

/** Breaks it. `wrong-answer` is done on the wire (`tampering-proxy.ts`) and needs nothing here. */
export async function sabotage(
  kind: Exclude<Break, 'wrong-answer'>,
  at: { database: Database; redis: RedisLink; keys: Keys; run: GateRun; timers: Timers },
): Promise<void> {
  const { database, redis, keys, run } = at;
  const segment = { ...run, segment: 0 };
  switch (kind) {
    case 'oversell':
      await dropSoldWithinTotal(database);
      await redis.command('INCRBY', keys.stock(segment), UNITS);
      return;
    case 'drift':
      await redis.command('DECRBY', keys.stock(segment), 1);
      return;
    case 'lose':
      await untilDone(at.timers, () => loseAnOrder(database, run.activityId));
      return;
    case 'duplicate': {
      await dropOneLiveOrder(database);
      const buyers = await untilDone(at.timers, async () => {
        const served = await buyersServed(database, run.activityId);
        return served.length > 0 ? served.slice(0, UNITS) : undefined;
      });
      for (const buyer of buyers) await redis.command('HDEL', keys.buyers(segment, shardOf(buyer, run.shards)), buyer);
    }
  }
}

/** The landing takes a moment: until then there is nothing to break. */
async function untilDone<T>(timers: Timers, attempt: () => Promise<T | undefined>): Promise<T> {
  for (let waitedMs = 0; waitedMs < LANDING_MS_MAX; waitedMs += LOOK_AGAIN_MS) {
    const done = await attempt();
    if (done !== undefined) return done;
    await timers.sleep(LOOK_AGAIN_MS);
  }
  throw new Fault('not_ready', 'breaking the sale: no order was stored that could be broken', { retryable: false });
}
