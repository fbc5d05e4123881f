/**
 * The generators of a demo from the parent's side: starts them, gives them their phases, adds their counts up.
 * One that ends before its time fails the demo: half a crowd is no witness.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { Fault } from '../../domain/fault.ts';
import type { CrowdProgress, CrowdShare } from './crowd/crowd.ts';
import type { CrowdOrder, CrowdPhase, CrowdReport } from './crowd-process.ts';

/** The generators, as one. */
export type Generators = {
  /** opens their connections and hands out the shares */
  prepare(crowd: {
    share: Omit<CrowdShare, 'generator' | 'generators' | 'inFlight'>;
    urls: readonly string[];
    buyerSecret: string;
  }): Promise<void>;
  /** lets all of them run one phase, not before `startAt`; resolves when the last has ended it */
  run(phase: CrowdPhase, startAt?: number): Promise<void>;
  progress(): CrowdProgress;
  readonly evidenceFiles: readonly string[];
  /** ends them at once, whatever they do; safe to repeat */
  stop(): void;
};

/** Requests in flight at once, of all generators together: a browser crowd behind a reverse proxy's kept connections. */
const IN_FLIGHT = 200;

/** Starts them. `program` is the command's own file; it has a verb for this. */
export function startGenerators(options: { program: string; count: number; folder: string }): Generators {
  const { count } = options;
  const files = Array.from({ length: count }, (_, i) => join(options.folder, `heard-${i}.ndjson`));
  const latest: CrowdProgress[] = files.map(() => ({ requests: 0, accepted: 0, codes: {} }));
  const waiting = files.map(() => new Map<string, { resolve: () => void; reject: (error: Error) => void }>());
  let stopped = false;

  const children = files.map((_, i) => {
    const child = fork(options.program, ['demo-crowd'], {
      // its standard output must never reach ours, which holds one JSON document
      stdio: ['ignore', 2, 2, 'ipc'],
      env: { PATH: process.env['PATH'], NO_COLOR: '1' },
    });
    child.on('message', (report: CrowdReport) => {
      if ('failed' in report) return fail(i, report.failed);
      latest[i] = report.progress;
      if ('done' in report) {
        waiting[i]!.get(report.done)?.resolve();
        waiting[i]!.delete(report.done);
      }
    });
    child.once('error', (error) => fail(i, error.message));
    child.once('exit', (code, signal) => fail(i, `it ended (${signal ?? `exit ${code}`})`));
    return child;
  });

  function fail(i: number, why: string): void {
    if (stopped) return;
    for (const one of waiting[i]!.values()) one.reject(broken(i, why));
    waiting[i]!.clear();
  }

  const tell = (child: ChildProcess, i: number, order: CrowdOrder): Promise<void> =>
    new Promise((resolve, reject) => {
      waiting[i]!.set(order.do, { resolve, reject });
      if (!child.connected) return fail(i, 'it is gone');
      child.send(order, (error) => {
        if (error !== null) fail(i, error.message);
      });
    });

  return {
    evidenceFiles: files,
    async prepare({ share, urls, buyerSecret }) {
      const inFlight = Math.ceil(IN_FLIGHT / count);
      await Promise.all(
        children.map((child, generator) =>
          tell(child, generator, {
            do: 'prepare',
            share: { ...share, generator, generators: count, inFlight },
            urls,
            buyerSecret,
            evidenceFile: files[generator]!,
          }),
        ),
      );
    },
    async run(phase, startAt) {
      const order = startAt === undefined ? { do: phase } : { do: phase, startAt };
      await Promise.all(children.map((child, i) => tell(child, i, order)));
    },
    progress() {
      const codes: Record<string, number> = {};
      for (const one of latest) {
        for (const [code, times] of Object.entries(one.codes)) codes[code] = (codes[code] ?? 0) + times;
      }
      const sum = (of: (one: CrowdProgress) => number): number => latest.reduce((total, one) => total + of(one), 0);
      return { requests: sum((one) => one.requests), accepted: sum((one) => one.accepted), codes };
    },
    stop() {
      stopped = true;
      for (const child of children) child.kill('SIGKILL');
    },
  };
}

const broken = (generator: number, why: string): Fault =>
  new Fault('not_ready', `running generator ${generator + 1} of the crowd: ${why}`, { retryable: false });
