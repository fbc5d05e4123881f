/**
 * PGlite in a worker thread: the Database of `npm start`. For development only.
 *
 * Promises: the same answers and faults as `pool.ts`; its work does not stop this thread's event loop; when the thread
 * dies every call settles with `database_unavailable`, and so does every later one: it is not started again, since an
 * embedded database that has crashed is to be looked at, and one in memory has lost its rows.
 *
 * Does not promise durability: PGlite runs with fsync off, so a power cut may lose commits (a killed process does not).
 * Does not lock the folder: two processes on one folder destroy it; who opens it takes the lock first. Has one
 * connection, so transactions queue for each other: a `database.query` inside `database.transaction` waits for itself
 * and ends as `database_busy` when its deadline strikes.
 */
import { Worker } from 'node:worker_threads';
import { Fault } from '../../domain/fault.ts';
import { systemClock, systemTimers } from '../clock.ts';
import type { Clock, Timers } from '../clock.ts';
import type { Log } from '../log.ts';
import { readerOf, writeParameter } from './column-types.ts';
import { poolConnections } from './connections.ts';
import type { Answer, Connection } from './connections.ts';
import type { Database, Row } from './database.ts';
import { faultOf, headOf } from './sql-errors.ts';

/** Where the embedded database keeps its rows. */
export interface EmbeddedOptions {
  /** a folder, made if it is missing; `memory`: gone with the process */
  folder: string | 'memory';
  log: Log;
  /** longest wait for the one connection; 30,000 if not given */
  acquireTimeoutMs?: number;
  clock?: Clock;
  timers?: Timers;
}

/** Long enough for a first start, which makes the database (seconds), and for a queue of batches. */
const ACQUIRE_TIMEOUT_MS = 30_000;
const WAITING_MAX = 10_000;

/** What the thread sends back, by the number of the request (embedded-thread.mjs). */
type Reply =
  | { id: number; rows: (string | null)[][]; fields: { name: string; dataTypeID: number }[]; command: string }
  | { id: number; error: { message: string; code?: string; severity?: string; constraint?: string } };

/** Opens PGlite. The thread starts at once and opens the folder; the first statement waits for it. */
export function openEmbedded(options: EmbeddedOptions): Database {
  const connection = startThread(options);
  const database = poolConnections({
    kind: 'pglite',
    dial: () =>
      connection.usable
        ? Promise.resolve(connection)
        : Promise.reject(threadGone('use the embedded database', new Error('its thread has ended'))),
    connectionsMax: 1,
    waitingMax: WAITING_MAX,
    acquireTimeoutMs: options.acquireTimeoutMs ?? ACQUIRE_TIMEOUT_MS,
    log: options.log,
    clock: options.clock ?? systemClock,
    timers: options.timers ?? systemTimers,
  });
  return {
    ...database,
    async close() {
      await database.close();
      if (connection.usable) connection.end(); // never used, so the pool never had it
      await connection.ended;
    },
  };
}

function startThread({ folder, log }: EmbeddedOptions): Connection {
  const thread = new Worker(new URL('./embedded-thread.mjs', import.meta.url), {
    workerData: { folder },
    execArgv: [], // plain JavaScript: the parent's loaders would only slow its start
  });
  const asked = new Map<number, { text: string; answer: (reply: Reply) => void; fail: (fault: Fault) => void }>();
  let lastId = 0;
  let usable = true;
  let leaving = false;
  let crash: unknown;

  const ended = new Promise<void>((resolve) => {
    thread.once('exit', (exitCode) => {
      usable = false;
      if (!leaving) log.error({ exitCode, reason: String(crash) }, 'the embedded database has ended; start again');
      for (const { text, fail } of asked.values()) {
        fail(threadGone(`run "${headOf(text)}"`, crash ?? new Error(`the thread ended with ${exitCode}`)));
      }
      asked.clear();
      resolve();
    });
  });
  thread.on('error', (error) => {
    crash = error; // 'exit' follows
  });
  thread.on('message', (reply: Reply) => {
    asked.get(reply.id)?.answer(reply);
    asked.delete(reply.id);
  });

  function cut(): void {
    usable = false;
    void thread.terminate();
  }

  async function ask(kind: 'query' | 'script', text: string, values: readonly unknown[]): Promise<Answer> {
    const parameters = values.map(writeParameter);
    if (!usable) throw threadGone(`run "${headOf(text)}"`, new Error('its thread has ended'));
    const reply = await new Promise<Reply>((answer, fail) => {
      const id = ++lastId;
      asked.set(id, { text, answer, fail });
      thread.postMessage({ id, kind, text, values: parameters });
    });
    if ('error' in reply) {
      const fault = faultOf(Object.assign(new Error(reply.error.message), reply.error), `run "${headOf(text)}"`);
      // No SQLSTATE: it is not the database that spoke but the machine under it, which has then crashed.
      if (fault.sqlstate === undefined) {
        log.error({ reason: fault.message }, 'the embedded database has failed');
        cut();
      }
      throw fault;
    }
    const columns = reply.fields.map(({ name, dataTypeID }) => ({ name, read: readerOf(dataTypeID) }));
    const rows = reply.rows.map((cells) => {
      const row: Row = {};
      columns.forEach(({ name, read }, at) => {
        const cell = cells[at];
        row[name] = typeof cell === 'string' ? read(cell) : null;
      });
      return row;
    });
    return { rows, command: reply.command };
  }

  return {
    run: (text, values) => ask('query', text, values),
    script: async (text) => void (await ask('script', text, [])),
    get usable() {
      return usable;
    },
    end() {
      leaving = true;
      usable = false;
      thread.postMessage({ id: ++lastId, kind: 'close' });
    },
    cut() {
      leaving = true;
      cut();
    },
    ended,
  };
}

function threadGone(attempted: string, cause: unknown): Fault {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new Fault('database_unavailable', `${attempted}: ${reason}`, { retryable: true, cause });
}
