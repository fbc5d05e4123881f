import { rmSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, inject, it } from 'vitest';
import { launchRedis } from '../../../src/platform/servers/launch-redis.ts';
import type { RedisLaunch } from '../../../src/platform/servers/launch-redis.ts';
import type { RunningServer } from '../../../src/platform/servers/private-server.ts';
import { startTimeOf } from '../../../src/platform/servers/process-identity.ts';
import { program, temporaryFolder } from './fake-programs.ts';

let base: string;
const running: RunningServer[] = [];
beforeEach(() => {
  base = temporaryFolder();
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.stop()));
  rmSync(base, { recursive: true, force: true });
});

async function launch(options: Partial<RedisLaunch> = {}): Promise<RunningServer> {
  const server = await launchRedis({ bin: inject('redisBin'), folder: join(base, 'redis'), ...options });
  running.push(server);
  return server;
}

/** Sends inline commands one after the other. @returns everything the server said */
function converse(port: number, ...commands: string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port });
    let said = '';
    socket.setEncoding('utf8');
    socket.on('data', (chunk: string) => (said += chunk));
    socket.once('error', reject);
    socket.once('close', () => resolve(said));
    socket.write(`${[...commands, 'QUIT'].join('\r\n')}\r\n`);
  });
}

it('serves at its url on the loopback address alone, keeps an append-only file and evicts nothing', async () => {
  const server = await launch();
  expect(server.url).toBe(`redis://127.0.0.1:${server.port}`);
  const said = await converse(
    server.port,
    ...['bind', 'appendonly', 'appendfsync', 'save', 'maxmemory-policy', 'dir'].map((name) => `CONFIG GET ${name}`),
  );
  const values = said.split('\r\n').filter((line) => /^[^*$+]/.test(line) || line === '');
  expect(values.join(' ')).toMatch(
    /^bind 127\.0\.0\.1 appendonly yes appendfsync everysec save {2}maxmemory-policy noeviction dir .*redis/,
  );
});

it('brings its data back on the same folder, after an orderly end and after SIGKILL', async () => {
  const first = await launch();
  await converse(first.port, 'SET sold 1');
  await first.stop();
  expect(startTimeOf(first.pid)).toBeUndefined();
  const second = await launch({ port: first.port });
  expect(second.port).toBe(first.port);
  expect(await converse(second.port, 'GET sold')).toContain('\r\n1\r\n');
  await converse(second.port, 'SET sold 2', 'CONFIG SET appendfsync always', 'SET sold 3');
  second.kill('SIGKILL');
  expect(await second.exited).toEqual({ code: null, signal: 'SIGKILL' });
  const third = await launch();
  expect(await converse(third.port, 'GET sold')).toContain('\r\n3\r\n');
});

it('takes further settings, which override its own', async () => {
  const server = await launch({ args: ['--cluster-enabled', 'yes', '--appendonly', 'no'] });
  expect(await converse(server.port, 'CONFIG GET appendonly')).toContain('no');
  expect(await converse(server.port, 'CLUSTER ADDSLOTSRANGE 0 16383')).toContain('+OK');
});

it("fails with the server's last words when it will not start", async () => {
  const refusal = (await launch({ args: ['--maxmemory', 'plenty'] }).catch((error: unknown) => error)) as Error;
  expect(refusal).toMatchObject({ code: 'not_ready', retryable: false });
  expect(refusal.message).toMatch(/it ended: .*argument must be a memory value/);
  expect(refusal.message.split('\n')).toHaveLength(1);
});

it('fails when its data never loads in time, and leaves no server behind', async () => {
  // A clock on which the deadline has passed at the second look.
  let nowMs = 0;
  const clock = { now: () => 0, monotonic: () => (nowMs += 100_000) };
  const refusal = (await launch({ clock }).catch((error: unknown) => error)) as Error;
  expect(refusal.message).toContain('it does not answer');
  expect((await launch()).port).toBeGreaterThan(0);
});

it('never takes another server on the port for its own', async () => {
  const other = await launch({ folder: join(base, 'other') });
  await expect(launch({ port: other.port })).rejects.toThrow(/Address already in use/);
  expect(await converse(other.port, 'PING')).toContain('+PONG');
});

it('tries another port when somebody took the one that was found free', async () => {
  // A server whose first start loses its port, as Redis does, in the words that Redis has for it.
  const bin = program(
    base,
    'unlucky-redis',
    `if [ ! -e ${base}/tried ]; then touch ${base}/tried; echo 'bind: Address already in use'; exit 1; fi
     exec ${inject('redisBin')} "$@"`,
  );
  const server = await launch({ bin });
  expect(await converse(server.port, 'PING')).toContain('+PONG');
});
