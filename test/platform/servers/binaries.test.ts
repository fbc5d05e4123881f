import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findPostgres, findRedis } from '../../../src/platform/servers/binaries.ts';
import { fakePostgres, program, saying, temporaryFolder } from './fake-programs.ts';

let folder: string;
beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

describe('a Redis or Valkey is taken when it is new enough, whatever its file is called', () => {
  it.each([
    ['redis-server', 'Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64', 'redis', '7.0.15'],
    ['redis-server', 'Redis server v=8.2.0 sha=00000000:1 malloc=libc bits=64', 'redis', '8.2.0'],
    ['valkey-server', 'Valkey server v=7.2.5 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64', 'valkey', '7.2.5'],
    ['redis-server', 'Valkey server v=8.0.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64', 'valkey', '8.0.1'],
  ])('%s saying "%s"', async (name, line, product, version) => {
    const path = saying(folder, name, line);
    expect(await findRedis({ PATH: folder })).toEqual({ product, path, version });
  });
});

describe('an older one is refused with one line that names it', () => {
  it.each([
    ['redis-server', 'Redis server v=6.2.14 sha=0', 'Redis 6.2.14'],
    ['valkey-server', 'Valkey server v=7.1.0 sha=0', 'Valkey 7.1.0'],
    ['redis-server', 'Valkey server v=7.0.15 sha=0', 'Valkey 7.0.15'],
  ])('%s saying "%s"', async (name, line, named) => {
    const path = saying(folder, name, line);
    const refusal = await findRedis({ PATH: folder }).catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: 'not_ready', retryable: false });
    expect((refusal as Error).message).toContain(`${path} is ${named}`);
    expect((refusal as Error).message).not.toContain('\n');
  });
});

it('passes over an old server in the PATH when a newer one follows', async () => {
  const [first, second] = [join(folder, 'first'), join(folder, 'second')];
  saying(first, 'redis-server', 'Redis server v=6.0.16 sha=0');
  const path = saying(second, 'redis-server', 'Redis server v=7.4.1 sha=0');
  expect(await findRedis({ PATH: `${first}:${second}` })).toMatchObject({ path, version: '7.4.1' });
});

it('finds nothing in an empty PATH, and nothing in a program that is no server', async () => {
  expect(await findRedis({ PATH: folder })).toBeUndefined();
  program(folder, 'redis-server', 'exit 1');
  expect(await findRedis({ PATH: folder })).toBeUndefined();
  expect(await findRedis({})).toBeUndefined();
});

it('asks only the server that SLUICE_REDIS_BIN names', async () => {
  saying(folder, 'redis-server', 'Redis server v=7.0.15 sha=0');
  const mine = saying(join(folder, 'mine'), 'my-redis', 'Redis server v=7.2.0 sha=0');
  expect(await findRedis({ PATH: folder, SLUICE_REDIS_BIN: mine })).toMatchObject({ path: mine });
  await expect(findRedis({ PATH: folder, SLUICE_REDIS_BIN: join(folder, 'absent') })).rejects.toThrow(
    /SLUICE_REDIS_BIN names .*absent/,
  );
});

describe('PostgreSQL', () => {
  const homes = (): { folder: string; child: RegExp }[] => [{ folder: join(folder, 'homes'), child: /^\d+$/ }];

  it('is taken from the PATH first, then from the newest folder of the packages', async () => {
    const older = fakePostgres(join(folder, 'homes/9/bin'), '9.6.24');
    const newer = fakePostgres(join(folder, 'homes/16/bin'), '16.4');
    expect(older).not.toBe(newer);
    expect(await findPostgres({ PATH: '' }, homes())).toEqual({ folder: newer, version: '16.4' });
    const own = fakePostgres(join(folder, 'own'), '15.18');
    expect(await findPostgres({ PATH: own }, homes())).toEqual({ folder: own, version: '15.18' });
  });

  it('is where initdb really lies, not where a link or a stray postgres does', async () => {
    const real = fakePostgres(join(folder, 'homes/15/bin'), '15.18');
    const links = join(folder, 'links');
    mkdirSync(links);
    symlinkSync(join(real, 'initdb'), join(links, 'initdb'));
    saying(links, 'postgres', 'something else altogether');
    expect(await findPostgres({ PATH: links }, [])).toEqual({ folder: real, version: '15.18' });
  });

  it('is not a folder without initdb, nor one whose programs are of two versions', async () => {
    const client = join(folder, 'client');
    saying(client, 'postgres', 'postgres (PostgreSQL) 16.4');
    expect(await findPostgres({ PATH: client }, homes())).toBeUndefined();
    saying(client, 'initdb', 'initdb (PostgreSQL) 15.18');
    expect(await findPostgres({ PATH: client }, homes())).toBeUndefined();
  });

  it('is refused with one line below 15, and taken as a beta of a newer one', async () => {
    const old = fakePostgres(join(folder, 'homes/14/bin'), '14.13');
    await expect(findPostgres({ PATH: '' }, homes())).rejects.toThrow(`${old} holds PostgreSQL 14.13`);
    fakePostgres(join(folder, 'homes/19/bin'), '19beta1');
    expect(await findPostgres({ PATH: '' }, homes())).toMatchObject({ version: '19beta1' });
  });

  it('is only looked for in the folder that SLUICE_POSTGRES_BIN names', async () => {
    fakePostgres(join(folder, 'own'), '16.4');
    const env = { PATH: join(folder, 'own'), SLUICE_POSTGRES_BIN: join(folder, 'absent') };
    await expect(findPostgres(env, homes())).rejects.toThrow(/SLUICE_POSTGRES_BIN names .*absent/);
    const named = fakePostgres(join(folder, 'named'), '17.2');
    expect(await findPostgres({ ...env, SLUICE_POSTGRES_BIN: named }, homes())).toMatchObject({ folder: named });
  });
});
