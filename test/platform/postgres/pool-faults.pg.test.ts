/**
 * The pool against a PostgreSQL that locks, dies, freezes and loses answers. The cluster is this file's own, since it is
 * killed; faults of the network come from a proxy.
 */
import { afterAll, afterEach, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import type { Fault } from '../../../src/domain/fault.ts';
import type { Database } from '../../../src/platform/postgres/database.ts';
import type { PoolOptions } from '../../../src/platform/postgres/pool.ts';
import { launchPostgres } from '../../../src/platform/servers/launch-postgres.ts';
import type { RunningPostgres } from '../../../src/platform/servers/launch-postgres.ts';
import { startFaultProxy } from '../../support/fault-proxy.ts';
import type { FaultProxy } from '../../support/fault-proxy.ts';
import { openTestPool } from '../../support/test-database.ts';

/** What the tests allow a busy machine on top of a limit. */
const SLACK_MS = 3_000;
/** The pool's own wait for an answer past the server's statement timeout (pool.ts). */
const ANSWER_SLACK_MS = 1_000;

let cluster: RunningPostgres;
/** connected past the proxy and with patient limits, to look and to lock */
let observer: Database;
let proxy: FaultProxy;
const opened: Database[] = [];

const open = (url: string, overrides: Partial<PoolOptions>): Database => {
  const database = openTestPool(url, overrides);
  opened.push(database);
  return database;
};
const throughProxy = (overrides: Partial<PoolOptions>): Database =>
  open(`postgres://postgres@127.0.0.1:${proxy.port}/postgres`, overrides);

beforeAll(async () => {
  cluster = await launchPostgres({ binFolder: inject('postgresBinFolder') });
  observer = openTestPool(cluster.adminUrl, { applicationName: 'observer', statementTimeoutMs: 60_000 });
  proxy = await startFaultProxy({ targetPort: cluster.port });
  await observer.script('create table t (id int primary key)');
});
afterEach(async () => {
  proxy.resume();
  for (const database of opened.splice(0)) await database.close();
  await observer.script('delete from t');
});
afterAll(async () => {
  await observer?.close();
  await proxy?.stop();
  await cluster?.stop();
});

/** Connections of a pool as the server counts them. */
async function connectionsOf(applicationName: string): Promise<number> {
  const [row] = await observer.query<{ n: number }>(
    'select count(*)::int as n from pg_stat_activity where application_name = $1',
    [applicationName],
  );
  return row!.n;
}

interface Outcome {
  fault: Pick<Fault, 'code' | 'sqlstate'> | undefined;
  tookMs: number;
}

async function outcomeOf(work: () => Promise<unknown>): Promise<Outcome> {
  const startedAt = performance.now();
  try {
    await work();
    return { fault: undefined, tookMs: performance.now() - startedAt };
  } catch (error) {
    return { fault: error as Fault, tookMs: performance.now() - startedAt };
  }
}

/** Holds a lock on table t until the returned function is called. */
async function lockTable(): Promise<() => Promise<void>> {
  let unlock!: () => void;
  const released = new Promise<void>((resolve) => (unlock = resolve));
  let done!: Promise<void>;
  await new Promise<void>((locked) => {
    done = observer.transaction(async (tx) => {
      await tx.query('lock table t in access exclusive mode');
      locked();
      await released;
    });
  });
  return () => {
    unlock();
    return done;
  };
}

describe('BR-109: a locked table and 300 callers on a pool of 5', () => {
  test('callers are refused in time, no connection leaks, and after the unlock all is normal', async () => {
    const limits = { poolMax: 5, waitingMax: 300, acquireTimeoutMs: 3_000, lockTimeoutMs: 4_000 };
    const database = open(cluster.adminUrl, { applicationName: 'br-109', ...limits });
    await Promise.all([1, 2, 3, 4, 5].map(() => database.query('select pg_sleep(0.1)')));
    const unlock = await lockTable();
    let connectionsMax = 0;
    const outcomes = Promise.all(
      Array.from({ length: 300 }, () =>
        outcomeOf(async () => {
          await database.query('select count(*) from t').finally(() => {
            connectionsMax = Math.max(connectionsMax, database.stats().open);
          });
        }),
      ),
    );
    expect(await outcomeOf(() => database.query('select 1'))).toMatchObject({ fault: { code: 'database_busy' } });
    const all = await outcomes;
    const byLock = all.filter(({ fault }) => fault?.sqlstate === '55P03');
    const byDeadline = all.filter(({ fault }) => fault?.code === 'database_busy' && fault.sqlstate === undefined);
    expect([byLock.length, byDeadline.length]).toEqual([5, 295]);
    expect(Math.max(...byDeadline.map(({ tookMs }) => tookMs))).toBeLessThan(limits.acquireTimeoutMs + SLACK_MS);
    expect(Math.max(...byLock.map(({ tookMs }) => tookMs))).toBeLessThan(limits.lockTimeoutMs + SLACK_MS);
    expect(connectionsMax).toBe(5);

    await unlock();
    const after = await Promise.all(
      Array.from({ length: 300 }, () => outcomeOf(() => database.query('select count(*) from t'))),
    );
    expect(after.map(({ fault }) => fault && `${fault.code} ${fault.sqlstate}`).filter(Boolean)).toEqual([]);
    expect(database.stats()).toEqual({ open: 5, idle: 5, waiting: 0 });
    expect(await connectionsOf('br-109')).toBe(5);
  });

  test('who would be the 101st to wait is refused at once', async () => {
    const database = open(cluster.adminUrl, { poolMax: 5, acquireTimeoutMs: 500, lockTimeoutMs: 1_000 });
    const unlock = await lockTable();
    const refused: number[] = [];
    const calls = Array.from({ length: 300 }, (_, i) =>
      database.query('select count(*) from t').catch(() => void refused.push(i)),
    );
    await new Promise((resolve) => void setImmediate(resolve));
    // No connection is there yet: the first 100 wait, and the other 200 have their answer within the same turn.
    expect(refused).toEqual(Array.from({ length: 200 }, (_, i) => i + 100));
    await Promise.all(calls);
    await unlock();
  });

  test('the same while the server takes connections and says nothing', async () => {
    const limits = { poolMax: 5, waitingMax: 300, acquireTimeoutMs: 2_000 };
    const database = throughProxy({ applicationName: 'br-109-silent', ...limits });
    proxy.hang();
    const outcomes = await Promise.all(
      Array.from({ length: 300 }, () => outcomeOf(() => database.query('select count(*) from t'))),
    );
    expect(new Set(outcomes.map(({ fault }) => fault?.code))).toEqual(new Set(['database_busy']));
    expect(Math.max(...outcomes.map(({ tookMs }) => tookMs))).toBeLessThan(limits.acquireTimeoutMs + SLACK_MS);
    proxy.resume();
    await Promise.all(Array.from({ length: 300 }, () => database.query('select count(*) from t')));
    expect(database.stats()).toEqual({ open: 5, idle: 5, waiting: 0 });
    await vi.waitFor(async () => expect(await connectionsOf('br-109-silent')).toBe(5));
  });
});

describe('a server that goes away', () => {
  test('restarted under load: faults say so, then all is normal without help', async () => {
    const database = open(cluster.adminUrl, { poolMax: 5 });
    const seen = new Set<string>();
    let committed = 0;
    let over = false;
    const traffic = Array.from({ length: 10 }, async () => {
      while (!over) {
        await database
          .transaction((tx) => tx.query('select count(*) from t'))
          .then(() => (committed += 1))
          .catch((fault: Fault) => seen.add(fault.code));
      }
    });
    await vi.waitFor(() => expect(committed).toBeGreaterThan(20));
    await cluster.restart('immediate');
    const before = committed;
    await vi.waitFor(() => expect(committed).toBeGreaterThan(before + 100), { timeout: 15_000 });
    over = true;
    await Promise.all(traffic);
    expect([...seen]).toEqual(['database_unavailable']);
    await Promise.all(Array.from({ length: 50 }, () => database.query('select 1')));
    expect(database.stats()).toMatchObject({ waiting: 0 });
    expect(database.stats().open).toBeLessThanOrEqual(5);
  });

  test('restarted at rest: the pool empties itself, nothing is thrown, the next call works', async () => {
    const database = open(cluster.adminUrl, { poolMax: 3 });
    await Promise.all([1, 2, 3].map(() => database.query('select pg_sleep(0.05)')));
    expect(database.stats()).toEqual({ open: 3, idle: 3, waiting: 0 });
    await cluster.restart('immediate');
    await vi.waitFor(() => expect(database.stats().open).toBe(0));
    expect(await database.query('select 1 as one')).toEqual([{ one: 1 }]);
  });

  test('that refuses connections is unavailable at once, not at the deadline', async () => {
    const database = throughProxy({ acquireTimeoutMs: 20_000 });
    await proxy.refuseNew(true);
    const outcome = await outcomeOf(() => database.query('select 1'));
    await proxy.refuseNew(false);
    expect(outcome).toMatchObject({ fault: { code: 'database_unavailable' } });
    expect(outcome.tookMs).toBeLessThan(SLACK_MS);
  });

  test('that has no such database refuses, by its own word', async () => {
    await expect(open(cluster.url('nowhere'), {}).query('select 1')).rejects.toMatchObject({
      code: 'database_refused',
      sqlstate: '3D000',
    });
  });
});

describe('a server that freezes', () => {
  const limits = { poolMax: 2, statementTimeoutMs: 500, acquireTimeoutMs: 2_000 };
  const settledWithinMs = limits.statementTimeoutMs + ANSWER_SLACK_MS + SLACK_MS;

  test('in a statement: its caller settles, and the connection is not used again', async () => {
    const database = open(cluster.adminUrl, limits);
    const [backend] = await database.query<{ pid: number }>('select pg_backend_pid() as pid');
    process.kill(backend!.pid, 'SIGSTOP');
    try {
      const outcome = await outcomeOf(() => database.query('select 1'));
      expect(outcome).toMatchObject({ fault: { code: 'database_unavailable', sqlstate: undefined } });
      expect(outcome.tookMs).toBeLessThan(settledWithinMs);
      const [other] = await database.query<{ pid: number }>('select pg_backend_pid() as pid');
      expect(other!.pid).not.toBe(backend!.pid);
    } finally {
      process.kill(backend!.pid, 'SIGCONT');
    }
  });

  test('in a transaction: its caller settles, and a network that comes back finds the pool whole', async () => {
    const database = throughProxy(limits);
    const outcome = await outcomeOf(() =>
      database.transaction(async (tx) => {
        await tx.query('insert into t values (1)');
        proxy.hang();
        await tx.query('insert into t values (2)');
      }),
    );
    expect(outcome).toMatchObject({ fault: { code: 'database_unavailable' } });
    expect(outcome.tookMs).toBeLessThan(settledWithinMs);
    proxy.resume();
    await Promise.all(Array.from({ length: 10 }, () => database.query('select 1')));
    expect(database.stats().open).toBeLessThanOrEqual(2);
    await vi.waitFor(async () => expect(await observer.query('select id from t')).toEqual([]));
  });

  test('does not hold up close', async () => {
    const database = throughProxy(limits);
    await database.query('select 1');
    proxy.hang();
    const outcome = await outcomeOf(() => database.close());
    expect(outcome.fault).toBeUndefined();
    expect(outcome.tookMs).toBeLessThan(limits.acquireTimeoutMs + SLACK_MS);
  });
});

describe('a commit', () => {
  test('whose answer is lost is unavailable with an unknown outcome: here it has happened', async () => {
    const database = throughProxy({ statementTimeoutMs: 1_000 });
    const work = database.transaction(async (tx) => {
      await tx.query('insert into t values (1)');
      proxy.dropReplies();
    });
    await expect(work).rejects.toMatchObject({
      code: 'database_unavailable',
      retryable: true,
      message: expect.stringContaining('outcome unknown') as string,
    });
    expect(await database.query('select id from t')).toEqual([{ id: 1 }]);
  });

  test('that does not reach the server is unavailable with an unknown outcome: here it has not', async () => {
    const database = throughProxy({ statementTimeoutMs: 1_000 });
    const work = database.transaction(async (tx) => {
      await tx.query('insert into t values (1)');
      proxy.abandon();
    });
    await expect(work).rejects.toMatchObject({
      code: 'database_unavailable',
      message: expect.stringContaining('outcome unknown') as string,
    });
    expect(await database.query('select id from t')).toEqual([]);
  });
});

describe('the server’s own limits', () => {
  test('a statement that takes too long is busy, and its connection stays', async () => {
    const database = open(cluster.adminUrl, { poolMax: 1, statementTimeoutMs: 200 });
    const before = await database.query('select pg_backend_pid() as pid');
    await expect(database.query('select pg_sleep(60)')).rejects.toMatchObject({
      code: 'database_busy',
      sqlstate: '57014',
      retryable: true,
    });
    expect(await database.query('select pg_backend_pid() as pid')).toEqual(before);
  });

  test('two transactions that wait for each other: one is busy, the other commits', async () => {
    await observer.script('insert into t values (1), (2)');
    const database = open(cluster.adminUrl, { poolMax: 2 });
    let inside = 0;
    let bothInside!: () => void;
    const meeting = new Promise<void>((resolve) => (bothInside = resolve));
    const crossing = (first: number, second: number): Promise<unknown> =>
      database.transaction(async (tx) => {
        await tx.query('select from t where id = $1 for update', [first]);
        if (++inside === 2) bothInside();
        await meeting;
        await tx.query('select from t where id = $1 for update', [second]);
      });
    const outcomes = await Promise.allSettled([crossing(1, 2), crossing(2, 1)]);
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    const rejected = outcomes.find(({ status }) => status === 'rejected');
    expect(rejected).toMatchObject({ reason: { code: 'database_busy', sqlstate: '40P01', retryable: true } });
  });

  test('a transaction that falls silent is ended by the server and gives up its locks', async () => {
    const database = open(cluster.adminUrl, { poolMax: 1, statementTimeoutMs: 500 });
    const silent = database.transaction(async (tx) => {
      await tx.query('lock table t in access exclusive mode');
      await observer.query('select count(*) from t'); // waits until the server has ended us
      await tx.query('insert into t values (1)');
    });
    await expect(silent).rejects.toMatchObject({ code: 'database_unavailable' });
    expect(await database.query('select id from t')).toEqual([]);
  });

  test('a script may take longer than a statement', async () => {
    const database = open(cluster.adminUrl, { statementTimeoutMs: 200 });
    await database.script(
      `set local statement_timeout = 0; select pg_sleep(${(200 + ANSWER_SLACK_MS + 300) / 1_000});`,
    );
  });
});
