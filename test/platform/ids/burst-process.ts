/**
 * A process that draws order ids in bursts and writes each to standard output, until it is killed.
 * Its wall clock can be forced: off by `offMs`, or stepping back by `stepBackMs` after `stepAfter` ids.
 * Settings come as one JSON argument.
 */
import { stdout } from 'node:process';
import { systemClock, systemRandom, systemTimers } from '../../../src/platform/clock.ts';
import type { Clock } from '../../../src/platform/clock.ts';
import { OrderIds } from '../../../src/platform/ids/order-ids.ts';
import { WorkerNumber } from '../../../src/platform/ids/worker-number.ts';
import { workerNumbersTable } from '../../../src/platform/ids/worker-numbers-table.ts';
import { makeLog } from '../../../src/platform/log.ts';
import { openPool } from '../../../src/platform/postgres/pool.ts';

/** What a burst is to do. */
export type BurstSettings = {
  url: string;
  leaseTtlMs: number;
  leaseMarginMs: number;
  offMs: number;
  stepAfter?: number;
  stepBackMs?: number;
};

const settings = JSON.parse(process.argv[2] ?? '{}') as BurstSettings;
let drawn = 0;
const clock: Clock = {
  now() {
    const stepped = settings.stepAfter !== undefined && drawn >= settings.stepAfter;
    return systemClock.now() + settings.offMs - (stepped ? (settings.stepBackMs ?? 0) : 0);
  },
  monotonic: () => systemClock.monotonic(),
};
const log = makeLog('silent');
const database = openPool({
  url: settings.url,
  applicationName: 'burst',
  poolMax: 1,
  acquireTimeoutMs: 5_000,
  statementTimeoutMs: 5_000,
  lockTimeoutMs: 5_000,
  log,
  clock,
  timers: systemTimers,
});
const worker = new WorkerNumber({
  numbers: workerNumbersTable(database),
  clock,
  timers: systemTimers,
  random: systemRandom,
  log,
  ownerName: `burst:${process.pid}`,
  leaseTtlMs: settings.leaseTtlMs,
  leaseMarginMs: settings.leaseMarginMs,
});
await worker.start().catch(() => {});
const ids = new OrderIds({ worker, clock, timers: systemTimers });
for (;;) {
  try {
    const some = await ids.take(128);
    drawn += some.length;
    if (!stdout.write(`${some.join('\n')}\n`)) await new Promise((resolve) => stdout.once('drain', resolve));
  } catch {
    // A clean refusal: said once each time, so that a test can wait for it.
    stdout.write('unavailable\n');
    await systemTimers.sleep(20);
  }
}
