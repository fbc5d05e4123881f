import { existsSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, inject, it } from 'vitest';
import { startTimeOf } from '../../../src/platform/servers/process-identity.ts';
import { endChildren, endLater, gone, holdingProcess } from './child-of-test.ts';
import { temporaryFolder } from './fake-programs.ts';

let base: string;
beforeEach(() => {
  base = temporaryFolder();
});
afterEach(() => {
  endChildren();
  rmSync(base, { recursive: true, force: true });
});

it('takes its Redis and its PostgreSQL along when it is killed by SIGKILL, and the temporary cluster too', async () => {
  const parent = holdingProcess('servers', inject('redisBin'), inject('postgresBinFolder'), join(base, 'redis'));
  const servers = JSON.parse(await parent.nextLine()) as { redis: number; postgres: number; postgresLog: string };
  endLater(servers.redis);
  endLater(servers.postgres);
  expect(startTimeOf(servers.redis)).toBeDefined();
  expect(startTimeOf(servers.postgres)).toBeDefined();
  parent.process.kill('SIGKILL');
  await gone(servers.redis);
  await gone(servers.postgres);
  await expect.poll(() => existsSync(dirname(servers.postgresLog)), { timeout: 10_000 }).toBe(false);
});
