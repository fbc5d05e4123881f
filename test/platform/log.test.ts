/** Nothing secret leaves by the log, whatever field, depth or sentence it stands in; what joins events does. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { hiddenValues } from '../../src/main/hidden-values.ts';
import { masked } from '../../src/platform/log.ts';
import { testConfig, tokenOf } from '../support/sluice.ts';

const SECRET = 'hunter2-hunter2';
const JWT = tokenOf('ann');

describe('a line of the log', () => {
  test.each<[string, object]>([
    ['authorization', { authorization: `Bearer ${SECRET}` }],
    ['a header in a request', { req: { headers: { authorization: `Bearer ${SECRET}`, cookie: `s=${SECRET}` } } }],
    ['token', { token: SECRET }],
    ['a token of any kind', { operatorToken: SECRET, access_token: SECRET, 'x-auth-token': SECRET }],
    ['secret', { secret: SECRET, buyerSecrets: [SECRET, SECRET] }],
    ['password, deep down', { a: { b: { c: [{ password: SECRET }] } } }],
    ['whatever its case', { Password: SECRET, SLUICE_OPERATOR_SECRET: SECRET }],
    ['a secret with quotes in it', { password: `x"${SECRET}"y\\` }],
    ['DATABASE_URL', { DATABASE_URL: `postgres://shop:${SECRET}@db:5432/sluice?sslmode=require` }],
    ['an address in a sentence', { cause: `connect to postgres://shop:${SECRET}@db/x failed` }],
    ['a password with an @ and a / in it', { cause: `postgres://shop:p@/${SECRET}@db/x` }],
    ['a password without a user', { REDIS_URL: `rediss://:${SECRET}@cache:6379` }],
    ['a secret in a query', { url: `https://shop.example/?token=${SECRET}&a=1` }],
    ['a bearer token in a sentence', { error: `refused: Bearer ${SECRET} is no token` }],
    ['JSON in a text', { body: JSON.stringify({ password: SECRET, a: 1 }) }],
  ])('hides %s', (_, fields) => {
    const line = masked(`${JSON.stringify({ level: 30, ...fields, msg: 'said' })}\n`);
    expect(line).not.toContain(SECRET);
    expect(line).toContain('[masked]');
    expect(JSON.parse(line)).toMatchObject({ level: 30, msg: 'said' }); // still one JSON document
  });

  test('hides a JWT wherever it stands', () => {
    expect(masked(JSON.stringify({ note: `x ${JWT} y` }))).toBe('{"note":"x [masked] y"}');
  });

  test('hides the secrets of the settings by value, passwords of addresses in both spellings', () => {
    const config = testConfig('postgres://shop:p%40ss-of-the-shop@db/x', 'redis://:the-password-of-redis@cache:1');
    const known = hiddenValues(config);
    const said = `p@ss-of-the-shop p%40ss-of-the-shop the-password-of-redis ${config.operatorSecret} ${config.buyerSecrets[0]}`;
    expect(masked(said, known)).toBe('[masked] [masked] [masked] [masked] [masked]');
  });

  test('keeps what joins events, and short passwords do not riddle it', () => {
    const line = JSON.stringify({
      activityId: 'act1001',
      run: 3,
      orderId: '123456789012345678',
      orderIds: ['1', '2'],
      receipt: 'r1.YWJj.ZGVm',
      kind: 'postgres',
      url: 'http://127.0.0.1:8080/api/v1/activities',
      time: '2026-12-01T12:00:00.000Z',
      msg: 'tokens are not named here',
    });
    expect(masked(line, ['postgres', ''])).toBe(line);
  });
});

test('the log of a process is masked lines of JSON, and a child keeps its fields', () => {
  const log = fileURLToPath(new URL('../../src/platform/log.ts', import.meta.url));
  const script = `
    import { makeLog } from ${JSON.stringify(log)};
    const log = makeLog('info', 1, ['a-known-secret-of-the-settings']);
    log.debug({}, 'too quiet');
    log.child({ process: 'api-1', token: '${SECRET}' }).info({ activityId: 'a', token: '${SECRET}' }, 'a-known-secret-of-the-settings');
  `;
  const { stdout, stderr } = spawnSync(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
    encoding: 'utf8',
    cwd: fileURLToPath(new URL('../..', import.meta.url)),
  });
  expect(stderr).toBe('');
  const lines = stdout.trim().split('\n');
  expect(lines).toHaveLength(1);
  expect(stdout).not.toContain(SECRET);
  expect(JSON.parse(lines[0]!)).toMatchObject({
    level: 30,
    pid: expect.any(Number) as number,
    time: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/) as string,
    process: 'api-1',
    activityId: 'a',
    token: '[masked]',
    msg: '[masked]',
  });
});
