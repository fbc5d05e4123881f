/**
 * One transaction of the landing: move the cursor, place the orders, keep what cannot be placed. Safe to repeat: the
 * cursor's compare-and-set lets one of any number of workers through, once (design §5; P1, P25).
 *
 * It makes no remote call and asks nothing per order; what follows the commit (marks, give-backs) is `landing.ts`.
 */
import { Fault, must } from '../../domain/fault.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { SegmentAddress } from '../../platform/redis/keys.ts';
import {
  clearTries,
  countTries,
  insertDeadLetter,
  moveCursor,
  noteTryError,
  placeOrders,
  type LandingPlace,
  type NotPlaced,
} from './orders-table.ts';
import type { OutboxEntry, OutboxHold } from './outbox.ts';

/** A hold that has used up its tries. */
export type BadHold = {
  readonly hold: OutboxHold;
  readonly entryId: string;
  readonly error: string;
  readonly tries: number;
};

/** What a batch became. `stale`: the cursor was not where we thought, nothing happened. */
export type Placed = 'stale' | { readonly notPlaced: readonly NotPlaced[] };

/** A step of the landing; the crash matrix kills a worker before and after each one. */
export type Step = <T>(name: string, work: () => Promise<T>) => Promise<T>;

/**
 * Lands entries in one transaction.
 * @param bad holds of these entries that are set aside instead of placed
 * @throws Fault; `database_unavailable` may mean that it was committed: the place must be read again
 */
export async function placeEntries(
  database: Database,
  at: SegmentAddress,
  batch: {
    from: LandingPlace;
    to: LandingPlace;
    entries: readonly OutboxEntry[];
    bad: readonly BadHold[];
  },
  step: Step,
): Promise<Placed> {
  const setAside = new Set(batch.bad.map(({ hold }) => hold.orderId));
  const holds = batch.entries.flatMap((entry) => entry.holds ?? []).filter((hold) => !setAside.has(hold.orderId));
  // the step ends when COMMIT has been answered; the moment just before COMMIT is the end of the step `insert`
  return step('commit', () =>
    database.transaction(async (tx): Promise<Placed> => {
      if (!(await step('cursor', () => moveCursor(tx, at, batch.from, batch.to)))) return 'stale';
      const notPlaced = await step('insert', () => placeOrders(tx, at, holds));
      for (const letter of batch.bad) await insertDeadLetter(tx, at, letter);
      if (batch.bad.length > 0) await clearTries(tx, [...setAside]);
      return { notPlaced };
    }),
  );
}

/** Rolls a trial back without being a fault. */
class TrialOver extends Error {}

/**
 * Tries the holds of one entry one by one, each counted in PostgreSQL before its attempt, so that one that kills the
 * worker counts too (P25). An attempt is a transaction that is always rolled back.
 * @returns the holds whose tries are used up, and whether others failed and must be tried again later
 * @throws Fault of the world; its try is owed back: `owe` names it, to be taken back when the database answers again
 */
export async function tryOneByOne(
  database: Database,
  at: SegmentAddress,
  entry: OutboxEntry,
  limits: { triesMax: number; isHoldsOwnFault: (fault: unknown) => boolean; owe: (orderId: string) => void },
): Promise<{ bad: BadHold[]; again: boolean }> {
  const bad: BadHold[] = [];
  let again = false;
  for (const hold of entry.holds ?? []) {
    const { tries, error: lastError } = must((await countTries(database, [hold.orderId])).get(hold.orderId), 'counted');
    if (tries > limits.triesMax) {
      bad.push({ hold, entryId: entry.id, error: lastError ?? 'the worker died while placing it', tries: tries - 1 });
      continue;
    }
    try {
      await database.transaction(async (tx) => {
        await placeOrders(tx, at, [hold]);
        throw new TrialOver();
      });
    } catch (error) {
      if (error instanceof TrialOver) {
        await clearTries(database, [hold.orderId]);
      } else if (!limits.isHoldsOwnFault(error)) {
        limits.owe(hold.orderId);
        throw error;
      } else if (tries >= limits.triesMax) {
        bad.push({ hold, entryId: entry.id, error: describe(error), tries });
      } else {
        await noteTryError(database, hold.orderId, describe(error));
        again = true;
      }
    }
  }
  return { bad, again };
}

const describe = (error: unknown): string => {
  const cause = error instanceof Fault ? error.cause : error;
  return cause instanceof Error ? cause.message : String(error);
};
