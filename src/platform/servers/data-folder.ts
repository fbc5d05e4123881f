/**
 * The data folder of one running Sluice: its lock, the file by which the command line finds it, its servers' folders.
 *
 *     <folder>/lock        who runs here: our pid and start time, and those of our private servers
 *     <folder>/lock.heir-… who takes a dead owner's place, for a moment
 *     <folder>/run.json    address and operator token, mode 0600
 *
 * Promises: of any number of processes that open one folder, one gets it while it lives; the rest are refused. A dead
 * owner's lock is taken over, after the private servers that it left behind have been ended.
 * Does not: work across machines or containers, which do not see each other's processes.
 *
 * Taking over without a gap. Files appear whole (written aside, then link(2), which fails when the name exists). The
 * right to succeed dead owner X is the file `lock.heir-X`, which exactly one process can make. The heir looks again
 * that the lock still names X, and then renames its own lock over it; only then do the heir files go. An heir that
 * dies on the way has an heir in its turn. So no two processes ever stand in one lock, and it is never absent.
 */
import { linkSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { assert, Fault } from '../../domain/fault.ts';
import { systemClock, systemRandom, systemTimers } from '../clock.ts';
import type { Clock, Random, Timers } from '../clock.ts';
import { identityOf, isAlive } from './process-identity.ts';
import type { ProcessIdentity } from './process-identity.ts';

/** An open data folder: ours until `close`. */
export interface DataFolder {
  /** absolute */
  readonly path: string;
  /** names a private server in the lock, so that the next start can end it if we cannot */
  nameServer(server: { readonly name: string; readonly pid: number }): void;
  /** writes `run.json`, mode 0600, whole or not at all */
  writeRunFile(content: { readonly url: string; readonly token: string }): void;
  /** removes `run.json` and gives the folder up; safe to repeat */
  close(): void;
}

/** Stand-ins for tests. */
export interface DataFolderPorts {
  readonly clock?: Clock;
  readonly timers?: Timers;
  readonly random?: Random;
}

interface NamedServer extends ProcessIdentity {
  readonly name: string;
}

interface Lock extends ProcessIdentity {
  /** random: tells this opening of the folder from every other */
  readonly id: string;
  readonly servers: readonly NamedServer[];
}

const LEFT_OVER_GRACE_MS = 10_000;
const LOOK_AGAIN_MS = 20;

/**
 * Opens a data folder, made with mode 0700 where it is missing.
 * @throws Fault `data_folder_locked` while another process has it, or when its lock cannot be read
 */
export async function openDataFolder(path: string, ports: DataFolderPorts = {}): Promise<DataFolder> {
  const folder = resolve(path);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const self = identityOf(process.pid);
  assert(self !== undefined, 'a running process has a start time');
  const id = (ports.random ?? systemRandom).uuid();
  let lock: Lock = { id, ...self, servers: [] };
  while (!create(folder, 'lock', lock)) {
    const held = read(folder, 'lock');
    // Given up in this very moment: try again.
    if (held === undefined) continue;
    if (isAlive(held)) throw refusal(folder, held);
    if (await succeed(folder, held, lock, ports)) break;
  }

  const runFile = join(folder, 'run.json');
  return {
    path: folder,
    nameServer({ name, pid }) {
      const server = identityOf(pid);
      // Gone already: nobody will have to end it.
      if (server === undefined) return;
      lock = { ...lock, servers: [...lock.servers.filter(isAlive), { name, ...server }] };
      replace(folder, 'lock', lock, id);
    },
    writeRunFile({ url, token }) {
      replace(folder, 'run.json', { url, token }, id);
    },
    close() {
      if (read(folder, 'lock')?.id !== id) return;
      rmSync(runFile, { force: true });
      rmSync(join(folder, 'lock'), { force: true });
    },
  };
}

/** Takes a dead owner's place. False when another process moved first: then look again. */
async function succeed(folder: string, dead: Lock, ours: Lock, ports: DataFolderPorts): Promise<boolean> {
  let last = dead;
  for (;;) {
    const heir = read(folder, heirName(last));
    if (heir === undefined) break;
    if (isAlive(heir)) throw refusal(folder, heir);
    last = heir;
  }
  const claim = heirName(last);
  if (!create(folder, claim, ours)) return false;
  if (read(folder, 'lock')?.id !== dead.id) {
    rmSync(join(folder, claim), { force: true });
    return false;
  }
  try {
    await Promise.all(dead.servers.map((server) => endLeftOver(server, ports)));
  } catch (error) {
    rmSync(join(folder, claim), { force: true });
    throw error;
  }
  // The dead run's address and token lead nowhere.
  rmSync(join(folder, 'run.json'), { force: true });
  replace(folder, 'lock', ours, ours.id);
  // Whoever makes an heir file from here on finds that the lock names us, and withdraws: all of them may go.
  for (const name of readdirSync(folder)) {
    if (name.startsWith('lock.heir-')) rmSync(join(folder, name), { force: true });
  }
  return true;
}

/** Ends a server that its owner left behind, if the pid still is that server. */
async function endLeftOver(server: NamedServer, ports: DataFolderPorts): Promise<void> {
  const clock = ports.clock ?? systemClock;
  const timers = ports.timers ?? systemTimers;
  // SIGCONT with it: a stopped server would sleep through SIGTERM.
  for (const signals of [['SIGTERM', 'SIGCONT'], ['SIGKILL']] as const) {
    const deadline = clock.monotonic() + LEFT_OVER_GRACE_MS;
    if (isAlive(server)) for (const signal of signals) send(server, signal);
    while (isAlive(server) && clock.monotonic() < deadline) await timers.sleep(LOOK_AGAIN_MS);
  }
  if (isAlive(server)) {
    throw new Fault('not_ready', `ending ${server.name} (process ${server.pid}), left over from an earlier run`, {
      retryable: true,
    });
  }
}

function send(server: NamedServer, signal: NodeJS.Signals): void {
  try {
    process.kill(server.pid, signal);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ESRCH') return;
    throw new Fault('not_ready', `ending ${server.name} (process ${server.pid}), left over from an earlier run`, {
      retryable: false,
      cause,
    });
  }
}

function heirName(dead: Lock): string {
  return `lock.heir-${dead.id}`;
}

function refusal(folder: string, owner: ProcessIdentity): Fault {
  return new Fault(
    'data_folder_locked',
    `another Sluice (process ${owner.pid}) uses the data folder ${folder}: stop it, or name another by SLUICE_DATA`,
    { retryable: true },
  );
}

/** Makes a file that must not exist yet. False when it does. */
function create(folder: string, name: string, content: Lock): boolean {
  const aside = writeAside(folder, content, content.id);
  try {
    linkSync(aside, join(folder, name));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  } finally {
    rmSync(aside, { force: true });
  }
}

/** Writes a file in place of what is there. */
function replace(folder: string, name: string, content: object, writer: string): void {
  renameSync(writeAside(folder, content, writer), join(folder, name));
}

function writeAside(folder: string, content: object, writer: string): string {
  const aside = join(folder, `new-${writer}`);
  writeFileSync(aside, `${JSON.stringify(content, undefined, 2)}\n`, { mode: 0o600 });
  return aside;
}

/** Reads a lock or an heir, undefined when there is none. */
function read(folder: string, name: string): Lock | undefined {
  const path = join(folder, name);
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const lock = JSON.parse(text) as Lock;
    assert(typeof lock.id === 'string' && typeof lock.pid === 'number' && Array.isArray(lock.servers), 'a lock');
    return lock;
  } catch (cause) {
    // We write it whole or not at all, so somebody else wrote this; whether its owner lives cannot be known.
    throw new Fault('data_folder_locked', `reading ${path}: it is no lock of ours; delete it if no Sluice runs here`, {
      retryable: false,
      cause,
    });
  }
}
