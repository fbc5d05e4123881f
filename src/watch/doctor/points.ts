/**
 * What makes Redis, PostgreSQL and the settings fit for a sale, and an activity fit to go live: readings in, points out.
 *
 * Promises: each point says what was found, what is wanted and why; one that could not be read is open, never taken for good.
 * Decides nothing and changes nothing; the readings are `examine.ts`'s.
 */
import { stateAt, type ActivityRecord } from '../../domain/activity.ts';

/** One point. */
export type Point = {
  readonly name: string;
  readonly found: string;
  readonly wanted: string;
  readonly holds: boolean;
  /** what happens where it does not hold */
  readonly why: string;
};

/** What was read of Redis. Undefined: it could not be read. */
export type RedisReading = {
  readonly kind: 'redis' | 'valkey';
  readonly version: string | undefined;
  readonly role: string | undefined;
  readonly evictionPolicy: string | undefined;
  readonly appendOnly: boolean | undefined;
  readonly slowLogMicros: number | undefined;
  readonly slowLogLength: number | undefined;
  readonly slowest: readonly { readonly command: string; readonly micros: number }[] | undefined;
  readonly clients: number | undefined;
  readonly clientsMax: number | undefined;
  readonly replicas: number | undefined;
  readonly replicasToWriteMin: number | undefined;
  /** its clock minus ours, and how far off that may be, in ms */
  readonly clock: { readonly offsetMs: number; readonly errorMs: number } | undefined;
  /** one command there and back, the middle of many, in ms */
  readonly roundTripMs: number | undefined;
  /** keys under our prefix that were looked at, whether that was all, and some that have no end */
  readonly keys: { readonly looked: number; readonly all: boolean; readonly endless: readonly string[] } | undefined;
};

/** What was read of PostgreSQL. */
export type PostgresReading = {
  readonly versionNumber: number;
  readonly isStandby: boolean;
  readonly fsync: string;
  readonly fullPageWrites: string;
  readonly synchronousCommit: string;
  readonly isolation: string;
  readonly connections: number;
  readonly connectionsMax: number;
  readonly clock: { readonly offsetMs: number; readonly errorMs: number };
};

/** What of the settings matters here. */
export type SettingsReading = {
  readonly processes: number;
  readonly redisConnectionsPerProcess: number;
  readonly databasePoolMax: number;
  readonly devIdentity: boolean;
  readonly knowsBuyers: boolean;
  readonly signsReceipts: boolean;
  readonly hasOperators: boolean;
};

/** What was read of an activity and of what serves it. */
export type ActivityReading = {
  readonly activity: ActivityRecord | undefined;
  /** by segment: what stands at the gate */
  readonly gate: readonly { readonly run: string; readonly state: string; readonly left: number | undefined }[];
  /** the earliest end of a key of its run, epoch ms */
  readonly keysEndAt: number | undefined;
  readonly deadLetters: number;
  readonly gateChanges: number;
  /** somebody lands and keeps time now */
  readonly workerIsThere: boolean;
  readonly now: number;
};

/** A clock that is further away than this is set wrongly. */
const CLOCK_OFFSET_MS_MAX = 100;
const SLOW_LOG_MICROS_MAX = 10_000;
const SLOW_LOG_LENGTH_MIN = 128;
const ROUND_TRIP_MS_MAX = 2;
/** Both stores keep this share of their connections for others. */
const CONNECTIONS_SHARE_MAX = 0.8;
const POSTGRES_MIN = 150_000;
const HOUR_MS = 3_600_000;

const shown = (value: unknown): string =>
  value === undefined ? 'not known' : typeof value === 'string' ? value : JSON.stringify(value);

function point(name: string, found: unknown, wanted: string, holds: boolean, why: string): Point {
  return { name, found: shown(found), wanted, holds: found !== undefined && holds, why };
}

/** Whether `version` is at least `least`, by its numbers. */
export function isAtLeast(version: string, least: string): boolean {
  const numbers = (text: string): number[] => text.split('.').map((part) => Number.parseInt(part, 10));
  const [a, b] = [numbers(version), numbers(least)];
  for (let i = 0; i < b.length; i++) {
    if ((a[i] ?? 0) !== b[i]) return (a[i] ?? 0) > b[i]!;
  }
  return true;
}

function clockPoint(store: string, clock: RedisReading['clock']): Point {
  const text = clock && `${clock.offsetMs.toFixed(1)} ms ± ${clock.errorMs.toFixed(1)} from this host`;
  const near = clock !== undefined && Math.abs(clock.offsetMs) - clock.errorMs <= CLOCK_OFFSET_MS_MAX;
  const wanted = `within ${CLOCK_OFFSET_MS_MAX} ms`;
  const why =
    store === 'redis'
      ? 'sales open and end by its clock'
      : 'operators’ guards are measured by the earlier of both clocks';
  return point(`${store} clock`, text, wanted, near, why);
}

/** The points of Redis. */
export function redisPoints(redis: RedisReading, settings: SettingsReading): Point[] {
  const least = redis.kind === 'valkey' ? '7.2' : '7.0';
  const ours = settings.processes * settings.redisConnectionsPerProcess;
  const slowest = redis.slowest?.map(({ command, micros }) => `${command} ${(micros / 1_000).toFixed(1)} ms`);
  const keys = redis.keys;
  return [
    point(
      'redis version',
      redis.version,
      `${redis.kind} ≥ ${least}`,
      redis.version !== undefined && isAtLeast(redis.version, least),
      'older ones lack the flags that let a read-only or full server refuse a script before its first line',
    ),
    point(
      'redis role',
      redis.role,
      'master',
      redis.role === 'master',
      'a replica takes no writes: the gate stays shut',
    ),
    point(
      'eviction policy',
      redis.evictionPolicy,
      'noeviction',
      redis.evictionPolicy === 'noeviction',
      'any other policy throws away stock and marks in mid-sale; the gate notices and shuts',
    ),
    point(
      'append-only file',
      redis.appendOnly,
      'true',
      redis.appendOnly === true,
      'without it a restart is empty, and every activity waits for its rebuild',
    ),
    point(
      'slow log threshold',
      redis.slowLogMicros === undefined ? undefined : `${redis.slowLogMicros} µs`,
      `0 to ${SLOW_LOG_MICROS_MAX} µs`,
      (redis.slowLogMicros ?? -1) >= 0 && redis.slowLogMicros! <= SLOW_LOG_MICROS_MAX,
      'a command that holds up every purchase must be seen afterwards',
    ),
    point(
      'slow log length',
      redis.slowLogLength,
      `≥ ${SLOW_LOG_LENGTH_MIN}`,
      (redis.slowLogLength ?? 0) >= SLOW_LOG_LENGTH_MIN,
      'a short one has forgotten the sale by the time somebody looks',
    ),
    point(
      'slow commands',
      slowest === undefined ? undefined : slowest.length === 0 ? 'none' : slowest.join(', '),
      'none in the slow log',
      slowest?.length === 0,
      'each of them held up every purchase for as long; `SLOWLOG RESET` once they are understood',
    ),
    point(
      'redis connections',
      redis.clients === undefined || redis.clientsMax === undefined
        ? undefined
        : `${redis.clients} open, ${ours} of ours when all processes run, ${redis.clientsMax} at most`,
      `open and ours ≤ ${CONNECTIONS_SHARE_MAX * 100} % of the limit`,
      (redis.clients ?? 0) + ours <= (redis.clientsMax ?? 0) * CONNECTIONS_SHARE_MAX,
      'a process that cannot connect refuses its buyers',
    ),
    point(
      'redis replicas',
      redis.replicas === undefined || redis.replicasToWriteMin === undefined
        ? undefined
        : redis.replicas === 0
          ? 'none'
          : `${redis.replicas}, min-replicas-to-write ${redis.replicasToWriteMin}`,
      'none, or min-replicas-to-write ≥ 1',
      redis.replicas === 0 || (redis.replicasToWriteMin ?? 0) >= 1,
      'a primary cut off from its replicas keeps selling what the promoted one sells too; that tail never lands',
    ),
    clockPoint('redis', redis.clock),
    point(
      'redis round trip',
      redis.roundTripMs === undefined ? undefined : `${redis.roundTripMs.toFixed(2)} ms`,
      `≤ ${ROUND_TRIP_MS_MAX} ms`,
      (redis.roundTripMs ?? Number.POSITIVE_INFINITY) <= ROUND_TRIP_MS_MAX,
      'every purchase waits for one',
    ),
    point(
      'keys without an end',
      keys === undefined
        ? undefined
        : `${keys.endless.length === 0 ? 'none' : keys.endless.join(', ')} (${keys.looked} looked at${keys.all ? '' : ', not all'})`,
      'none',
      keys?.endless.length === 0,
      'what has no expiry stays for ever when a clean-up is missed',
    ),
  ];
}

/** The points of PostgreSQL; `undefined` where there is none to reach. */
export function postgresPoints(postgres: PostgresReading | undefined, settings: SettingsReading): Point[] {
  const of = <T>(read: (reading: PostgresReading) => T): T | undefined => postgres && read(postgres);
  const ours = settings.processes * settings.databasePoolMax;
  const version = of(({ versionNumber }) => `${Math.floor(versionNumber / 10_000)}.${versionNumber % 10_000}`);
  const setting = (name: string, found: string | undefined, wanted: string, holds: boolean, why: string): Point =>
    point(name, found, wanted, holds, why);
  return [
    setting(
      'postgres version',
      version,
      '≥ 15',
      (postgres?.versionNumber ?? 0) >= POSTGRES_MIN,
      'older ones are not tested',
    ),
    setting(
      'postgres role',
      of(({ isStandby }) => (isStandby ? 'standby' : 'primary')),
      'primary',
      postgres?.isStandby === false,
      'a standby takes no orders',
    ),
    setting(
      'fsync',
      of(({ fsync }) => fsync),
      'on',
      postgres?.fsync === 'on',
      'orders that were told are lost with the power',
    ),
    setting(
      'full_page_writes',
      of(({ fullPageWrites }) => fullPageWrites),
      'on',
      postgres?.fullPageWrites === 'on',
      'a torn page after a crash is a broken ledger',
    ),
    setting(
      'synchronous_commit',
      of(({ synchronousCommit }) => synchronousCommit),
      'not off',
      postgres !== undefined && postgres.synchronousCommit !== 'off',
      'a commit that is told before it is on disk can be lost: its order was told too',
    ),
    setting(
      'default isolation',
      of(({ isolation }) => isolation),
      'read committed',
      postgres?.isolation === 'read committed',
      'the landing sets its own; a stricter default makes other clients fail with serialization errors',
    ),
    setting(
      'postgres connections',
      of((it) => `${it.connections} open, ${ours} of ours when all processes run, ${it.connectionsMax} at most`),
      `open and ours ≤ ${CONNECTIONS_SHARE_MAX * 100} % of the limit`,
      postgres !== undefined && postgres.connections + ours <= postgres.connectionsMax * CONNECTIONS_SHARE_MAX,
      'a worker that gets no connection lands nothing',
    ),
    clockPoint(
      'postgres',
      of(({ clock }) => clock),
    ),
  ];
}

/** The points of the settings. */
export function settingsPoints(settings: SettingsReading): Point[] {
  return [
    point(
      'development identity',
      settings.devIdentity ? 'on' : 'off',
      'off',
      !settings.devIdentity,
      'with it anybody buys in anybody’s name',
    ),
    point(
      'buyers’ tokens',
      settings.knowsBuyers ? 'can be checked' : 'cannot be checked',
      'SLUICE_BUYER_SECRETS or SLUICE_BUYER_JWKS_URL',
      settings.knowsBuyers,
      'nobody can buy',
    ),
    point(
      'receipts',
      settings.signsReceipts ? 'signed with a secret of the settings' : 'signed with a secret of this process',
      'SLUICE_RECEIPT_SECRETS',
      settings.signsReceipts,
      'a receipt of one process is unknown to the next',
    ),
    point(
      'operators',
      settings.hasOperators ? 'have a secret' : 'have none',
      'SLUICE_OPERATOR_SECRET',
      settings.hasOperators,
      'nobody can pause the sale',
    ),
  ];
}

/** The checklist before an activity goes live. */
export function activityPoints(reading: ActivityReading): Point[] {
  const { activity, now } = reading;
  if (activity === undefined) {
    return [point('activity', 'there is none of this id', 'it exists', false, 'there is nothing to sell')];
  }
  const state = stateAt(activity, now);
  const opens = (activity.opensAt - now) / 60_000;
  const run = String(activity.run);
  const gate = reading.gate.map((one) => (one.run === run ? one.state : `run ${one.run || 'none'}`));
  const left = reading.gate.reduce((sum, one) => sum + (one.left ?? Number.NaN), 0);
  const fewest = state === 'scheduled' ? activity.total + activity.surplus : 0;
  return [
    point(
      'state',
      state === 'scheduled' ? `scheduled, opens in ${opens.toFixed(1)} min` : state,
      'scheduled or open',
      state === 'scheduled' || state === 'open',
      'nobody can buy',
    ),
    point('paused', activity.paused ? 'yes' : 'no', 'no', !activity.paused, 'everybody hears `paused`'),
    point(
      'reviewed by another',
      activity.editedBy === undefined ? `planned by ${activity.createdBy}` : `changed by ${activity.editedBy}`,
      'approved',
      state !== 'in_review' && state !== 'rejected',
      'a plan that nobody else has read',
    ),
    point(
      'preheat',
      activity.preheat,
      'confirmed',
      activity.preheat === 'confirmed',
      'everybody hears `not_ready` at the opening',
    ),
    point(
      'gate',
      gate.length === 0 ? 'nothing there' : gate.join(', '),
      `open for run ${run}`,
      gate.length > 0 && gate.every((one) => one === 'open'),
      'what the gate does not know it does not sell',
    ),
    point(
      'stock at the gate',
      Number.isNaN(left) ? undefined : String(left),
      fewest > 0 ? String(fewest) : 'a number',
      fewest > 0 ? left === fewest : left >= 0,
      'less is unsold, more is refused by PostgreSQL after a yes',
    ),
    point(
      'keys outlive the sale',
      reading.keysEndAt === undefined
        ? undefined
        : `${((reading.keysEndAt - activity.endsAt) / HOUR_MS).toFixed(1)} h beyond its end`,
      '≥ 2 h',
      (reading.keysEndAt ?? 0) >= activity.endsAt + 2 * HOUR_MS,
      'marks must outlive the sale and the queue behind it',
    ),
    point(
      'changes under way',
      String(reading.gateChanges),
      '0',
      reading.gateChanges === 0,
      'the gate goes by an older plan',
    ),
    point('dead letters', String(reading.deadLetters), '0', reading.deadLetters === 0, 'somebody waits for an answer'),
    point(
      'worker',
      reading.workerIsThere ? 'there' : 'none',
      'there',
      reading.workerIsThere,
      'nothing lands, and nothing moves by the clock',
    ),
  ];
}
