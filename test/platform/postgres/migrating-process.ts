/** A process of its own that migrates when it is told to: `<url> <folder>`, then a line on standard input. */
import { once } from 'node:events';
import { systemClock, systemTimers } from '../../../src/platform/clock.ts';
import { makeLog } from '../../../src/platform/log.ts';
import { migrate } from '../../../src/platform/postgres/migrate.ts';
import { openPool } from '../../../src/platform/postgres/pool.ts';

const [url = '', folder = ''] = process.argv.slice(2);
const log = makeLog('silent');
const database = openPool({
  url,
  applicationName: 'migrating-process',
  poolMax: 2,
  acquireTimeoutMs: 10_000,
  // Shorter than the migrations take: neither may stop a migrator, nor the one that waits for it.
  statementTimeoutMs: 1_000,
  lockTimeoutMs: 200,
  log,
  clock: systemClock,
  timers: systemTimers,
});
await database.query('select 1');
process.stdout.write('ready\n');
await once(process.stdin, 'data');
process.stdin.destroy();
const applied = await migrate(database, folder, log);
await database.close();
process.stdout.write(JSON.stringify(applied));
