/** `sluice serve` in a process of its own, as production starts it, with every line of its log kept. */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { TEST_SECRET, until } from '../support/sluice.ts';

const PROGRAM = fileURLToPath(new URL('../../src/main/sluice.ts', import.meta.url));
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A line of the log. */
export type Line = Readonly<Record<string, unknown>> & { readonly msg: string; readonly pid: number };
/** How a process ended. */
export type Ended = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

/** A server, alone or with processes of its own. */
export type ServeProcess = {
  readonly pid: number;
  /** undefined until it serves */
  url(): string;
  readonly lines: readonly Line[];
  /** what it wrote to standard error */
  complaints(): string;
  /** pids of the processes that serve or have served in a seat, oldest first */
  pidsOf(seat: string): number[];
  kill(signal: NodeJS.Signals): void;
  readonly ended: Promise<Ended>;
  untilServing(): Promise<void>;
};

/** Starts `sluice serve` with these arguments. */
export function startServe(options: {
  args?: readonly string[];
  databaseUrl: string;
  redisUrl: string;
  settings?: Readonly<Record<string, string>>;
}): ServeProcess {
  const child = spawn(process.execPath, ['--import', 'tsx', PROGRAM, 'serve', ...(options.args ?? ['--port', '0'])], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: process.env['PATH'],
      DATABASE_URL: options.databaseUrl,
      REDIS_URL: options.redisUrl,
      SLUICE_BUYER_SECRETS: TEST_SECRET,
      SLUICE_RECEIPT_SECRETS: TEST_SECRET,
      SLUICE_KEY_PREFIX: `t${randomBytes(4).toString('hex')}`,
      SLUICE_LANDING_LEASE_SECONDS: '1',
      SLUICE_ACTIVITY_REFRESH_MS: '100',
      SLUICE_RECEIPT_READS_PER_SECOND: '100000',
      ...options.settings,
    },
  });
  const lines: Line[] = [];
  let rest = '';
  let complaints = '';
  child.stdout.on('data', (data: Buffer) => {
    const whole = (rest + data.toString()).split('\n');
    rest = whole.pop()!;
    for (const line of whole) lines.push(JSON.parse(line) as Line);
  });
  child.stderr.on('data', (data: Buffer) => {
    complaints += data.toString();
  });
  let over: Ended | undefined;
  const ended = new Promise<Ended>((resolve) => {
    child.once('exit', (code, signal) => {
      over = { code, signal };
      resolve(over);
    });
  });
  const url = (): string | undefined =>
    lines.find((line) => line.msg === 'serving' && typeof line['url'] === 'string')?.['url'] as string | undefined;
  return {
    pid: child.pid!,
    url: () => url() ?? 'http://not-serving-yet.invalid',
    lines,
    complaints: () => complaints,
    pidsOf: (seat) =>
      lines.filter((line) => line.msg === 'serving' && line['process'] === seat).map((line) => line.pid),
    kill: (signal) => void child.kill(signal),
    ended,
    untilServing: () =>
      until(
        'it serves',
        () => {
          if (over !== undefined) throw new Error(`it ended: ${JSON.stringify(over)} ${complaints}`);
          return url() !== undefined;
        },
        60_000,
      ),
  };
}

/** Whether a process is there. */
export function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
