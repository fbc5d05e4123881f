/**
 * Private Redis servers for tests that bend the server itself: demote it, fill it, kill it, or need a cluster.
 * Tests content with an ordinary server share the run's own one.
 */
import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject, vi } from 'vitest';
import { must } from '../../src/domain/fault.ts';
import { systemRandom } from '../../src/platform/clock.ts';
import { makeLog } from '../../src/platform/log.ts';
import { openRedis } from '../../src/platform/redis/link.ts';
import type { RedisLink } from '../../src/platform/redis/link.ts';
import { freePrivatePort } from '../../src/platform/servers/free-port.ts';
import { launchRedis } from '../../src/platform/servers/launch-redis.ts';
import { bareEnvironment } from '../../src/platform/servers/private-server.ts';
import type { RunningServer } from '../../src/platform/servers/private-server.ts';
import { startWatched } from '../../src/platform/servers/watched-process.ts';
import { startFaultProxy } from './fault-proxy.ts';
import type { FaultProxy } from './fault-proxy.ts';

/** A private server and a way to look at it that no fault of a test disturbs. */
export type PrivateRedis = {
  readonly server: RunningServer;
  /** a link straight to the server, patient */
  readonly admin: RedisLink;
  stop(): Promise<void>;
};

/** Starts a server with further configuration, such as `['--maxmemory', '1gb']`. */
export async function startPrivateRedis(args: readonly string[] = [], port?: number): Promise<PrivateRedis> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-redis-'));
  const launch = { bin: inject('redisBin'), folder, args: ['--appendonly', 'no', ...args] };
  const removeFolder = (): Promise<void> => rm(folder, { recursive: true, force: true });
  const server = await launchRedis(port === undefined ? launch : { ...launch, port }).catch(async (error: unknown) => {
    await removeFolder();
    throw error;
  });
  const admin = openRedis({
    url: server.url,
    name: 'test-admin',
    commandTimeoutMs: 20_000,
    connectTimeoutMs: 5_000,
    log: makeLog('silent'),
  });
  await admin.whenReady(10_000);
  return {
    server,
    admin,
    async stop() {
      await admin.close();
      await server.stop();
      await removeFolder();
    },
  };
}

/** Starts one sentinel that watches the primary at `port` as `shop`, alone, and replaces it after half a second. */
export async function startSentinel(primaryPort: number): Promise<{ url: string; stop(): Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-sentinel-'));
  const port = await freePrivatePort(systemRandom);
  const config = join(folder, 'sentinel.conf'); // the sentinel keeps its state in there
  await writeFile(
    config,
    [
      `port ${port}`,
      'bind 127.0.0.1',
      `dir ${folder}`,
      `sentinel monitor shop 127.0.0.1 ${primaryPort} 1`,
      'sentinel down-after-milliseconds shop 500',
      'sentinel failover-timeout shop 3000',
    ].join('\n'),
  );
  const logFile = await open(join(folder, 'sentinel.log'), 'w');
  const sentinel = await startWatched({
    command: inject('redisBin'),
    args: [config, '--sentinel'],
    env: bareEnvironment(process.env),
    logFd: logFile.fd,
    stopSignal: 'SIGTERM',
    graceMs: 2_000,
  });
  await logFile.close();
  return {
    url: `redis+sentinel://127.0.0.1:${port}/shop`,
    async stop() {
      await sentinel.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A node of a cluster; its clients are told to come through the proxy, the other nodes gossip past it. */
export type ClusterNode = PrivateRedis & { readonly proxy: FaultProxy; readonly id: string };

export type PrivateCluster = {
  /** of the primaries, a third of the slots each, in order: 0–5460, 5461–10922, 10923–16383 */
  readonly primaries: readonly [ClusterNode, ClusterNode, ClusterNode];
  /** of the first primary */
  readonly replica: ClusterNode;
  /** `redis+cluster://…` of all nodes */
  readonly url: string;
  stop(): Promise<void>;
};

const SLOT_RANGES = [
  [0, 5460],
  [5461, 10_922],
  [10_923, 16_383],
] as const;

/**
 * Starts three primaries and a replica of the first, each behind a fault proxy. The replica takes over only once it is
 * told that it may (`config set cluster-replica-no-failover no`): a slow machine must not make it do so in mid-test.
 */
export async function startPrivateCluster(): Promise<PrivateCluster> {
  const nodes = await Promise.all([startNode(), startNode(), startNode(), startNode()]);
  const [first, second, third, replica] = nodes;
  const stop = async (): Promise<void> => void (await Promise.all(nodes.map((node) => node.stop())));
  try {
    await formCluster([first, second, third], replica);
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    primaries: [first, second, third],
    replica,
    url: `redis+cluster://${nodes.map(({ proxy }) => `127.0.0.1:${proxy.port}`).join(',')}`,
    stop,
  };
}

/** Deals the slots out, makes the nodes known to each other, and waits until each of them says that all is well. */
async function formCluster(primaries: readonly StartedNode[], replica: StartedNode): Promise<void> {
  const nodes = [...primaries, replica];
  const first = must(primaries[0], 'a cluster has a primary');
  for (const [index, [from, to]] of SLOT_RANGES.entries()) {
    const { admin } = must(primaries[index], 'a primary for each range');
    await admin.command('cluster', 'addslotsrange', from, to);
    await admin.command('cluster', 'set-config-epoch', index + 1);
  }
  for (const { busPort, proxy } of nodes.slice(1)) {
    await first.admin.command('cluster', 'meet', '127.0.0.1', proxy.port, busPort);
  }
  await until('the nodes know each other', async () =>
    (await Promise.all(nodes.map(({ admin }) => admin.command('cluster', 'info')))).every((info) =>
      /cluster_known_nodes:4\r/.test(String(info)),
    ),
  );
  await until('the replica knows its primary', () => replica.admin.command('cluster', 'replicate', first.id));
  // Also where clients may ask: a node they miss in the first map makes them fetch it again, in mid-test.
  await until('each node says that the cluster serves and names the replica', async () => {
    const infos = await Promise.all(nodes.map(({ admin }) => admin.command('cluster', 'info')));
    const maps = await Promise.all(nodes.map(({ admin }) => admin.command('cluster', 'slots')));
    return (
      infos.every((info) => String(info).includes('cluster_state:ok')) &&
      maps.every((map) => String(map).includes(replica.id)) &&
      String(await replica.admin.command('info', 'replication')).includes('master_link_status:up')
    );
  });
}

type StartedNode = ClusterNode & { busPort: number };

/** Starts a node on free ports; on others, when somebody else was quicker. */
async function startNode(triesLeft = 3): Promise<StartedNode> {
  const [port, busPort] = [await freePrivatePort(systemRandom), await freePrivatePort(systemRandom)];
  const proxy = await startFaultProxy({ targetPort: port });
  const args = [
    ...['--enable-debug-command', 'local'],
    ...['--cluster-enabled', 'yes'],
    ...['--cluster-node-timeout', '2000'],
    ...['--cluster-replica-no-failover', 'yes'],
    ...['--cluster-replica-validity-factor', '0'],
    ...['--cluster-port', String(busPort)],
    ...['--cluster-announce-ip', '127.0.0.1'],
    ...['--cluster-announce-port', String(proxy.port)],
    ...['--repl-diskless-sync-delay', '0'],
  ];
  try {
    const node = await startPrivateRedis(args, port);
    const id = String(await node.admin.command('cluster', 'myid'));
    const stop = async (): Promise<void> => {
      await node.stop();
      await proxy.stop();
    };
    return { ...node, proxy, busPort, id, stop };
  } catch (error) {
    await proxy.stop();
    if (triesLeft <= 1) throw error;
    return startNode(triesLeft - 1);
  }
}

/** Waits for a condition that only asking can tell; a throw counts as "not yet". */
export async function until(what: string, holds: () => Promise<unknown>, deadlineMs = 20_000): Promise<void> {
  await vi.waitFor(
    async () => {
      if (!(await holds())) throw new Error(`still waiting until ${what}`);
    },
    { timeout: deadlineMs, interval: 20 },
  );
}
