/**
 * A server that is not found is installed by the system's package manager: apt-get, only as root or where
 * `sudo -n true` works, or Homebrew. Said aloud before it happens. Where that cannot be, one line says what to type.
 *
 * Never asks a question, never adds a package source, never starts or uses the system service that a package brings.
 */
import { Fault } from '../../domain/fault.ts';
import { findPostgres, findRedis, inPath, isAtLeast, OLDEST, POSTGRES_HOMES } from './binaries.ts';
import type { PostgresBinaries, PostgresHomes, RedisBinary } from './binaries.ts';
import { lastLines, runCommand } from './run-command.ts';

/** The machine, as far as installing needs it. */
export interface Host {
  readonly env: NodeJS.ProcessEnv;
  readonly isRoot: boolean;
  /** tells the person who waits, one sentence at a time */
  say(sentence: string): void;
}

/** What apt may offer for one need, in order of preference. */
interface AptOffer {
  readonly name: string;
  readonly oldest: readonly [number, number];
}

interface Need {
  readonly what: string;
  readonly variable: string;
  readonly apt: readonly AptOffer[];
  readonly brew: string;
}

const REDIS: Need = {
  what: 'Redis 7.0 or Valkey 7.2 or newer',
  variable: 'SLUICE_REDIS_BIN',
  apt: [
    { name: 'redis-server', oldest: OLDEST.redis },
    { name: 'valkey-server', oldest: OLDEST.valkey },
  ],
  brew: 'valkey',
};

const POSTGRES: Need = {
  what: 'PostgreSQL 15 or newer',
  variable: 'SLUICE_POSTGRES_BIN',
  apt: [{ name: 'postgresql', oldest: OLDEST.postgres }],
  brew: 'postgresql@17',
};

/** Another apt on the machine (a nightly upgrade, say) is waited for, in seconds. */
const APT_LOCK_SECONDS = 120;
const QUESTION_TIMEOUT_MS = 20_000;
const INSTALL_TIMEOUT_MS = 15 * 60_000;

/** This machine; sentences go to standard error. */
export function thisHost(): Host {
  return {
    env: process.env,
    isRoot: process.getuid?.() === 0,
    say: (sentence) => process.stderr.write(`${sentence}\n`),
  };
}

/**
 * A Redis or Valkey that may be started, installed first where there is none.
 * @throws Fault `not_ready`, not retryable, whose message is the line that says what to do
 */
export async function ensureRedis(host: Host): Promise<RedisBinary> {
  const found = await findRedis(host.env);
  if (found !== undefined) return found;
  await install(REDIS, host);
  return (
    (await findRedis(host.env)) ?? fail(`the package for ${REDIS.what} is installed, but its server is not in PATH`)
  );
}

/**
 * PostgreSQL's programs, installed first where there are none.
 * @param homes as in `findPostgres`
 * @throws Fault `not_ready`, not retryable, whose message is the line that says what to do
 */
export async function ensurePostgres(host: Host, homes: PostgresHomes = POSTGRES_HOMES): Promise<PostgresBinaries> {
  const found = await findPostgres(host.env, homes);
  if (found !== undefined) return found;
  await install(POSTGRES, host);
  return (
    (await findPostgres(host.env, homes)) ??
    fail(`the package for ${POSTGRES.what} is installed, but initdb is not found`)
  );
}

async function install(need: Need, host: Host): Promise<void> {
  const [aptGet] = await inPath('apt-get', host.env);
  if (aptGet !== undefined) return installByApt(need, host, aptGet);
  const [brew] = await inPath('brew', host.env);
  if (brew !== undefined) return installByBrew(need, host, brew);
  fail(`${need.what} is needed and no package manager we know is here: install it, or name it by ${need.variable}`);
}

async function installByApt(need: Need, host: Host, aptGet: string): Promise<void> {
  const byHand = need.apt[0]?.name ?? '';
  const prefix = await rootPrefix(host);
  if (prefix === undefined) {
    fail(
      `${need.what} is needed; type: sudo apt-get update && sudo apt-get install -y ${byHand} (or set ${need.variable})`,
    );
  }
  // `env` behind sudo, which clears the environment; LC_ALL because we read apt's answers.
  const asRoot = (args: readonly string[], timeoutMs: number) => {
    const line = [...prefix, 'env', 'DEBIAN_FRONTEND=noninteractive', 'LC_ALL=C', ...args];
    return runCommand(line[0] ?? '', line.slice(1), { env: host.env, timeoutMs });
  };
  const lock = ['-o', `DPkg::Lock::Timeout=${APT_LOCK_SECONDS}`];

  host.say(`${need.what} is not here: asking apt-get (this takes a minute)`);
  // One broken foreign package source makes the update fail and harms nothing else: the install decides.
  await asRoot([aptGet, ...lock, 'update'], INSTALL_TIMEOUT_MS);
  const offer = await firstGoodOffer(need, host);
  if (offer === undefined) {
    fail(`${need.what} is needed and apt offers none that new: install it by hand, or name it by ${need.variable}`);
  }
  host.say(
    `installing ${offer} by apt-get${prefix.length > 0 ? ' with sudo' : ''}; ` +
      `the package also starts a system service, which Sluice does not use`,
  );
  const installed = await asRoot(
    [aptGet, ...lock, 'install', '-y', '--no-install-recommends', offer],
    INSTALL_TIMEOUT_MS,
  );
  if (installed.code !== 0) fail(`apt-get install ${offer} failed: ${lastLines(installed.stderr || installed.stdout)}`);
}

async function firstGoodOffer(need: Need, host: Host): Promise<string | undefined> {
  for (const { name, oldest } of need.apt) {
    const { stdout } = await runCommand('apt-cache', ['policy', name], {
      env: { ...host.env, LC_ALL: 'C' },
      timeoutMs: QUESTION_TIMEOUT_MS,
    });
    // "  Candidate: 5:7.0.15-1~deb12u10": a Debian version, its epoch before the colon.
    const version = /^\s*Candidate: (?:\d+:)?(\d\S*)/m.exec(stdout)?.[1];
    if (version !== undefined && isAtLeast(version, oldest)) return name;
  }
  return undefined;
}

/** The words before a command that needs root: none as root, `sudo -n` where it asks nothing, else undefined. */
async function rootPrefix(host: Host): Promise<string[] | undefined> {
  if (host.isRoot) return [];
  const [sudo] = await inPath('sudo', host.env);
  if (sudo === undefined) return undefined;
  const { code } = await runCommand(sudo, ['-n', 'true'], { env: host.env, timeoutMs: QUESTION_TIMEOUT_MS });
  return code === 0 ? [sudo, '-n'] : undefined;
}

async function installByBrew(need: Need, host: Host, brew: string): Promise<void> {
  // Homebrew refuses to run as root, in more lines than one.
  if (host.isRoot) fail(`${need.what} is needed; as a user other than root, type: brew install ${need.brew}`);
  host.say(`installing ${need.brew} by Homebrew (this takes a minute); its service is neither started nor used`);
  const installed = await runCommand(brew, ['install', need.brew], {
    env: { ...host.env, HOMEBREW_NO_ASK: '1', NONINTERACTIVE: '1' },
    timeoutMs: INSTALL_TIMEOUT_MS,
  });
  if (installed.code !== 0)
    fail(`brew install ${need.brew} failed: ${lastLines(installed.stderr || installed.stdout)}`);
}

function fail(sentence: string): never {
  throw new Fault('not_ready', sentence, { retryable: false });
}
