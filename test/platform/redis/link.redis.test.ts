/**
 * Speaks for `link.ts` and `refusals.ts` against a real server, one trap a test, most through the fault proxy.
 * Each test says what breaks it. The cluster's traps are in `link-cluster.redis.test.ts`.
 */
import { connect } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Fault } from '../../../src/domain/fault.ts';
import { makeLog } from '../../../src/platform/log.ts';
import { openRedis } from '../../../src/platform/redis/link.ts';
import type { RedisLink, RedisLinkOptions, Script } from '../../../src/platform/redis/link.ts';
import { startFaultProxy } from '../../support/fault-proxy.ts';
import type { FaultProxy, Of } from '../../support/fault-proxy.ts';
import { startPrivateRedis, until } from '../../support/redis-server.ts';
import type { PrivateRedis } from '../../support/redis-server.ts';

/** As our scripts open: refused before its first line where a write would be. */
const COUNT: Script = { name: 'count', text: "#!lua\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])" };
/** The same as scripts were before Redis 7: refused at its first write. */
const COUNT_OLD: Script = { name: 'count-old', text: "return redis.call('INCRBY', KEYS[1], ARGV[1])" };
/** Writes nothing, refused all the same. */
const LOOK: Script = { name: 'look', text: "#!lua\nreturn redis.call('GET', KEYS[1])" };
const TRAP: Script = {
  name: 'trap',
  text: "#!lua\nredis.call('SET', KEYS[1], 'x') return redis.call('HSET', KEYS[1], 'a', 'b')",
};
const LOOP: Script = { name: 'loop', text: '#!lua\nwhile true do end' };

const refused = { code: 'redis_refused', retryable: true };
const unknown = { code: 'redis_unknown', retryable: true };

const meaning =
  (...names: string[]): Of =>
  ([command = '']) =>
    names.includes(command);

let redis: PrivateRedis;
let proxy: FaultProxy;
const links: RedisLink[] = [];

beforeAll(async () => {
  redis = await startPrivateRedis(['--busy-reply-threshold', '50', '--enable-debug-command', 'local']);
});

beforeEach(async () => {
  await redis.admin.command('flushall');
  await redis.admin.command('script', 'flush');
  proxy = await startFaultProxy({ targetPort: redis.server.port });
});

afterEach(async () => {
  await Promise.all(links.splice(0).map((link) => link.close()));
  await proxy.stop();
});

afterAll(async () => {
  await redis.stop();
});

/** A link through the proxy; the deadline is far away unless the test is about deadlines. */
function open(options: Partial<RedisLinkOptions> = {}): RedisLink {
  const link = openRedis({
    url: proxy.url,
    name: 'test',
    commandTimeoutMs: 10_000,
    connectTimeoutMs: 1_000,
    log: makeLog('silent'),
    ...options,
  });
  links.push(link);
  return link;
}

async function openReady(options: Partial<RedisLinkOptions> = {}): Promise<RedisLink> {
  const link = open(options);
  await link.whenReady(5_000);
  return link;
}

/** How a call ended: its reply, or the fault's code. */
function outcome(call: Promise<unknown>): Promise<unknown> {
  return call.catch((fault: Fault) => fault.code);
}

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const countOf = (key: string): Promise<unknown> => redis.admin.command('get', key);

describe('a lost reply', () => {
  /** Trap: by default ioredis sends again what was in flight, and the counter is 2. */
  test('is unknown, and what ran once is not sent again after the reconnect', async () => {
    const link = await openReady();
    proxy.loseReplies({ every: 1, of: meaning('incr') });
    await expect(link.command('INCR', 'n')).rejects.toMatchObject(unknown);
    proxy.keepReplies();
    await link.whenReady(5_000);
    await link.command('PING'); // anything sent again would have gone before it
    expect(await countOf('n')).toBe('1');
  });

  /** The replies before it in the same bundle are answers; it and those behind it are unknown, though all ran. */
  test('leaves the answers before it exact and those behind it unknown', async () => {
    const link = await openReady();
    proxy.loseReplies({ every: 3, of: meaning('incr') });
    const calls = ['a', 'b', 'c', 'd'].map((key) => outcome(link.command('INCR', key)));
    expect(await Promise.all(calls)).toEqual([1, 1, 'redis_unknown', 'redis_unknown']);
    proxy.keepReplies();
    await link.whenReady(5_000);
    await link.command('PING');
    expect(await redis.admin.command('mget', 'a', 'b', 'c', 'd')).toEqual(['1', '1', '1', '1']);
  });
});

describe('a cut', () => {
  /**
   * Trap: with resending off, calls in flight at a cut never settle (redis/ioredis#2193) unless maxRetriesPerRequest is
   * 0; their deadline, far away here, would be all they have.
   * Trap: with the offline queue on, calls that waited behind the bundle in flight run after the reconnect, long after
   * their buyers were told something else.
   */
  test('settles every call: unknown if written, refused if still waiting to be', async () => {
    const link = await openReady();
    proxy.dropReplies();
    const written = ['a', 'b', 'c'].map((key) => outcome(link.command('INCR', key)));
    await proxy.passed(([command, key]) => command === 'incr' && key === 'c');
    const waiting = ['d', 'e'].map((key) => outcome(link.command('INCR', key)));
    await nextTurn();
    await until('the server has run them', async () => (await countOf('c')) === '1');
    proxy.cut();
    expect(await Promise.all(written)).toEqual(Array(3).fill('redis_unknown'));
    expect(await Promise.all(waiting)).toEqual(Array(2).fill('redis_refused'));
    await link.whenReady(5_000);
    await link.command('PING');
    expect(await redis.admin.command('mget', 'a', 'b', 'c', 'd', 'e')).toEqual(['1', '1', '1', null, null]);
  });

  /** No connection fault may end the process: EventEmitters throw an 'error' that nobody listens to. */
  test('is survived again and again, and said at most once a second', async () => {
    const lines: object[] = [];
    const log = { ...makeLog('silent'), warn: (fields: object) => void lines.push(fields) };
    const clock = { now: () => 0, monotonic: () => 0 };
    const link = await openReady({ log, clock });
    for (let time = 0; time < 5; time += 1) {
      const { connections } = proxy.count;
      proxy.cut();
      await until('the link is back', async () => proxy.count.connections > connections && link.isReady());
    }
    expect(await link.command('PING')).toBe('PONG');
    expect(lines).toHaveLength(1);
  });
});

describe('a server that falls silent', () => {
  /** Trap: without commandTimeout a call that was sent waits for ever. */
  test('is given up on at each link’s own deadline, the socket kept, and late replies reach nobody', async () => {
    const patient = await openReady({ commandTimeoutMs: 800 });
    const hasty = await openReady({ commandTimeoutMs: 150 });
    const { connections } = proxy.count;
    proxy.hang();
    const ended: string[] = [];
    const settle = async (name: string, call: Promise<unknown>): Promise<void> => {
      await expect(call).rejects.toMatchObject({ ...unknown, cause: { message: 'Command timed out' } });
      ended.push(name);
    };
    const first = [settle('patient', patient.command('SET', 'p', 1)), settle('hasty', hasty.command('SET', 'h', 1))];
    await nextTurn();
    const second = settle('hasty, behind it', hasty.command('SET', 'h', 2));
    await Promise.all([...first, second]);
    expect(ended).toEqual(['hasty', 'hasty, behind it', 'patient']);

    proxy.resume();
    await redis.admin.command('set', 'own', 'mine');
    expect(await Promise.all([patient.command('GET', 'own'), hasty.command('GET', 'own')])).toEqual(['mine', 'mine']);
    expect(await redis.admin.command('mget', 'p', 'h')).toEqual(['1', '2']); // unknown means just that: they ran late
    expect(proxy.count.connections).toBe(connections);
  });

  /** Trap: a host that died without a word holds the socket open; without socketTimeout the link is lost for minutes. */
  test('for good costs the socket, and the link comes back on a new one', async () => {
    const link = await openReady({ commandTimeoutMs: 50 });
    proxy.abandon();
    await expect(link.command('PING')).rejects.toMatchObject(unknown);
    await until('the link is back', async () => (await link.command('PING')) === 'PONG', 5_000);
  });

  /** Trap: SYNs that nobody answers; connectTimeout is ten seconds by default. Here: a full queue at a stopped server. */
  test('before the connection is made is given up on after connectTimeout, and tried again', async () => {
    const stopped = await startPrivateRedis(['--tcp-backlog', '1']);
    stopped.server.kill('SIGSTOP');
    const fillers = [1, 2, 3, 4].map(() => connect(stopped.server.port, '127.0.0.1').on('error', () => undefined));
    try {
      await new Promise((resolve) => fillers[0]?.once('connect', resolve));
      const lines: { fault?: string }[] = [];
      const log = { ...makeLog('silent'), warn: (fields: object) => void lines.push(fields) };
      const link = open({ url: stopped.server.url, connectTimeoutMs: 100, log });
      await until(
        'connecting is given up',
        async () => lines.some(({ fault }) => fault === 'connect ETIMEDOUT'),
        3_000,
      );
      for (const filler of fillers) filler.destroy();
      stopped.server.kill('SIGCONT');
      await link.whenReady(10_000);
    } finally {
      stopped.server.kill('SIGCONT');
      await stopped.stop();
    }
  });

  test('from the first byte is not ready, and ready when it speaks', async () => {
    proxy.hang();
    const link = open();
    await expect(link.whenReady(100)).rejects.toMatchObject(refused);
    await expect(link.command('PING')).rejects.toMatchObject(refused);
    expect(link.isReady()).toBe(false);
    proxy.resume();
    await link.whenReady(5_000);
    expect(link.isReady()).toBe(true);
  });
});

describe('a script the server does not hold', () => {
  test('is sent whole once, and by its hash from then on', async () => {
    const link = await openReady();
    const sentWhole = proxy.tally(meaning('eval'));
    expect(await link.run(COUNT, ['n'], [2])).toBe(2);
    expect(await link.run(COUNT, ['n'], [2])).toBe(4);
    expect(await link.run({ ...COUNT }, ['n'], [2])).toBe(6);
    expect(sentWhole.count).toBe(1);
  });

  /** Trap: in a bundle each call meets NOSCRIPT for itself. */
  test('runs once a call when several share a turn, beside other commands', async () => {
    const link = await openReady();
    const calls = [1, 2, 3, 4, 5].map(() => link.run(COUNT, ['n'], [1]));
    const others = [link.command('GET', 'absent'), link.run(COUNT_OLD, ['m'], [10])];
    expect((await Promise.all(calls)).toSorted()).toEqual([1, 2, 3, 4, 5]);
    expect(await Promise.all(others)).toEqual([null, 10]);
  });

  /** Trap: SCRIPT FLUSH in mid-sale, while calls are in flight. */
  test('runs once a call when the scripts are flushed between and during turns', async () => {
    const link = await openReady();
    const calls: Promise<unknown>[] = [];
    for (let turn = 0; turn < 50; turn += 1) {
      for (let i = 0; i < 5; i += 1) calls.push(link.run(COUNT, ['n'], [1]));
      if (turn % 5 === 0) await redis.admin.command('script', 'flush');
      await nextTurn();
    }
    expect(new Set(await Promise.all(calls)).size).toBe(250);
    expect(await countOf('n')).toBe('250');
  });
});

describe('without a connection', () => {
  /** BR-053: nothing is queued. Trap: the offline queue, on by default. */
  test('calls are refused at once, and nothing of them runs when the server is back', async () => {
    const link = await openReady();
    await proxy.refuseNew(true);
    proxy.cut();
    await until('the cut is noticed', async () => !link.isReady());
    const calls = [...Array(10).keys()].map((n) =>
      outcome(n % 2 ? link.run(COUNT, ['n'], [1]) : link.command('INCR', 'n')),
    );
    const atOnce = await Promise.race([
      Promise.all(calls),
      nextTurn()
        .then(nextTurn)
        .then(() => 'later'),
    ]);
    expect(atOnce).toEqual(Array(10).fill('redis_refused'));
    await proxy.refuseNew(false);
    await link.whenReady(5_000);
    await link.command('PING');
    expect(await countOf('n')).toBe(null);
  });

  test('a link to a closed port is not ready, harms nobody, and closes', async () => {
    await proxy.refuseNew(true);
    const link = open();
    await expect(link.whenReady(200)).rejects.toMatchObject(refused);
    await link.close();
    await expect(link.whenReady(200)).rejects.toMatchObject(refused);
    await expect(link.command('PING')).rejects.toMatchObject(refused);
  });

  test('closing ends what is in flight as unknown, and later calls as refused', async () => {
    const link = await openReady();
    proxy.dropReplies();
    const call = outcome(link.command('INCR', 'n'));
    await proxy.passed(meaning('incr'));
    const waiting = outcome(link.whenReady(5_000));
    await link.close();
    await link.close();
    expect(await call).toBe('redis_unknown');
    expect(await waiting).toBe(undefined); // it was ready when asked
    expect(await outcome(link.command('INCR', 'n'))).toBe('redis_refused');
    expect(link.isReady()).toBe(false);
  });
});

/** Which words real servers use, and that nothing ran under them: P24. */
describe('a server that refuses', () => {
  /** All three kinds of script, and a command, are refused; and run again once `mend` has been. */
  async function expectRefusal(link: RedisLink, word: string, mend: () => Promise<unknown>): Promise<void> {
    const rule = { ...refused, cause: { message: expect.stringMatching(new RegExp(`^${word} `)) } };
    await expect(link.run(COUNT, ['n'], [1])).rejects.toMatchObject(rule);
    await expect(link.run(COUNT, ['n'], [1])).rejects.toMatchObject(rule);
    await expect(link.run(LOOK, ['n'], [])).rejects.toMatchObject(rule);
    await expect(link.run(COUNT_OLD, ['n'], [1])).rejects.toMatchObject(rule);
    await expect(link.command('INCR', 'n')).rejects.toMatchObject(rule);
    await mend();
    expect(await countOf('n')).toBe(null);
    expect(await link.run(COUNT, ['n'], [1])).toBe(1);
  }

  test('as demoted under an open socket', async () => {
    const other = await startPrivateRedis();
    const link = await openReady();
    const { connections } = proxy.count;
    try {
      await redis.admin.command('replicaof', '127.0.0.1', other.server.port);
      await expectRefusal(link, 'READONLY', () => redis.admin.command('replicaof', 'no', 'one'));
      expect(proxy.count.connections).toBe(connections);
    } finally {
      await redis.admin.command('replicaof', 'no', 'one');
      await other.stop();
    }
  });

  test('as short of replicas', async () => {
    const link = await openReady();
    await redis.admin.command('config', 'set', 'min-replicas-to-write', 1);
    await expectRefusal(link, 'NOREPLICAS', () => redis.admin.command('config', 'set', 'min-replicas-to-write', 0));
  });

  test('as full', async () => {
    const link = await openReady();
    await redis.admin.command('config', 'set', 'maxmemory', 1);
    await expectRefusal(link, 'OOM', () => redis.admin.command('config', 'set', 'maxmemory', 0));
  });

  test('as busy with another script, whose own caller learns nothing', async () => {
    const link = await openReady();
    const looper = await openReady();
    const loop = looper.run(LOOP, [], []);
    await proxy.passed(([command, text]) => command === 'eval' && text === LOOP.text);
    await expect(link.run(COUNT, ['n'], [1])).rejects.toMatchObject({
      ...refused,
      cause: { message: expect.stringMatching(/^BUSY /) },
    });
    await until('the loop is killed', () => redis.admin.command('script', 'kill'));
    await expect(loop).rejects.toMatchObject({ code: 'redis_unknown' });
    expect(await countOf('n')).toBe(null);
    expect(await link.run(COUNT, ['n'], [1])).toBe(1);
  });

  test('as still loading', async () => {
    const link = await openReady();
    for (let key = 0; key < 300; key += 1) void redis.admin.command('set', `filler:${key}`, 'x'.repeat(1_000));
    await redis.admin.command('config', 'set', 'key-load-delay', 1_000, 'loading-process-events-interval-bytes', 1_024);
    const reload = redis.admin.command('debug', 'reload');
    const answers: unknown[] = [];
    await until('the server says that it loads', async () => {
      const answer = await link.run(COUNT, ['n'], [1]).catch((fault: Fault) => fault);
      answers.push(answer);
      return answer instanceof Error;
    });
    expect(answers.pop()).toMatchObject({ ...refused, cause: { message: expect.stringMatching(/^LOADING /) } });
    await reload;
    await redis.admin.command('config', 'set', 'key-load-delay', 0);
    expect(await countOf('n')).toBe(answers.length === 0 ? null : String(answers.length));
  });
});

describe('an error of the script’s own', () => {
  test('is unknown: what the script wrote before it stays written', async () => {
    const link = await openReady();
    const fault: Fault = await link.run(TRAP, ['t'], ['buyer-17']).then(
      () => expect.unreachable('the script fails'),
      (error: Fault) => error,
    );
    expect(fault).toMatchObject({
      code: 'redis_unknown',
      retryable: false,
      message: 'run script trap',
      cause: { message: expect.stringMatching(/^WRONGTYPE /) },
    });
    expect(fault.cause).not.toHaveProperty('command'); // the arguments are buyers' ids, and none of a log's business
    expect(await countOf('t')).toBe('x');
  });
});
