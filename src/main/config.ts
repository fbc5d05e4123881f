/**
 * Every setting, once: name, unit, default, range and reason (docs/configuration.md is tested against this table).
 * Sources, last wins: default, file (`SLUICE_CONFIG`, YAML), environment (`SLUICE_…`, `DATABASE_URL`, `REDIS_URL`), flags.
 * Parsed once here and handed down in parts; relations between settings are asserted at start.
 */
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { Fault } from '../domain/fault.ts';
import { OPERATOR_AUDIENCE } from '../platform/identity/operators.ts';
import {
  text,
  secret,
  secrets,
  integer,
  flag,
  choice,
  WEB_ADDRESS,
  POSTGRES_ADDRESS,
  REDIS_ADDRESS,
  LONG_ENOUGH,
  HOURS,
  ZONE,
  PREFIX,
  type Kind,
  type SettingOf,
} from './setting-kinds.ts';

/** The table of settings. */
export const SETTINGS = {
  host: text('SLUICE_HOST', '127.0.0.1', 'address to listen on; loopback unless you mean to be reached'),
  port: integer('SLUICE_PORT', 'port', 8080, 0, 65535, 'port of the API; 0 takes any free one'),
  workers: integer(
    'SLUICE_WORKERS',
    'processes',
    0,
    0,
    256,
    'processes of `serve` that share the port, watched and started again by a parent; with role all one more lands; 0: one process does it all',
  ),
  stopGraceMs: integer(
    'SLUICE_STOP_GRACE_MS',
    'ms',
    500,
    0,
    120_000,
    'how long a server that stops is not ready and still serves, so that load balancers send their callers elsewhere; above their interval of checks',
  ),
  dataFolder: text(
    'SLUICE_DATA',
    '.sluice',
    'folder of the private servers, of the development database and of run.json',
  ),
  databaseUrl: secret(
    'DATABASE_URL',
    'PostgreSQL; without it `npm start` uses an embedded PGlite, for development only',
    POSTGRES_ADDRESS,
  ),
  redisUrl: secret(
    'REDIS_URL',
    'Redis ≥ 7.0 or Valkey ≥ 7.2: redis://, rediss://, redis+sentinel://, redis+cluster://; without it `npm start` runs a private one',
    REDIS_ADDRESS,
  ),
  keyPrefix: text('SLUICE_KEY_PREFIX', 'sk', 'prefix of all Redis keys', PREFIX),
  logLevel: choice('SLUICE_LOG', 'info', ['silent', 'error', 'warn', 'info', 'debug'], 'what the JSON log says'),
  bodyBytesMax: integer('SLUICE_BODY_BYTES_MAX', 'bytes', 16_384, 1_024, 1_048_576, 'larger bodies are 413'),
  gateTimeoutMs: integer(
    'SLUICE_GATE_TIMEOUT_MS',
    'ms',
    1_000,
    50,
    10_000,
    'a gate that has not answered by then is `in_doubt`; a script that starts later writes nothing',
  ),
  gateBatchMax: integer(
    'SLUICE_GATE_BATCH_MAX',
    'purchases',
    128,
    1,
    128,
    'purchases of one turn of the event loop that share one script call',
  ),
  gatePendingMax: integer(
    'SLUICE_GATE_PENDING_MAX',
    'purchases',
    20_000,
    1,
    1_000_000,
    'purchases waiting for the gate in one process; a newcomer beyond is `busy`',
  ),
  connectTimeoutMs: integer(
    'SLUICE_CONNECT_TIMEOUT_MS',
    'ms',
    2_000,
    100,
    30_000,
    'a connection to Redis that takes longer is given up and tried again',
  ),
  activityRefreshMs: integer(
    'SLUICE_ACTIVITY_REFRESH_MS',
    'ms',
    1_000,
    50,
    30_000,
    'how often a process reads the activities again (article 4.5: a cache that never refreshed sold nothing for five minutes)',
  ),
  landingWaitMs: integer(
    'SLUICE_LANDING_WAIT_MS',
    'ms',
    2_000,
    50,
    30_000,
    'with `answerWhen: ordered`, how long the reply waits for the landing before it is 202 with the receipt',
  ),
  landingIdleMs: integer(
    'SLUICE_LANDING_IDLE_MS',
    'ms',
    10,
    1,
    1_000,
    'pause of the landing on an empty outbox of an activity on sale',
  ),
  landingHoldsMax: integer('SLUICE_LANDING_HOLDS_MAX', 'holds', 1_000, 1, 10_000, 'holds landed in one transaction'),
  landingTriesMax: integer(
    'SLUICE_LANDING_TRIES_MAX',
    'tries',
    5,
    1,
    100,
    'tries of a hold that fails for a reason of its own before it is set aside as a dead letter',
  ),
  landingLeaseSeconds: integer(
    'SLUICE_LANDING_LEASE_SECONDS',
    's',
    15,
    1,
    300,
    'a worker that is gone this long loses its outboxes to another one',
  ),
  outboxKeepSeconds: integer(
    'SLUICE_OUTBOX_KEEP_SECONDS',
    's',
    600,
    0,
    86_400,
    'landed entries stay this long, so that a database that lost its last commits lands them again',
  ),
  deadLetterHoldSeconds: integer(
    'SLUICE_DEAD_LETTER_HOLD_SECONDS',
    's',
    600,
    1,
    604_800,
    'a dead letter that nobody replayed by then is given back',
  ),
  queueLagSecondsMax: integer(
    'SLUICE_QUEUE_LAG_SECONDS_MAX',
    's',
    3_600,
    60,
    86_400,
    'the longest lag of the landing that we plan for; marks must outlive it',
  ),
  cleanupHours: text(
    'SLUICE_CLEANUP_HOURS',
    '02-06',
    'hours of a day in which keys of settled activities are removed by themselves, from-to, half-open; 00-24: always',
    HOURS,
  ),
  cleanupZone: text('SLUICE_CLEANUP_ZONE', 'Asia/Shanghai', 'time zone of cleanupHours', ZONE),
  keyTtlAfterEndSeconds: integer(
    'SLUICE_KEY_TTL_AFTER_END_SECONDS',
    's',
    10_800,
    7_200,
    604_800,
    'keys of a run live this long after the sale (article 2.4: 2 to 4 hours)',
  ),
  databasePoolMax: integer(
    'SLUICE_DATABASE_POOL_MAX',
    'connections',
    10,
    2,
    200,
    'mean seconds a statement × statements a second × 2 (article 4.3); 10 serves a worker at full speed',
  ),
  databaseAcquireTimeoutMs: integer(
    'SLUICE_DATABASE_ACQUIRE_TIMEOUT_MS',
    'ms',
    2_000,
    50,
    60_000,
    'who has no connection by then is told so',
  ),
  databaseStatementTimeoutMs: integer(
    'SLUICE_DATABASE_STATEMENT_TIMEOUT_MS',
    'ms',
    10_000,
    100,
    600_000,
    'PostgreSQL ends longer statements',
  ),
  databaseLockTimeoutMs: integer(
    'SLUICE_DATABASE_LOCK_TIMEOUT_MS',
    'ms',
    3_000,
    50,
    600_000,
    'PostgreSQL ends longer waits for a lock: a stranger’s open transaction holds up its own rows only',
  ),
  receiptReadsPerSecond: integer(
    'SLUICE_RECEIPT_READS_PER_SECOND',
    'reads/s',
    200,
    1,
    100_000,
    'receipts and orders read from PostgreSQL by one process, at most; beyond: `busy`',
  ),
  eventStreamsMax: integer(
    'SLUICE_EVENT_STREAMS_MAX',
    'streams',
    10_000,
    1,
    1_000_000,
    'open event streams of one process; a newcomer beyond is `busy` and polls',
  ),
  workerNumberLeaseSeconds: integer(
    'SLUICE_WORKER_NUMBER_LEASE_SECONDS',
    's',
    30,
    3,
    600,
    'lease of the 10-bit number in order ids; a process stops numbering before it can lapse',
  ),
  buyerSecrets: secrets(
    'SLUICE_BUYER_SECRETS',
    'HS256 secrets of buyer tokens, newest first, comma-separated, each at least 32 bytes',
  ),
  buyerJwksUrl: text(
    'SLUICE_BUYER_JWKS_URL',
    undefined,
    'JWKS of the buyers’ issuer, instead of a secret',
    WEB_ADDRESS,
  ),
  buyerAlgorithm: choice(
    'SLUICE_BUYER_ALGORITHM',
    'HS256',
    ['HS256', 'RS256', 'ES256'],
    'the one algorithm that buyer tokens may use',
  ),
  buyerClaim: text('SLUICE_BUYER_CLAIM', 'sub', 'claim that holds the buyer id'),
  buyerIssuer: text('SLUICE_BUYER_ISSUER', undefined, '`iss` that buyer tokens must carry'),
  buyerAudience: text('SLUICE_BUYER_AUDIENCE', undefined, '`aud` that buyer tokens must carry'),
  receiptSecrets: secrets('SLUICE_RECEIPT_SECRETS', 'secrets that sign receipts, newest first, each at least 32 bytes'),
  operatorSecret: secret('SLUICE_OPERATOR_SECRET', 'HS256 secret of operator tokens, at least 32 bytes', LONG_ENOUGH),
  selfApproval: flag(
    'SLUICE_SELF_APPROVAL',
    false,
    'lets who made or changed an activity approve it, for teams of one; otherwise it takes four eyes',
  ),
  developmentIdentity: flag(
    'SLUICE_DEV_IDENTITY',
    false,
    'lets anybody be anybody by POST /api/v1/dev/login: for trying out only, refused with NODE_ENV=production',
  ),
} as const;

type Settings = typeof SETTINGS;
/** Name of a setting. */
export type SettingName = keyof Settings;
type ValueOf<S> =
  S extends SettingOf<'integer', number>
    ? number
    : S extends SettingOf<'boolean', boolean>
      ? boolean
      : S extends SettingOf<'secrets', readonly string[]>
        ? readonly string[]
        : S extends SettingOf<'choice', infer C>
          ? C
          : S extends SettingOf<'text', infer T>
            ? T
            : string | undefined;

/** The effective settings. */
export type Config = { readonly [N in SettingName]: ValueOf<Settings[N]> };

/** Where a value came from. */
export type Source = 'default' | 'file' | 'environment' | 'flag';
/** Effective values and their sources, for `sluice config`. */
export type LoadedConfig = { readonly config: Config; readonly sources: Readonly<Record<SettingName, Source>> };

const refuse = (sentence: string): never => {
  throw new Fault('settings_invalid', sentence, { retryable: false });
};

function parseValue(name: SettingName, raw: unknown, where: string): unknown {
  const setting: SettingOf<Kind, unknown> = SETTINGS[name];
  const value = typeof raw === 'string' ? raw.trim() : raw;
  switch (setting.kind) {
    case 'integer': {
      const number = typeof value === 'string' && /^-?[0-9]{1,15}$/.test(value) ? Number(value) : value;
      if (typeof number !== 'number' || !Number.isInteger(number))
        return refuse(`${where}: ${name} must be a whole number (${setting.unit})`);
      if (number < setting.min! || number > setting.max!) {
        return refuse(
          `${where}: ${name} must be between ${setting.min} and ${setting.max} ${setting.unit}, not ${number}`,
        );
      }
      return number;
    }
    case 'boolean':
      if (value === true || value === 'true' || value === '1') return true;
      if (value === false || value === 'false' || value === '0') return false;
      return refuse(`${where}: ${name} must be true or false`);
    case 'choice':
      if (typeof value !== 'string' || !setting.choices!.includes(value))
        return refuse(`${where}: ${name} must be one of ${setting.choices!.join(', ')}`);
      return value;
    case 'secrets': {
      const list: unknown[] = Array.isArray(value)
        ? value
        : String(value)
            .split(',')
            .map((part) => part.trim());
      for (const one of list) {
        if (typeof one !== 'string' || Buffer.byteLength(one) < 32)
          refuse(`${where}: ${name}: each secret needs at least 32 bytes`);
      }
      return list;
    }
    case 'secret':
    case 'text':
      if (typeof value !== 'string' || value === '')
        return refuse(`${where}: ${name} must be a text that is not empty`);
      if (setting.form?.is(value) === false) return refuse(`${where}: ${name} must be ${setting.form.words}`);
      return value;
  }
}

/** The relations that single ranges cannot say; each with the accident it prevents. */
function checkRelations(config: Config, production: boolean): void {
  // A buyer mark that expires before its order is written sells twice (article 2.2: 5 min TTL, 10 min lag).
  if (config.keyTtlAfterEndSeconds < config.queueLagSecondsMax + 600) {
    refuse(
      'keyTtlAfterEndSeconds must exceed queueLagSecondsMax by 600 s: a mark must outlive the sale and the queue behind it',
    );
  }
  if (config.deadLetterHoldSeconds > config.keyTtlAfterEndSeconds) {
    refuse(
      'deadLetterHoldSeconds must not exceed keyTtlAfterEndSeconds: a dead letter must end while its mark is there',
    );
  }
  if (config.databaseLockTimeoutMs > config.databaseStatementTimeoutMs) {
    refuse(
      'databaseLockTimeoutMs must not exceed databaseStatementTimeoutMs: the lock would never be the one to time out',
    );
  }
  if (config.developmentIdentity && production)
    refuse('developmentIdentity is refused with NODE_ENV=production: it lets anybody be anybody');
  if (config.developmentIdentity && config.buyerAlgorithm !== 'HS256')
    refuse('developmentIdentity needs buyerAlgorithm HS256: it signs with the buyers’ secret');
  if (config.buyerAudience === OPERATOR_AUDIENCE)
    refuse(`buyerAudience must not be ${OPERATOR_AUDIENCE}: a buyer’s token would be an operator’s`);
  // One secret for two purposes: who may make tokens of the one kind could make those of the other.
  if (config.operatorSecret !== undefined) {
    for (const name of ['buyerSecrets', 'receiptSecrets'] as const) {
      if (config[name].includes(config.operatorSecret))
        refuse(`operatorSecret must be none of ${name}: whoever knows one of them could make operators’ tokens`);
    }
  }
  if (config.buyerAlgorithm !== 'HS256' && config.buyerJwksUrl === undefined)
    refuse('buyerAlgorithm RS256 and ES256 need buyerJwksUrl');
  if (config.buyerAlgorithm === 'HS256' && config.buyerJwksUrl !== undefined)
    refuse('buyerJwksUrl needs buyerAlgorithm RS256 or ES256: keys that anybody can read must not check HS256');
}

/**
 * Reads the settings.
 * @param from.environment the process's environment, from.flags values of command-line flags by setting name
 * @throws Fault `settings_invalid` naming the setting and what it must be
 */
export function loadConfig(from: {
  environment: Readonly<Record<string, string | undefined>>;
  flags?: Readonly<Partial<Record<SettingName, unknown>>>;
}): LoadedConfig {
  const values: Record<string, unknown> = {};
  const sources: Record<string, Source> = {};
  const names = Object.keys(SETTINGS) as SettingName[];
  for (const name of names) {
    values[name] = SETTINGS[name].default;
    sources[name] = 'default';
  }
  const file = from.environment['SLUICE_CONFIG'];
  if (file !== undefined && file !== '') {
    let document: unknown;
    try {
      document = parse(readFileSync(file, 'utf8'));
    } catch (cause) {
      throw new Fault('settings_invalid', `${file} cannot be read as YAML`, { retryable: false, cause });
    }
    if (document !== null && document !== undefined) {
      if (typeof document !== 'object' || Array.isArray(document)) refuse(`${file} must be a mapping of settings`);
      for (const [name, value] of Object.entries(document)) {
        if (!Object.hasOwn(SETTINGS, name)) refuse(`${file}: there is no setting ${name}`);
        values[name] = parseValue(name as SettingName, value, file);
        sources[name] = 'file';
      }
    }
  }
  for (const name of names) {
    const raw = from.environment[SETTINGS[name].env];
    if (raw === undefined || raw === '') continue;
    values[name] = parseValue(name, raw, SETTINGS[name].env);
    sources[name] = 'environment';
  }
  for (const [name, value] of Object.entries(from.flags ?? {})) {
    if (value === undefined) continue;
    values[name] = parseValue(name as SettingName, value, `--${name}`);
    sources[name] = 'flag';
  }
  const config = values as Config;
  checkRelations(config, from.environment['NODE_ENV'] === 'production');
  return { config, sources: sources as Record<SettingName, Source> };
}

/** A value as `sluice config` shows it: secrets masked, addresses without login and query. */
export function shownValue(name: SettingName, value: unknown): unknown {
  const kind: Kind = SETTINGS[name].kind;
  if (value === undefined) return null;
  if (kind === 'secrets') return (value as string[]).map(() => '[masked]');
  if (name === 'databaseUrl' || name === 'redisUrl' || name === 'buyerJwksUrl') {
    const text = value as string;
    const url = URL.canParse(text) ? new URL(text) : undefined;
    return url === undefined || url.hostname === '' ? '[masked]' : `${url.protocol}//${url.host}${url.pathname}`;
  }
  return kind === 'secret' ? '[masked]' : value;
}
