/**
 * Starts a private Redis or Valkey: on 127.0.0.1, in a folder of its own, append-only file on, no eviction.
 *
 * Promises: resolved means that this very server has answered PING; it ends by `stop` and with us, however we end.
 * Does not: find or install the binary (`binaries.ts`, `install.ts`), or secure a server that others can reach.
 * Speaks RESP on a plain socket: set-up must not depend on a client library.
 */
import { closeSync, openSync } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { Fault } from '../../domain/fault.ts';
import { systemClock, systemRandom, systemTimers } from '../clock.ts';
import type { Clock, Random, Timers } from '../clock.ts';
import { freePrivatePort } from './free-port.ts';
import { lastLines } from './run-command.ts';
import { bareEnvironment, LOOPBACK, PORT_TRIES_MAX } from './private-server.ts';
import type { RunningServer } from './private-server.ts';
import { startWatched } from './watched-process.ts';

/** What to start. */
export interface RedisLaunch {
  /** path of redis-server or valkey-server */
  readonly bin: string;
  /** data folder of the server, made where it is missing; the same folder brings the same data back */
  readonly folder: string;
  /** the folder goes when the server is ended by `stop` or by our death (default false) */
  readonly temporary?: boolean;
  /** a free one by default; a given port that is taken is a fault */
  readonly port?: number;
  /** further configuration, such as `['--cluster-enabled', 'yes']`; overrides ours */
  readonly args?: readonly string[];
  /** milliseconds until it must answer, loading its data included (default 60,000) */
  readonly readyMsMax?: number;
  readonly clock?: Clock;
  readonly timers?: Timers;
  readonly random?: Random;
}

const STOP_GRACE_MS = 10_000;
const READY_MS_MAX = 60_000;
const ASK_AGAIN_MS = 10;
const ASK_TIMEOUT_MS = 1_000;

/**
 * Starts the server and waits until it serves.
 * @throws Fault `not_ready` with the server's last log lines
 */
export async function launchRedis(launch: RedisLaunch): Promise<RunningServer> {
  await mkdir(launch.folder, { recursive: true, mode: 0o700 });
  const random = launch.random ?? systemRandom;
  for (let tries = 1; ; tries += 1) {
    const port = launch.port ?? (await freePrivatePort(random));
    const outcome = await tryLaunch(launch, port);
    if ('server' in outcome) return outcome.server;
    const portLost = launch.port === undefined && outcome.log.includes('Address already in use');
    if (!portLost || tries === PORT_TRIES_MAX) {
      throw new Fault(
        'not_ready',
        `starting ${launch.bin} on port ${port}: ${outcome.why}: ${lastLines(outcome.log)}`,
        {
          retryable: false,
        },
      );
    }
  }
}

type Outcome = { readonly server: RunningServer } | { readonly why: string; readonly log: string };

async function tryLaunch(launch: RedisLaunch, port: number): Promise<Outcome> {
  const clock = launch.clock ?? systemClock;
  const timers = launch.timers ?? systemTimers;
  const logFile = join(launch.folder, 'redis.log');
  const logFd = openSync(logFile, 'w', 0o600);
  const child = await startWatched({
    command: launch.bin,
    args: [...configuration(launch.folder, port), ...(launch.args ?? [])],
    env: bareEnvironment(process.env),
    logFd,
    // SIGTERM is Redis's orderly end: the append-only file is written and synced first.
    stopSignal: 'SIGTERM',
    graceMs: STOP_GRACE_MS,
    ...(launch.temporary === true ? { removeFolder: launch.folder } : {}),
    timers,
  }).finally(() => closeSync(logFd));

  const deadline = clock.monotonic() + (launch.readyMsMax ?? READY_MS_MAX);
  while (child.end === undefined && clock.monotonic() < deadline) {
    if (await answersPing(port, child.pid, timers)) {
      return {
        server: {
          url: `redis://${LOOPBACK}:${port}`,
          host: LOOPBACK,
          port,
          pid: child.pid,
          logFile,
          exited: child.exited,
          stop: () => child.stop(),
          kill: (signal) => child.kill(signal),
        },
      };
    }
    await timers.sleep(ASK_AGAIN_MS);
  }
  const why = child.end === undefined ? 'it does not answer' : 'it ended';
  // Not by `stop`, which would take a temporary folder along, and with it the log.
  child.kill('SIGKILL');
  await child.exited;
  return { why, log: await readFile(logFile, 'utf8') };
}

function configuration(folder: string, port: number): string[] {
  return [
    ...['--bind', LOOPBACK],
    ...['--port', String(port)],
    ...['--daemonize', 'no'],
    ...['--logfile', ''],
    ...['--dir', folder],
    // No snapshots; what was told to a buyer is in the append-only file, at most a second late after a power cut.
    ...['--save', ''],
    ...['--appendonly', 'yes'],
    ...['--appendfsync', 'everysec'],
    // An evicted buyer mark sells twice: rather refuse writes when the memory is full.
    ...['--maxmemory-policy', 'noeviction'],
  ];
}

/**
 * Whether the server with this pid serves on this port. The pid is compared because another server may have taken the
 * port in the moment before ours: its PONG must not be ours. A server told to want a password answers without it.
 */
function answersPing(port: number, pid: number, timers: Timers): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: LOOPBACK, port });
    let answer = '';
    const done = (ready: boolean): void => {
      timeout.cancel();
      socket.destroy();
      resolve(ready);
    };
    const timeout = timers.after(ASK_TIMEOUT_MS, () => done(false));
    socket.setEncoding('utf8');
    socket.once('connect', () => socket.write('PING\r\nINFO server\r\n'));
    socket.on('data', (chunk: string) => {
      answer += chunk;
      if (answer.startsWith('-NOAUTH')) done(true);
      else if (answer.startsWith('-')) done(false);
      else {
        const answering = /^process_id:(\d+)\r$/m.exec(answer)?.[1];
        if (answering !== undefined) done(answer.startsWith('+PONG') && Number(answering) === pid);
      }
    });
    socket.on('error', () => done(false));
    socket.once('close', () => done(false));
  });
}
