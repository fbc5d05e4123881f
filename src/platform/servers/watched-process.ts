/**
 * A child process under the watcher (`watcher.mjs`): it ends when we ask, and also when we die without a word.
 *
 * Promises: after `exited` has resolved the child is gone; a parent ended by SIGKILL takes its children along.
 * Does not: know what the child is, or when it is ready. That is the launchers' business.
 */
import { spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { Fault } from '../../domain/fault.ts';
import { systemTimers } from '../clock.ts';
import type { Timers } from '../clock.ts';
import { startTimeOf } from './process-identity.ts';

/** How a child ended: by `code`, by `signal`, or unknown (both null) when the watcher was killed first. */
export interface ProcessEnd {
  readonly code: number | null;
  readonly signal: string | null;
}

/** A running child. */
export interface WatchedProcess {
  /** the child's own pid, not the watcher's */
  readonly pid: number;
  readonly watcherPid: number;
  /** resolves when the child is gone; never rejects */
  readonly exited: Promise<ProcessEnd>;
  /** how it ended, undefined while it runs */
  readonly end: ProcessEnd | undefined;
  /** asks the child to end, SIGKILL after the grace; resolves when it is gone; safe to repeat */
  stop(): Promise<void>;
  /** sends a signal to the child itself, at once; does nothing when it is gone */
  kill(signal: NodeJS.Signals): void;
}

/** What to start, and how it is ended. */
export interface WatchedProcessOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** file descriptor that takes the child's standard output and standard error */
  readonly logFd: number;
  readonly stopSignal: NodeJS.Signals;
  /** milliseconds from the stop signal to SIGKILL */
  readonly graceMs: number;
  /** a temporary folder that goes when the child was ended by `stop` or by our death */
  readonly removeFolder?: string;
  readonly cwd?: string;
  /** only root may name another user */
  readonly user?: { readonly uid: number; readonly gid: number } | undefined;
  readonly timers?: Timers;
}

/** Beyond the child's grace, for the watcher to clean up and leave. */
const WATCHER_GRACE_MS = 5_000;

/**
 * Starts a child under a watcher and waits until it runs.
 * @throws Fault `not_ready` when the command cannot be started
 */
export async function startWatched(options: WatchedProcessOptions): Promise<WatchedProcess> {
  const timers = options.timers ?? systemTimers;
  const { stopSignal, graceMs, removeFolder, cwd, user } = options;
  const watcher = spawn(
    process.execPath,
    [
      fileURLToPath(new URL('./watcher.mjs', import.meta.url)),
      JSON.stringify({ stopSignal, graceMs, removeFolder, cwd, uid: user?.uid, gid: user?.gid }),
      options.command,
      ...options.args,
    ],
    // Detached: a signal to our process group must not end the servers before the door has drained.
    { stdio: ['pipe', options.logFd, options.logFd, 'pipe'], detached: true, env: options.env },
  );
  // The watcher may be gone when we close its pipe: that is an end too, not an error of ours.
  watcher.stdin?.on('error', () => {});

  let pid: number | undefined;
  let childStart: string | undefined;
  let end: ProcessEnd | undefined;
  const exited = new Promise<ProcessEnd>((resolve) => {
    const settle = (): void => {
      // No report of the end: the watcher itself was killed, and the child, with its group, must not stay behind.
      if (end === undefined && pid !== undefined && startTimeOf(pid) === childStart) sendSignal(-pid, 'SIGKILL');
      end ??= { code: null, signal: null };
      resolve(end);
    };
    watcher.once('close', settle);
    watcher.once('error', settle);
  });

  await new Promise<void>((resolve, reject) => {
    const cannotStart = (why: string): void =>
      reject(new Fault('not_ready', `starting ${options.command}: ${why}`, { retryable: false }));
    watcher.once('error', (error) => cannotStart(error.message));
    watcher.once('close', () => cannotStart('the watcher ended before it began'));
    onLines(watcher.stdio[3] as Readable, (line) => {
      const fact = JSON.parse(line) as { pid?: number; error?: string; code?: number | null; signal?: string | null };
      if (fact.error !== undefined) cannotStart(fact.error);
      else if (fact.pid !== undefined) {
        pid = fact.pid;
        childStart = startTimeOf(pid);
        resolve();
      } else end = { code: fact.code ?? null, signal: fact.signal ?? null };
    });
  });

  const childPid = pid as unknown as number;
  return {
    pid: childPid,
    watcherPid: watcher.pid as number,
    exited,
    get end() {
      return end;
    },
    async stop() {
      watcher.stdin?.end();
      const lastResort = timers.after(graceMs + WATCHER_GRACE_MS, () => watcher.kill('SIGKILL'));
      await exited;
      lastResort.cancel();
    },
    kill(signal) {
      if (end === undefined) sendSignal(childPid, signal);
    },
  };
}

/** Sends a signal to a process, or to the group that -pid names; one that is gone already is fine. */
function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function onLines(stream: Readable, take: (line: string) => void): void {
  let rest = '';
  stream.setEncoding('utf8');
  stream.on('data', (chunk: string) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) take(line);
  });
}
