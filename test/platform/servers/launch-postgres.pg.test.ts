import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve, sep } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from 'vitest';
import { launchPostgres } from '../../../src/platform/servers/launch-postgres.ts';
import type { PostgresLaunch, RunningPostgres } from '../../../src/platform/servers/launch-postgres.ts';
import { startTimeOf } from '../../../src/platform/servers/process-identity.ts';
import { program, temporaryFolder } from './fake-programs.ts';

const running: RunningPostgres[] = [];
afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.stop()));
});

async function launch(options: Partial<PostgresLaunch> = {}): Promise<RunningPostgres> {
  const server = await launchPostgres({ binFolder: inject('postgresBinFolder'), ...options });
  running.push(server);
  return server;
}

/** Runs one statement by psql, which is not the code under test. */
function ask(url: string, statement: string): string {
  return execFileSync(join(inject('postgresBinFolder'), 'psql'), ['-X', '-A', '-t', '-q', '-c', statement, url], {
    encoding: 'utf8',
    cwd: '/',
  }).trim();
}

const folderOf = (server: RunningPostgres): string => dirname(server.logFile);
const setting = (server: RunningPostgres, name: string): string => ask(server.adminUrl, `show ${name}`);

describe('a cluster', () => {
  let server: RunningPostgres;
  beforeAll(async () => {
    server = await launchPostgres({ binFolder: inject('postgresBinFolder') });
  });
  afterAll(async () => {
    await server.stop();
  });

  it('lies under the temporary folder, listens on the loopback address, and is safe against a crash', () => {
    const folder = folderOf(server);
    expect(folder.startsWith(resolve(tmpdir()) + sep) || folder.startsWith('/tmp/')).toBe(true);
    expect(folder.startsWith(process.cwd() + sep)).toBe(false);
    expect(setting(server, 'listen_addresses')).toBe('127.0.0.1');
    expect(setting(server, 'unix_socket_directories')).toBe(join(folder, 'sockets'));
    expect(setting(server, 'max_connections')).toBe('200');
    expect(setting(server, 'fsync')).toBe('on');
    expect(setting(server, 'server_encoding')).toBe('UTF8');
    expect(ask(server.adminUrl, 'select datcollate from pg_database where oid = 1')).toBe('C');
    expect(setting(server, 'timezone')).toBe('UTC');
    ask(server.adminUrl, 'create database "a sale"');
    expect(ask(server.url('a sale'), 'select current_database()')).toBe('a sale');
  });

  it('runs as a user other than root, and its process is the server itself', () => {
    const owner = statSync(join(folderOf(server), 'data')).uid;
    if (process.getuid?.() === 0) expect(owner).not.toBe(0);
    else expect(owner).toBe(process.getuid?.());
    const pid = ask(server.adminUrl, `select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)`);
    expect(pid).toBe(String(server.pid));
  });

  it.each(['fast', 'immediate'] as const)('restarts (%s) on the same port with what was committed', async (mode) => {
    ask(server.adminUrl, `create table ${mode} (id int); insert into ${mode} values (1)`);
    const { pid, port } = server;
    await server.restart(mode);
    expect(server.pid).not.toBe(pid);
    expect(server.port).toBe(port);
    expect(ask(server.adminUrl, `select count(*) from ${mode}`)).toBe('1');
  });

  it('comes back after SIGKILL of the server with what was committed', async () => {
    ask(server.adminUrl, 'create table orders (id int); insert into orders values (1)');
    server.kill('SIGKILL');
    expect(await server.exited).toEqual({ code: null, signal: 'SIGKILL' });
    await server.restart('fast');
    expect(ask(server.adminUrl, 'select count(*) from orders')).toBe('1');
  });
});

it('turns fsync off, and takes other settings, when asked; after stop neither process nor folder is left', async () => {
  const server = await launch({ fsync: false, maxConnections: 20, args: ['-c', 'work_mem=7MB'] });
  expect(setting(server, 'fsync')).toBe('off');
  expect(setting(server, 'max_connections')).toBe('20');
  expect(setting(server, 'work_mem')).toBe('7MB');
  expect(existsSync(folderOf(server))).toBe(true);
  await server.stop();
  expect(startTimeOf(server.pid)).toBeUndefined();
  expect(existsSync(folderOf(server))).toBe(false);
});

it("fails with the server's last words when it will not start", async () => {
  const refusal = (await launch({ args: ['-c', 'work_mem=plenty'] }).catch((error: unknown) => error)) as Error;
  expect(refusal).toMatchObject({ code: 'not_ready', retryable: false });
  expect(refusal.message).toContain('invalid value for parameter "work_mem"');
  expect(refusal.message.split('\n')).toHaveLength(1);
});

it('tries another port when somebody took the one that was found free', async () => {
  // A server whose first start loses its port, in the words that PostgreSQL has for it; initdb is the real one.
  const folder = temporaryFolder('/tmp');
  chmodSync(folder, 0o755);
  const real = inject('postgresBinFolder');
  symlinkSync(join(real, 'initdb'), join(folder, 'initdb'));
  program(
    folder,
    'postgres',
    `if [ ! -e "$2/tried" ]; then touch "$2/tried"; echo 'could not bind: Address already in use'; exit 1; fi
     exec ${join(real, 'postgres')} "$@"`,
  );
  const server = await launch({ binFolder: folder });
  expect(ask(server.adminUrl, 'select 1')).toBe('1');
  rmSync(folder, { recursive: true });
});
