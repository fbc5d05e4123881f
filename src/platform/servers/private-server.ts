/** What the launchers share: the shape of a running private server, and the ground rules for starting one. */
import type { ProcessEnd } from './watched-process.ts';

/** A private server on the loopback address. */
export interface RunningServer {
  readonly url: string;
  readonly host: string;
  readonly port: number;
  /** the server's own pid */
  readonly pid: number;
  /** what it has said since it was started */
  readonly logFile: string;
  /** resolves when the server is gone, asked or not */
  readonly exited: Promise<ProcessEnd>;
  /** orderly end, SIGKILL after a grace; resolves when it is gone; safe to repeat */
  stop(): Promise<void>;
  /** sends a signal to the server itself, at once (SIGKILL, SIGSTOP, …) */
  kill(signal: NodeJS.Signals): void;
}

/** Where private servers listen, and nowhere else. */
export const LOOPBACK = '127.0.0.1';

/** How often another free port is tried when somebody took ours between the look and the bind. */
export const PORT_TRIES_MAX = 5;

/**
 * The environment of a private server: where programs are, where temporary files go, and nothing that could change
 * what the server (PGPORT, PGDATA, LANG) or its watcher (NODE_OPTIONS) does.
 */
export function bareEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const bare: NodeJS.ProcessEnv = { LC_ALL: 'C' };
  for (const name of ['PATH', 'HOME', 'TMPDIR', 'TZ', 'LD_LIBRARY_PATH', 'DYLD_LIBRARY_PATH']) {
    if (env[name] !== undefined) bare[name] = env[name];
  }
  return bare;
}
