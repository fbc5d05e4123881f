/** `sluice serve --workers N`: several processes on one port, watched, started again, replaced and stopped in order. */
import { get } from 'node:http';
import { createServer } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import { books, buy, isQuiet, startSluice, until, type TestSluice } from '../support/sluice.ts';
import { scrape } from '../watch/exposition.ts';
import { isThere, startServe, type ServeProcess } from './serve-process.ts';

const SEATS = ['api-1', 'api-2', 'worker-1'];

let operator: TestSluice; // plans and preheats; sells nothing
beforeAll(async () => {
  operator = await startSluice({ role: 'api' });
});
afterAll(() => operator?.stop());

const start = (args: readonly string[] = ['--port', '0']): ServeProcess =>
  startServe({
    args: ['--workers', '2', ...args],
    databaseUrl: operator.database.url,
    redisUrl: inject('redisUrl'),
    settings: { SLUICE_KEY_PREFIX: operator.config.keyPrefix },
  });
/** The process that sits there now, of each seat. */
const pidsNow = (of: ServeProcess): number[] => SEATS.map((seat) => of.pidsOf(seat).at(-1)!);

/** GET on a connection of its own: connections are dealt out to the processes in turn. */
function status(url: string): Promise<number> {
  return new Promise((resolve, reject) => {
    get(url, { agent: false }, (response) => {
      response.resume();
      response.once('end', () => resolve(response.statusCode!));
    }).once('error', reject);
  });
}

describe('sluice serve --workers 2, from start to end', () => {
  let server: ServeProcess;
  beforeAll(async () => {
    server = start();
    await server.untilServing();
  }, 120_000);
  afterAll(async () => {
    server?.kill('SIGTERM');
    await server?.ended;
  });

  test('sells and lands; one scrape shows every process under its name', { timeout: 60_000 }, async () => {
    expect(SEATS.map((seat) => server.pidsOf(seat).length)).toEqual([1, 1, 1]);
    const activity = await operator.openActivity({ total: 20 });
    await until('both know the activity', async () => {
      const address = `${server.url()}/api/v1/activities/${activity.id}`;
      const told = await Promise.all(Array.from({ length: 8 }, () => status(address)));
      return told.every((one) => one === 200);
    });
    const told = await Promise.all(Array.from({ length: 30 }, (_, i) => buy(server.url(), activity.id, `buyer${i}`)));
    expect(told.filter((one) => one.code === 'held')).toHaveLength(20);
    await until('landed', () => isQuiet(operator, activity));
    expect(await books(operator.database, activity.id)).toMatchObject({ sold: 20, liveBuyers: 20 });

    const series = await scrape(server.url());
    const processes = [...new Set(series.map((one) => one.labels['process']))];
    expect(processes.toSorted()).toEqual(['api-1', 'api-2', 'primary', 'worker-1']);
    const sum = (name: string, labels: Record<string, string> = {}): number =>
      series
        .filter((one) => one.name === name && Object.entries(labels).every(([key, value]) => one.labels[key] === value))
        .reduce((total, one) => total + one.value, 0);
    expect(sum('sluice_purchases_total', { code: 'held' })).toBe(20);
    expect(sum('sluice_purchases_total', { code: 'sold_out' })).toBe(10);
    expect(sum('sluice_landing_holds_total', { outcome: 'ordered', process: 'worker-1' })).toBe(20);
    expect(sum('sluice_process_up')).toBe(3);
    expect(sum('sluice_process_restarts_total')).toBe(0);
  });

  test('a process that is killed is started again, with an alarm', { timeout: 120_000 }, async () => {
    const [first, , landing] = pidsNow(server);
    process.kill(first!, 'SIGKILL');
    process.kill(landing!, 'SIGKILL');
    await until(
      'both are back',
      () => server.pidsOf('api-1').length === 2 && server.pidsOf('worker-1').length === 2,
      90_000,
    );
    expect([first!, landing!].filter(isThere)).toEqual([]);
    const ended = server.lines.filter((line) => line.msg === 'process ended by itself');
    expect(ended.map((line) => [line['seat'], line['childPid'], line['signal']]).toSorted()).toEqual([
      ['api-1', first, 'SIGKILL'],
      ['worker-1', landing, 'SIGKILL'],
    ]);
    expect(server.lines.filter((line) => line['alarm'] === 'process_ended').length).toBeGreaterThan(0);
    const series = await scrape(server.url());
    const restarts = series.filter((one) => one.name === 'sluice_process_restarts_total');
    expect(Object.fromEntries(restarts.map((one) => [one.labels['of'], one.value]))).toEqual({
      'api-1': 1,
      'api-2': 0,
      'worker-1': 1,
    });
  });

  test('SIGUSR2 replaces every process, and the port answers all the time', { timeout: 180_000 }, async () => {
    const before = pidsNow(server);
    const answers: number[] = [];
    let asking = true;
    const asker = (async () => {
      while (asking) answers.push(await status(`${server.url()}/livez`));
    })();
    server.kill('SIGUSR2');
    await Promise.race([
      asker, // ends early only by an error, which is the finding
      until('replaced', () => server.lines.some((line) => line.msg === 'replaced'), 150_000),
    ]);
    asking = false;
    await asker;
    expect(server.lines.find((line) => line.msg === 'replaced')).toMatchObject({ all: true });
    for (const [i, pid] of pidsNow(server).entries()) expect(pid).not.toBe(before[i]);
    await until('the old ones are gone', () => !before.some(isThere));
    expect(answers.length).toBeGreaterThan(10);
    expect(new Set(answers)).toEqual(new Set([200]));
  });

  test('SIGTERM, twice, ends all of them with 0, who lands last', { timeout: 60_000 }, async () => {
    const all = pidsNow(server);
    const already = server.lines.length;
    server.kill('SIGTERM');
    server.kill('SIGTERM');
    expect(await server.ended).toEqual({ code: 0, signal: null });
    expect(all.filter(isThere)).toEqual([]);
    const stopping = server.lines.slice(already).filter((line) => line.msg === 'stopping');
    expect(stopping).toHaveLength(4);
    expect(stopping.at(-1)!['process']).toBe('worker-1');
    expect(server.complaints()).toBe('');
  });
});

describe('sluice serve --workers 2', () => {
  let server: ServeProcess | undefined;
  afterEach(async () => {
    server?.kill('SIGKILL');
    await server?.ended;
  });

  test('whose parent is killed leaves nobody behind', { timeout: 180_000 }, async () => {
    server = start();
    await server.untilServing();
    const all = pidsNow(server);
    server.kill('SIGKILL');
    await server.ended;
    await until('all are gone', () => !all.some(isThere), 30_000);
  });

  test('on a port that is taken says so and exits 1', { timeout: 120_000 }, async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => taken.once('listening', resolve));
    const { port } = taken.address() as { port: number };
    try {
      server = start(['--port', String(port)]);
      expect(await server.ended).toEqual({ code: 1, signal: null });
      expect(server.complaints()).toMatch(/sluice: cannot listen .*EADDRINUSE/);
      expect(server.complaints()).toMatch(/sluice: start api-\d: it ended before it served/);
    } finally {
      taken.close();
    }
  });
});
