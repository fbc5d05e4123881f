/** Runs a short command to its end and returns what it said; never throws for a command that fails. */
import { execFile } from 'node:child_process';

/** How a command ended. */
export interface CommandResult {
  /** exit status; 127 when the command could not be started, 1 when it was ended by a signal or by its deadline */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Settings of one run. */
export interface CommandOptions {
  readonly env: NodeJS.ProcessEnv;
  /** milliseconds after which the command is killed */
  readonly timeoutMs: number;
  readonly cwd?: string;
  /** only root may name another user */
  readonly user?: { readonly uid: number; readonly gid: number } | undefined;
}

/** Runs `command` without a shell. */
export function runCommand(command: string, args: readonly string[], options: CommandOptions): Promise<CommandResult> {
  return new Promise((resolve) => {
    execFile(
      command,
      args,
      {
        env: options.env,
        timeout: options.timeoutMs,
        killSignal: 'SIGKILL',
        maxBuffer: 16 * 1024 * 1024,
        encoding: 'utf8',
        ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
        ...options.user,
      },
      (error, stdout, stderr) => {
        if (error === null) return resolve({ code: 0, stdout, stderr });
        if (typeof error.code === 'string') return resolve({ code: 127, stdout, stderr: error.message });
        resolve({ code: error.code ?? 1, stdout, stderr });
      },
    );
  });
}

/** The last lines of an output on one line, for the text of a fault. */
export function lastLines(output: string, count = 4): string {
  return output
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .slice(-count)
    .join(' | ');
}
