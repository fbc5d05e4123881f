/**
 * Starts a private PostgreSQL: a new cluster in a folder under the system's temporary folder, on 127.0.0.1, a free
 * port, a socket folder of its own, user `postgres`, no password. For tests, demonstrations and drills.
 *
 * Promises: resolved means that this very server takes connections; fsync is on unless asked otherwise, so that
 * killing it proves something; the cluster ends, and its folder goes, by `stop` and with us, however we end.
 * Does not: keep data beyond `stop`, or find or install the programs (`binaries.ts`, `install.ts`).
 *
 * PostgreSQL refuses to run as root, so as root it runs as the system's user `postgres`, from the folder `/`: the
 * checkout may be closed to other users. The watcher changes the user itself rather than by runuser, which would stay
 * between us and the server as a process that knows nothing of SIGINT and SIGQUIT, the two ends we need.
 */
import { chownSync, closeSync, mkdirSync, mkdtempSync, openSync, rmSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Fault } from '../../domain/fault.ts';
import { systemClock, systemRandom, systemTimers } from '../clock.ts';
import type { Clock, Random, Timers } from '../clock.ts';
import { freePrivatePort } from './free-port.ts';
import { bareEnvironment, LOOPBACK, PORT_TRIES_MAX } from './private-server.ts';
import type { RunningServer } from './private-server.ts';
import { lastLines, runCommand } from './run-command.ts';
import { startWatched } from './watched-process.ts';
import type { WatchedProcess } from './watched-process.ts';

/** What to start. */
export interface PostgresLaunch {
  /** folder that holds initdb and postgres */
  readonly binFolder: string;
  /** on by default: off only where neither a crash nor a figure is tested */
  readonly fsync?: boolean;
  /** default 200 */
  readonly maxConnections?: number;
  /** further settings, such as `['-c', 'log_statement=all']`; override ours */
  readonly args?: readonly string[];
  /** milliseconds until it must take connections (default 60,000) */
  readonly readyMsMax?: number;
  readonly clock?: Clock;
  readonly timers?: Timers;
  readonly random?: Random;
}

/** A running cluster. `pid`, `exited` and `kill` speak of the present server, which `restart` replaces. */
export interface RunningPostgres extends Omit<RunningServer, 'url'> {
  /** the database `postgres` as superuser */
  readonly adminUrl: string;
  /** the given database as superuser; does not make it */
  url(databaseName: string): string;
  /**
   * Ends the server and starts it again on the same port and data.
   * `fast` rolls back and checkpoints first; `immediate` is a crash: recovery follows.
   * Also brings back a server that was killed.
   */
  restart(mode: 'fast' | 'immediate'): Promise<void>;
}

const STOP_GRACE_MS = 10_000;
const READY_MS_MAX = 60_000;
const ASK_AGAIN_MS = 20;
const ASK_TIMEOUT_MS = 2_000;
// A directory service may be asked, and the machine may be busy.
const USER_TIMEOUT_MS = 20_000;
const INITDB_TIMEOUT_MS = 120_000;
const RESTART_TRIES_MAX = 50;
const RESTART_PAUSE_MS = 100;

/** Everything of one cluster: root ┬ data, made by initdb; ├ sockets; └ postgres.log */
interface Cluster {
  readonly root: string;
  readonly data: string;
  readonly sockets: string;
  readonly logFile: string;
  readonly user: { readonly uid: number; readonly gid: number } | undefined;
}

/**
 * Makes a cluster, starts it and waits until it takes connections.
 * @throws Fault `not_ready` with the last lines of initdb or of the server's log
 */
export async function launchPostgres(launch: PostgresLaunch): Promise<RunningPostgres> {
  const random = launch.random ?? systemRandom;
  const cluster = await makeCluster(launch);
  try {
    for (let tries = 1; ; tries += 1) {
      const port = await freePrivatePort(random);
      const outcome = await startServer(launch, cluster, port);
      if ('child' in outcome) return running(launch, cluster, port, outcome.child);
      if (!outcome.log.includes('Address already in use') || tries === PORT_TRIES_MAX)
        throw cannotStart(launch, outcome);
    }
  } catch (error) {
    removeFolder(cluster.root);
    throw error;
  }
}

function running(launch: PostgresLaunch, cluster: Cluster, port: number, first: WatchedProcess): RunningPostgres {
  let child = first;
  const url = (databaseName: string): string =>
    `postgresql://postgres@${LOOPBACK}:${port}/${encodeURIComponent(databaseName)}`;
  return {
    adminUrl: url('postgres'),
    url,
    host: LOOPBACK,
    port,
    logFile: cluster.logFile,
    get pid() {
      return child.pid;
    },
    get exited() {
      return child.exited;
    },
    kill: (signal) => child.kill(signal),
    async restart(mode) {
      const timers = launch.timers ?? systemTimers;
      child.kill(mode === 'fast' ? 'SIGINT' : 'SIGQUIT');
      // A server that a test has stopped would sleep through it.
      child.kill('SIGCONT');
      const lastResort = timers.after(STOP_GRACE_MS, () => child.kill('SIGKILL'));
      await child.exited;
      lastResort.cancel();
      for (let tries = 1; ; tries += 1) {
        const outcome = await startServer(launch, cluster, port);
        if ('child' in outcome) {
          child = outcome.child;
          return;
        }
        // After SIGKILL of the postmaster its children need a moment to notice and let go of the shared memory.
        const stillHeld = outcome.log.includes('shared memory block');
        if (!stillHeld || tries === RESTART_TRIES_MAX) throw cannotStart(launch, outcome);
        await timers.sleep(RESTART_PAUSE_MS);
      }
    },
    async stop() {
      await child.stop();
      removeFolder(cluster.root);
    },
  };
}

async function makeCluster(launch: PostgresLaunch): Promise<Cluster> {
  const env = bareEnvironment(process.env);
  const user = process.getuid?.() === 0 ? await postgresUser(env) : undefined;
  const root = mkdtempSync(join(openTemporaryFolder(user !== undefined), 'sluice-pg-'));
  const cluster: Cluster = {
    root,
    data: join(root, 'data'),
    sockets: join(root, 'sockets'),
    logFile: join(root, 'postgres.log'),
    user,
  };
  mkdirSync(cluster.sockets, { mode: 0o700 });
  if (user !== undefined) for (const path of [root, cluster.sockets]) chownSync(path, user.uid, user.gid);
  // Loopback only and a folder of its own: who may connect is decided by the machine, not by a password.
  // --no-sync spares initdb's last sync only; the server's own fsync is set when it starts.
  const made = await runCommand(
    join(launch.binFolder, 'initdb'),
    [
      '-D',
      cluster.data,
      '-U',
      'postgres',
      '--auth=trust',
      '-E',
      'UTF8',
      '--locale=C',
      '--no-sync',
      '--no-instructions',
    ],
    { env, cwd: '/', timeoutMs: INITDB_TIMEOUT_MS, user },
  );
  if (made.code === 0) return cluster;
  removeFolder(root);
  throw new Fault('not_ready', `making a PostgreSQL cluster: ${lastLines(made.stderr || made.stdout)}`, {
    retryable: false,
  });
}

type Outcome = { readonly child: WatchedProcess } | { readonly why: string; readonly log: string };

async function startServer(launch: PostgresLaunch, cluster: Cluster, port: number): Promise<Outcome> {
  const clock = launch.clock ?? systemClock;
  const timers = launch.timers ?? systemTimers;
  const logFd = openSync(cluster.logFile, 'w', 0o600);
  const child = await startWatched({
    command: join(launch.binFolder, 'postgres'),
    args: ['-D', cluster.data, ...settings(launch, cluster, port), ...(launch.args ?? [])],
    env: bareEnvironment(process.env),
    logFd,
    // SIGINT is "fast": it does not wait for clients, as SIGTERM would.
    stopSignal: 'SIGINT',
    graceMs: STOP_GRACE_MS,
    removeFolder: cluster.root,
    cwd: '/',
    user: cluster.user,
    timers,
  }).finally(() => closeSync(logFd));

  const deadline = clock.monotonic() + (launch.readyMsMax ?? READY_MS_MAX);
  while (child.end === undefined && clock.monotonic() < deadline) {
    if ((await saysReady(cluster, child.pid)) && (await takesConnections(port, timers))) return { child };
    await timers.sleep(ASK_AGAIN_MS);
  }
  const why = child.end === undefined ? 'it takes no connections' : 'it ended';
  // Not by `stop`, which would take the folder along: another port may still be tried in it.
  child.kill('SIGKILL');
  await child.exited;
  return { why, log: await readFile(cluster.logFile, 'utf8') };
}

function settings(launch: PostgresLaunch, cluster: Cluster, port: number): string[] {
  return [
    `port=${port}`,
    `listen_addresses=${LOOPBACK}`,
    `unix_socket_directories=${cluster.sockets}`,
    `max_connections=${launch.maxConnections ?? 200}`,
    `fsync=${launch.fsync === false ? 'off' : 'on'}`,
    'timezone=UTC',
    'log_timezone=UTC',
  ].flatMap((setting) => ['-c', setting]);
}

/**
 * Whether the server with this pid says, in its own pid file, that it is ready: the first line is its pid, the eighth its
 * state (PostgreSQL 10 and newer). Asked before the port, where in a bad moment another server could answer for ours.
 */
async function saysReady(cluster: Cluster, pid: number): Promise<boolean> {
  const lines = (await readFile(join(cluster.data, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n');
  return lines[0] === String(pid) && lines[7]?.trim() === 'ready';
}

/** Sends a start-up packet of protocol 3.0; a server still starting or recovering answers with an error. */
function takesConnections(port: number, timers: Timers): Promise<boolean> {
  const parameters = Buffer.from('user\0postgres\0database\0postgres\0\0', 'latin1');
  const packet = Buffer.alloc(8 + parameters.length);
  packet.writeInt32BE(packet.length, 0);
  packet.writeInt32BE(3 << 16, 4);
  parameters.copy(packet, 8);
  return new Promise((resolve) => {
    const socket = connect({ host: LOOPBACK, port });
    const done = (ready: boolean): void => {
      timeout.cancel();
      // 'X', Terminate: a polite end leaves nothing in the server's log.
      if (ready) socket.end(Buffer.from([0x58, 0, 0, 0, 4]));
      else socket.destroy();
      resolve(ready);
    };
    const timeout = timers.after(ASK_TIMEOUT_MS, () => done(false));
    socket.once('connect', () => socket.write(packet));
    // 'R', Authentication…: it took us in. 'E': not yet.
    socket.once('data', (answer: Buffer) => done(answer[0] === 0x52));
    socket.on('error', () => done(false));
    socket.once('close', () => done(false));
  });
}

async function postgresUser(env: NodeJS.ProcessEnv): Promise<{ uid: number; gid: number }> {
  const ids: number[] = [];
  for (const which of ['-u', '-g']) {
    const { code, stdout } = await runCommand('id', [which, 'postgres'], { env, timeoutMs: USER_TIMEOUT_MS });
    if (code !== 0) {
      throw new Fault('not_ready', 'PostgreSQL does not run as root, and there is no user postgres to run it as', {
        retryable: false,
      });
    }
    ids.push(Number(stdout.trim()));
  }
  const [uid = 0, gid = 0] = ids;
  return { uid, gid };
}

/** The temporary folder; where another user must pass and TMPDIR is closed to others, `/tmp`. */
function openTemporaryFolder(forAnotherUser: boolean): string {
  const preferred = tmpdir();
  if (!forAnotherUser) return preferred;
  for (let folder = preferred; ; folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) return '/tmp';
    if (folder === dirname(folder)) return preferred;
  }
}

function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
}

function cannotStart(launch: PostgresLaunch, { why, log }: { why: string; log: string }): Fault {
  return new Fault('not_ready', `starting PostgreSQL from ${launch.binFolder}: ${why}: ${lastLines(log)}`, {
    retryable: false,
  });
}
