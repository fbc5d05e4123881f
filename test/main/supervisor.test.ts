/** The supervisor on a clock and with processes of the test's own: waits between restarts, replacing, order of stopping. */
import { beforeEach, describe, expect, test } from 'vitest';
import {
  RESTART_MS,
  Supervisor,
  type Child,
  type Ending,
  type FromProcess,
  type Seat,
  type ToProcess,
} from '../../src/main/supervisor.ts';
import { seatsFor } from '../../src/main/cluster.ts';
import type { Timers } from '../../src/platform/clock.ts';
import { keptLog } from '../support/sluice.ts';

/** A clock that stands until it is told to go on, with the timers that hang on it. */
function standingTime() {
  let nowMs = 0;
  let due: { at: number; work: () => void }[] = [];
  const timers: Timers = {
    after(delayMs, work) {
      const one = { at: nowMs + delayMs, work };
      due.push(one);
      return { cancel: () => void (due = due.filter((other) => other !== one)) };
    },
    sleep: (delayMs, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        const timer = timers.after(delayMs, resolve);
        signal?.addEventListener('abort', () => {
          timer.cancel();
          resolve();
        });
      }),
  };
  return {
    timers,
    clock: { now: () => nowMs, monotonic: () => nowMs },
    /** lets what is already settled run on */
    settle: () => new Promise<void>((resolve) => setImmediate(resolve)),
    async pass(ms: number): Promise<void> {
      const until = nowMs + ms;
      for (;;) {
        const next = due.filter((one) => one.at <= until).toSorted((a, b) => a.at - b.at)[0];
        if (next === undefined) break;
        due = due.filter((one) => one !== next);
        nowMs = Math.max(nowMs, next.at);
        next.work();
        await this.settle();
      }
      nowMs = until;
      await this.settle();
    },
  };
}

type Fake = Child & {
  readonly seat: string;
  readonly signals: string[];
  readonly told: ToProcess[];
  say(message: FromProcess): void;
  end(ending?: Partial<Ending>): Promise<void>;
  isOver: boolean;
};

describe('the supervisor', () => {
  let time: ReturnType<typeof standingTime>;
  let log: ReturnType<typeof keptLog>;
  let children: Fake[];
  /** whether children obey SIGTERM */
  let obedient: boolean;
  /** whether the machine has room for a process */
  let canSpawn: boolean;

  const spawn = (seat: Seat): Child => {
    if (!canSpawn) throw new Error('spawn ENOMEM');
    let hear: (message: FromProcess) => void = () => undefined;
    let settle: (ending: Ending) => void = () => undefined;
    const fake: Fake = {
      seat: seat.name,
      pid: 1_000 + children.length,
      signals: [],
      told: [],
      isOver: false,
      send: (message) => void fake.told.push(message),
      onMessage: (listen) => void (hear = listen),
      say: (message) => hear(message),
      async end(ending = {}) {
        fake.isOver = true;
        settle({ code: 0, signal: null, ...ending });
        await time.settle();
      },
      kill(signal) {
        fake.signals.push(signal);
        if (obedient || signal === 'SIGKILL') void fake.end(signal === 'SIGKILL' ? { code: null, signal } : {});
      },
      ended: new Promise((resolve) => void (settle = resolve)),
    };
    children.push(fake);
    return fake;
  };
  const serves = async (child: Fake): Promise<void> => {
    child.say({ kind: 'serving', url: `http://${child.seat}` });
    await time.settle();
  };
  const running = (): string[] => children.filter((child) => !child.isOver).map((child) => child.seat);
  const newest = (seat: string): Fake => children.findLast((child) => child.seat === seat)!;

  beforeEach(() => {
    time = standingTime();
    log = keptLog();
    children = [];
    obedient = true;
    canSpawn = true;
  });
  const make = (seats = seatsFor('all', 2)): Supervisor =>
    new Supervisor(seats, {
      spawn,
      log,
      clock: time.clock,
      timers: time.timers,
      random: { fraction: () => 1, uuid: () => '', token: () => '' },
      stopMsMax: 30_000,
    });
  const started = async (): Promise<Supervisor> => {
    const supervisor = make();
    const start = supervisor.start();
    for (const child of [...children]) await serves(child);
    expect(await start).toBe('http://api-1');
    return supervisor;
  };

  test.each([
    ['all', 2, ['api-1 api', 'api-2 api', 'worker-1 worker']],
    ['api', 3, ['api-1 api', 'api-2 api', 'api-3 api']],
    ['worker', 2, ['worker-1 worker', 'worker-2 worker']],
  ] as const)('role %s with %i workers is %j', (role, workers, seats) => {
    expect(seatsFor(role, workers).map((seat) => `${seat.name} ${seat.role}`)).toEqual(seats);
  });

  test('is up when all of them serve, not before', async () => {
    const supervisor = make();
    let isUp = false;
    const start = supervisor.start().then(() => (isUp = true));
    await serves(children[0]!);
    await serves(children[2]!);
    expect(isUp).toBe(false);
    await serves(children[1]!);
    await start;
  });

  test('gives up when one ends before it served, and ends the others', async () => {
    const supervisor = make();
    const refused = expect(supervisor.start()).rejects.toThrow('start api-2: it ended before it served');
    await serves(children[0]!);
    await children[1]!.end({ code: 1 });
    await refused;
    expect(running()).toEqual([]);
    await time.pass(60_000);
    expect(children).toHaveLength(3); // nobody is started again
  });

  test('waits longer after each failure, up to a bound, and briefly again after one that lasted', async () => {
    await started();
    const waits: number[] = [];
    for (let failure = 0; failure < 9; failure++) {
      const before = children.length;
      const from = time.clock.now();
      await newest('api-1').end({ code: 1 });
      while (children.length === before) await time.pass(50);
      waits.push(time.clock.now() - from);
    }
    expect(waits).toEqual([200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000]);
    expect(waits.at(-1)).toBe(RESTART_MS.last);
    await serves(newest('api-1'));
    await time.pass(60_000);
    const before = children.length;
    await newest('api-1').end({ code: null, signal: 'SIGKILL' });
    await time.pass(RESTART_MS.first);
    expect(children).toHaveLength(before + 1);
    expect(log.lines.filter((line) => line.fields['alarm'] === 'process_ended').length).toBeGreaterThan(0);
  });

  test('outlives a machine that has no room for a process, and tries again', async () => {
    const supervisor = await started();
    canSpawn = false;
    await newest('api-1').end({ code: null, signal: 'SIGKILL' });
    await time.pass(RESTART_MS.first);
    await time.pass(RESTART_MS.first * 2);
    expect(await supervisor.replaceAll()).toBe(false);
    expect(children).toHaveLength(3);
    canSpawn = true;
    await time.pass(RESTART_MS.last);
    expect(running().toSorted()).toEqual(['api-1', 'api-2', 'worker-1']);
  });

  test('replaces one by one: the successor serves before the old one is asked to go', async () => {
    const supervisor = await started();
    const before = [...children];
    const replacing = supervisor.replaceAll();
    for (const [i, old] of before.entries()) {
      await time.settle();
      expect(children).toHaveLength(before.length + i + 1);
      expect(old.signals).toEqual([]);
      const others = before.slice(i + 1);
      await serves(newest(old.seat));
      await time.settle();
      expect(old.signals).toEqual(['SIGTERM']);
      for (const other of others) expect(other.signals).toEqual([]);
    }
    expect(await replacing).toBe(true);
    expect(running().toSorted()).toEqual(['api-1', 'api-2', 'worker-1']);
    await time.pass(60_000);
    expect(children).toHaveLength(6); // an old one that ends is not started again
  });

  test.each([
    ['ends', (child: Fake) => child.end({ code: 1 })],
    ['does not serve within a minute', () => time.pass(60_000)],
  ])('keeps what is there when a successor %s', async (_, fail) => {
    const supervisor = await started();
    const replacing = supervisor.replaceAll();
    await time.settle();
    await fail(newest('api-1'));
    expect(await replacing).toBe(false);
    expect(children.slice(0, 3).flatMap((child) => child.signals)).toEqual([]);
    expect(running()).toEqual(['api-1', 'api-2', 'worker-1']);
    expect(log.lines.map((line) => line.fields['alarm'])).toContain('replacement_failed');
    await time.pass(60_000);
    expect(children).toHaveLength(4);
  });

  test('a process that ends while its successor comes up is not started a third time', async () => {
    const supervisor = await started();
    const replacing = supervisor.replaceAll();
    await time.settle();
    await children[0]!.end({ code: 1 });
    await serves(newest('api-1'));
    for (const seat of ['api-2', 'worker-1']) {
      await time.settle();
      await serves(newest(seat));
    }
    expect(await replacing).toBe(true);
    await time.pass(60_000);
    expect(running().toSorted()).toEqual(['api-1', 'api-2', 'worker-1']);
  });

  test('stops those that answer buyers first, who lands last, and starts nobody again', async () => {
    obedient = false;
    const supervisor = await started();
    const stop = supervisor.stop();
    expect(supervisor.stop()).toBe(stop);
    expect(children.map((child) => child.signals)).toEqual([['SIGTERM'], ['SIGTERM'], []]);
    await children[0]!.end();
    expect(children[2]!.signals).toEqual([]);
    await children[1]!.end();
    expect(children[2]!.signals).toEqual(['SIGTERM']);
    await children[2]!.end();
    expect(await stop).toBe(true);
    await time.pass(60_000);
    expect(children).toHaveLength(3);
  });

  test('kills who does not end in time, and says that it was not well', async () => {
    obedient = false;
    const supervisor = await started();
    const stop = supervisor.stop();
    await children[0]!.end();
    await time.pass(29_999);
    expect(children[1]!.signals).toEqual(['SIGTERM']);
    await time.pass(1);
    expect(children[1]!.signals).toEqual(['SIGTERM', 'SIGKILL']);
    await children[2]!.end();
    expect(await stop).toBe(false);
  });

  test('a stop in the middle of replacing ends the successor, too', async () => {
    const supervisor = await started();
    const replacing = supervisor.replaceAll();
    await time.settle();
    expect(await supervisor.stop()).toBe(true);
    expect(await replacing).toBe(false);
    expect(running()).toEqual([]);
  });

  test('shows the metrics of all that answer within a second, and its own', async () => {
    await started();
    const [first, second, landing] = children as [Fake, Fake, Fake];
    second.say({ kind: 'gather metrics', id: 7 });
    await time.settle();
    const asked = (child: Fake): number => child.told.find((one) => one.kind === 'read metrics')!.id;
    const reading = (name: string) => [{ name, help: '', type: 'gauge', aggregator: 'first', values: [] }];
    first.say({ kind: 'metrics', id: asked(first), metrics: reading('of_first') });
    second.say({ kind: 'metrics', id: asked(second), metrics: reading('of_second') });
    expect(asked(landing)).toBeGreaterThan(0); // asked too, and silent
    await time.pass(1_000);
    await time.settle();
    const all = second.told.find((one) => one.kind === 'all metrics')!;
    expect(all.id).toBe(7);
    const [own, ...others] = all.snapshots;
    expect(others.map((metrics) => metrics[0]!.name)).toEqual(['of_first', 'of_second']);
    expect(own!.find((metric) => metric.name === 'sluice_process_up')!.values).toEqual([
      { labels: { of: 'api-1', process: 'primary' }, value: 1 },
      { labels: { of: 'api-2', process: 'primary' }, value: 1 },
      { labels: { of: 'worker-1', process: 'primary' }, value: 1 },
    ]);
  });
});
