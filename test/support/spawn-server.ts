/** Starts `sluice serve` as production does, in a process of its own, on a test's database, Redis and key prefix. */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { TEST_SECRET } from './sluice.ts';

const PROGRAM = fileURLToPath(new URL('../../src/main/sluice.ts', import.meta.url));
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A server process. */
export type ServerProcess = {
  readonly pid: number;
  readonly url: string;
  readonly keyPrefix: string;
  /** lines of its log that carry an alarm */
  alarms(): string[];
  kill(signal: NodeJS.Signals): void;
  readonly ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
};

/** Starts one and waits until it serves. */
export async function spawnServer(options: {
  databaseUrl: string;
  redisUrl: string;
  role?: 'api' | 'worker' | 'all';
  settings?: Readonly<Record<string, string>>;
}): Promise<ServerProcess> {
  const keyPrefix = options.settings?.['SLUICE_KEY_PREFIX'] ?? `t${randomBytes(4).toString('hex')}`;
  const child = spawn(
    process.execPath,
    ['--import', 'tsx', PROGRAM, 'serve', '--role', options.role ?? 'all', '--port', '0'],
    {
      cwd: ROOT,
      stdio: ['ignore', 'pipe', 'inherit'],
      env: {
        PATH: process.env['PATH'],
        DATABASE_URL: options.databaseUrl,
        REDIS_URL: options.redisUrl,
        SLUICE_BUYER_SECRETS: TEST_SECRET,
        SLUICE_RECEIPT_SECRETS: TEST_SECRET,
        SLUICE_KEY_PREFIX: keyPrefix,
        SLUICE_LANDING_LEASE_SECONDS: '1',
        SLUICE_ACTIVITY_REFRESH_MS: '100',
        SLUICE_RECEIPT_READS_PER_SECOND: '100000',
        ...options.settings,
      },
    },
  );
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });
  const alarms: string[] = [];
  const url = await new Promise<string>((resolve, reject) => {
    void ended.then((end) => reject(new Error(`the server ended before it served: ${JSON.stringify(end)}`)));
    let rest = '';
    child.stdout.on('data', (data: Buffer) => {
      const lines = (rest + data.toString()).split('\n');
      rest = lines.pop()!;
      for (const line of lines) {
        const fields = JSON.parse(line) as { alarm?: string; url?: string };
        if (fields.alarm !== undefined) alarms.push(fields.alarm);
        if (fields.url !== undefined) resolve(fields.url);
      }
    });
  });
  return { pid: child.pid!, url, keyPrefix, alarms: () => alarms, kill: (signal) => child.kill(signal), ended };
}
