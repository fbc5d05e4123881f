/** Order ids of real processes over real PostgreSQL: killed in mid-burst, with forced clocks, with lapsed leases. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { systemClock, systemRandom, systemTimers } from '../../../src/platform/clock.ts';
import type { Clock } from '../../../src/platform/clock.ts';
import { OrderIds } from '../../../src/platform/ids/order-ids.ts';
import { WorkerNumber } from '../../../src/platform/ids/worker-number.ts';
import { WORKER_NUMBERS, workerNumbersTable } from '../../../src/platform/ids/worker-numbers-table.ts';
import type { Log } from '../../../src/platform/log.ts';
import type { Database } from '../../../src/platform/postgres/database.ts';
import { createTestDatabase } from '../../support/test-database.ts';
import type { TestDatabase } from '../../support/test-database.ts';
import type { BurstSettings } from './burst-process.ts';
import { readOrderId } from './ids-read.ts';
import { keptLog, NOON_MS } from './stepped-world.ts';

let made: TestDatabase;
let database: Database;
const begun: WorkerNumber[] = [];
const children: ChildProcess[] = [];

beforeAll(async () => {
  made = await createTestDatabase();
  database = made.database;
});
beforeEach(() => database.query('delete from worker_numbers'));
afterEach(async () => {
  await Promise.all(begun.splice(0).map((worker) => worker.release()));
  for (const child of children.splice(0)) child.kill('SIGKILL');
});
afterAll(() => made?.drop());

/** A process's ids, in this process. */
function makeIds(options: { clock?: Clock; log?: Log; leaseTtlMs?: number; leaseMarginMs?: number } = {}) {
  const { clock = systemClock, log = keptLog(), leaseTtlMs = 30_000, leaseMarginMs = 5_000 } = options;
  const timers = systemTimers;
  const numbers = workerNumbersTable(database);
  const lease = { numbers, clock, timers, random: systemRandom, log, ownerName: 'test', leaseTtlMs, leaseMarginMs };
  const worker = new WorkerNumber(lease);
  begun.push(worker);
  return { worker, ids: new OrderIds({ worker, clock, timers }) };
}

/** Leaves only this number to be had, its last holder gone without a word. */
async function leaveOnly(number: number): Promise<void> {
  await database.query(
    `insert into worker_numbers (number, owner, expires_at, id_until_ms)
     select n, 'elsewhere', clock_timestamp() + interval '1 day', 0 from generate_series(0, $1::int - 1) n
     on conflict (number) do update set expires_at = excluded.expires_at`,
    [WORKER_NUMBERS],
  );
  await database.query(`update worker_numbers set expires_at = 'epoch' where number = $1`, [number]);
}

test('two processes forced to the same instant draw 500 ids each under different numbers (BR-068)', async () => {
  const stopped: Clock = { now: () => NOON_MS, monotonic: () => systemClock.monotonic() };
  const [a, b] = [makeIds({ clock: stopped }), makeIds({ clock: stopped })];
  await Promise.all([a.worker.start(), b.worker.start()]);
  const drawn = [a, b].flatMap(({ ids }) => ids.tryTake(500) ?? []);
  expect(new Set(drawn).size).toBe(1_000);
  expect(new Set(drawn.map((id) => readOrderId(id).number)).size).toBe(2);
  expect(new Set(drawn.map((id) => readOrderId(id).instantMs))).toEqual(new Set([NOON_MS]));
});

test('20 processes that start at once have 20 numbers', async () => {
  const all = Array.from({ length: 20 }, () => makeIds());
  await Promise.all(all.map(({ worker }) => worker.start()));
  const drawn = all.flatMap(({ ids }) => ids.tryTake(1) ?? []);
  expect(new Set(drawn.map((id) => readOrderId(id).number)).size).toBe(20);
});

test('a process that finds no number says so, and has one as soon as one is given up', async () => {
  await leaveOnly(5);
  const [first, second] = [makeIds(), makeIds()];
  await first.worker.start();
  await expect(second.worker.start()).rejects.toMatchObject({ code: 'ids_unavailable' });
  await first.worker.release();
  const [id] = await second.ids.take(1);
  expect(readOrderId(id ?? '0').number).toBe(5);
});

test('a process whose number was taken while it was away stops, and goes on under another', async () => {
  let told = (): void => {};
  const lost = new Promise<void>((resolve) => (told = resolve));
  const log: Log = { ...keptLog(), error: () => told() };
  const { worker, ids } = makeIds({ log, leaseTtlMs: 900, leaseMarginMs: 200 });
  await worker.start();
  expect(readOrderId((await ids.take(1))[0] ?? '0').number).toBe(0);
  await database.query(`update worker_numbers set owner = 'successor' where number = 0`);
  await lost;
  expect(readOrderId((await ids.take(1))[0] ?? '0').number).toBe(1);
});

test('a lease that cannot be renewed stops the ids before it can lapse in the database', async () => {
  let refuse = false;
  const real = workerNumbersTable(database);
  const stalled = new Promise<never>(() => {});
  let now = 0;
  const clock: Clock = { now: () => systemClock.now(), monotonic: () => now };
  const worker = new WorkerNumber({
    numbers: { ...real, renew: (request) => (refuse ? stalled : real.renew(request)) },
    clock,
    timers: systemTimers,
    random: systemRandom,
    log: keptLog(),
    ownerName: 'test',
  });
  begun.push(worker);
  const ids = new OrderIds({ worker, clock, timers: systemTimers });
  await worker.start();
  refuse = true;
  now += 24_999;
  expect(ids.tryTake(1)).toHaveLength(1);
  now += 1;
  expect(ids.tryTake(1)).toBeUndefined();
  expect(ids.isReady()).toBe(false);
  const [row] = await database.query<{ left_ms: number }>(
    `select extract(epoch from expires_at - clock_timestamp())::float8 * 1000 as left_ms from worker_numbers where number = 0`,
  );
  expect(row?.left_ms, 'by its own clock it stops 5 s before').toBeLessThanOrEqual(30_000);
});

/** Starting a process takes seconds on a busy machine. */
const SEVERAL_PROCESSES = { timeout: 120_000 };

/** A burst in a process of its own. */
function startBurst(settings: Partial<BurstSettings>) {
  const all: BurstSettings = { url: made.url, leaseTtlMs: 900, leaseMarginMs: 200, offMs: 0, ...settings };
  const script = fileURLToPath(new URL('burst-process.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', 'tsx', script, JSON.stringify(all)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  const lines = createInterface({ input: child.stdout });
  const ids: string[] = [];
  let refusals = 0;
  let watch = (): void => {};
  lines.on('line', (line) => {
    if (line === 'unavailable') refusals += 1;
    else ids.push(line);
    watch();
  });
  const until = (holds: () => boolean): Promise<void> =>
    new Promise((resolve, reject) => {
      watch = () => holds() && resolve();
      child.once('exit', () => reject(new Error('the burst ended by itself')));
      watch();
    });
  return {
    ids,
    until,
    refusals: () => refusals,
    /** SIGKILL, then all that it had written */
    async kill(): Promise<void> {
      const ended = new Promise((resolve) => lines.once('close', resolve));
      child.kill('SIGKILL');
      await ended;
      // Killed in mid-write, it may have left a piece of a number.
      if (ids.at(-1)?.length !== ids[0]?.length) ids.pop();
    },
  };
}

test(
  'killed in mid-burst and started again with the same number and a clock two seconds behind: no repeat (BR-070)',
  SEVERAL_PROCESSES,
  async () => {
    const drawn: string[] = [];
    for (const offMs of [0, 0, -2_000]) {
      await leaveOnly(5);
      const burst = startBurst({ offMs });
      await burst.until(() => burst.ids.length >= 2_000);
      await burst.kill();
      drawn.push(...burst.ids);
    }
    expect(drawn.length).toBeGreaterThanOrEqual(6_000);
    expect(new Set(drawn).size).toBe(drawn.length);
    expect(new Set(drawn.map((id) => readOrderId(id).number))).toEqual(new Set([5]));
    expect(drawn).toEqual(drawn.toSorted((a, b) => (BigInt(a) < BigInt(b) ? -1 : 1)));
  },
);

test.each([
  { stepBackMs: 2_000, recovers: true },
  { stepBackMs: 3_600_000, recovers: false },
])(
  'a clock that steps back $stepBackMs ms in mid-burst: a wait or a clean refusal, no repeat (BR-070)',
  SEVERAL_PROCESSES,
  async ({ stepBackMs, recovers }) => {
    const burst = startBurst({ stepAfter: 1_024, stepBackMs });
    await burst.until(() => burst.refusals() >= 3);
    expect(burst.ids).toHaveLength(1_024);
    if (recovers) await burst.until(() => burst.ids.length >= 2_048);
    await burst.kill();
    expect(new Set(burst.ids).size).toBe(burst.ids.length);
    expect(burst.ids).toEqual(burst.ids.toSorted((a, b) => (BigInt(a) < BigInt(b) ? -1 : 1)));
  },
);
