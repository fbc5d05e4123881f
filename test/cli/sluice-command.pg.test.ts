/** The command as it is typed: exit codes, standard output that holds one JSON document or nothing, one line on standard error. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startSluice, TEST_OPERATOR_SECRET, type TestSluice } from '../support/sluice.ts';

const PROGRAM = fileURLToPath(new URL('../../src/main/sluice.ts', import.meta.url));
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

let sluice: TestSluice;
let folder = '';
let token = '';
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-command-'));
  sluice = await startSluice();
  const ran = await run('admin', 'token', '--name', 'ann', '--role', 'operator');
  if (ran.code !== 0) throw new Error(`no token: ${ran.stderr}`);
  token = ran.stdout.trim();
});
afterAll(async () => {
  await sluice?.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function run(...words: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, ['--import', 'tsx', PROGRAM, ...words], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: process.env['PATH'],
      SLUICE_DATA: folder,
      SLUICE_OPERATOR_SECRET: TEST_OPERATOR_SECRET,
      SLUICE_URL: sluice.url,
      ...(token === '' ? {} : { SLUICE_TOKEN: token }),
    },
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { code, stdout, stderr };
}

const CREATE = [
  ...['activity', 'create', '--id', 'typed', '--name', '商品', '--price-minor', '100', '--total', '3'],
  ...['--opens', '+10m', '--ends', '+1h'],
];

describe('sluice, as it is typed', () => {
  test('done: exit 0, one document', async () => {
    const { code, stdout, stderr } = await run(...CREATE, '--json');
    expect([code, stderr]).toEqual([0, '']);
    expect(JSON.parse(stdout)).toMatchObject({ id: 'typed', state: 'in_review' });
  });

  test('refused: exit 1, one line; under --json the server’s problem document besides', async () => {
    const words = ['activity', 'show', 'nowhere'];
    const plain = await run(...words);
    expect(plain).toEqual({ code: 1, stdout: '', stderr: 'sluice: There is no such activity (unknown_activity)\n' });
    const { code, stdout, stderr } = await run(...words, '--json');
    expect([code, stderr]).toEqual([1, plain.stderr]);
    expect(JSON.parse(stdout)).toMatchObject({ code: 'unknown_activity', status: 404 });
  });

  test('does not hold: exit 1, the report', async () => {
    const { id, run: number } = await sluice.openActivity({ total: 2 });
    await sluice.redis.command('DECRBY', sluice.keys.stock({ activityId: id, segment: 0, run: number }), 1);
    const { code, stdout, stderr } = await run('verify', id, '--json');
    expect([code, stderr]).toEqual([1, '']);
    expect(JSON.parse(stdout)).toMatchObject({ activityId: id, left: 1 });
  });

  test('wrong use: exit 2, nothing on standard output', async () => {
    for (const words of [
      ['activity', 'explode'],
      ['verify'],
      ['demo', '--sabotage', 'drift'],
      ['demo', '--overshoot', '1.5'],
    ]) {
      const { code, stdout, stderr } = await run(...words);
      expect([words, code, stdout]).toEqual([words, 2, '']);
      expect(stderr).not.toBe('');
    }
  });

  test('a setting that is none: exit 2, and only for verbs that read settings', async () => {
    const words = ['--import', 'tsx', PROGRAM, 'activity', 'list'];
    const child = spawn(process.execPath, words, {
      cwd: ROOT,
      stdio: 'ignore',
      env: { PATH: process.env['PATH'], SLUICE_PORT: 'nonsense' },
    });
    expect(await new Promise((resolve) => child.once('close', resolve))).toBe(2);
  });

  test('help names the verbs, and none that nobody types', async () => {
    const { code, stdout } = await run('--help');
    expect(code).toBe(0);
    for (const verb of ['activity', 'admin', 'verify', 'demo', 'serve', 'config'])
      expect(stdout).toMatch(new RegExp(`^  ${verb}\\b`, 'm'));
    expect(stdout).not.toContain('demo-');
  });
});
