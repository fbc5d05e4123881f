/** Speaks for `link.ts` and `hints.ts` behind a sentinel: they find the primary, and its successor. */
import { expect, onTestFinished, test } from 'vitest';
import { makeLog } from '../../../src/platform/log.ts';
import { openHints } from '../../../src/platform/redis/hints.ts';
import { openRedis } from '../../../src/platform/redis/link.ts';
import type { Script } from '../../../src/platform/redis/link.ts';
import { startPrivateRedis, startSentinel, until } from '../../support/redis-server.ts';

const COUNT: Script = { name: 'count', text: "#!lua\nreturn redis.call('INCR', KEYS[1])" };

test('after a failover calls reach the promoted replica and hints flow, by the sentinel’s word', async () => {
  const primary = await startPrivateRedis();
  const replica = await startPrivateRedis(['--replicaof', `127.0.0.1 ${primary.server.port}`]);
  const sentinel = await startSentinel(primary.server.port);
  const options = { url: sentinel.url, log: makeLog('silent') };
  const link = openRedis({ ...options, name: 'test', commandTimeoutMs: 2_000, connectTimeoutMs: 1_000 });
  const heard: string[] = [];
  let connects = 0;
  const hints = openHints({
    ...options,
    name: 'test-hints',
    channel: 'activity',
    onMessage: (text) => heard.push(text),
    onReconnect: () => (connects += 1),
  });
  onTestFinished(async () => {
    await Promise.all([link.close(), hints.close()]);
    await Promise.all([sentinel.stop(), replica.stop(), primary.stop()]);
  });

  await link.whenReady(10_000);
  expect(await link.run(COUNT, ['n'], [])).toBe(1);
  expect(await primary.admin.command('get', 'n')).toBe('1');
  await until('the replica has it', async () => (await replica.admin.command('get', 'n')) === '1');
  await until('hints flow', async () => connects === 1);

  // A sentinel learns of a replica when it next asks the primary: every ten seconds.
  const asked = openRedis({
    url: sentinel.url.replace('redis+sentinel', 'redis').replace('/shop', ''),
    name: 'test-sentinel',
    commandTimeoutMs: 2_000,
    connectTimeoutMs: 1_000,
    log: makeLog('silent'),
  });
  onTestFinished(() => asked.close());
  await asked.whenReady(5_000);
  await until('the sentinel knows the replica', async () =>
    String(await asked.command('sentinel', 'master', 'shop')).includes('num-slaves,1'),
  );

  primary.server.kill('SIGKILL');
  await until('a call is answered again', () => link.run(COUNT, ['n'], []), 30_000);
  expect(await replica.admin.command('get', 'n')).toBe('2');
  await until('hints flow again', async () => connects > 1);
  hints.publish('promoted');
  await until('the hint is heard', async () => heard.includes('promoted'));
}, 60_000);
