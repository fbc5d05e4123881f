/**
 * Speaks for `link.ts` in a cluster, against three real primaries and a replica, each behind a fault proxy: the client
 * follows the nodes' announced ports through it. What ioredis retries inside itself shows only here.
 */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Fault } from '../../../src/domain/fault.ts';
import { makeLog } from '../../../src/platform/log.ts';
import { openRedis } from '../../../src/platform/redis/link.ts';
import type { RedisLink, Script } from '../../../src/platform/redis/link.ts';
import { startPrivateCluster, until } from '../../support/redis-server.ts';
import type { PrivateCluster } from '../../support/redis-server.ts';

/** Notes for each call how often it ran and when last (epoch ms by the machine's one clock). */
const NOTE: Script = {
  name: 'note',
  text: `#!lua
local time = redis.call('TIME')
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('HSET', KEYS[1], ARGV[1] .. ':at', time[1] * 1000 + math.floor(time[2] / 1000))
return 'noted'`,
};

/** Keys by the primary that holds them at first: slots 3300, 7365 and 15495. */
const KEYS = { first: '{b}:1', second: '{c}:1', third: '{a}:1' } as const;

let cluster: PrivateCluster;
const links: RedisLink[] = [];

beforeAll(async () => {
  cluster = await startPrivateCluster();
}, 60_000);

beforeEach(async () => {
  for (const { admin } of cluster.primaries) await admin.command('flushall').catch(() => undefined);
});

afterEach(async () => {
  await Promise.all(links.splice(0).map((link) => link.close()));
});

afterAll(async () => {
  await cluster?.stop();
});

function open(commandTimeoutMs = 10_000): RedisLink {
  const link = openRedis({
    url: cluster.url,
    name: 'test',
    commandTimeoutMs,
    connectTimeoutMs: 1_000,
    log: makeLog('silent'),
  });
  links.push(link);
  return link;
}

async function openReady(commandTimeoutMs = 10_000): Promise<RedisLink> {
  const link = open(commandTimeoutMs);
  await link.whenReady(5_000);
  return link;
}

test('ready means connected to all three primaries; calls find theirs, scripts are loaded on each', async () => {
  const link = await openReady();
  const keys = Object.values(KEYS);
  expect(await Promise.all(keys.map((key) => link.run(NOTE, [key], ['c'])))).toEqual(['noted', 'noted', 'noted']);
  for (const [index, { admin }] of cluster.primaries.entries()) {
    expect(await admin.command('hget', String(keys[index]), 'c')).toBe('1');
  }
  await cluster.primaries[1].admin.command('script', 'flush');
  expect(await Promise.all(keys.map((key) => link.run(NOTE, [key], ['d'])))).toEqual(['noted', 'noted', 'noted']);
  await expect(link.run(NOTE, [KEYS.first, KEYS.second], ['e'])).rejects.toMatchObject({ code: 'redis_unknown' });
});

/**
 * Trap: retryDelayOnFailover, 100 ms by default. A call whose connection broke after it ran is sent again inside the
 * client, and its caller waits as long as that takes.
 */
test('a lost reply is unknown, and what ran once is not sent again', async () => {
  const link = await openReady();
  const { admin, proxy } = cluster.primaries[0];
  proxy.loseReplies({ every: 1, of: ([command, key]) => command === 'incr' && key === KEYS.first });
  await expect(link.command('INCR', KEYS.first)).rejects.toMatchObject({ code: 'redis_unknown' });
  proxy.keepReplies();
  await until('the link is back', async () => (await link.command('STRLEN', KEYS.first)) === 1);
  expect(await admin.command('get', KEYS.first)).toBe('1');
});

/**
 * Trap: whatever enableOfflineQueue says, ioredis queues calls on a cluster node's connection that is not open yet, and
 * sends them when it is, also those whose deadline has passed: run after they were given up on.
 */
test('what was given up on while a node did not let us in does not run when it does', async () => {
  const link = await openReady(100);
  const { admin, proxy } = cluster.primaries[0];
  const traffic = startTraffic(link);
  await until('traffic flows', async () => traffic.answered('ok') > 10);
  proxy.hang();
  proxy.cut(); // the next connection is made, and hears nothing
  const firstCut = traffic.called();
  const okBefore = traffic.answered('ok');
  await until('several deadlines have passed', async () => traffic.answered('ok', false) > 100);
  const givenUp = [...traffic.answers.keys()].filter((id) => Number(id) >= firstCut);
  proxy.resume();
  await until('traffic flows again', async () => traffic.answered('ok') > okBefore + 10);
  await traffic.stop();
  await link.command('HLEN', KEYS.first); // what waited inside the client would have gone before it
  expect(givenUp.length).toBeGreaterThan(0);
  expect(await admin.command('hmget', KEYS.first, ...givenUp)).toEqual(givenUp.map(() => null));
});

/** The same trap, wider open: a node that has restarted answers, but is not ready until it has read its files. */
test('what was given up on while a node was loading does not run when it has loaded', async () => {
  const link = await openReady(100);
  const { admin, proxy } = cluster.primaries[0];
  await link.run(NOTE, [KEYS.first], ['before']);
  const before = await admin.command('hgetall', KEYS.first);
  for (let key = 0; key < 1_500; key += 1) void admin.command('set', `{b}:filler:${key}`, 'x'.repeat(100));
  await admin.command('config', 'set', 'key-load-delay', 1_000, 'loading-process-events-interval-bytes', 1_024);
  const reloaded = admin.command('debug', 'reload');
  await until('the node says that it loads', async () =>
    link.command('GET', KEYS.first).catch((fault: Fault) => String(fault.cause).includes('LOADING')),
  );
  proxy.cut();
  const givenUp: string[] = [];
  const calls: Promise<unknown>[] = [];
  for (let id = 0; id < 300; id += 1) {
    calls.push(link.run(NOTE, [KEYS.first], [id]).catch(() => givenUp.push(String(id))));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await Promise.all(calls);
  await reloaded;
  await admin.command('config', 'set', 'key-load-delay', 0);
  await link.whenReady(10_000);
  await until('the node serves', async () => (await link.command('HLEN', KEYS.first)) !== undefined);
  expect(givenUp).toHaveLength(300);
  expect(await admin.command('hgetall', KEYS.first)).toEqual(before);
});

/** ioredis forgets a cluster node whose connection broke until a call meets it; the first buyers after a lull would pay. */
test('a broken connection is made again without any call', async () => {
  const link = await openReady();
  const { proxy } = cluster.primaries[0];
  const { connections } = proxy.count;
  proxy.cut(); // the link's own fetching of the map comes every five seconds
  await until('the link is whole again', async () => proxy.count.connections > connections && link.isReady(), 2_500);
});

test('a link is ready only while it reaches every primary, and serves from those that it does', async () => {
  const link = await openReady();
  const { proxy } = cluster.primaries[0];
  proxy.hang();
  proxy.cut();
  await until('it is not ready', async () => !link.isReady());
  expect(await link.command('GET', KEYS.second)).toBe(null);
  proxy.resume();
  await link.whenReady(10_000);
  expect(await link.command('GET', KEYS.first)).toBe(null);
});

/** Trap: until ioredis knows the slots it holds calls back, without a deadline, and sends them when it does. */
test('a call before the cluster is known is refused at once', async () => {
  const link = open();
  const call = link.command('INCR', KEYS.first).catch((fault: Fault) => fault.code);
  expect(await Promise.race([call, new Promise((resolve) => setImmediate(resolve))])).toBe('redis_refused');
  await link.whenReady(5_000);
  expect(await link.command('GET', KEYS.first)).toBe(null);
});

/** Trap: retryDelayOnClusterDown, 100 ms by default: up to sixteen attempts inside the client, far beyond a deadline. */
test('CLUSTERDOWN is a refusal, told at the first attempt', async () => {
  const link = await openReady();
  const { admin, proxy } = cluster.primaries[2];
  const slot = Number(await admin.command('cluster', 'keyslot', '{down}'));
  expect(slot).toBeGreaterThan(10_922);
  await admin.command('cluster', 'delslots', slot);
  try {
    const attempts = proxy.tally(([command]) => command === 'incr');
    await expect(link.command('INCR', '{down}')).rejects.toMatchObject({
      code: 'redis_refused',
      cause: { message: expect.stringMatching(/^CLUSTERDOWN /) },
    });
    expect(attempts.count).toBe(1);
  } finally {
    await admin.command('cluster', 'addslots', slot);
  }
  await until('the slot is served again', () => link.command('INCR', '{down}'));
  expect(await admin.command('get', '{down}')).toBe('1');
});

/** Trap: retryDelayOnTryAgain, 100 ms by default. ioredis tries sixteen times in any case; without pauses between. */
test('TRYAGAIN of a slot half moved is a refusal, told without delay', async () => {
  const link = await openReady();
  const [, second, third] = cluster.primaries;
  const slot = Number(await second.admin.command('cluster', 'keyslot', KEYS.second));
  await link.command('SET', KEYS.second, 'here');
  await third.admin.command('cluster', 'setslot', slot, 'importing', second.id);
  await second.admin.command('cluster', 'setslot', slot, 'migrating', third.id);
  try {
    const call = link.command('DEL', KEYS.second, `${KEYS.second}:gone`).catch((fault: unknown) => fault);
    const answer = await Promise.race([call, new Promise((resolve) => setTimeout(resolve, 1_000, 'still trying'))]);
    expect(answer).toMatchObject({ code: 'redis_refused', cause: { message: expect.stringMatching(/^TRYAGAIN /) } });
    expect(await link.command('GET', KEYS.second)).toBe('here');
  } finally {
    for (const { admin } of [second, third]) await admin.command('cluster', 'setslot', slot, 'stable');
  }
});

/**
 * Trap: one bundle with calls of several slots, some of which have moved, is not retried, and ioredis then keeps the old
 * map for good: every later bundle is refused in part.
 */
test('a moved slot is found again, also by bundles that hold others', async () => {
  const link = await openReady();
  const [first, second, third] = cluster.primaries;
  const slot = Number(await first.admin.command('cluster', 'keyslot', '{mv}'));
  const owner = [first, second, third][Math.floor(slot / 5461)] ?? third;
  const receiver = owner === second ? third : second;
  const neighbour = owner === first ? KEYS.first : owner === second ? KEYS.second : KEYS.third;
  for (const { admin } of [receiver, owner, cluster.replica, first, second, third]) {
    await admin.command('cluster', 'setslot', slot, 'node', receiver.id).catch(() => undefined); // not by a replica
  }
  const answers: unknown[] = [];
  await until(
    'both are answered in one turn',
    async () => {
      const turn = await Promise.all(
        ['{mv}:x', neighbour].map((key) => link.command('INCR', key).catch((fault: Fault) => fault.code)),
      );
      answers.push(...turn.filter((answer) => typeof answer === 'string'));
      return turn.every((answer) => typeof answer === 'number');
    },
    2_500,
  ); // the link's own fetching of the map comes every five seconds
  expect(new Set(answers)).toEqual(new Set(['redis_refused'])); // MOVED proves that nothing ran
  expect(await receiver.admin.command('get', '{mv}:x')).toBe('1');
});

/**
 * Trap: the three retryDelays of the cluster client. With its defaults, calls answered as failed while a primary is dead
 * are executed by its successor seconds later (4 of 13 when tried by hand). Counted here: what ran, how often and when,
 * against what was answered, while a primary is killed and its replica takes over. Runs last: it costs a node.
 */
test('over a failover nothing refused runs, nothing runs twice, nothing runs after its answer', async () => {
  const link = await openReady(2_000);
  const { replica } = cluster;
  await replica.admin.command('config', 'set', 'cluster-replica-no-failover', 'no');
  const traffic = startTraffic(link);
  await until('traffic flows', async () => traffic.answered('ok') > 50);
  cluster.primaries[0].server.kill('SIGKILL');
  await until('the replica has taken over', async () =>
    String(await replica.admin.command('info', 'replication')).includes('role:master'),
  );
  const okBefore = traffic.answered('ok');
  await until('traffic flows again', async () => traffic.answered('ok') > okBefore + 50);
  await traffic.stop();
  await link.command('HLEN', KEYS.first);
  expect(wrongs(traffic.answers, await replica.admin.command('hgetall', KEYS.first))).toEqual([]);
  expect(traffic.answered('ok', false)).toBeGreaterThan(0);
}, 60_000);

type Answers = ReadonlyMap<string, { code: string; at: number }>;

/** Three calls every five milliseconds, each with an id of its own, and how each was answered. */
function startTraffic(link: RedisLink) {
  const answers = new Map<string, { code: string; at: number }>();
  const calls: Promise<void>[] = [];
  const call = (): void => {
    const id = String(calls.length);
    const end = (code: string): void => void answers.set(id, { code, at: Date.now() });
    calls.push(
      link.run(NOTE, [KEYS.first], [id]).then(
        () => end('ok'),
        (fault: Fault) => end(fault.code),
      ),
    );
  };
  const pace = setInterval(() => {
    for (let i = 0; i < 3; i += 1) call();
  }, 5);
  return {
    answers: answers as Answers,
    called: (): number => calls.length,
    /** how many calls were answered so, or not so */
    answered: (code: string, so = true): number =>
      [...answers.values()].filter((answer) => (answer.code === code) === so).length,
    async stop(): Promise<void> {
      clearInterval(pace);
      await Promise.all(calls);
    },
  };
}

/** Each call that was executed otherwise than its answer allows. Executions and answers are timed by one clock. */
function wrongs(answers: Answers, reply: unknown): string[] {
  const noted = reply as Record<string, string>;
  const found: string[] = [];
  for (const [id, { code, at }] of answers) {
    const times = Number(noted[id] ?? 0);
    if (times > 1) found.push(`${id}, answered ${code}, ran ${times} times`);
    if (times > 0 && code === 'redis_refused') found.push(`${id} was refused and ran`);
    if (times > 0 && Number(noted[`${id}:at`]) > at) found.push(`${id}, answered ${code}, ran afterwards`);
  }
  return found;
}
