/**
 * Who is process N? A pid alone is reused; a pid with its start time names one process.
 * Holds within one machine, one boot and one pid namespace: a folder shared by two containers is not covered.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** One process, now and later. */
export interface ProcessIdentity {
  readonly pid: number;
  /** opaque text of `startTimeOf`: equal for the same process, different for another with the same pid */
  readonly startTime: string;
}

/**
 * The start time of a live process.
 * @returns undefined when there is none; a zombie counts as none, since it holds nothing and never runs again
 */
export function startTimeOf(pid: number): string | undefined {
  return process.platform === 'linux' ? startTimeByProc(pid) : startTimeByPs(pid);
}

/** The identity of a live process, undefined when there is none. */
export function identityOf(pid: number): ProcessIdentity | undefined {
  const startTime = startTimeOf(pid);
  return startTime === undefined ? undefined : { pid, startTime };
}

/** Whether exactly this process still lives. */
export function isAlive(identity: ProcessIdentity): boolean {
  return startTimeOf(identity.pid) === identity.startTime;
}

function startTimeByProc(pid: number): string | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  // "pid (name) state … starttime …" (proc(5)): the name may hold spaces and brackets, so count from its last bracket.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const state = fields[0];
  const ticksSinceBoot = fields[19];
  if (state === 'Z' || state === 'X' || ticksSinceBoot === undefined) return undefined;
  // Ticks count from the boot, so the same pid and ticks can come again after the next one.
  return `${ticksSinceBoot}@${bootId()}`;
}

let knownBootId: string | undefined;
function bootId(): string {
  knownBootId ??= readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  return knownBootId;
}

function startTimeByPs(pid: number): string | undefined {
  try {
    // UTC and the C locale: the text must be the same when another user or another summer asks.
    const output = execFileSync('ps', ['-o', 'stat=,lstart=', '-p', String(pid)], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { ...process.env, LC_ALL: 'C', TZ: 'UTC' },
    }).trim();
    const [state = '', ...started] = output.split(/\s+/);
    return state === '' || state.startsWith('Z') ? undefined : started.join(' ');
  } catch {
    return undefined;
  }
}
