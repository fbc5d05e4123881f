/**
 * Preheat: puts stock and rules of a scheduled activity at the gate before the sale, once, and reads them back
 * (article 1.4, 3.2). It may be repeated by accident at any time and changes nothing (G10):
 *
 * - only a `scheduled` activity is preheated; after confirmation preheat only compares: lost keys are rebuild's business;
 * - all keys of the run are made in one script, only if none is there;
 * - every value is read back and compared with the database's; a difference fails the preheat and the gate stays shut. So
 *   does a difference between the activity and what its run was begun with, if someone edited it in between.
 */
import type { Clock } from '../../platform/clock.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { shardCount } from '../../platform/redis/keys.ts';
import {
  beginRun,
  confirmRun,
  findRun,
  lockActivity,
  notePreheat,
  type PlannedActivity,
  type Run,
} from './runs-table.ts';

/** What preheat needs of the gate. */
export type PreheatGate = {
  preheat(
    segment: { activityId: string; segment: number; run: number; shards: number },
    mode: 'write' | 'compare',
    values: {
      version: number;
      opensAt: number;
      endsAt: number;
      perBuyerLimit: number;
      units: number;
      expiresAt: number;
    },
  ): Promise<
    | { readonly kind: 'refused'; readonly reason: string }
    | {
        readonly kind: 'written' | 'read' | 'missing';
        readonly fence: string;
        readonly server: string;
        readonly run: string;
        readonly state: string;
        readonly opensAt: string;
        readonly endsAt: string;
        readonly perBuyerLimit: string;
        readonly stock: string;
        readonly outboxEntries: string;
        readonly guards: string;
        readonly lowestExpiry: string;
      }
  >;
  writeItem(activityId: string, item: Readonly<Record<string, string>>, expiresAt: number): Promise<void>;
  readItem(activityId: string): Promise<Readonly<Record<string, string>>>;
};

/** One value: what the database says, what the gate says. */
export type PreheatCheck = {
  readonly segment: number;
  readonly name: string;
  readonly expected: string;
  readonly found: string;
  readonly holds: boolean;
};

/** Outcome of a preheat. */
export type PreheatReport =
  | {
      readonly kind: 'verified' | 'failed' | 'compared';
      readonly run: number;
      /** whether this very call made the keys */
      readonly wrote: boolean;
      readonly checks: readonly PreheatCheck[];
    }
  | { readonly kind: 'refused'; readonly reason: 'unknown_activity' | 'wrong_state'; readonly state?: string };

/**
 * Preheats one activity. Safe to repeat and to run twice at once.
 * @param by who, and why, for the audit of an outcome; without it there is no audit row
 * @throws faults of Redis and PostgreSQL
 */
export async function preheat(
  ports: { database: Database; gate: PreheatGate; clock: Clock; keyTtlAfterEndMs: number },
  activityId: string,
  by?: { readonly actor: string; readonly reason?: string | undefined },
): Promise<PreheatReport> {
  const { database, gate } = ports;
  const begun = await database.transaction(async (tx) => {
    const activity = await lockActivity(tx, activityId);
    if (activity === undefined) return 'unknown_activity' as const;
    // opened between looking and locking: it is compared, as after any confirmation
    const onSale = activity.state === 'open' && activity.preheat === 'confirmed';
    if (activity.state !== 'scheduled' && !onSale) return { wrongState: activity.state };
    const present = activity.run === 0 ? undefined : await findRun(tx, activityId, activity.run);
    if (present !== undefined) return { activity, run: present };
    const tickets = activity.total + activity.surplus;
    const run: Run = {
      run: activity.run + 1,
      state: 'building',
      segments: activity.segments,
      shards: shardCount(Math.ceil(tickets / activity.segments)),
      tickets,
      itemName: activity.itemName,
      priceMinor: activity.priceMinor,
      currency: activity.currency,
      expiresAt: Math.max(activity.endsAt, ports.clock.now()) + ports.keyTtlAfterEndMs,
    };
    await beginRun(tx, activityId, run);
    return { activity: { ...activity, version: activity.version + 1 }, run };
  });
  if (begun === 'unknown_activity') return { kind: 'refused', reason: 'unknown_activity' };
  if ('wrongState' in begun) return { kind: 'refused', reason: 'wrong_state', state: begun.wrongState };

  const { activity, run } = begun;
  const confirmed = activity.preheat === 'confirmed';
  const checks: PreheatCheck[] = confirmed ? [] : comparePromise(activity, run);
  const fences: string[] = [];
  let wrote = false;
  for (let segment = 0; segment < run.segments; segment++) {
    const units = unitsOf(run.tickets, run.segments, segment);
    const found = await gate.preheat(
      { activityId, segment, run: run.run, shards: run.shards },
      confirmed ? 'compare' : 'write',
      { ...activity, units, expiresAt: run.expiresAt },
    );
    if (found.kind === 'refused') {
      checks.push({ segment, name: 'keys', expected: 'none before', found: found.reason, holds: false });
      continue;
    }
    wrote ||= found.kind === 'written';
    fences.push(found.fence);
    checks.push(...compare(segment, activity, run, units, confirmed, found));
  }
  checks.push(...(await snapshotItem(gate, activityId, activity, run, confirmed)));

  const holds = checks.every((check) => check.holds);
  if (confirmed) return { kind: 'compared', run: run.run, wrote, checks };
  const noted = await database.transaction((tx) =>
    notePreheat(tx, activityId, { run: run.run, fences, outcome: holds ? 'verified' : 'failed', ...by }),
  );
  // someone confirmed meanwhile, or moved the activity on: what was compared is not what counts any more
  if (!noted) return preheat(ports, activityId, by);
  return { kind: holds ? 'verified' : 'failed', run: run.run, wrote, checks };
}

/** Confirms a verified preheat. False where there is none: another one confirmed, or it failed. */
export function confirmPreheat(
  database: Database,
  activityId: string,
  actor: string,
  reason?: string,
): Promise<boolean> {
  return database.transaction((tx) => confirmRun(tx, activityId, actor, reason));
}

/** Units of one segment: an even share, the remainder to the first ones. */
const unitsOf = (tickets: number, segments: number, segment: number): number =>
  Math.floor(tickets / segments) + (segment < tickets % segments ? 1 : 0);

/** What a run was begun with, against the activity as it is now. Later the total changes in ways of its own. */
function comparePromise(activity: PlannedActivity, run: Run): PreheatCheck[] {
  const pairs: [name: string, expected: string | number, found: string | number][] = [
    ['run.tickets', activity.total + activity.surplus, run.tickets],
    ['run.segments', activity.segments, run.segments],
    ['run.itemName', activity.itemName, run.itemName],
    ['run.priceMinor', activity.priceMinor, run.priceMinor],
    ['run.currency', activity.currency, run.currency],
  ];
  return pairs.map(([name, expected, found]) => ({
    segment: 0,
    name,
    expected: String(expected),
    found: String(found),
    holds: expected === found,
  }));
}

type Found = Exclude<Awaited<ReturnType<PreheatGate['preheat']>>, { kind: 'refused' }>;

function compare(
  segment: number,
  activity: PlannedActivity,
  run: Run,
  units: number,
  confirmed: boolean,
  found: Found,
): PreheatCheck[] {
  const check = (name: string, expected: string | number, read: string): PreheatCheck => ({
    segment,
    name,
    expected: String(expected),
    found: read,
    holds: String(expected) === read,
  });
  const checks = [
    check('run', run.run, found.run),
    // made on a server that has been replaced or restarted since: the gate would stay shut
    check('fence', found.server, found.fence),
    check('opensAt', activity.opensAt, found.opensAt),
    check('endsAt', activity.endsAt, found.endsAt),
    check('perBuyerLimit', activity.perBuyerLimit, found.perBuyerLimit),
    check('guards', run.shards, found.guards),
  ];
  const ttlLeft = Number(found.lowestExpiry) >= activity.endsAt;
  checks.push({
    segment,
    name: 'expiry',
    expected: `after ${activity.endsAt}`,
    found: found.lowestExpiry,
    holds: ttlLeft,
  });
  if (confirmed) {
    // units have been sold since: only what cannot change is compared
    const readable = /^(0|[1-9][0-9]{0,9})$/.test(found.stock) && Number(found.stock) <= units;
    checks.push({ segment, name: 'stock', expected: `0 to ${units}`, found: found.stock, holds: readable });
    const stream = /^[0-9]+$/.test(found.outboxEntries);
    checks.push({ segment, name: 'outbox', expected: 'a stream', found: found.outboxEntries, holds: stream });
  } else {
    checks.push(
      check('stock', units, found.stock),
      check('outbox', 0, found.outboxEntries),
      check('state', 'shut', found.state),
    );
  }
  return checks;
}

/** The snapshot for page and door: written again on every preheat before confirmation, since it decides nothing. */
async function snapshotItem(
  gate: PreheatGate,
  activityId: string,
  activity: PlannedActivity,
  run: Run,
  confirmed: boolean,
): Promise<PreheatCheck[]> {
  const item = {
    name: activity.itemName,
    priceMinor: String(activity.priceMinor),
    currency: activity.currency,
    perBuyerLimit: String(activity.perBuyerLimit),
  };
  if (!confirmed) await gate.writeItem(activityId, item, run.expiresAt);
  const found = await gate.readItem(activityId);
  return Object.entries(item).map(([name, expected]) => ({
    segment: 0,
    name: `item.${name}`,
    expected,
    found: found[name] ?? '',
    holds: found[name] === expected,
  }));
}
