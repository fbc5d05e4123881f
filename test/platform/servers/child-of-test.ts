/** Starts `holding-process.ts` and reads what it says, line by line; everything started is ended by `endChildren`. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { identityOf, isAlive, startTimeOf } from '../../../src/platform/servers/process-identity.ts';
import type { ProcessIdentity } from '../../../src/platform/servers/process-identity.ts';

const started: ChildProcess[] = [];
const leftOver: ProcessIdentity[] = [];

/** A child whose lines come one at a time. */
export interface SpeakingChild {
  readonly process: ChildProcess;
  nextLine(): Promise<string>;
}

/** Starts the process. */
export function holdingProcess(...args: string[]): SpeakingChild {
  const script = fileURLToPath(new URL('./holding-process.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', 'tsx', script, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  started.push(child);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    process: child,
    async nextLine() {
      const { value, done } = await lines.next();
      if (done === true) throw new Error('the process ended without a word');
      return value;
    },
  };
}

/** Has `endChildren` end a process that another one has started, should the test not come to it. */
export function endLater(pid: number): void {
  const identity = identityOf(pid);
  if (identity !== undefined) leftOver.push(identity);
}

/** Ends every process started here or named to `endLater`. */
export function endChildren(): void {
  for (const child of started.splice(0)) child.kill('SIGKILL');
  for (const identity of leftOver.splice(0)) if (isAlive(identity)) process.kill(identity.pid, 'SIGKILL');
}

/** Waits until a process is gone (its zombie does not count). */
export async function gone(pid: number): Promise<void> {
  await expect.poll(() => startTimeOf(pid), { timeout: 20_000, interval: 10 }).toBeUndefined();
}
