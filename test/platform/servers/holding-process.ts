/**
 * A process for the tests to kill. What it holds is named by its arguments:
 *   servers REDIS POSTGRES_FOLDER FOLDER   a Redis in FOLDER and a PostgreSQL; prints {"redis", "postgres", "postgresLog"}
 *   folder PATH                            a data folder with a private server that nobody watches; prints {"server"}
 *   contest                                opens each folder named by a line of its input; prints "won" or the code
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { Fault } from '../../../src/domain/fault.ts';
import { openDataFolder } from '../../../src/platform/servers/data-folder.ts';
import { launchPostgres } from '../../../src/platform/servers/launch-postgres.ts';
import { launchRedis } from '../../../src/platform/servers/launch-redis.ts';

const [what, ...rest] = process.argv.slice(2);
const say = (fact: object): void => console.log(JSON.stringify(fact));

if (what === 'servers') {
  const [bin = '', binFolder = '', folder = ''] = rest;
  const redis = await launchRedis({ bin, folder });
  const postgres = await launchPostgres({ binFolder });
  say({ redis: redis.pid, postgres: postgres.pid, postgresLog: postgres.logFile });
} else if (what === 'folder') {
  const folder = await openDataFolder(rest[0] ?? '');
  // It ignores SIGTERM, as a server may that is busy: only SIGKILL ends it.
  const server = spawn(process.execPath, ['-e', 'process.on("SIGTERM", () => {}); setInterval(() => {}, 1000)'], {
    detached: true,
    stdio: 'ignore',
  });
  folder.nameServer({ name: 'a private server', pid: server.pid ?? 0 });
  folder.writeRunFile({ url: 'http://127.0.0.1:1', token: 'a secret' });
  say({ server: server.pid });
} else {
  createInterface({ input: process.stdin }).on('line', (path) => {
    openDataFolder(path).then(
      () => console.log('won'),
      (error: unknown) => console.log(error instanceof Fault ? error.code : String(error)),
    );
  });
}
setInterval(() => {}, 60_000);
