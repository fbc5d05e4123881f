/**
 * Finds the servers' binaries: Redis or Valkey, and PostgreSQL, new enough for us.
 *
 *     what        where, in this order                                                     at least
 *     Redis       SLUICE_REDIS_BIN (a file), else valkey-server, redis-server in PATH      Redis 7.0, Valkey 7.2
 *     PostgreSQL  SLUICE_POSTGRES_BIN (a folder), else PATH, Debian's, Homebrew's folders  15
 *
 * A named place is the only one asked. Of several found the first that is new enough wins; when all are too old, a
 * fault says so in one line, since installing a second copy beside an old one is the operator's decision.
 */
import { access, constants, readdir, realpath } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { Fault } from '../../domain/fault.ts';
import { runCommand } from './run-command.ts';

/** A Redis-compatible server that may be started. */
export interface RedisBinary {
  readonly product: 'redis' | 'valkey';
  readonly path: string;
  /** `major.minor.patch` */
  readonly version: string;
}

/** A folder with `initdb` and `postgres` of one version. */
export interface PostgresBinaries {
  readonly folder: string;
  /** as it names itself: `15.18`, `18beta1` */
  readonly version: string;
}

/** Oldest accepted versions, by product: [major, minor]. */
export const OLDEST = { redis: [7, 0], valkey: [7, 2], postgres: [15, 0] } as const;

/** Folders whose children of that name are versions of PostgreSQL. */
export type PostgresHomes = readonly { readonly folder: string; readonly child: RegExp }[];

/** Where packages put PostgreSQL outside the PATH; the newest version is tried first. */
export const POSTGRES_HOMES: PostgresHomes = [
  { folder: '/usr/lib/postgresql', child: /^\d+$/ },
  { folder: '/opt/homebrew/opt', child: /^postgresql@\d+$/ },
  { folder: '/usr/local/opt', child: /^postgresql@\d+$/ },
];

const VERSION_TIMEOUT_MS = 10_000;

/**
 * Finds a Redis or Valkey server.
 * @param env its PATH and SLUICE_REDIS_BIN are read
 * @returns undefined when there is none
 * @throws Fault `not_ready` when the named one does not answer, or all found are too old
 */
export async function findRedis(env: NodeJS.ProcessEnv): Promise<RedisBinary | undefined> {
  const named = env.SLUICE_REDIS_BIN;
  const paths =
    named !== undefined && named !== ''
      ? [named]
      : [...(await inPath('valkey-server', env)), ...(await inPath('redis-server', env))];
  let tooOld: RedisBinary | undefined;
  for (const path of paths) {
    const binary = await askRedis(path, env);
    if (binary === undefined) continue;
    if (isAtLeast(binary.version, OLDEST[binary.product])) return binary;
    tooOld ??= binary;
  }
  if (tooOld !== undefined) {
    const name = tooOld.product === 'redis' ? 'Redis' : 'Valkey';
    throw refusal(
      `${tooOld.path} is ${name} ${tooOld.version}: Redis 7.0 or Valkey 7.2 is the oldest that will do ` +
        `(install a newer one, or name it by SLUICE_REDIS_BIN)`,
    );
  }
  if (named !== undefined && named !== '') {
    throw refusal(`SLUICE_REDIS_BIN names ${named}, which does not answer --version as a Redis or Valkey server`);
  }
  return undefined;
}

/**
 * Finds PostgreSQL's server programs.
 * @param env its PATH and SLUICE_POSTGRES_BIN are read
 * @param homes folders of versions to look through after the PATH
 * @returns undefined when there are none
 * @throws Fault `not_ready` when the named folder will not do, or all found are too old
 */
export async function findPostgres(
  env: NodeJS.ProcessEnv,
  homes: PostgresHomes = POSTGRES_HOMES,
): Promise<PostgresBinaries | undefined> {
  const named = env.SLUICE_POSTGRES_BIN;
  const folders =
    named !== undefined && named !== ''
      ? [named]
      : [...(await inPath('initdb', env)).map((path) => dirname(path)), ...(await versionFolders(homes))];
  let tooOld: PostgresBinaries | undefined;
  for (const folder of folders) {
    const binaries = await askPostgres(folder, env);
    if (binaries === undefined) continue;
    if (isAtLeast(binaries.version, OLDEST.postgres)) return binaries;
    tooOld ??= binaries;
  }
  if (tooOld !== undefined) {
    throw refusal(
      `${tooOld.folder} holds PostgreSQL ${tooOld.version}: 15 is the oldest that will do ` +
        `(install a newer one, or name its folder by SLUICE_POSTGRES_BIN)`,
    );
  }
  if (named !== undefined && named !== '') {
    throw refusal(`SLUICE_POSTGRES_BIN names ${named}, where initdb and postgres of one version are not found`);
  }
  return undefined;
}

/** Every executable file of this name in the PATH, in the PATH's order. */
export async function inPath(name: string, env: NodeJS.ProcessEnv): Promise<string[]> {
  const found: string[] = [];
  for (const folder of (env.PATH ?? '').split(delimiter)) {
    if (folder !== '' && (await isExecutable(join(folder, name)))) found.push(join(folder, name));
  }
  return found;
}

/** Compares the leading numbers of a version: `15.18` and `18beta1` are at least [15, 0]. */
export function isAtLeast(version: string, [oldestMajor, oldestMinor]: readonly [number, number]): boolean {
  const [major = 0, minor = 0] = version.split('.').map((part) => Number.parseInt(part, 10));
  return major > oldestMajor || (major === oldestMajor && minor >= oldestMinor);
}

async function askRedis(path: string, env: NodeJS.ProcessEnv): Promise<RedisBinary | undefined> {
  const { stdout } = await runCommand(path, ['--version'], { env, timeoutMs: VERSION_TIMEOUT_MS });
  // "Redis server v=7.0.15 sha=…", "Valkey server v=8.0.1 sha=…". The product is what it says, not how the file is
  // called: Debian's compatibility package links redis-server to Valkey.
  const match = /^(\w+) server v=(\d+\.\d+\.\d+)/im.exec(stdout);
  if (match?.[1] === undefined || match[2] === undefined) return undefined;
  return { product: match[1].toLowerCase() === 'valkey' ? 'valkey' : 'redis', path, version: match[2] };
}

async function askPostgres(folder: string, env: NodeJS.ProcessEnv): Promise<PostgresBinaries | undefined> {
  if (!(await isExecutable(join(folder, 'initdb')))) return undefined;
  // A PATH may hold links or a stray `postgres` of its own; what belongs together lies where initdb really is.
  const home = dirname(await realpath(join(folder, 'initdb')));
  const versions: string[] = [];
  for (const program of ['initdb', 'postgres']) {
    if (!(await isExecutable(join(home, program)))) return undefined;
    const { stdout } = await runCommand(join(home, program), ['--version'], { env, timeoutMs: VERSION_TIMEOUT_MS });
    const match = /\(PostgreSQL\) (\S+)/.exec(stdout);
    if (match?.[1] === undefined) return undefined;
    versions.push(match[1]);
  }
  const [version] = versions;
  return version !== undefined && versions.every((one) => one === version) ? { folder: home, version } : undefined;
}

async function versionFolders(homes: PostgresHomes): Promise<string[]> {
  const found: { folder: string; major: number }[] = [];
  for (const home of homes) {
    const children = await readdir(home.folder).catch(() => []);
    for (const child of children) {
      if (!home.child.test(child)) continue;
      found.push({ folder: join(home.folder, child, 'bin'), major: Number.parseInt(child.replace(/^\D*/, ''), 10) });
    }
  }
  return found.sort((a, b) => b.major - a.major).map(({ folder }) => folder);
}

async function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

function refusal(sentence: string): Fault {
  return new Fault('not_ready', sentence, { retryable: false });
}
