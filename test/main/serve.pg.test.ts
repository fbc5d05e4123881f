/** `sluice serve` as a process: it sells over its socket, leaves in order on a signal, and says in one line why it cannot start. */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createServer, type AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, expect, inject, test } from 'vitest';
import { makeLog } from '../../src/platform/log.ts';
import { wire } from '../../src/main/wire.ts';
import { buy, openActivity, TEST_SECRET, testConfig } from '../support/sluice.ts';
import { createTestDatabase, openTestPool, type TestDatabase } from '../support/test-database.ts';
import { openEvents } from '../api/events.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PREFIX = `t${randomBytes(4).toString('hex')}`;
let database: TestDatabase;
const children = new Set<ChildProcess>();
beforeAll(async () => {
  database = await createTestDatabase();
});
afterEach(() => children.forEach((child) => child.kill('SIGKILL')));
afterAll(() => database.drop());

type Process = { child: ChildProcess; out: () => string; err: () => string; exited: Promise<number | null> };
function serve(args: readonly string[]): Process {
  const child = spawn(process.execPath, ['--import', 'tsx', 'src/main/sluice.ts', 'serve', ...args], {
    cwd: ROOT,
    env: {
      PATH: process.env['PATH'],
      DATABASE_URL: database.url,
      REDIS_URL: inject('redisUrl'),
      SLUICE_KEY_PREFIX: PREFIX,
      SLUICE_RECEIPT_SECRETS: TEST_SECRET,
      SLUICE_BUYER_SECRETS: TEST_SECRET,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.add(child);
  let [out, err] = ['', ''];
  child.stdout.on('data', (chunk) => (out += String(chunk)));
  child.stderr.on('data', (chunk) => (err += String(chunk)));
  const exited = new Promise<number | null>((resolve) => {
    child.once('close', (code) => {
      children.delete(child);
      resolve(code);
    });
  });
  return { child, out: () => out, err: () => err, exited };
}

test('it sells, and on SIGTERM it leaves in order, whoever is still connected', async () => {
  const running = serve(['--role', 'all', '--port', '0']);
  const url = await new Promise<string>((resolve, reject) => {
    running.child.stdout!.on('data', () => {
      const said = /"url":"(http:[^"]+)"/.exec(running.out());
      if (said !== null) resolve(said[1]!);
    });
    void running.exited.then((code) => reject(new Error(`it ended with ${code}: ${running.err()}`)));
  });
  // what the operator API will do, done by a process of the test's own
  const config = testConfig(database.url, inject('redisUrl'), { SLUICE_KEY_PREFIX: PREFIX });
  const operator = wire(config, {
    role: 'api',
    redisUrl: inject('redisUrl'),
    database: openTestPool(database.url),
    log: makeLog('silent'),
  });
  await operator.start({ host: '127.0.0.1', port: 0 });
  const { id } = await openActivity(operator, { total: 3 });
  await operator.stop();

  let told = await buy(url, id, 'ann', { key: 'the-first-key' });
  while (told.status === 404 || told.status === 503) told = await buy(url, id, 'ann', { key: 'the-first-key' });
  expect(['held', 'replayed']).toContain(told.code);
  const receipt = String(told.body['receipt']);
  expect((await (await openEvents(url, receipt, 'ann')).rest()).at(-1)).toMatchObject({ id: 'ordered' });

  const startedAt = performance.now();
  running.child.kill('SIGTERM');
  expect(await running.exited).toBe(0);
  expect(performance.now() - startedAt).toBeLessThan(10_000);
  expect(running.err()).toBe('');
}, 60_000);

test('a port that is taken is exit 1 and one line', async () => {
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
  const { port } = taken.address() as AddressInfo;
  const refused = serve(['--port', String(port)]);
  expect(await refused.exited).toBe(1);
  expect(refused.err()).toMatch(/^sluice: cannot listen \(SLUICE_HOST, SLUICE_PORT\): listen EADDRINUSE.*\n$/);
  taken.close();
}, 60_000);
