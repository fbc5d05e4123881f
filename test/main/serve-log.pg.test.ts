/** The log of a server: a hold, its landing and its end can be joined by ids, and no token is in it. */
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { ask, buy, isQuiet, startSluice, tokenOf, until, type TestSluice } from '../support/sluice.ts';
import { startServe, type Line, type ServeProcess } from './serve-process.ts';

let operator: TestSluice; // plans and preheats; sells nothing
let server: ServeProcess;
beforeAll(async () => {
  operator = await startSluice({ role: 'api' });
  server = startServe({
    databaseUrl: operator.database.url,
    redisUrl: inject('redisUrl'),
    settings: { SLUICE_KEY_PREFIX: operator.config.keyPrefix, SLUICE_LOG: 'debug', SLUICE_STOP_GRACE_MS: '0' },
  });
  await server.untilServing();
}, 120_000);
afterAll(async () => {
  server?.kill('SIGTERM');
  await server?.ended;
  await operator?.stop();
});

/** Sentences of the lines that carry an id, in the order in which they were said. */
const saidOf = (id: string): string[] =>
  server.lines.filter((line) => JSON.stringify(line).includes(`"${id}"`)).map((line) => line.msg);
const line = (sentence: string, id: string): Line =>
  server.lines.find((one) => one.msg === sentence && JSON.stringify(one).includes(`"${id}"`))!;

test('joins a hold, its landing and its end', { timeout: 60_000 }, async () => {
  const activity = await operator.openActivity({ total: 5 });
  // shown before it is preheated: until then the answer is `not_ready`
  await until('the server sells it', async () => {
    return (await ask(server.url(), `/api/v1/activities/${activity.id}`)).body['state'] === 'open';
  });
  const kept = await buy(server.url(), activity.id, 'ann');
  const cancelled = await buy(server.url(), activity.id, 'bob');
  // Redis forgets a buyer, who buys again: PostgreSQL refuses the second hold
  await until('landed', () => isQuiet(operator, activity));
  const at = { activityId: activity.id, segment: 0, run: activity.run };
  await operator.redis.command('HDEL', operator.keys.buyers(at, 0), 'ann');
  const refused = await buy(server.url(), activity.id, 'ann');
  expect([kept.code, cancelled.code, refused.code]).toEqual(['held', 'held', 'held']);
  await ask(server.url(), `/api/v1/orders/${cancelled.body['orderId']}/cancel`, 'bob', { method: 'POST' });
  await until('all is said', () => saidOf(cancelled.body['orderId'] as string).includes('given back'));
  await until('all is said', () => saidOf(refused.body['orderId'] as string).includes('given back'));

  expect(saidOf(kept.body['orderId'] as string)).toEqual(['gate decided', 'holds landed']);
  expect(saidOf(cancelled.body['orderId'] as string)).toEqual(['gate decided', 'holds landed', 'given back']);
  const end = saidOf(refused.body['orderId'] as string);
  expect(end[0]).toBe('gate decided');
  expect(end).toEqual(expect.arrayContaining(['PostgreSQL refused holds', 'given back']));
  expect(line('PostgreSQL refused holds', refused.body['orderId'] as string)).toMatchObject({
    level: 30,
    activityId: activity.id,
    run: activity.run,
    refused: [{ orderId: refused.body['orderId'], reason: 'already_bought' }],
  });
  expect(line('given back', cancelled.body['orderId'] as string)).toMatchObject({ level: 30, activityId: activity.id });
  expect(line('gate decided', kept.body['orderId'] as string)).toMatchObject({ level: 20, run: activity.run });
});

test('says when an activity has moved', { timeout: 60_000 }, async () => {
  const activity = await operator.openActivity({ total: 5 });
  await until('it is said', () => saidOf(activity.id).includes('activity seen for the first time'));
  await operator.database.database.query(`update activities set paused = true where id = $1`, [activity.id]);
  await until('it is said', () => saidOf(activity.id).includes('activity moved'));
  expect(line('activity moved', activity.id)).toMatchObject({ level: 30, from: { paused: false }, paused: true });
});

test('has no token and no secret in it', async () => {
  await ask(server.url(), '/api/v1/orders', 'ann');
  await ask(server.url(), '/api/v1/orders', undefined, { headers: { authorization: `Bearer ${tokenOf('cid')}x` } });
  const everything = server.lines.map((one) => JSON.stringify(one)).join('\n');
  expect(server.lines.length).toBeGreaterThan(10);
  expect(everything).not.toMatch(/eyJ[\w-]+\.[\w-]+\./);
  expect(everything).not.toContain('test-secret');
  expect(everything).not.toMatch(/:\/\/[^"\s]*:(?!\[masked\])[^"\s/]+@/);
  expect(server.complaints()).toBe('');
});
