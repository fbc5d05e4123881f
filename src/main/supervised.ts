/**
 * The side of a process that `serve --workers N` started: says when it serves, tells its metrics, and asks for those of
 * all when somebody scrapes it. When its parent is gone it stops in order like at a signal.
 */
import cluster from 'node:cluster';
import type { Timers } from '../platform/clock.ts';
import type { MetricSnapshot } from '../watch/metrics.ts';
import type { FromProcess, ToProcess } from './supervisor.ts';
import type { Gather } from './wire-watch.ts';

/** Names the seat of a process that a supervisor starts; no setting of an operator. */
export const SEAT_VARIABLE = 'SLUICE_SEAT';
/** The parent waits a second for each process; a little more, and our own metrics are all that we can show. */
const GATHER_MS_MAX = 1_500;

/** This process among others. */
export type Supervised = {
  readonly name: string;
  readonly gather: Gather;
  /** to be told once, when the process serves */
  serving(url: string, read: () => Promise<readonly MetricSnapshot[]>): void;
  /** aborts when the parent is gone */
  readonly orphaned: AbortSignal;
  /** lets go of the parent, so that the process can end */
  leave(): void;
};

/** Joins the supervisor that started this process; undefined where none did. */
export function joinSupervisor(timers: Timers): Supervised | undefined {
  const name = process.env[SEAT_VARIABLE];
  if (name === undefined || !process.connected) return undefined;
  let read: (() => Promise<readonly MetricSnapshot[]>) | undefined;
  // Node would end a worker of a cluster on the spot when its parent is gone, with whatever it is doing.
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
  const orphaned = new AbortController();
  process.once('disconnect', () => {
    if (read === undefined) process.exit(1); // it serves nobody yet
    orphaned.abort();
  });

  const tell = (message: FromProcess): void => {
    if (process.connected) process.send?.(message, undefined, undefined, () => undefined); // a parent that is gone has ears no more
  };
  const waiting = new Map<number, (snapshots: readonly (readonly MetricSnapshot[])[]) => void>();
  let asked = 0;
  process.on('message', (message: ToProcess) => {
    switch (message.kind) {
      case 'read metrics':
        void read?.().then((metrics) => tell({ kind: 'metrics', id: message.id, metrics }));
        return;
      case 'all metrics':
        waiting.get(message.id)?.(message.snapshots);
    }
  });

  return {
    name,
    async gather(own) {
      const id = ++asked;
      const over = new AbortController();
      const told = new Promise<readonly (readonly MetricSnapshot[])[]>((resolve) => waiting.set(id, resolve));
      tell({ kind: 'gather metrics', id });
      const late = timers.sleep(GATHER_MS_MAX, over.signal).then(async () => [await own()]);
      const snapshots = await Promise.race([told, late]);
      over.abort();
      waiting.delete(id);
      return snapshots;
    },
    serving(url, readMetrics) {
      read = readMetrics;
      tell({ kind: 'serving', url });
    },
    orphaned: orphaned.signal,
    leave() {
      if (process.connected) process.disconnect();
    },
  };
}
