import { beforeEach, describe, expect, test } from 'vitest';
import type { Fault } from '../../../src/domain/fault.ts';
import { LEASE_MARGIN_MS, LEASE_TTL_MS, WorkerNumber } from '../../../src/platform/ids/worker-number.ts';
import { keptLog, NOON_MS, NumbersInMemory, NumbersOverLine, plainRandom, World } from './stepped-world.ts';

let world: World;
let table: NumbersInMemory;

beforeEach(() => {
  world = new World();
  table = new NumbersInMemory(() => world.timeMs);
});

/** A process with its own host and its own line to the table. */
function process(name: string, { fraction = 0.5 } = {}) {
  const host = world.host();
  const numbers = new NumbersOverLine(table);
  const log = keptLog();
  const { clock, timers } = host;
  const worker = new WorkerNumber({ numbers, clock, timers, random: plainRandom(fraction), log, ownerName: name });
  return { host, numbers, log, worker, stampNow: () => worker.stamp(clock.now()) };
}

const onlyFree = (free: number[]): void => {
  for (const [n, row] of table.rows) row.expiresAtMs = free.includes(n) ? 0 : Number.MAX_SAFE_INTEGER;
};

describe('a worker number is held', () => {
  test('from the start, and renewed as long as the process lives', async () => {
    const a = process('a');
    expect(a.worker.isReady()).toBe(false);
    await a.worker.start();
    for (let hour = 0; hour < 3; hour += 1) {
      await world.pass(3_600_000);
      expect(a.stampNow()).toBe(0);
    }
    expect(a.log.sentences).toEqual(['took a worker number']);
  });

  test('only for instants that the table has on record as reserved', async () => {
    const a = process('a');
    await a.worker.start();
    const recorded = table.rows.get(0)?.idUntilMs ?? 0;
    expect(a.worker.stamp(recorded - 1)).toBe(0);
    expect(a.worker.stamp(recorded)).toBe('too_late');
  });

  test('not after ttl − margin without a renewal, counted from the sending of the last one', async () => {
    const a = process('a');
    await a.worker.start();
    a.numbers.line = 'down';
    await world.pass(LEASE_TTL_MS - LEASE_MARGIN_MS - 1);
    expect(a.stampNow()).toBe(0);
    await world.pass(1);
    expect(a.stampNow()).toBe('not_held');
    expect(a.worker.isReady()).toBe(false);
    expect(table.rows.get(0)?.expiresAtMs, 'the lease itself still holds').toBeGreaterThan(world.timeMs);
  });

  test('counted from the sending, also where the answer took long', async () => {
    const a = process('a');
    a.numbers.line = 'slow';
    const started = a.worker.start();
    await world.pass(LEASE_TTL_MS - LEASE_MARGIN_MS);
    a.numbers.deliver();
    await started;
    expect(a.stampNow()).toBe('not_held');
  });
});

describe('after the database was away', () => {
  test('the same number goes on where nobody else has taken it', async () => {
    const a = process('a');
    await a.worker.start();
    a.numbers.line = 'down';
    await world.pass(3_600_000);
    expect(a.stampNow()).toBe('not_held');
    a.numbers.line = 'good';
    await world.pass(5_000);
    expect(a.stampNow()).toBe(0);
  });

  test('another number is taken where somebody has, and the log says so', async () => {
    const a = process('a');
    await a.worker.start();
    a.numbers.line = 'down';
    await world.pass(3_600_000);
    const b = process('b');
    await b.worker.start();
    expect(b.stampNow()).toBe(0);
    a.numbers.line = 'good';
    await world.pass(5_000);
    expect(a.stampNow()).toBe(1);
    expect(a.log.sentences.join('\n')).toContain('another process has taken the worker number');
  });

  test('waits between tries grow, are random, and end at five seconds', async () => {
    const waits: number[][] = [];
    for (const fraction of [0, 0.999]) {
      const a = process('a', { fraction });
      a.numbers.line = 'down';
      await expect(a.worker.start()).rejects.toMatchObject({ code: 'database_unavailable' });
      await world.pass(60_000);
      waits.push(a.host.waits.slice(0, 8).map((ms) => Math.round(ms)));
    }
    expect(waits).toEqual([
      [100, 200, 400, 800, 1_600, 2_500, 2_500, 2_500],
      [200, 400, 800, 1_599, 3_198, 4_998, 4_998, 4_998],
    ]);
  });

  test('a start without the database comes up by itself', async () => {
    const a = process('a');
    a.numbers.line = 'down';
    await expect(a.worker.start()).rejects.toMatchObject({ code: 'database_unavailable' });
    await world.pass(30_000);
    a.numbers.line = 'good';
    await world.pass(5_000);
    expect(a.worker.isReady()).toBe(true);
  });
});

describe('when no number is free', () => {
  test('the start says so, and the next free one is taken', async () => {
    onlyFree([]);
    const a = process('a');
    const fault: Fault = await a.worker.start().then(
      () => expect.unreachable(),
      (cause: Fault) => cause,
    );
    expect(fault).toMatchObject({ code: 'ids_unavailable', retryable: true });
    expect(a.stampNow()).toBe('not_held');
    onlyFree([512]);
    await world.pass(5_000);
    expect(a.stampNow()).toBe(512);
  });
});

describe('wrong clocks', () => {
  test('a jump ahead is refused until more instants are recorded, which happens at once', async () => {
    const a = process('a');
    await a.worker.start();
    a.host.step(3_600_000);
    expect(a.stampNow()).toBe('too_late');
    await world.pass(0);
    expect(a.stampNow()).toBe(0);
    expect(table.rows.get(0)?.idUntilMs).toBe(NOON_MS + 3_600_000 + LEASE_TTL_MS);
  });

  test('with the database away, a jump ahead does not hurry the next try', async () => {
    const a = process('a');
    await a.worker.start();
    a.numbers.line = 'down';
    await world.pass(LEASE_TTL_MS / 3);
    const tries = a.host.waits.length;
    a.host.step(3_600_000);
    for (let i = 0; i < 100; i += 1) a.stampNow();
    await world.pass(0);
    expect(a.host.waits.length).toBe(tries);
  });

  test('a number is not used below the instants of its last holder, whose clock was an hour ahead', async () => {
    onlyFree([3]);
    const ahead = process('ahead');
    ahead.host.step(3_600_000);
    await ahead.worker.start();
    const used = ahead.host.clock.now();
    expect(ahead.stampNow()).toBe(3);
    await ahead.worker.release();

    const right = process('right');
    await right.worker.start();
    expect(right.stampNow()).toBe('too_early');
    expect(right.worker.stamp(used)).toBe('too_early');
    await world.pass(3_600_000);
    expect(right.stampNow(), 'the very instant that was used').toBe('too_early');
    await world.pass(1);
    expect(right.stampNow()).toBe(3);
  });

  test('a frozen process that wakes up after its lease shares no instant with its successor', async () => {
    onlyFree([3]);
    const frozen = process('frozen');
    await frozen.worker.start();
    frozen.host.freeze();
    await world.pass(LEASE_TTL_MS);
    const successor = process('successor');
    await successor.worker.start();
    frozen.host.thaw();
    expect(frozen.worker.isReady(), 'its monotonic clock knows nothing').toBe(true);
    const instant = world.timeMs;
    expect([frozen.worker.stamp(instant), successor.worker.stamp(instant)]).toEqual(['too_late', 3]);
    expect([frozen.worker.stamp(instant - 1), successor.worker.stamp(instant - 1)]).toEqual([3, 'too_early']);
    await world.pass(0);
    expect(frozen.stampNow(), 'it asked for more, and learned that it had lost').toBe('not_held');
  });
});

describe('given up in order', () => {
  test('the next process has the number at once, from the first unused instant', async () => {
    const a = process('a');
    await a.worker.start();
    await world.pass(7);
    expect(a.stampNow()).toBe(0);
    await a.worker.release();
    expect(a.stampNow()).toBe('not_held');
    expect(table.rows.get(0)).toEqual({ owner: '', expiresAtMs: world.timeMs, idUntilMs: NOON_MS + 8 });
  });

  test('a process that stamped nothing leaves the number as it found it', async () => {
    const a = process('a');
    await a.worker.start();
    await a.worker.release();
    expect(table.rows.get(0)?.idUntilMs).toBe(0);
  });

  test('nothing is stamped while the table is being told', async () => {
    const a = process('a');
    await a.worker.start();
    a.numbers.line = 'slow';
    const released = a.worker.release();
    await world.pass(0);
    expect(a.stampNow()).toBe('not_held');
    a.numbers.deliver();
    await released;
  });

  test('a number that was just being taken is given up too', async () => {
    const a = process('a');
    a.numbers.line = 'slow';
    const started = a.worker.start();
    const released = a.worker.release();
    a.numbers.line = 'good';
    a.numbers.deliver();
    await Promise.all([started, released]);
    expect(table.rows.get(0)).toMatchObject({ owner: '', idUntilMs: 0 });
  });

  test('without the database, and before any start, nothing is thrown', async () => {
    await process('never started').worker.release();
    const a = process('a');
    await a.worker.start();
    a.numbers.line = 'down';
    await a.worker.release();
    expect(a.log.sentences.at(-1)).toContain('could not give the worker number up');
    await world.pass(600_000);
    expect(a.host.waits.length, 'its life has ended').toBe(1);
  });
});
