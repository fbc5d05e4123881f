/** The backlog: what the gate has sold and PostgreSQL does not have, as a worker measures it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock, systemTimers } from '../../src/platform/clock.ts';
import { Fault } from '../../src/domain/fault.ts';
import { BacklogWatch, measureBacklog } from '../../src/watch/backlog.ts';
import { ask, buy, isQuiet, startSluice, until, type TestSluice } from '../support/sluice.ts';

describe('the backlog', () => {
  let api: TestSluice; // sells, and nobody lands
  beforeAll(async () => {
    api = await startSluice({ role: 'api' });
  });
  afterAll(() => api?.stop());

  const measure = () =>
    measureBacklog({
      sql: api.database.database,
      lastEntry: (at) => api.wired.landingPorts.gate.readSeq(at),
      firstBehind: async (at, cursor) => (await api.wired.landingPorts.outbox.read(at, cursor, 1))[0]?.id,
      now: () => api.wired.redisTime.latest()!,
    });

  test('grows with what is sold and not landed, ages, and is gone when it has landed', async () => {
    expect(await measure()).toEqual({ entries: 0, oldestSeconds: 0, giveBacks: 0, deadLetters: 0 });
    const activity = await api.openActivity({ total: 5 });
    for (const buyer of ['ann', 'bob', 'cid']) await buy(api.url, activity.id, buyer);
    const first = await measure();
    expect(first.entries).toBe(3);
    await until('it has aged', async () => (await measure()).oldestSeconds > first.oldestSeconds);

    const worker = await startSluice({
      role: 'worker',
      database: api.database,
      settings: { SLUICE_KEY_PREFIX: api.config.keyPrefix },
    });
    try {
      await until('landed', () => isQuiet(api, activity));
      expect(await measure()).toMatchObject({ entries: 0, oldestSeconds: 0 });
    } finally {
      await worker.stop();
    }
    // a cancelled order's unit is on its way while nobody carries it
    const { body } = await ask(api.url, '/api/v1/orders', 'ann');
    const [order] = body['items'] as { orderId: string }[];
    await ask(api.url, `/api/v1/orders/${order!.orderId}/cancel`, 'ann', { method: 'POST' });
    expect(await measure()).toMatchObject({ entries: 0, giveBacks: 1 });
  });

  test('a reading that cannot be renewed is dropped after a while, not shown for ever', async () => {
    let away = false;
    let nowMs = 0;
    const reports: unknown[] = [];
    const watch = new BacklogWatch({
      sql: {
        query: (text, values) =>
          away
            ? Promise.reject(new Fault('database_unavailable', 'ask', { retryable: true }))
            : api.database.database.query(text, values),
      },
      lastEntry: async () => undefined,
      firstBehind: async () => undefined,
      now: () => systemClock.now(),
      clock: { now: () => nowMs, monotonic: () => nowMs },
      timers: { ...systemTimers, sleep: (_ms, signal) => systemTimers.sleep(5, signal) },
      report: (error) => reports.push(error),
    });
    expect(watch.reading()).toBeUndefined();
    watch.start();
    await until('measured', () => watch.reading() !== undefined);
    away = true;
    await until('it fails', () => reports.length > 0);
    expect(watch.reading()).toMatchObject({ entries: 0 });
    nowMs += 15_001;
    expect(watch.reading()).toBeUndefined();
    away = false;
    await until('measured again', () => watch.reading() !== undefined);
    await watch.stop();
  });
});
