/** Wrong use is exit 2 and does nothing; and where a server and a token are looked for. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runVerb } from './command.ts';

const TEST = { environment: { NODE_ENV: 'test', SLUICE_URL: 'http://127.0.0.1:1', SLUICE_TOKEN: 'x' } };
const CREATE = ['activity', 'create', '--name', 'x', '--price-minor', '1', '--total', '1', '--ends', '+1h'];

describe('wrong use is exit 2', () => {
  test.each<[string, string[]]>([
    ['a verb that there is not', ['activity', 'explode', 'x']],
    ['no id', ['activity', 'approve']],
    ['an id too many', ['verify', 'x', 'y']],
    ['a flag that there is not', ['activity', 'list', '--colour']],
    ['no opening', CREATE],
    ['a time without a zone', [...CREATE, '--opens', '2026-11-11T20:00:00']],
    ['a day that there is not', [...CREATE, '--opens', '2026-02-30T20:00:00Z']],
    ['a span without a unit', [...CREATE, '--opens', '+30']],
    ['a time beyond all calendars', [...CREATE, '--opens', '+999999999d']],
    ['a number that is none', [...CREATE, '--opens', '+1s', '--limit', '1.5']],
    ['an answer that there is not', [...CREATE, '--opens', '+1s', '--answer', 'maybe']],
    ['a role that there is not', ['admin', 'token', '--name', 'ann', '--role', 'king']],
    ['no role', ['admin', 'token', '--name', 'ann']],
    ['hours that are none', ['admin', 'token', '--name', 'ann', '--role', 'viewer', '--hours', '-1']],
    ['a demo without buyers', ['demo', '--buyers', '0']],
    ['a demo with half a unit', ['demo', '--stock', '0.5']],
    ['overshoot without waiting', ['demo', '--overshoot', '1.2']],
    ['overshoot above 2', ['demo', '--answer', 'ordered', '--overshoot', '2.5']],
    ['sabotage that there is not', ['demo', '--sabotage', 'earthquake']],
    ['sabotage of too small a sale', ['demo', '--sabotage', 'drift', '--stock', '2']],
    ['sabotage of what cannot be reached', ['demo', '--sabotage', 'drift', '--embedded']],
    ['one process and several', ['demo', '--embedded', '--workers', '2']],
  ])('%s', async (_, words) => {
    const ran = await runVerb(words, TEST);
    expect(ran).toMatchObject({ code: 2, printed: [] });
    expect(ran.said).not.toBe('');
  });

  test('sabotage outside of test builds', async () => {
    const ran = await runVerb(['demo', '--sabotage', 'drift'], { environment: {} });
    expect(ran).toMatchObject({ code: 2 });
    expect(ran.said).toContain('--sabotage');
  });
  test('a name that no audit could show', async () => {
    const words = ['admin', 'token', '--name', 'ann lee', '--role', 'viewer'];
    const ran = await runVerb(words, { settings: { operatorSecret: 'a secret of at least thirty-two bytes' } });
    expect(ran).toMatchObject({ code: 2, printed: [] });
  });
  test('no secret to sign with', async () => {
    const ran = await runVerb(['admin', 'token', '--name', 'ann', '--role', 'viewer']);
    expect(ran).toMatchObject({ code: 2, said: expect.stringContaining('SLUICE_OPERATOR_SECRET') as string });
  });
});

describe('server and token are looked for', () => {
  let server: Server;
  let url = '';
  let folder = '';
  let heard: (string | undefined)[] = [];
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'sluice-cli-'));
    server = createServer((request, response) => {
      heard.push(request.headers.authorization);
      response.setHeader('content-type', 'application/json').end('{"items":[]}');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    writeFileSync(join(folder, 'run.json'), JSON.stringify({ url, token: 'of-the-run' }));
    writeFileSync(
      join(folder, 'secrets.json'),
      JSON.stringify({ operatorSecret: 'a secret of at least thirty-two bytes' }),
    );
  });
  afterAll(() => {
    server.close();
    rmSync(folder, { recursive: true });
  });
  const list = async (options: { words?: string[]; environment?: Record<string, string> } = {}) => {
    heard = [];
    return runVerb(['activity', 'list', ...(options.words ?? [])], {
      environment: options.environment ?? {},
      settings: { dataFolder: folder },
    });
  };

  test('in run.json of the data folder', async () => {
    expect(await list()).toMatchObject({ code: 0, printed: ['no activities'] });
    expect(heard).toEqual(['Bearer of-the-run']);
  });
  test('before that in the environment, and before that in the flags', async () => {
    await list({ environment: { SLUICE_TOKEN: 'of-the-environment' } });
    expect(heard).toEqual(['Bearer of-the-environment']);
    await list({ environment: { SLUICE_TOKEN: 'of-the-environment' }, words: ['--token', 'of-the-flag'] });
    expect(heard).toEqual(['Bearer of-the-flag']);
    await list({ environment: { SLUICE_URL: 'http://127.0.0.1:1' }, words: ['--url', url] });
    expect(heard).toEqual(['Bearer of-the-run']);
  });
  test('the token of the run goes to no other server', async () => {
    const ran = await list({ words: ['--url', url.replace('127.0.0.1', 'localhost')] });
    expect(ran).toMatchObject({ code: 2, said: expect.stringContaining('no operator token') as string });
    expect(heard).toEqual([]);
  });
  test('nowhere: says what to do', async () => {
    const ran = await runVerb(['activity', 'list']);
    expect(ran).toMatchObject({ code: 2, said: expect.stringContaining('--url or SLUICE_URL') as string });
  });
  test('an address that is none', async () => {
    expect(await list({ words: ['--url', 'nonsense'] })).toMatchObject({ code: 2 });
  });
  test('the secret for tokens, in the data folder', async () => {
    const words = ['admin', 'token', '--name', 'ann', '--role', 'viewer'];
    const ran = await runVerb(words, { settings: { dataFolder: folder } });
    expect(ran).toMatchObject({ code: 0, printed: [expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]+$/)] });
  });
});
