/**
 * The pool: a bounded number of connections, a bounded queue before them, and transactions on one of them.
 * Behind it stand connections of pg (`pool.ts`) or the one of PGlite (`embedded.ts`).
 *
 *   caller → idle connection, else waiting (FIFO) ──deadline──→ database_busy
 *                                  │    full at once ─────────→ database_busy
 *   dialling ──arrives──→ the first who waits, else idle        its own deadline, then it is cut
 *   in use   ──returned─→ the first who waits, else idle        unusable: cut, a new one is dialled for who waits
 *
 * Maintained invariant: dialling + open ≤ `connectionsMax`, and a caller holds at most one. A connection belongs to no
 * caller until it is there, so a caller who gives up leaves nothing behind: the connection that arrives too late goes to
 * the next one or rests. Pools that tie the two lose connections until none is left (BR-109).
 *
 * Does not retry anything: a caller who gets a fault decides.
 */
import { Fault, assert } from '../../domain/fault.ts';
import type { Clock, Timer, Timers } from '../clock.ts';
import type { Log } from '../log.ts';
import type { Database, Row, Sql } from './database.ts';
import { faultOf } from './sql-errors.ts';

/** What one statement answered. */
export interface Answer {
  rows: Row[];
  /** the server's tag: `SELECT`, `COMMIT`, `ROLLBACK`… */
  command: string;
}

/** One connection. Its callers never run two statements on it at once. */
export interface Connection {
  /** runs one statement; @throws Fault */
  run(text: string, values: readonly unknown[]): Promise<Answer>;
  /** runs many statements without parameters; @throws Fault */
  script(text: string): Promise<void>;
  /** false once it is broken; never true again */
  readonly usable: boolean;
  /** takes leave of the server */
  end(): void;
  /** ends it now, whatever it is doing; what it was doing fails */
  cut(): void;
  /** settles when it is gone, for whatever reason */
  readonly ended: Promise<void>;
}

/** What the pool needs. */
export interface PoolingOptions {
  kind: Database['kind'];
  /** makes a connection; gives up when `signal` aborts; @throws Fault */
  dial: (signal: AbortSignal) => Promise<Connection>;
  connectionsMax: number;
  /** callers that may wait; one more is `database_busy` at once */
  waitingMax: number;
  /** longest wait for a connection, and longest time that making one may take */
  acquireTimeoutMs: number;
  log: Log;
  clock: Clock;
  timers: Timers;
}

interface Waiter {
  give(connection: Connection): void;
  refuse(fault: Fault): void;
}

/** Makes a Database over connections of one kind. Nothing is dialled before the first statement. */
export function poolConnections(options: PoolingOptions): Database {
  const { connectionsMax, waitingMax, acquireTimeoutMs, log, clock, timers } = options;
  assert(connectionsMax >= 1, 'a pool has room for a connection');
  const open = new Set<Connection>();
  const idle: Connection[] = [];
  const waiting = new Set<Waiter>(); // in order of arrival
  const dialling = new Set<AbortController>();
  let closing: Promise<void> | undefined;
  let allGone: (() => void) | undefined;

  function acquire(): Promise<Connection> {
    if (closing) return Promise.reject(unavailable('use the database: it is closing'));
    for (let connection = idle.pop(); connection !== undefined; connection = idle.pop()) {
      if (connection.usable) return Promise.resolve(connection);
    }
    if (waiting.size >= waitingMax) {
      return Promise.reject(busy(`get a database connection: ${waitingMax} wait already`));
    }
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        deadline.cancel();
        waiting.delete(waiter);
      };
      const waiter: Waiter = {
        give(connection) {
          settle();
          resolve(connection);
        },
        refuse(fault) {
          settle();
          reject(fault);
        },
      };
      const deadline: Timer = timers.after(acquireTimeoutMs, () =>
        waiter.refuse(busy(`get a database connection: none within ${acquireTimeoutMs} ms`)),
      );
      waiting.add(waiter);
      dialForWaiting();
    });
  }

  /** Hands a connection to the first who waits, or lets it rest. */
  function place(connection: Connection): void {
    if (!connection.usable) return connection.cut();
    if (closing) return connection.end();
    const [first] = waiting;
    if (first) first.give(connection);
    else idle.push(connection);
  }

  /** Starts no more dials than callers wait, so each waiting caller costs the server at most one attempt. */
  function dialForWaiting(): void {
    while (!closing && dialling.size < waiting.size && dialling.size + open.size < connectionsMax) void dialOne();
  }

  async function dialOne(): Promise<void> {
    const attempt = new AbortController();
    dialling.add(attempt);
    const startedAt = clock.monotonic();
    const deadline = timers.after(acquireTimeoutMs, () => attempt.abort());
    try {
      const connection = await options.dial(attempt.signal);
      dialling.delete(attempt);
      open.add(connection);
      void connection.ended.then(() => forget(connection));
      log.debug({ kind: options.kind, tookMs: Math.round(clock.monotonic() - startedAt) }, 'database connection open');
      place(connection);
    } catch (error) {
      dialling.delete(attempt);
      const fault = faultOf(error, 'connect to the database');
      log.warn({ fault: fault.code, sqlstate: fault.sqlstate, reason: fault.message }, 'no database connection');
      // An attempt that ran into its deadline speaks for nobody: who waited for it has been refused by his own.
      const [first] = waiting;
      if (first && !attempt.signal.aborted) first.refuse(fault);
      dialForWaiting();
    } finally {
      deadline.cancel();
      reportIfGone();
    }
  }

  function forget(connection: Connection): void {
    open.delete(connection);
    const at = idle.indexOf(connection);
    if (at >= 0) idle.splice(at, 1);
    dialForWaiting();
    reportIfGone();
  }

  function reportIfGone(): void {
    if (allGone && open.size === 0 && dialling.size === 0) allGone();
  }

  async function use<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    const connection = await acquire();
    try {
      return await work(connection);
    } finally {
      place(connection);
    }
  }

  async function close(): Promise<void> {
    const gone = new Promise<void>((resolve) => {
      allGone = resolve;
    });
    for (const waiter of [...waiting]) waiter.refuse(unavailable('get a database connection: the database is closing'));
    for (const attempt of dialling) attempt.abort();
    for (const connection of idle.splice(0)) connection.end();
    reportIfGone();
    // Work in hand may finish; a server that has stopped answering must not hold up the process.
    const patience = timers.after(acquireTimeoutMs, () => {
      for (const connection of open) connection.cut();
    });
    await gone;
    patience.cancel();
  }

  return {
    kind: options.kind,
    async query<R extends Row>(text: string, values: readonly unknown[] = []): Promise<R[]> {
      const answer = await use((connection) => connection.run(text, values));
      return answer.rows as R[];
    },
    transaction: (work) => use((connection) => inTransaction(connection, work)),
    script: (text) =>
      use(async (connection) => {
        try {
          await connection.script(text);
        } catch (error) {
          await rollBack(connection); // a script with a BEGIN of its own leaves an open transaction when it fails
          throw error;
        }
      }),
    stats: () => ({ open: open.size, idle: idle.length, waiting: waiting.size }),
    close: () => (closing ??= close()),
  };
}

/** One transaction on a connection that is ours for its length. */
async function inTransaction<T>(connection: Connection, work: (tx: Sql) => Promise<T>): Promise<T> {
  let over = false;
  let last: Promise<unknown> = Promise.resolve();
  const tx: Sql = {
    async query<R extends Row>(text: string, values: readonly unknown[] = []): Promise<R[]> {
      assert(!over, 'a transaction is not used after its end');
      // Statements started side by side run one after another: neither driver may see two at once.
      const answer = last.then(() => connection.run(text, values));
      last = answer.catch(() => undefined);
      return (await answer).rows as R[];
    },
  };
  // Said in full, since a database may have other defaults.
  await connection.run('begin isolation level read committed read write', []);
  let result: T;
  try {
    result = await work(tx);
  } catch (error) {
    over = true;
    await last;
    await rollBack(connection);
    throw error;
  }
  over = true;
  await last;
  await commit(connection);
  return result;
}

async function commit(connection: Connection): Promise<void> {
  let answer: Answer;
  try {
    answer = await connection.run('commit', []);
  } catch (error) {
    const fault = faultOf(error, 'commit');
    await rollBack(connection); // a commit refused with a SQLSTATE (deferred constraint) has ended the transaction already
    if (fault.code !== 'database_unavailable') throw fault;
    throw new Fault('database_unavailable', `commit, outcome unknown: ${fault.message}`, {
      retryable: true,
      cause: fault,
      sqlstate: fault.sqlstate,
    });
  }
  // Where a statement has failed the server answers COMMIT with ROLLBACK, and no error. Work that swallowed the failure
  // would believe that it is stored.
  assert(answer.command === 'COMMIT', 'work that goes on after a failed statement does so behind a savepoint');
}

async function rollBack(connection: Connection): Promise<void> {
  if (!connection.usable) return;
  try {
    await connection.run('rollback', []);
  } catch {
    connection.cut(); // its state is unknown; the server rolls back when the connection is gone
  }
}

function busy(attempted: string): Fault {
  return new Fault('database_busy', attempted, { retryable: true });
}

function unavailable(attempted: string): Fault {
  return new Fault('database_unavailable', attempted, { retryable: true });
}
