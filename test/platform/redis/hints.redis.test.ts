/** Speaks for `hints.ts`: hints get through while they can, and losing the connection is told and cured. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { makeLog } from '../../../src/platform/log.ts';
import { openHints } from '../../../src/platform/redis/hints.ts';
import type { Hints, HintsOptions } from '../../../src/platform/redis/hints.ts';
import { startFaultProxy } from '../../support/fault-proxy.ts';
import type { FaultProxy } from '../../support/fault-proxy.ts';
import { startPrivateRedis, until } from '../../support/redis-server.ts';
import type { PrivateRedis } from '../../support/redis-server.ts';

let redis: PrivateRedis;
let proxy: FaultProxy;
const opened: Hints[] = [];

beforeAll(async () => {
  redis = await startPrivateRedis();
});

beforeEach(async () => {
  proxy = await startFaultProxy({ targetPort: redis.server.port });
});

afterEach(async () => {
  await Promise.all(opened.splice(0).map((hints) => hints.close()));
  await proxy.stop();
});

afterAll(async () => {
  await redis.stop();
});

/** A listener, and what it has been told so far. */
function listen(options: Partial<HintsOptions> = {}): { hints: Hints; heard: string[]; connects: () => number } {
  const heard: string[] = [];
  let connects = 0;
  const hints = openHints({
    url: proxy.url,
    name: 'test-hints',
    channel: 'activity',
    log: makeLog('silent'),
    onMessage: (text) => heard.push(text),
    onReconnect: () => (connects += 1),
    ...options,
  });
  opened.push(hints);
  return { hints, heard, connects: () => connects };
}

test('a hint reaches every process once, the sender too; another channel’s does not', async () => {
  const ann = listen();
  const bob = listen();
  const eve = listen({ channel: 'other' });
  await until('all listen', async () => [ann, bob, eve].every(({ connects }) => connects() === 1));
  ann.hints.publish('sold out');
  ann.hints.publish('闸');
  await until('both have heard', async () => ann.heard.length === 2 && bob.heard.length === 2);
  expect([ann.heard, bob.heard, eve.heard]).toEqual([['sold out', '闸'], ['sold out', '闸'], []]);
});

test('a cut is told and cured; what was published meanwhile is lost without harm', async () => {
  const ann = listen();
  await until('she listens', async () => ann.connects() === 1);
  await proxy.refuseNew(true);
  proxy.cut();
  await redis.admin.command('publish', 'activity', 'missed');
  ann.hints.publish('dropped');
  await proxy.refuseNew(false);
  await until('she listens again', async () => ann.connects() === 2);
  await redis.admin.command('publish', 'activity', 'heard');
  await until('she has heard', async () => ann.heard.length > 0);
  expect(ann.heard).toEqual(['heard']);
});

test('a cut before the subscription is confirmed is cured, too', async () => {
  proxy.delay(50); // so that the confirmation is still on its way
  const ann = listen();
  await proxy.passed(([command]) => command === 'subscribe');
  proxy.cut();
  expect(ann.connects()).toBe(0);
  proxy.delay(0);
  await until('she listens', async () => ann.connects() === 1);
});

test('a connection that fell silent for good is noticed by its heartbeat', async () => {
  const ann = listen({ heartbeatMs: 100 });
  await until('she listens', async () => ann.connects() === 1);
  proxy.abandon();
  await until('she listens again', async () => ann.connects() === 2, 5_000);
});

test('without a server nothing throws, and hints flow once it is there', async () => {
  await proxy.refuseNew(true);
  const ann = listen();
  ann.hints.publish('too early');
  await proxy.refuseNew(false);
  await until('she listens', async () => ann.connects() === 1);
  ann.hints.publish('in time');
  await until('she has heard', async () => ann.heard.length > 0);
  expect(ann.heard).toEqual(['in time']);
});

test('a listener that throws is logged, and hears the next hint', async () => {
  const lines: object[] = [];
  const log = { ...makeLog('silent'), error: (fields: object) => void lines.push(fields) };
  const heard: string[] = [];
  const ann = listen({
    log,
    onMessage(text) {
      heard.push(text);
      throw new Error('a bug');
    },
  });
  await until('she listens', async () => ann.connects() === 1);
  for (const text of ['one', 'two']) ann.hints.publish(text);
  await until('she has heard', async () => heard.length === 2);
  expect(lines).toHaveLength(2);
});

test('the nodes of a cluster URL are tried in turn', async () => {
  const dead = await startFaultProxy({ targetPort: redis.server.port });
  await dead.refuseNew(true);
  const ann = listen({ url: `redis+cluster://127.0.0.1:${dead.port},127.0.0.1:${proxy.port}` });
  await until('she listens by the second', async () => ann.connects() === 1);
});

test('closing ends everything, also while there is no server', async () => {
  const ann = listen();
  await until('she listens', async () => ann.connects() === 1);
  await ann.hints.close();
  await redis.admin.command('publish', 'activity', 'too late');
  await proxy.refuseNew(true);
  const bob = listen();
  await bob.hints.close();
  await bob.hints.close();
  bob.hints.publish('nobody');
  expect([ann.heard, bob.heard]).toEqual([[], []]);
});
