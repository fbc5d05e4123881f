/**
 * The servers of a test run, started once, side by side, by the product's own launchers: one PostgreSQL cluster, one
 * plain Redis, and one Redis that is a whole cluster by itself (all 16,384 slots), so that a cross-slot key fails.
 *
 * Tests take them by `inject('postgresUrl')` and so on. They share them: a file makes its own database, and its own key
 * prefix or flushes nothing; who kills or configures a server launches one for himself from `redisBin` or
 * `postgresBinFolder`. All end with the run, also when the run is killed by SIGKILL.
 *
 * With SLUICE_TEST_SERVERS=none nothing is started: for tests that need no server, on a machine that has none.
 */
import { mkdtempSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers';
import type { TestProject } from 'vitest/node';
import { ensurePostgres, ensureRedis, thisHost } from '../../src/platform/servers/install.ts';
import { launchPostgres } from '../../src/platform/servers/launch-postgres.ts';
import { launchRedis } from '../../src/platform/servers/launch-redis.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** the run's PostgreSQL: its database `postgres`, as superuser */
    postgresUrl: string;
    /** folder of initdb and postgres, for a cluster of one's own */
    postgresBinFolder: string;
    /** the run's plain Redis */
    redisUrl: string;
    /** the run's one-node Redis Cluster */
    redisClusterUrl: string;
    /** path of redis-server or valkey-server, for a server of one's own */
    redisBin: string;
  }
}

/** vitest's globalSetup; its default export, since vitest loads it by path. Returns the teardown. */
export default async function startTestServers(project: TestProject): Promise<() => Promise<void>> {
  if (process.env.SLUICE_TEST_SERVERS === 'none') return async () => {};
  const host = thisHost();
  // One after the other: two package managers at once would wait for each other.
  const redis = await ensureRedis(host);
  const postgres = await ensurePostgres(host);
  const temporaryFolder = (): string => mkdtempSync(join(tmpdir(), 'sluice-redis-'));

  const starting = [
    launchPostgres({ binFolder: postgres.folder }),
    launchRedis({ bin: redis.path, folder: temporaryFolder(), temporary: true }),
    launchRedis({ bin: redis.path, folder: temporaryFolder(), temporary: true, args: ['--cluster-enabled', 'yes'] }),
  ] as const;
  const stop = async (): Promise<void> => {
    const started = await Promise.allSettled(starting);
    await Promise.all(started.flatMap((one) => (one.status === 'fulfilled' ? [one.value.stop()] : [])));
  };
  try {
    const [cluster, plainRedis, clusterRedis] = await Promise.all(starting);
    await ownAllSlots(clusterRedis.port);
    project.provide('postgresUrl', cluster.adminUrl);
    project.provide('postgresBinFolder', postgres.folder);
    project.provide('redisUrl', plainRedis.url);
    project.provide('redisClusterUrl', clusterRedis.url);
    project.provide('redisBin', redis.path);
  } catch (error) {
    await stop();
    throw error;
  }
  return stop;
}

/**
 * Gives a lone cluster node every slot, and waits until it says that the cluster is whole: two seconds after its start,
 * by a rule of Redis that cannot be set.
 */
function ownAllSlots(port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port });
    let said = '';
    socket.setEncoding('utf8');
    socket.once('error', reject);
    socket.once('close', () => reject(new Error(`the cluster node ended the conversation: ${said}`)));
    socket.once('connect', () => socket.write('CLUSTER ADDSLOTSRANGE 0 16383\r\nCLUSTER INFO\r\n'));
    socket.on('data', (chunk: string) => {
      said += chunk;
      if (said.startsWith('-')) reject(new Error(`CLUSTER ADDSLOTSRANGE: ${said}`));
      else if (said.includes('cluster_state:ok')) {
        resolve();
        socket.destroy();
      } else if (said.endsWith('\r\n\r\n')) {
        said = '';
        setTimeout(() => socket.write('CLUSTER INFO\r\n'), 25);
      }
    });
  });
}
