/**
 * `sluice demo` as a command: whole sales through real processes that hold, sales that were broken behind its back and are
 * named so, one JSON document on standard output, and nothing left behind, however it ends.
 *
 * Size: buyers of each sale that holds (short form 1,500); units are a twenty-fifth of it. full size: 20000
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { BREAKS } from '../../src/cli/demo/verdict.ts';
import { openRedis, type RedisLink } from '../../src/platform/redis/link.ts';
import { makeLog } from '../../src/platform/log.ts';
import { until } from '../support/sluice.ts';
import { spawnServer } from '../support/spawn-server.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

const BUYERS = Number(process.env['SLUICE_TEST_SIZE'] ?? 1_500);
const STOCK = Math.floor(BUYERS / 25);
const SEED = process.env['SLUICE_TEST_SEED'] ?? '20261111';
const PATIENCE_MS = 600_000;

const PROGRAM = fileURLToPath(new URL('../../src/main/sluice.ts', import.meta.url));
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

type Demo = { readonly code: number | null; readonly stdout: string; readonly stderr: string };

/** Every file that a demo makes is under here, and every process of one has it in its environment. */
let folder = '';
let database: TestDatabase;
let redis: RedisLink;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-test-demo-'));
  database = await createTestDatabase();
  redis = openRedis({
    url: inject('redisUrl'),
    name: 'test',
    commandTimeoutMs: 10_000,
    connectTimeoutMs: 2_000,
    log: makeLog('silent'),
  });
  await redis.whenReady(10_000);
});
afterAll(async () => {
  await redis?.close();
  await database?.drop();
  rmSync(folder, { recursive: true, force: true });
});

function startDemo(words: readonly string[], environment: Readonly<Record<string, string>> = {}) {
  const child = spawn(process.execPath, ['--import', 'tsx', PROGRAM, 'demo', '--seed', SEED, ...words], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'], TMPDIR: folder, ...environment },
  });
  const [out, err]: [string[], string[]] = [[], []];
  child.stdout.setEncoding('utf8').on('data', (text: string) => out.push(text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => err.push(text));
  const ended = new Promise<Demo>((resolve) => {
    child.once('close', (code) => resolve({ code, stdout: out.join(''), stderr: err.join('') }));
  });
  return { child, ended, told: () => err.join('') };
}

const demo = (words: readonly string[], environment?: Readonly<Record<string, string>>): Promise<Demo> =>
  startDemo(words, environment).ended;

/** The one document on standard output. */
function documentOf({ stdout, stderr }: Demo): Record<string, unknown> {
  try {
    return JSON.parse(stdout) as Record<string, unknown>;
  } catch {
    throw new Error(`no JSON document but ${JSON.stringify(stdout)}; it said ${stderr}`);
  }
}

/** Files of a demo that are still there; the loader that runs our sources keeps some of its own. */
const filesLeft = (): string[] => readdirSync(folder).filter((name) => name.startsWith('sluice-'));

/** Processes of a demo that still run; what a system without /proc has cannot be told. */
function processesLeft(): string[] {
  if (!existsSync('/proc/self/environ')) return [];
  return readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/environ`, 'latin1').includes(folder);
    } catch {
      return false; // gone meanwhile
    }
  });
}

const NUMBERS = [
  ...['buyers', 'requests', 'stock', 'accepted', 'ordersStored', 'refused', 'refusedByCode', 'replayed', 'oversold'],
  ...['lost', 'duplicates', 'wrongAnswers', 'secondsToSellOut', 'secondsToLand', 'equationHolds'],
];

describe.sequential(`a sale of ${STOCK} units to ${BUYERS} buyers`, () => {
  const size = ['--buyers', String(BUYERS), '--stock', String(STOCK)];
  const yours = (): Record<string, string> => ({ DATABASE_URL: database.url, REDIS_URL: inject('redisUrl') });

  test('holds, on servers of its own, and says so in one document', { timeout: PATIENCE_MS }, async () => {
    const ran = await demo([...size, '--generators', '2', '--json']);
    const report = documentOf(ran);
    expect(report, ran.stderr).toMatchObject({
      buyers: BUYERS,
      stock: STOCK,
      accepted: STOCK,
      ordersStored: STOCK,
      oversold: 0,
      lost: 0,
      duplicates: 0,
      wrongAnswers: 0,
      equationHolds: true,
      broken: [],
      findings: [],
      settled: true,
      workers: 1,
    });
    expect(ran.code).toBe(0);
    expect(Object.keys(report)).toEqual(expect.arrayContaining(NUMBERS));
    const { requests, refused, replayed, accepted, unanswered } = report as Record<string, number>;
    expect(requests).toBe(refused! + replayed! + accepted! + unanswered!);
    // the crowd misbehaved, and was told so
    for (const code of [
      'sold_out',
      'already_bought',
      'not_open',
      'ended',
      'invalid',
      'unauthenticated',
      'unknown_activity',
    ]) {
      expect(report['refusedByCode']).toHaveProperty(code);
    }
  });

  test(
    'holds on your servers, with two API processes; your Redis is left as it was',
    { timeout: PATIENCE_MS },
    async () => {
      const ran = await demo([...size, '--workers', '2', '--json'], yours());
      const report = documentOf(ran);
      expect(report, ran.stderr).toMatchObject({ ordersStored: STOCK, broken: [], settled: true, workers: 2 });
      expect(ran.code).toBe(0);
      expect(report['database']).toContain('DATABASE_URL');
      const [row] = await database.database.query<{ live: number }>(
        `select count(*)::int as live from orders where activity_id = $1 and state = 'placed'`,
        [report['activityId']],
      );
      expect(row?.live).toBe(STOCK);
      expect(await redis.command('SCAN', '0', 'MATCH', 'demo*', 'COUNT', 1_000_000)).toEqual(['0', []]);
    },
  );

  test('holds where the answer waits for the order', { timeout: PATIENCE_MS }, async () => {
    const ran = await demo([...size, '--answer', 'ordered', '--json'], yours());
    expect(documentOf(ran), ran.stderr).toMatchObject({ ordersStored: STOCK, refusedAtLanding: 0, broken: [] });
    expect(ran.code).toBe(0);
  });

  test(
    'holds where the gate admits a fifth more, and PostgreSQL refuses at most those',
    { timeout: PATIENCE_MS },
    async () => {
      const ran = await demo([...size, '--answer', 'ordered', '--overshoot', '1.2', '--json'], yours());
      const report = documentOf(ran);
      expect(report, ran.stderr).toMatchObject({ ordersStored: STOCK, lost: 0, equationHolds: true, broken: [] });
      expect(report['refusedAtLanding']).toBeLessThanOrEqual(STOCK / 5);
      expect(ran.code).toBe(0);
    },
  );

  test('holds in one process without PostgreSQL, and is told in words', { timeout: PATIENCE_MS }, async () => {
    const ran = await demo(['--buyers', '400', '--stock', '20', '--embedded']);
    expect(ran.code, ran.stderr).toBe(0);
    expect(ran.stdout).toMatch(/^20 of 20 units sold in [\d.]+ s, to 20 of 400 buyers, who asked [\d,]+ times\.$/m);
    expect(ran.stdout).toContain('they balance');
    expect(ran.stdout.trimEnd()).toMatch(/\nIt holds\.$/);
    expect(ran.stderr).toContain('PGlite');
  });

  test('leaves neither processes nor files behind', async () => {
    await until('all processes have ended', () => processesLeft().length === 0);
    expect(filesLeft()).toEqual([]);
  });
});

describe.sequential('a sale that was broken behind its back', () => {
  const NUMBER = {
    oversell: 'oversold',
    lose: 'lost',
    duplicate: 'duplicates',
    'wrong-answer': 'wrongAnswers',
  } as const;

  test.each(BREAKS)('%s: exit 1, named, and nothing else', { timeout: PATIENCE_MS }, async (kind) => {
    const words = ['--buyers', '600', '--stock', '30', '--sabotage', kind, '--json'];
    const ran = await demo(words, { SLUICE_TEST_BUILD: '1' });
    const report = documentOf(ran);
    expect(report['broken'], ran.stderr).toEqual([kind]);
    expect(ran.code).toBe(1);
    expect(ran.stderr.trimEnd()).toMatch(new RegExp(`\\ndoes not hold: ${kind}$`));
    for (const [other, number] of Object.entries(NUMBER)) {
      if (other === kind) expect(report[number]).toBeGreaterThan(0);
      else expect(report[number]).toBe(0);
    }
    if (kind === 'drift') expect(report['equationHolds']).toBe(false);
  });
});

describe.sequential('a demo that is ended early', () => {
  test('by Ctrl-C: takes down what it started, and says so', { timeout: PATIENCE_MS }, async () => {
    const { child, ended, told } = startDemo(['--buyers', '400', '--stock', '20', '--json']);
    await until('the crowd is there', () => told().includes('Early birds'), PATIENCE_MS);
    child.kill('SIGINT');
    const { code, stdout, stderr } = await ended;
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr.trimEnd()).toMatch(/\nsluice: interrupted[^\n]*$/);
    expect(processesLeft()).toEqual([]);
    expect(filesLeft()).toEqual([]);
  });

  test('by SIGKILL: what it started ends too', { timeout: PATIENCE_MS }, async () => {
    const { child, ended, told } = startDemo(['--buyers', '400', '--stock', '20']);
    await until('the crowd is there', () => told().includes('Early birds'), PATIENCE_MS);
    child.kill('SIGKILL');
    await ended;
    await until('all processes have ended', () => processesLeft().length === 0, 60_000);
    expect(filesLeft()).toEqual([]);
  });
});

test('other Sluice processes on the database: refused before anything is sold', { timeout: PATIENCE_MS }, async () => {
  const other = await spawnServer({ databaseUrl: database.url, redisUrl: inject('redisUrl'), role: 'worker' });
  try {
    const { code, stdout, stderr } = await demo(['--buyers', '10', '--stock', '1', '--json'], {
      DATABASE_URL: database.url,
      REDIS_URL: inject('redisUrl'),
    });
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain('other Sluice processes run on this database');
  } finally {
    other.kill('SIGTERM');
    await other.ended;
  }
});
