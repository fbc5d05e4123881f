/** The walk on the embedded database of `npm start`: the same statements, the same answers. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, inject, test } from 'vitest';
import { wire } from '../../src/main/wire.ts';
import { systemClock } from '../../src/platform/clock.ts';
import { openEmbedded } from '../../src/platform/postgres/embedded.ts';
import { buy, keptLog, testConfig, until } from '../support/sluice.ts';
import { admin, newActivity } from './operator.ts';

test('from plan to settled, preheated, confirmed and opened by the clock', { timeout: 120_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-walk-'));
  const log = keptLog();
  const redisUrl = inject('redisUrl');
  const config = testConfig('postgres://unused/unused', redisUrl, { SLUICE_SELF_APPROVAL: 'true' });
  const database = openEmbedded({ folder: join(folder, 'pglite'), log });
  const wired = wire(config, { role: 'all', redisUrl, database, log });
  try {
    const url = await wired.start({ host: '127.0.0.1', port: 0 });
    const body = newActivity({ total: 3, opensAt: new Date(systemClock.now() + 2_000).toISOString() });
    const path = `/activities/${String(body['id'])}`;
    const made = await admin(url, 'POST', '/activities', { body });
    expect(made.status).toBe(201);
    await admin(url, 'PATCH', path, { body: { total: 2 }, ifMatch: made.headers.get('etag')! });
    expect((await admin(url, 'POST', `${path}/approve`)).body).toMatchObject({ state: 'scheduled' });
    const read = async (): Promise<Record<string, unknown>> => (await admin(url, 'GET', path)).body;
    await until('it sells', async () => (await buy(url, String(body['id']), 'ann')).status < 300);
    expect((await buy(url, String(body['id']), 'bob')).status).toBeLessThan(300);
    expect((await buy(url, String(body['id']), 'cyd')).code).toBe('sold_out');
    await until('the row is open', async () => (await read())['state'] === 'open');
    for (const move of ['pause', 'resume', 'end']) {
      expect((await admin(url, 'POST', `${path}/${move}`)).status, move).toBe(200);
    }
    await until('it is settled', async () => (await admin(url, 'POST', `${path}/settle`)).status === 200);
    expect((await admin(url, 'GET', `${path}/verify`)).body).toMatchObject({ live: 2, left: 0, findings: [] });
    expect((await admin(url, 'GET', `${path}/live`)).body).toMatchObject({ state: 'settled', sold: 2 });
    for (const list of [
      '/orders',
      `/orders?activityId=${String(body['id'])}`,
      '/dead-letters',
      '/audit',
      '/activities',
    ]) {
      expect((await admin(url, 'GET', list)).status, list).toBe(200);
    }
    expect(log.lines.filter(({ level }) => level === 'error')).toEqual([]);
  } finally {
    await wired.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
