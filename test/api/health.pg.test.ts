/**
 * Health, and what buyers are told, while Redis or PostgreSQL is away: cut off, refusing, or silent; and how all comes back
 * by itself. Liveness speaks of the process alone, readiness names the part.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import type { Activity } from '../../src/domain/activity.ts';
import { startFaultProxy, type FaultProxy } from '../support/fault-proxy.ts';
import { ask, books, buy, isQuiet, startSluice, until, type TestSluice, type Told } from '../support/sluice.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

let sluice: TestSluice;
let redis: FaultProxy;
let postgres: FaultProxy;
let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
  redis = await startFaultProxy({ targetPort: Number(new URL(inject('redisUrl')).port) });
  postgres = await startFaultProxy({ targetPort: Number(new URL(inject('postgresUrl')).port) });
  const url = new URL(database.url);
  url.port = String(postgres.port);
  sluice = await startSluice({
    redisUrl: redis.url,
    directRedisUrl: inject('redisUrl'),
    // the process goes through the proxy, the test looks past it
    database: { ...database, url: url.href },
    settings: { SLUICE_GATE_TIMEOUT_MS: '300', SLUICE_DATABASE_ACQUIRE_TIMEOUT_MS: '500' },
  });
});
afterEach(async () => {
  for (const proxy of [redis, postgres]) {
    proxy.resume();
    await proxy.refuseNew(false);
  }
});
afterAll(async () => {
  await sluice.stop();
  await redis.stop();
  await postgres.stop();
  await database.drop();
});

const readyz = (): Promise<Told> => ask(sluice.url, '/readyz');
const livez = async (): Promise<number> => (await ask(sluice.url, '/livez')).status;
const ready = (): Promise<void> => until('it is ready', async () => (await readyz()).status === 200);
const waitsFor = (part: string): Promise<void> =>
  until(`it waits for ${part}`, async () => {
    const { status, body } = await readyz();
    return status === 503 && (body['waitingFor'] as string[]).includes(part);
  });
const away = async (proxy: FaultProxy): Promise<void> => {
  await proxy.refuseNew(true);
  proxy.cut();
};
/** Purchases of so many buyers at once, and how long the slowest took. */
async function rush(
  activity: Activity,
  buyers: number,
  name = randomBytes(3).toString('hex'),
): Promise<{ codes: Set<string>; slowestMs: number }> {
  const slowest: number[] = [];
  const codes = await Promise.all(
    Array.from({ length: buyers }, async (_, i) => {
      const startedAt = performance.now();
      const { code } = await buy(sluice.url, activity.id, `${name}-${i}`, { key: `the-key-of-${i}` });
      slowest.push(performance.now() - startedAt);
      return code;
    }),
  );
  return { codes: new Set(codes), slowestMs: Math.max(...slowest) };
}
const left = async (activity: Activity): Promise<unknown> =>
  sluice.redis.command('GET', sluice.keys.stock({ activityId: activity.id, segment: 0, run: activity.run }));

test('all is well: live and ready, and never from a cache', async () => {
  expect(await livez()).toBe(200);
  const told = await readyz();
  expect(told).toMatchObject({ status: 200, body: { ready: true, waitingFor: [] } });
  expect(told.headers.get('cache-control')).toBe('no-store');
});

describe('Redis away', () => {
  test('refusing: readiness names it, purchases are busy at once, and nothing refused is done after its return', async () => {
    const activity = await sluice.openActivity({ total: 100 });
    await away(redis);
    await waitsFor('redis');
    expect(await livez()).toBe(200);
    const { codes, slowestMs } = await rush(activity, 60, 'refused');
    expect(codes).toEqual(new Set(['busy']));
    expect(slowestMs).toBeLessThan(2_000);
    // the public page does not need it
    expect((await ask(sluice.url, `/api/v1/activities/${activity.id}`)).status).toBe(200);

    await redis.refuseNew(false);
    await ready();
    const shard = sluice.keys.buyers({ activityId: activity.id, segment: 0, run: activity.run }, 0);
    expect(await left(activity)).toBe('100');
    expect(await sluice.redis.command('HLEN', shard)).toBe(1); // the guard alone
    expect((await rush(activity, 60, 'refused')).codes).toEqual(new Set(['held']));
    await until('all has landed', () => isQuiet({ ...sluice, database }, activity));
    expect(await books(database, activity.id)).toMatchObject({ sold: 60, liveOrders: 60 });
  });

  test('silent: purchases are in doubt within the timeout; what arrives later than that writes nothing', async () => {
    const activity = await sluice.openActivity({ total: 100 });
    redis.hang();
    const { codes, slowestMs } = await rush(activity, 40, 'doubted');
    for (const code of codes) expect(['in_doubt', 'busy']).toContain(code);
    expect(slowestMs).toBeLessThan(2_000);
    expect(await livez()).toBe(200);
    await waitsFor('redis time');
    redis.resume();
    await ready();
    expect(await left(activity)).toBe('100');
    expect((await rush(activity, 40, 'doubted')).codes).toEqual(new Set(['held']));
    expect(await left(activity)).toBe('60');
  });
});

describe('PostgreSQL away', () => {
  test('refusing: readiness names it; purchases are held all the same, and land when it is back', async () => {
    const activity = await sluice.openActivity({ total: 50 });
    const untouched = await sluice.openActivity();
    await away(postgres);
    await waitsFor('database');
    expect(await livez()).toBe(200);
    const { codes } = await rush(activity, 60);
    expect(codes).toEqual(new Set(['held', 'sold_out']));
    expect(await left(activity)).toBe('0');
    const held = await buy(sluice.url, activity.id, 'ann');
    expect(held.code).toBe('sold_out');
    const availability = async (id: string): Promise<unknown> =>
      (await ask(sluice.url, `/api/v1/activities/${id}`)).body['availability'];
    expect(await availability(activity.id)).toBe('sold_out');
    // PostgreSQL's last word, "50 left", does not come back; and of what the gate has not spoken nothing is known
    await until('its last word is old', async () => (await availability(untouched.id)) === 'unknown');
    expect(await availability(activity.id)).toBe('sold_out');

    // what needs PostgreSQL says so, without a word about it
    const list = await ask(sluice.url, '/api/v1/orders', 'ann');
    expect(list).toMatchObject({ status: 503, code: 'busy' });
    expect(list.headers.get('retry-after')).toMatch(/^[1-9][0-9]*$/);
    expect(JSON.stringify(list.body)).not.toMatch(/ECONN|postgres|127\.0\.0\.1|select/i);

    await postgres.refuseNew(false);
    await ready();
    await until('all has landed', () => isQuiet({ ...sluice, database }, activity));
    expect(await books(database, activity.id)).toMatchObject({ sold: 50, liveOrders: 50, liveBuyers: 50 });
  });

  test('a receipt of what is held reads queued meanwhile, ordered afterwards', async () => {
    const activity = await sluice.openActivity();
    await away(postgres);
    await waitsFor('database');
    const { receipt } = (await buy(sluice.url, activity.id, 'ann')).body as { receipt: string };
    const poll = (): Promise<Told> => ask(sluice.url, `/api/v1/receipts/${receipt}`, 'ann');
    expect(await poll()).toMatchObject({ status: 200, body: { state: 'queued' } });
    await postgres.refuseNew(false);
    await until('it is ordered', async () => (await poll()).body['state'] === 'ordered');
    await ready();
  });

  test('silent: purchases are held as quickly as ever', async () => {
    const activity = await sluice.openActivity({ total: 50 });
    postgres.hang();
    const { codes, slowestMs } = await rush(activity, 50);
    expect(codes).toEqual(new Set(['held']));
    expect(slowestMs).toBeLessThan(2_000);
    await waitsFor('database');
    expect((await rush(activity, 10)).codes).toEqual(new Set(['sold_out']));
    postgres.resume();
    await ready();
    await until('all has landed', () => isQuiet({ ...sluice, database }, activity));
    expect(await books(database, activity.id)).toMatchObject({ sold: 50, liveOrders: 50 });
  });
});

test('a process that is leaving is not ready any more', async () => {
  const leaving = await startSluice({ role: 'api', database });
  const activity = await leaving.openActivity();
  expect((await buy(leaving.url, activity.id, 'ann')).code).toBe('held');
  const startedAt = performance.now();
  await leaving.stop();
  expect(performance.now() - startedAt).toBeLessThan(5_000); // the keep-alive of its clients does not hold it
  await expect(fetch(`${leaving.url}/livez`)).rejects.toThrow();
});
