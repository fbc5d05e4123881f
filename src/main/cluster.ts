/**
 * `sluice serve --workers N`: the processes of one machine by node:cluster, and the parent that keeps them.
 *
 *     primary                      supervises; holds the port and deals connections out in turn; answers nothing itself
 *       ├─ api-1 … api-N           role api, all on the one port
 *       └─ worker-1                role worker, only with role all: its own port on loopback, for its health calls
 *
 * With role api or worker the N processes are all of that role and share the port. SIGTERM, SIGINT and SIGHUP stop all of
 * them in order; SIGUSR2 replaces them one by one, without a gap.
 */
import { fork, type ChildProcess } from 'node:child_process';
import cluster from 'node:cluster';
import { must } from '../domain/fault.ts';
import { systemClock, systemRandom, systemTimers } from '../platform/clock.ts';
import type { Log } from '../platform/log.ts';
import { freePrivatePort } from '../platform/servers/free-port.ts';
import type { Config } from './config.ts';
import { requireSettings, stopMsMax } from './serve.ts';
import { SEAT_VARIABLE } from './supervised.ts';
import { Supervisor, type Child, type Ending, type FromProcess, type Seat } from './supervisor.ts';
import type { Role } from './wire.ts';

/** Several processes that serve one address. */
export type ServingMany = {
  readonly url: string;
  /** false where one had to be killed or ended badly */
  stop(): Promise<boolean>;
};

/** The seats for a role and a number of processes. */
export function seatsFor(role: Role, workers: number): Seat[] {
  const many = role === 'all' ? 'api' : role;
  const seats: Seat[] = Array.from({ length: workers }, (_, i) => ({ name: `${many}-${i + 1}`, role: many }));
  return role === 'all' ? [...seats, { name: 'worker-1', role: 'worker' }] : seats;
}

/**
 * Starts the processes and waits until they serve.
 * @throws Fault `settings_invalid`, or `not_ready` where one of them does not come up
 */
export async function serveMany(config: Config, role: Role, log: Log): Promise<ServingMany> {
  requireSettings(config, role);
  // "any free port" would be another one for a process that is started when no other listens any more
  const port = config.port === 0 ? await freePrivatePort(systemRandom) : config.port;
  const supervisor = new Supervisor(seatsFor(role, config.workers), {
    spawn: (seat) =>
      seat.role === 'worker' && role === 'all'
        ? spawnAlone(seat, { host: '127.0.0.1', port: 0 })
        : spawnSharing(seat, { host: config.host, port }),
    log,
    clock: systemClock,
    timers: systemTimers,
    random: systemRandom,
    stopMsMax: stopMsMax(config),
  });
  const url = await supervisor.start();
  const replace = (): void => {
    log.info({}, 'replacing the processes one by one');
    void supervisor.replaceAll().then((all) => log.info({ all }, 'replaced'));
  };
  process.on('SIGUSR2', replace);
  log.info({ url, role, workers: config.workers }, 'serving');
  return { url, stop: () => supervisor.stop() };
}

type Where = { readonly host: string; readonly port: number };
const argumentsOf = (seat: Seat, { host, port }: Where): string[] => [
  'serve',
  '--role',
  seat.role,
  '--host',
  host,
  '--port',
  String(port),
];
const program = (): string => must(process.argv[1], 'a program has a file');

/** A process that shares the port with others. */
function spawnSharing(seat: Seat, where: Where): Child {
  cluster.setupPrimary({ exec: program(), args: argumentsOf(seat, where) });
  const worker = cluster.fork({ [SEAT_VARIABLE]: seat.name });
  worker.on('error', () => undefined); // told by its process, too; unheard it would end the parent
  return childOf(worker.process);
}

/** A process on a port of its own: in a cluster it would get a share of the callers' connections. */
function spawnAlone(seat: Seat, where: Where): Child {
  return childOf(fork(program(), argumentsOf(seat, where), { env: { ...process.env, [SEAT_VARIABLE]: seat.name } }));
}

function childOf(process: ChildProcess): Child {
  return {
    pid: process.pid,
    send(message) {
      if (process.connected) process.send(message, () => undefined); // it may be gone in this very moment
    },
    onMessage: (hear) => void process.on('message', (message) => hear(message as FromProcess)),
    kill: (signal) => void process.kill(signal),
    ended: new Promise<Ending>((resolve) => {
      process.once('exit', (code, signal) => resolve({ code, signal }));
      process.on('error', () => {
        if (process.pid === undefined) resolve({ code: null, signal: null }); // it could not even be started
      });
    }),
  };
}
