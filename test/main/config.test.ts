/** Settings: what is refused and in which words, which source wins, what is masked. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fault } from '../../src/domain/fault.ts';
import { loadConfig, SETTINGS, shownValue, type LoadedConfig, type SettingName } from '../../src/main/config.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-config-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const SECRET = 'a-secret-of-thirty-two-bytes-at-least';
type From = { env?: Record<string, string>; file?: string; flags?: Partial<Record<SettingName, unknown>> };
function load({ env = {}, file, flags = {} }: From): LoadedConfig {
  const environment: Record<string, string> = { ...env };
  if (file !== undefined) {
    environment['SLUICE_CONFIG'] = join(folder, 'sluice.yaml');
    writeFileSync(environment['SLUICE_CONFIG'], file);
  }
  return loadConfig({ environment, flags });
}
/** The sentence with which settings are refused. */
function refusal(from: From): string {
  try {
    load(from);
  } catch (error) {
    expect(error).toBeInstanceOf(Fault);
    expect((error as Fault).code).toBe('settings_invalid');
    return (error as Fault).message;
  }
  throw new Error('it was not refused');
}

test('without any setting all are at their defaults', () => {
  const { config, sources } = load({});
  expect(new Set(Object.values(sources))).toEqual(new Set(['default']));
  for (const name of Object.keys(SETTINGS) as SettingName[]) expect(config[name]).toEqual(SETTINGS[name].default);
});

describe('every setting', () => {
  const all = Object.entries(SETTINGS) as [
    SettingName,
    { env: string; kind: string; min?: number; max?: number; unit?: string; why: string; default: unknown },
  ][];
  test('has its own name in the environment, a unit where it is a number, and a reason', () => {
    expect(new Set(all.map(([, { env }]) => env)).size).toBe(all.length);
    for (const [, { env, kind, unit, why }] of all) {
      expect(env).toMatch(/^(SLUICE_[A-Z_]+|DATABASE_URL|REDIS_URL)$/);
      expect(unit === undefined).toBe(kind !== 'integer');
      expect(why.length).toBeGreaterThan(10);
    }
  });
  test.each(all.filter(([, { kind }]) => kind === 'integer'))(
    '%s is held to its range',
    (name, { env, min, max, default: usual }) => {
      expect(usual).toBeGreaterThanOrEqual(min!);
      expect(usual).toBeLessThanOrEqual(max!);
      for (const beyond of [min! - 1, max! + 1]) {
        const sentence = refusal({ env: { [env]: String(beyond) } });
        expect(sentence).toMatch(new RegExp(`^${env}: ${name} must be between ${min} and ${max} `));
      }
    },
  );
});

test.each<[what: string, from: From, sentence: RegExp]>([
  // numbers
  ['a number with a fraction', { env: { SLUICE_PORT: '80.5' } }, /^SLUICE_PORT: port must be a whole number/],
  ['a number with a unit', { env: { SLUICE_GATE_TIMEOUT_MS: '100ms' } }, /gateTimeoutMs must be a whole number \(ms\)/],
  ['an exponent', { env: { SLUICE_PORT: '1e3' } }, /port must be a whole number/],
  ['hexadecimal', { env: { SLUICE_PORT: '0x50' } }, /port must be a whole number/],
  ['infinity', { env: { SLUICE_PORT: 'Infinity' } }, /port must be a whole number/],
  ['a number in a list', { file: 'port: [80]' }, /port must be a whole number/],
  ['a number that is null', { file: 'port:' }, /port must be a whole number/],
  ['a number that is true', { file: 'port: true' }, /port must be a whole number/],
  ['YAML’s infinity', { file: 'port: .inf' }, /port must be a whole number/],
  ['a flag', { flags: { port: 'abc' } }, /^--port: port must be a whole number/],
  // texts and choices
  ['yes for true', { env: { SLUICE_DEV_IDENTITY: 'yes' } }, /developmentIdentity must be true or false/],
  ['another level', { env: { SLUICE_LOG: 'trace' } }, /logLevel must be one of silent, error, warn, info, debug/],
  ['a choice in a list', { file: 'buyerAlgorithm: [HS256]' }, /buyerAlgorithm must be one of HS256, RS256, ES256/],
  ['none as algorithm', { env: { SLUICE_BUYER_ALGORITHM: 'none' } }, /buyerAlgorithm must be one of/],
  ['a text that is a number', { file: 'host: 127' }, /host must be a text/],
  ['an empty text', { file: 'host: ""' }, /host must be a text that is not empty/],
  ['a prefix with braces', { env: { SLUICE_KEY_PREFIX: '{sk}' } }, /keyPrefix must be 1 to 32 of A-Z a-z 0-9 _ -/],
  ['a prefix with a colon', { env: { SLUICE_KEY_PREFIX: 'a:b' } }, /keyPrefix must be/],
  ['a JWKS that is no address', { env: { SLUICE_BUYER_JWKS_URL: 'keys.json' } }, /buyerJwksUrl must be an http/],
  ['a JWKS in a file', { env: { SLUICE_BUYER_JWKS_URL: 'file:///keys' } }, /buyerJwksUrl must be an http/],
  // secrets: the refusal never says one
  [
    'a short secret',
    { env: { SLUICE_BUYER_SECRETS: 'short' } },
    /^SLUICE_BUYER_SECRETS: buyerSecrets: each secret needs at least 32/,
  ],
  ['a short second one', { env: { SLUICE_RECEIPT_SECRETS: `${SECRET},short` } }, /receiptSecrets: each secret needs/],
  ['an empty second one', { env: { SLUICE_RECEIPT_SECRETS: `${SECRET},` } }, /receiptSecrets: each secret needs/],
  ['a secret that is a number', { file: `buyerSecrets: [${'1'.repeat(40)}]` }, /buyerSecrets: each secret needs/],
  ['a short operator secret', { env: { SLUICE_OPERATOR_SECRET: 'short' } }, /operatorSecret must be at least 32 bytes/],
  [
    'a database of another kind',
    { env: { DATABASE_URL: 'mysql://x/y' } },
    /^DATABASE_URL: databaseUrl must be postgres:/,
  ],
  ['a database without a scheme', { env: { DATABASE_URL: 'localhost/shop' } }, /databaseUrl must be postgres:/],
  ['a Redis with a query', { env: { REDIS_URL: 'redis://x?db=1' } }, /^REDIS_URL: redisUrl must be redis:/],
  ['a Redis without a scheme', { env: { REDIS_URL: 'localhost:6379' } }, /redisUrl must be redis:/],
  // the file
  ['an unknown setting', { file: 'prot: 80' }, /there is no setting prot$/],
  ['a setting of the language', { file: 'toString: 1' }, /there is no setting toString$/],
  ['a setting named __proto__', { file: '__proto__: {port: 1}' }, /there is no setting __proto__$/],
  ['a list', { file: '- port' }, /must be a mapping of settings$/],
  ['a broken file', { file: 'port: [' }, /cannot be read as YAML$/],
  [
    'a file that is not there',
    { env: { SLUICE_CONFIG: '/nowhere/sluice.yaml' } },
    /^\/nowhere\/sluice\.yaml cannot be read/,
  ],
  // relations
  [
    'marks that do not outlive the queue',
    { env: { SLUICE_QUEUE_LAG_SECONDS_MAX: '10300' } },
    /^keyTtlAfterEndSeconds must exceed queueLagSecondsMax/,
  ],
  [
    'dead letters that outlive the marks',
    { env: { SLUICE_DEAD_LETTER_HOLD_SECONDS: '10801' } },
    /^deadLetterHoldSeconds must not exceed keyTtlAfterEndSeconds/,
  ],
  [
    'a lock that outlives its statement',
    { env: { SLUICE_DATABASE_LOCK_TIMEOUT_MS: '10001' } },
    /^databaseLockTimeoutMs must not exceed databaseStatementTimeoutMs/,
  ],
  [
    'development identity in production',
    { env: { NODE_ENV: 'production', SLUICE_DEV_IDENTITY: 'true' } },
    /^developmentIdentity is refused with NODE_ENV=production/,
  ],
  [
    'development identity in production by a file',
    { env: { NODE_ENV: 'production' }, file: 'developmentIdentity: true' },
    /^developmentIdentity is refused with NODE_ENV=production/,
  ],
  [
    'development identity beside a key pair',
    { env: { SLUICE_DEV_IDENTITY: '1', SLUICE_BUYER_ALGORITHM: 'ES256', SLUICE_BUYER_JWKS_URL: 'https://x/y' } },
    /^developmentIdentity needs buyerAlgorithm HS256/,
  ],
  ['a key pair without keys', { env: { SLUICE_BUYER_ALGORITHM: 'RS256' } }, /need buyerJwksUrl$/],
  [
    'public keys for HS256',
    { env: { SLUICE_BUYER_JWKS_URL: 'https://x/y' } },
    /^buyerJwksUrl needs buyerAlgorithm RS256 or ES256/,
  ],
  [
    'one secret for buyers and operators',
    { env: { SLUICE_BUYER_SECRETS: `${SECRET}-2,${SECRET}`, SLUICE_OPERATOR_SECRET: SECRET } },
    /^operatorSecret must be none of buyerSecrets: /,
  ],
  [
    'one secret for receipts and operators',
    { env: { SLUICE_RECEIPT_SECRETS: SECRET }, file: `operatorSecret: ${SECRET}` },
    /^operatorSecret must be none of receiptSecrets: /,
  ],
  ['the operators’ audience', { env: { SLUICE_BUYER_AUDIENCE: 'sluice-operator' } }, /^buyerAudience must not be/],
])('%s is refused in one line that names it', (_what, from, sentence) => {
  const said = refusal(from);
  expect(said).toMatch(sentence);
  expect(said).not.toContain('\n');
  expect(said).not.toContain(SECRET);
  expect(said).not.toMatch(/: short|mysql:\/\/x/);
});

test('flags win over the environment, the environment over the file, the file over defaults', () => {
  const file = 'port: 1001\nhost: 10.0.0.1\ngateBatchMax: 7\n';
  const env = { SLUICE_PORT: '1002', SLUICE_HOST: '10.0.0.2', SLUICE_LOG: '' };
  const { config, sources } = load({ file, env, flags: { port: 1_003, host: undefined } });
  expect(config).toMatchObject({ port: 1_003, host: '10.0.0.2', gateBatchMax: 7, logLevel: 'info' });
  expect(sources).toMatchObject({ port: 'flag', host: 'environment', gateBatchMax: 'file', logLevel: 'default' });
});

test('an empty file says nothing; blanks round a value are none of it', () => {
  expect(load({ file: '' }).config.port).toBe(8_080);
  expect(load({ file: '# nothing\n' }).config.port).toBe(8_080);
  expect(load({ env: { SLUICE_PORT: ' 0 ', SLUICE_HOST: ' ::1 ' } }).config).toMatchObject({ port: 0, host: '::1' });
});

test('secrets come as a list, newest first', () => {
  const both = [`${SECRET}-2`, `${SECRET}-1`];
  expect(load({ env: { SLUICE_BUYER_SECRETS: both.join(' , ') } }).config.buyerSecrets).toEqual(both);
  expect(load({ file: `buyerSecrets:\n  - ${both.join('\n  - ')}\n` }).config.buyerSecrets).toEqual(both);
});

test('every kind of Redis that can be opened can be named', () => {
  for (const url of [
    ...['redis://h', 'rediss://u:p@h:1/2', 'redis+sentinel://a,b:1/shop', 'redis+cluster://a:1,b:2'],
  ]) {
    expect(load({ env: { REDIS_URL: url } }).config.redisUrl).toBe(url);
  }
});

test.each<[name: SettingName, value: unknown, shown: unknown]>([
  ['buyerSecrets', [SECRET, SECRET], ['[masked]', '[masked]']],
  ['receiptSecrets', [], []],
  ['operatorSecret', SECRET, '[masked]'],
  ['operatorSecret', `https://${SECRET}/x`, '[masked]'],
  ['databaseUrl', 'postgres://me:secret@db.example:5432/shop?password=secret', 'postgres://db.example:5432/shop'],
  ['databaseUrl', 'postgres:///shop?host=/run&password=secret', '[masked]'],
  ['redisUrl', 'rediss://:secret@r.example:6380/1', 'rediss://r.example:6380/1'],
  ['redisUrl', 'redis+cluster://u:secret@a:1,b:2', '[masked]'],
  ['redisUrl', undefined, null],
  ['buyerJwksUrl', 'https://u:secret@keys.example/jwks?key=secret', 'https://keys.example/jwks'],
  ['port', 8_080, 8_080],
  ['host', '127.0.0.1', '127.0.0.1'],
])('%s is shown without its secret', (name, value, shown) => {
  expect(shownValue(name, value)).toEqual(shown);
  expect(JSON.stringify(shownValue(name, value))).not.toContain('secret');
});
