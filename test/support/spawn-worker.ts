/** Starts `worker-process.ts` beside a test's Sluice, on its database, Redis and key prefix. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { TestSluice } from './sluice.ts';
import { TEST_SECRET } from './sluice.ts';

const PROGRAM = fileURLToPath(new URL('./worker-process.ts', import.meta.url));
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A worker process. */
export type WorkerProcess = {
  readonly pid: number;
  /** settles when it serves, or has ended before */
  readonly serving: Promise<void>;
  readonly ended: Promise<{ code: number | null; signal: NodeJS.Signals | null; said: string }>;
  kill(signal: NodeJS.Signals): void;
};

/** @param settings more settings, and `KILL_AT` */
export function spawnWorker(sluice: TestSluice, settings: Readonly<Record<string, string>> = {}): WorkerProcess {
  const child = spawn(process.execPath, ['--import', 'tsx', PROGRAM], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: process.env['PATH'],
      DATABASE_URL: sluice.database.url,
      REDIS_URL: sluice.config.redisUrl,
      SLUICE_PORT: '0',
      SLUICE_LOG: 'warn',
      SLUICE_RECEIPT_SECRETS: TEST_SECRET,
      SLUICE_KEY_PREFIX: sluice.config.keyPrefix,
      SLUICE_LANDING_LEASE_SECONDS: '1',
      SLUICE_LANDING_IDLE_MS: '2',
      SLUICE_OUTBOX_KEEP_SECONDS: '0',
      ...settings,
    },
  });
  let said = '';
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null; said: string }>((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal, said }));
  });
  const serving = new Promise<void>((resolve) => {
    child.stdout.on('data', (data: Buffer) => {
      said += data.toString();
      if (said.includes('serving\n')) resolve();
    });
    void ended.then(() => resolve());
  });
  child.stderr.on('data', (data: Buffer) => (said += data.toString()));
  return { pid: child.pid!, serving, ended, kill: (signal) => child.kill(signal) };
}
