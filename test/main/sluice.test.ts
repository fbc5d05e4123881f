/** The command line as a process: exit codes, what goes to which stream, and that a refusal is one line. */
import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import { expect, test, vi } from 'vitest';
import { SETTINGS } from '../../src/main/config.ts';

// each of them starts a process, and compiles it
vi.setConfig({ testTimeout: 60_000 });

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const SECRET = 'a-secret-of-thirty-two-bytes-at-least';

type Ended = { code: number | null; out: string; err: string };
/** Runs the command with nothing in its environment but `env`. */
function sluice(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--import', 'tsx', 'src/main/sluice.ts', ...args], {
      cwd: ROOT,
      env: { PATH: process.env['PATH'], HOME: tmpdir(), ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 50_000,
    });
    let [out, err] = ['', ''];
    child.stdout.on('data', (chunk) => (out += String(chunk)));
    child.stderr.on('data', (chunk) => (err += String(chunk)));
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, out, err }));
  });
}
const SERVER = {
  DATABASE_URL: 'postgres://nobody@127.0.0.1:9/nowhere',
  REDIS_URL: 'redis://127.0.0.1:9',
  SLUICE_RECEIPT_SECRETS: SECRET,
  SLUICE_BUYER_SECRETS: SECRET,
};

test.each<[args: string[], env: Record<string, string>]>([
  [[], {}],
  [['config', 'more'], {}],
  [['serve', '--role', 'both'], SERVER],
])('wrong use is exit 2, with the usage on standard error: sluice %j', async (args, env) => {
  const { code, out, err } = await sluice(args, env);
  expect({ code, out }).toEqual({ code: 2, out: '' });
  expect(err).toContain('Usage: sluice');
});

test.each<[args: string[], env: Record<string, string>, said: RegExp]>([
  [['config'], { SLUICE_PORT: 'x' }, /^sluice: SLUICE_PORT: port must be a whole number \(port\)\n$/],
  [['serve', '--port', '70000'], SERVER, /^sluice: --port: port must be between 0 and 65535 port, not 70000\n$/],
  [['serve'], {}, /^sluice: not set: DATABASE_URL, REDIS_URL, SLUICE_RECEIPT_SECRETS, SLUICE_BUYER_SECRETS .*\n$/],
  [['start'], { NODE_ENV: 'production' }, /^sluice: developmentIdentity is refused with NODE_ENV=production: .*\n$/],
])('settings that cannot be are exit 2 and one line: sluice %j', async (args, env, said) => {
  const { code, out, err } = await sluice(args, env);
  expect({ code, out }).toEqual({ code: 2, out: '' });
  expect(err).toMatch(said);
});

test('config --json is one document and nothing else, every setting with its source, secrets masked', async () => {
  const env = {
    ...SERVER,
    DATABASE_URL: `postgres://me:${SECRET}@db.example/shop`,
    SLUICE_PORT: '1234',
    SLUICE_OPERATOR_SECRET: `${SECRET}-2`,
  };
  const { code, out, err } = await sluice(['config', '--json'], env);
  expect({ code, err }).toEqual({ code: 0, err: '' });
  expect(out).not.toContain(SECRET);
  const { settings } = JSON.parse(out) as { settings: { name: string; value: unknown; source: string }[] };
  expect(settings.map(({ name }) => name)).toEqual(Object.keys(SETTINGS));
  const by = (name: string): object | undefined => settings.find((one) => one.name === name);
  expect(by('port')).toMatchObject({
    environment: 'SLUICE_PORT',
    unit: 'port',
    default: 8_080,
    range: [0, 65_535],
    source: 'environment',
    value: 1_234,
  });
  expect(by('databaseUrl')).toMatchObject({ source: 'environment', value: 'postgres://db.example/shop' });
  expect(by('operatorSecret')).toMatchObject({ value: '[masked]' });
  expect(by('buyerIssuer')).toMatchObject({ source: 'default', value: null });

  const text = await sluice(['config'], env);
  expect(text.code).toBe(0);
  expect(text.out).not.toContain(SECRET);
  expect(text.out.trim().split('\n')).toHaveLength(settings.length);
});

test('help is exit 0 on standard output', async () => {
  const { code, out, err } = await sluice(['--help']);
  expect({ code, err }).toEqual({ code: 0, err: '' });
  expect(out).toContain('Usage: sluice');
});
