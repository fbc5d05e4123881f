/** `sluice doctor` as it is typed, at real servers: what it finds there, and how it ends. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import type { Point } from '../../../src/watch/doctor/points.ts';
import { startSluice, TEST_SECRET, type TestSluice } from '../../support/sluice.ts';

const PROGRAM = fileURLToPath(new URL('../../../src/main/sluice.ts', import.meta.url));
const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

let sluice: TestSluice;
beforeAll(async () => {
  sluice = await startSluice();
});
afterAll(() => sluice.stop());

type Ran = { code: number | null; stdout: string; stderr: string };
async function doctor(words: readonly string[], settings: Record<string, string> = {}): Promise<Ran> {
  const child = spawn(process.execPath, ['--import', 'tsx', PROGRAM, 'doctor', ...words], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: process.env['PATH'],
      DATABASE_URL: sluice.database.url,
      REDIS_URL: inject('redisUrl'),
      SLUICE_KEY_PREFIX: sluice.config.keyPrefix,
      SLUICE_BUYER_SECRETS: TEST_SECRET,
      SLUICE_RECEIPT_SECRETS: TEST_SECRET,
      ...settings,
    },
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { code, stdout, stderr };
}
type Document = { holds: boolean; points: Point[] };
const found = ({ points }: Document, name: string): Point | undefined => points.find((one) => one.name === name);

test('a living activity, a key without an end, no operators', { timeout: 60_000 }, async () => {
  const activity = await sluice.openActivity();
  const endless = `${sluice.config.keyPrefix}:stray`;
  await sluice.redis.command('SET', endless, '1');
  const { code, stdout, stderr } = await doctor(['--activity', activity.id, '--json']);
  await sluice.redis.command('DEL', endless);
  expect([code, stderr]).toEqual([1, '']);
  const document = JSON.parse(stdout) as Document;
  expect(document.holds).toBe(false);
  for (const name of ['redis version', 'redis role', 'postgres version', 'fsync', 'default isolation', 'receipts']) {
    expect(found(document, name), name).toMatchObject({ holds: true });
  }
  for (const name of ['state', 'preheat', 'gate', 'stock at the gate', 'keys outlive the sale', 'worker']) {
    expect(found(document, name), name).toMatchObject({ holds: true });
  }
  expect(found(document, 'keys without an end')).toMatchObject({ holds: false });
  expect(found(document, 'keys without an end')!.found).toContain(endless);
  expect(found(document, 'operators')).toMatchObject({ holds: false, wanted: 'SLUICE_OPERATOR_SECRET' });
  // nothing of it was changed by looking
  expect(await sluice.redis.command('GET', sluice.keys.stock({ activityId: activity.id, segment: 0, run: 1 }))).toBe(
    '10',
  );
});

test('an activity that is not there is an open point; words say what is wanted', { timeout: 60_000 }, async () => {
  const { code, stdout } = await doctor(['--activity', 'no-such']);
  expect(code).toBe(1);
  expect(stdout).toMatch(/^OPEN {2}activity +there is none of this id$/m);
  expect(stdout).toMatch(/wanted: it exists: there is nothing to sell/);
  expect(stdout).toMatch(/of \d+ points are open\.\n$/);
});

test('without addresses, or without a server behind one: one line', { timeout: 60_000 }, async () => {
  expect(await doctor([], { REDIS_URL: '' })).toMatchObject({ code: 2, stdout: '' });
  const away = await doctor([], { REDIS_URL: 'redis://127.0.0.1:1' });
  expect(away.code).toBe(1);
  expect(away.stderr.trim().split('\n')).toHaveLength(1);
});
