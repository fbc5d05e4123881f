/** Installing, against package managers that only write down how they were called. */
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ensurePostgres, ensureRedis } from '../../../src/platform/servers/install.ts';
import type { Host } from '../../../src/platform/servers/install.ts';
import { program, saying, temporaryFolder } from './fake-programs.ts';

let folder: string;
let said: string[];
beforeEach(() => {
  folder = temporaryFolder();
  said = [];
  // `env` is the one real program that installing needs; the fakes need a few more.
  for (const name of ['env', 'cp', 'chmod']) program(folder, name, `exec /usr/bin/${name} "$@"`);
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const calls = (): string[] =>
  existsSync(join(folder, 'calls')) ? readFileSync(join(folder, 'calls'), 'utf8').trim().split('\n') : [];

function host(isRoot: boolean): Host {
  return { env: { PATH: folder }, isRoot, say: (sentence) => said.push(sentence) };
}

/** An apt whose `install` puts a server of this version into the PATH. */
function fakeApt(candidates: Record<string, string>, serverLine: string): void {
  const server = saying(join(folder, 'packed'), 'server', serverLine);
  program(
    folder,
    'apt-get',
    `echo "apt-get $* [$DEBIAN_FRONTEND]" >> ${folder}/calls
     case "$*" in *" install "*) cp ${server} ${folder}/redis-server; chmod +x ${folder}/redis-server;; esac`,
  );
  const policies = Object.entries(candidates).map(
    ([name, version]) => `${name}) printf '${name}:\\n  Installed: (none)\\n  Candidate: ${version}\\n';;`,
  );
  program(folder, 'apt-cache', `case "$2" in ${policies.join(' ')} esac`);
}

describe('a missing server, with apt-get', () => {
  const candidates = { 'redis-server': '5:7.0.15-1~deb12u10', 'valkey-server': '(none)', postgresql: '14+238' };

  it('as root: updates first, asks no question, waits for the lock, says so, and finds the server', async () => {
    fakeApt(candidates, 'Redis server v=7.0.15 sha=0');
    expect(await ensureRedis(host(true))).toMatchObject({ version: '7.0.15' });
    expect(calls()).toEqual([
      'apt-get -o DPkg::Lock::Timeout=120 update [noninteractive]',
      'apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends redis-server [noninteractive]',
    ]);
    expect(said.join('\n')).toMatch(/installing redis-server by apt-get; .*system service, which Sluice does not use/);
  });

  it('not as root, where sudo asks nothing: the same through sudo', async () => {
    fakeApt(candidates, 'Redis server v=7.0.15 sha=0');
    program(
      folder,
      'sudo',
      `[ "$1" = -n ] || exit 1; shift; echo "sudo $1" >> ${folder}/calls; [ "$1" = true ] || exec "$@"`,
    );
    program(folder, 'true', 'exit 0');
    await ensureRedis(host(false));
    expect(calls().filter((call) => call.startsWith('sudo'))).toEqual(['sudo true', 'sudo env', 'sudo env']);
    expect(said.join('\n')).toContain('by apt-get with sudo');
  });

  it.each([
    ['there is no sudo', undefined],
    ['sudo would ask', 'exit 1'],
  ])('not as root and %s: one line that says what to type, and nothing is tried', async (_, sudo) => {
    fakeApt(candidates, '');
    if (sudo !== undefined) program(folder, 'sudo', sudo);
    const refusal = (await ensureRedis(host(false)).catch((error: unknown) => error)) as Error;
    expect(refusal).toMatchObject({ code: 'not_ready', retryable: false });
    expect(refusal.message).toContain('sudo apt-get install -y redis-server');
    expect(refusal.message.split('\n')).toHaveLength(1);
    expect(calls()).toEqual([]);
  });

  it('passes over a package that is too old, and takes the other product', async () => {
    fakeApt({ 'redis-server': '5:6.0.16-1ubuntu1', 'valkey-server': '8.1.1+dfsg1-3' }, 'Valkey server v=8.1.1 sha=0');
    expect(await ensureRedis(host(true))).toMatchObject({ product: 'valkey' });
    expect(calls().at(-1)).toContain('--no-install-recommends valkey-server');
  });

  it('installs nothing when all that is offered is too old', async () => {
    fakeApt(candidates, '');
    await expect(ensurePostgresElsewhere()).rejects.toThrow(
      'PostgreSQL 15 or newer is needed and apt offers none that new',
    );
    expect(calls()).toEqual(['apt-get -o DPkg::Lock::Timeout=120 update [noninteractive]']);
  });

  it("tells apt's last words when the install fails, but not when only the update does", async () => {
    fakeApt(candidates, 'Redis server v=7.0.15 sha=0');
    program(folder, 'apt-get', `echo 'E: Unable to fetch' >&2; exit 100`);
    await expect(ensureRedis(host(true))).rejects.toThrow('apt-get install redis-server failed: E: Unable to fetch');
    fakeApt(candidates, 'Redis server v=7.0.15 sha=0');
    const apt = readFileSync(join(folder, 'apt-get'), 'utf8');
    program(folder, 'apt-get', `${apt}\ncase "$*" in *update) exit 100;; esac`);
    expect(await ensureRedis(host(true))).toMatchObject({ version: '7.0.15' });
  });
});

describe('a missing server, with Homebrew', () => {
  it('is installed as a user and refused as root', async () => {
    const server = saying(join(folder, 'packed'), 'server', 'Valkey server v=8.1.0 sha=0');
    program(folder, 'brew', `echo "brew $*" >> ${folder}/calls; cp ${server} ${folder}/valkey-server`);
    await expect(ensureRedis(host(true))).rejects.toThrow('type: brew install valkey');
    expect(calls()).toEqual([]);
    expect(await ensureRedis(host(false))).toMatchObject({ product: 'valkey' });
    expect(calls()).toEqual(['brew install valkey']);
  });
});

it('without a package manager: one line that names the variable', async () => {
  await expect(ensureRedis(host(true))).rejects.toThrow(/install it, or name it by SLUICE_REDIS_BIN$/);
});

it('with a server there: nothing is said or done', async () => {
  fakeApt({}, '');
  saying(folder, 'redis-server', 'Redis server v=7.0.15 sha=0');
  await ensureRedis(host(true));
  expect(said).toEqual([]);
  expect(calls()).toEqual([]);
});

/** This machine may well have PostgreSQL where packages put it, outside the PATH: look nowhere but in the PATH. */
function ensurePostgresElsewhere(): Promise<unknown> {
  return ensurePostgres(host(true), []);
}
