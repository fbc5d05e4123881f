/** The pool alone, with connections that do what the test says and timers that move when it says. */
import { describe, expect, test } from 'vitest';
import { Fault } from '../../../src/domain/fault.ts';
import { systemClock } from '../../../src/platform/clock.ts';
import type { Timers } from '../../../src/platform/clock.ts';
import { makeLog } from '../../../src/platform/log.ts';
import { poolConnections } from '../../../src/platform/postgres/connections.ts';
import type { Answer, Connection } from '../../../src/platform/postgres/connections.ts';

/** One attempt to connect, settled by the test. */
interface Attempt {
  arrive(): FakeConnection;
  fail(fault: Fault): void;
  readonly aborted: boolean;
}

interface FakeConnection extends Connection {
  /** texts of statements that have no answer yet */
  readonly running: string[];
  answer(command?: string): Promise<void>;
  refuse(error: unknown): Promise<void>;
  breakDown(): Promise<void>;
  readonly said: string[];
}

/** Lets everything that can go on do so. */
const settled = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

function makeWorld({ connectionsMax = 1, waitingMax = 10, acquireTimeoutMs = 100 } = {}) {
  const attempts: Attempt[] = [];
  let nowMs = 0;
  const due = new Set<{ atMs: number; work: () => void }>();
  const timers: Timers = {
    after(delayMs, work) {
      const entry = { atMs: nowMs + delayMs, work };
      due.add(entry);
      return { cancel: () => void due.delete(entry) };
    },
    sleep: () => Promise.reject(new Error('the pool does not sleep')),
  };
  const database = poolConnections({
    kind: 'postgres',
    dial: (signal) =>
      new Promise((resolve, reject) => {
        signal.addEventListener('abort', () => reject(new Error('cut')));
        attempts.push({
          arrive() {
            const connection = makeConnection();
            resolve(connection);
            return connection;
          },
          fail: reject,
          get aborted() {
            return signal.aborted;
          },
        });
      }),
    connectionsMax,
    waitingMax,
    acquireTimeoutMs,
    log: makeLog('silent'),
    clock: systemClock,
    timers,
  });
  return {
    database,
    attempts,
    timersPending: () => due.size,
    async passTime(ms: number) {
      nowMs += ms;
      for (const entry of [...due]) {
        if (entry.atMs <= nowMs && due.delete(entry)) entry.work();
      }
      await settled();
    },
  };
}

function makeConnection(): FakeConnection {
  const pending: { text: string; resolve: (answer: Answer) => void; reject: (error: unknown) => void }[] = [];
  const said: string[] = [];
  let usable = true;
  let tellEnded: () => void;
  const ended = new Promise<void>((resolve) => {
    tellEnded = resolve;
  });
  const end = (): void => {
    usable = false;
    for (const { reject } of pending.splice(0)) reject(new Fault('database_unavailable', 'cut', { retryable: true }));
    tellEnded();
  };
  const run = (text: string): Promise<Answer> =>
    new Promise((resolve, reject) => {
      said.push(text);
      pending.push({ text, resolve, reject });
    });
  return {
    run,
    script: async (text) => void (await run(text)),
    get usable() {
      return usable;
    },
    end,
    cut: end,
    ended,
    said,
    get running() {
      return pending.map(({ text }) => text);
    },
    answer(command = 'SELECT') {
      pending.shift()?.resolve({ rows: [], command });
      return settled();
    },
    refuse(error) {
      pending.shift()?.reject(error);
      return settled();
    },
    breakDown() {
      end();
      return settled();
    },
  };
}

const down = new Fault('database_unavailable', 'connect', { retryable: true });

describe('the pool', () => {
  test('dials when first used, and gives a connection that rests to the next caller', async () => {
    const { database, attempts } = makeWorld();
    expect(attempts).toHaveLength(0);
    const first = database.query('one');
    const connection = attempts[0]!.arrive();
    await settled();
    await connection.answer();
    await first;
    expect(database.stats()).toEqual({ open: 1, idle: 1, waiting: 0 });
    const second = database.query('two');
    await settled();
    await connection.answer();
    await second;
    expect(attempts).toHaveLength(1);
    expect(connection.said).toEqual(['one', 'two']);
  });

  test('serves who waits in the order of arrival', async () => {
    const { database, attempts } = makeWorld();
    const calls = ['a', 'b', 'c'].map((text) => database.query(text));
    const connection = attempts[0]!.arrive();
    await settled();
    for (let i = 0; i < 3; i++) await connection.answer();
    await Promise.all(calls);
    expect(connection.said).toEqual(['a', 'b', 'c']);
  });

  test('never holds or dials more than its maximum', async () => {
    const { database, attempts } = makeWorld({ connectionsMax: 3, waitingMax: 50 });
    const calls = Array.from({ length: 50 }, (_, i) => database.query(String(i)));
    expect(attempts).toHaveLength(3);
    const connections = attempts.map((attempt) => attempt.arrive());
    await settled();
    expect(database.stats()).toEqual({ open: 3, idle: 0, waiting: 47 });
    for (let i = 0; i < 50; i++) await connections[i % 3]!.answer();
    await Promise.all(calls);
    expect(attempts).toHaveLength(3);
  });

  test('dials no more often than callers wait', async () => {
    const { database, attempts } = makeWorld({ connectionsMax: 5 });
    void database.query('a');
    void database.query('b');
    expect(attempts).toHaveLength(2);
  });

  test('refuses at once who would wait behind a full queue', async () => {
    const { database, attempts } = makeWorld({ waitingMax: 2 });
    const calls = [database.query('a'), database.query('b')];
    await expect(database.query('c')).rejects.toMatchObject({ code: 'database_busy', retryable: true });
    const connection = attempts[0]!.arrive();
    await settled();
    await connection.answer();
    await connection.answer();
    await Promise.all(calls);
  });

  test('refuses who has waited past the deadline, and keeps no timer of who has been served', async () => {
    const { database, attempts, passTime, timersPending } = makeWorld({ acquireTimeoutMs: 100 });
    const served = database.query('a');
    const connection = attempts[0]!.arrive();
    await settled();
    const late = expect(database.query('b')).rejects.toMatchObject({ code: 'database_busy', retryable: true });
    await passTime(100);
    await late;
    expect(database.stats()).toEqual({ open: 1, idle: 0, waiting: 0 });
    await connection.answer();
    await served;
    expect(connection.said).toEqual(['a']);
    expect(timersPending()).toBe(0);
  });

  test('a connection that arrives when its caller has given up goes to the next one', async () => {
    const { database, attempts, passTime } = makeWorld({ connectionsMax: 2, acquireTimeoutMs: 100 });
    const first = database.query('a');
    const busy = attempts[0]!.arrive();
    await passTime(60);
    const givesUp = expect(database.query('b')).rejects.toMatchObject({ code: 'database_busy' });
    await passTime(60); // both connections are spoken for: one in use, one on its way
    const next = database.query('c');
    await passTime(40);
    await givesUp;
    // b's attempt has been cut with b's deadline, and another is on its way for c
    expect(attempts.map(({ aborted }) => aborted)).toEqual([false, true, false]);
    const arrived = attempts[2]!.arrive();
    await settled();
    expect(arrived.running).toEqual(['c']);
    await arrived.answer();
    await busy.answer();
    await Promise.all([first, next]);
    expect(database.stats()).toEqual({ open: 2, idle: 2, waiting: 0 });
  });

  test('a connection that arrives when nobody waits any more rests', async () => {
    const { database, attempts, passTime } = makeWorld({ connectionsMax: 2, waitingMax: 10, acquireTimeoutMs: 100 });
    const first = database.query('a');
    const second = database.query('b');
    const one = attempts[0]!.arrive();
    await settled();
    await one.answer(); // serves a, then b: the second attempt has no caller now
    await one.answer();
    await Promise.all([first, second]);
    await passTime(50);
    attempts[1]!.arrive();
    await settled();
    expect(database.stats()).toEqual({ open: 2, idle: 2, waiting: 0 });
  });

  test('an attempt that fails costs one caller, and the next caller gets an attempt of his own', async () => {
    const { database, attempts } = makeWorld({ connectionsMax: 1 });
    const first = expect(database.query('a')).rejects.toBe(down);
    const second = database.query('b');
    attempts[0]!.fail(down);
    await first;
    expect(attempts).toHaveLength(2);
    const connection = attempts[1]!.arrive();
    await settled();
    await connection.answer();
    await second;
  });

  test('an attempt that never ends is cut and frees its place', async () => {
    const { database, attempts, passTime } = makeWorld({ connectionsMax: 1, acquireTimeoutMs: 100 });
    const first = expect(database.query('a')).rejects.toMatchObject({ code: 'database_busy' });
    await passTime(100);
    await first;
    expect(attempts[0]!.aborted).toBe(true);
    const second = database.query('b');
    const connection = attempts[1]!.arrive();
    await settled();
    await connection.answer();
    await second;
  });

  test('a connection that breaks in use is not used again', async () => {
    const { database, attempts } = makeWorld();
    const first = expect(database.query('a')).rejects.toMatchObject({ code: 'database_unavailable' });
    const second = database.query('b');
    const broken = attempts[0]!.arrive();
    await settled();
    await broken.breakDown();
    await first;
    const fresh = attempts[1]!.arrive();
    await settled();
    await fresh.answer();
    await second;
    expect(broken.said).toEqual(['a']);
  });

  test('a connection that breaks at rest leaves the pool', async () => {
    const { database, attempts } = makeWorld();
    const first = database.query('a');
    const connection = attempts[0]!.arrive();
    await settled();
    await connection.answer();
    await first;
    await connection.breakDown();
    expect(database.stats()).toEqual({ open: 0, idle: 0, waiting: 0 });
  });

  test('close lets work in hand finish, refuses who waits, and cuts what has not ended by its deadline', async () => {
    const { database, attempts, passTime } = makeWorld({ connectionsMax: 2, acquireTimeoutMs: 100 });
    const finishes = database.query('a');
    const stuck = expect(database.query('b')).rejects.toMatchObject({ code: 'database_unavailable' });
    const [one] = attempts.map((attempt) => attempt.arrive());
    await settled();
    const waits = expect(database.query('c')).rejects.toMatchObject({ code: 'database_unavailable' });
    const closed = database.close();
    await waits;
    await one!.answer();
    await finishes;
    await passTime(100);
    await stuck;
    await closed;
    expect(database.stats()).toEqual({ open: 0, idle: 0, waiting: 0 });
  });
});

describe('a transaction', () => {
  const begun = async (work: Parameters<ReturnType<typeof makeWorld>['database']['transaction']>[0]) => {
    const world = makeWorld();
    const result = world.database.transaction(work);
    result.catch(() => undefined);
    const connection = world.attempts[0]!.arrive();
    await settled();
    await connection.answer('BEGIN');
    return { ...world, connection, result };
  };

  test('whose COMMIT gets no answer has an unknown outcome', async () => {
    const { connection, result } = await begun(async () => 1);
    expect(connection.running).toEqual(['commit']);
    await connection.breakDown();
    await expect(result).rejects.toMatchObject({
      code: 'database_unavailable',
      message: expect.stringContaining('outcome unknown') as string,
    });
  });

  test('whose COMMIT is answered with ROLLBACK is a bug', async () => {
    const { connection, result } = await begun(async () => 1);
    await connection.answer('ROLLBACK');
    await expect(result).rejects.toMatchObject({ name: 'Bug' });
  });

  test('whose ROLLBACK fails ends with its connection, and with the error of its work', async () => {
    const thrown = new Error('work');
    const { connection, result, database } = await begun(() => Promise.reject(thrown));
    expect(connection.running).toEqual(['rollback']);
    await connection.refuse(new Fault('database_busy', 'rollback', { retryable: true, sqlstate: '57014' }));
    await expect(result).rejects.toBe(thrown);
    expect(database.stats().open).toBe(0);
  });

  test('on a broken connection sends nothing more', async () => {
    const { connection, result } = await begun((tx) => tx.query('insert'));
    await connection.breakDown();
    await expect(result).rejects.toMatchObject({ code: 'database_unavailable' });
    expect(connection.said).toEqual(['begin isolation level read committed read write', 'insert']);
  });

  test('gives its connection one statement at a time', async () => {
    const { connection } = await begun((tx) => Promise.all([tx.query('a'), tx.query('b')]));
    expect(connection.running).toEqual(['a']);
    await connection.answer();
    expect(connection.running).toEqual(['b']);
    await connection.answer();
    expect(connection.running).toEqual(['commit']);
  });

  test('ends only when statements that its work did not wait for have ended', async () => {
    const { connection, result } = await begun(async (tx) => {
      void tx.query('forgotten').catch(() => undefined);
      return 1;
    });
    expect(connection.running).toEqual(['forgotten']);
    await connection.answer();
    expect(connection.running).toEqual(['commit']);
    await connection.answer('COMMIT');
    expect(await result).toBe(1);
  });
});
