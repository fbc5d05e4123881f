/**
 * PostgreSQL by pg: the Database of production.
 *
 * Promises: every call settles, whatever the server does. Three limits see to it, inner before outer:
 * the server's own (`lock_timeout`, `statement_timeout`, `idle_in_transaction_session_timeout`), then ours on the answer
 * (`query_timeout`, a second above the server's: only a frozen server or a dead network reaches it), and the deadline on
 * getting a connection (`connections.ts`). A connection whose last statement ended without a SQLSTATE, or with one that
 * ends connections, is cut and never used again. A connection lost while it rests ends nothing but itself.
 *
 * Does not use pg.Pool: its `connectionTimeoutMillis` leaves connections behind when it strikes
 * (node-postgres#3543, #2276), without it a server that accepts and then is silent keeps a place for ever, and both its
 * queue and what it dials are out of reach. Does not work through a transaction pooler that refuses start-up parameters
 * (PgBouncer: `ignore_startup_parameters`). Settings in the URL's query win over ours.
 */
import { Socket } from 'node:net';
import pg from 'pg';
import type { Clock, Timers } from '../clock.ts';
import type { Log } from '../log.ts';
import { readerOf, writeParameter } from './column-types.ts';
import { poolConnections } from './connections.ts';
import type { Answer, Connection } from './connections.ts';
import type { Database, Row } from './database.ts';
import { endsConnection, faultOf, headOf } from './sql-errors.ts';

/** How to reach and bound PostgreSQL. */
export interface PoolOptions {
  /** postgres://user:password@host:port/database?… */
  url: string;
  /** shown in pg_stat_activity */
  applicationName: string;
  /** most connections of this process: mean seconds × statements per second × 2 */
  poolMax: number;
  /** longest wait for a connection; also for making one */
  acquireTimeoutMs: number;
  /** the server ends a statement after this long */
  statementTimeoutMs: number;
  /** the server gives up waiting for a lock after this long */
  lockTimeoutMs: number;
  /** callers that may wait for a connection before one more is refused at once; 20 × poolMax if not given */
  waitingMax?: number;
  log: Log;
  clock: Clock;
  timers: Timers;
}

/** How much longer than the server we wait for an answer. */
const ANSWER_SLACK_MS = 1_000;
/** Migrations build indexes: a script may take as long as the server lets it, up to this. */
const SCRIPT_TIMEOUT_MS = 600_000;
/** A silent peer is probed after this long at rest, so that a firewall's forgotten connection is found out. */
const KEEP_ALIVE_DELAY_MS = 10_000;

/** Opens the pool. Connects when first used, so a database that is down at start shows at the first statement. */
export function openPool(options: PoolOptions): Database {
  return poolConnections({
    kind: 'postgres',
    dial: (signal) => dial(options, signal),
    connectionsMax: options.poolMax,
    waitingMax: options.waitingMax ?? options.poolMax * 20,
    acquireTimeoutMs: options.acquireTimeoutMs,
    log: options.log,
    clock: options.clock,
    timers: options.timers,
  });
}

/** pg's query settings that its types leave out. */
type Query = pg.QueryConfig<string[]> & { queryMode?: 'extended'; query_timeout?: number };

async function dial(options: PoolOptions, signal: AbortSignal): Promise<Connection> {
  const { log } = options;
  // Our own socket, since pg offers no way to drop a connection at once: `end()` talks to the server first.
  const socket = new Socket();
  const cut = (): void => void socket.destroy();
  const client = new pg.Client({
    connectionString: options.url,
    application_name: options.applicationName,
    statement_timeout: options.statementTimeoutMs,
    lock_timeout: options.lockTimeoutMs,
    // A process that is twice as silent as any statement may take is frozen or gone, and holds locks.
    idle_in_transaction_session_timeout: options.statementTimeoutMs * 2,
    query_timeout: options.statementTimeoutMs + ANSWER_SLACK_MS,
    options: '-c datestyle=ISO -c bytea_output=hex', // what column-types.ts reads
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_DELAY_MS,
    stream: () => socket,
    types: { getTypeParser: readerOf as typeof pg.types.getTypeParser },
  });

  let usable = true;
  let leaving = false;
  const ended = new Promise<void>((resolve) => void client.once('end', resolve));
  // Without a listener an error at rest would end the process.
  client.on('error', (error: Error) => {
    if (usable && !leaving) log.warn({ reason: error.message }, 'database connection lost');
    usable = false;
    cut();
  });
  signal.addEventListener('abort', cut, { once: true });
  try {
    signal.throwIfAborted();
    await client.connect();
  } catch (error) {
    cut();
    throw faultOf(error, 'connect to PostgreSQL');
  } finally {
    signal.removeEventListener('abort', cut);
  }

  async function attempt<T>(text: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      const fault = faultOf(error, `run "${headOf(text)}"`);
      if (endsConnection(fault.sqlstate)) {
        usable = false;
        cut();
      }
      throw fault;
    }
  }

  return {
    async run(text, values): Promise<Answer> {
      // Always the extended protocol: the simple one would let a statement carry others behind a semicolon.
      const query: Query = { text, values: values.map(writeParameter) as string[], queryMode: 'extended' };
      const result = await attempt(text, () => client.query<Row>(query));
      return { rows: result.rows, command: result.command };
    },
    async script(text) {
      const query: Query = { text, query_timeout: SCRIPT_TIMEOUT_MS };
      await attempt(text, () => client.query(query));
    },
    get usable() {
      return usable;
    },
    end() {
      leaving = true;
      usable = false;
      client.end().catch(cut);
    },
    cut() {
      leaving = true;
      usable = false;
      cut();
    },
    ended,
  };
}
