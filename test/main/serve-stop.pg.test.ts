/** A server that is told to stop: unready, serving on, then everything under way is finished, and it ends with 0. */
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import { ask, buy, startSluice, tokenOf, until, type TestSluice } from '../support/sluice.ts';
import { startServe, type ServeProcess } from './serve-process.ts';

describe('sluice serve, told to stop', () => {
  let operator: TestSluice; // plans and preheats; sells nothing
  let server: ServeProcess | undefined;
  beforeAll(async () => {
    operator = await startSluice({ role: 'api' });
  });
  afterEach(async () => {
    server?.kill('SIGKILL');
    await server?.ended;
  });
  afterAll(() => operator?.stop());

  const start = async (role: 'api' | 'all', stopGraceMs: number): Promise<ServeProcess> => {
    server = startServe({
      args: ['--port', '0', '--role', role],
      databaseUrl: operator.database.url,
      redisUrl: inject('redisUrl'),
      settings: {
        SLUICE_KEY_PREFIX: operator.config.keyPrefix,
        SLUICE_STOP_GRACE_MS: String(stopGraceMs),
        SLUICE_LANDING_WAIT_MS: '20000',
      },
    });
    await server.untilServing();
    return server;
  };
  /** An activity on sale that the server knows. */
  const onSale = async (running: ServeProcess, plan: { total: number; answerWhen?: 'ordered' }): Promise<string> => {
    const { id } = await operator.openActivity(plan);
    await until('it knows the activity', async () => {
      return (await ask(running.url(), `/api/v1/activities/${id}`)).status === 200;
    });
    return id;
  };

  test('is not ready at once, and sells until the grace is over', { timeout: 90_000 }, async () => {
    const running = await start('all', 3_000);
    const activity = await onSale(running, { total: 5 });
    await until('it is ready', async () => (await ask(running.url(), '/readyz')).status === 200);
    running.kill('SIGTERM');
    await until('it is not ready', async () => (await ask(running.url(), '/readyz')).status === 503);
    expect((await ask(running.url(), '/readyz')).body).toEqual({ ready: false, waitingFor: ['stopping'] });
    const told = await buy(running.url(), activity, 'ann');
    expect(told.code).toBe('held');
    expect(told.headers.get('connection')).toBe('close');
    running.kill('SIGTERM');
    running.kill('SIGINT');
    expect(await running.ended).toEqual({ code: 0, signal: null });
    // what it had sold it had landed, or left to the next one: nothing is lost either way
    const [row] = await operator.database.database.query<{ seq: string }>(
      `select entry as seq from landings where activity_id = $1`,
      [activity],
    );
    const orders = await operator.database.database.query(`select 1 from orders where activity_id = $1`, [activity]);
    expect(orders).toHaveLength(Number(row!.seq));
  });

  test('a purchase that waits for its landing gets it', { timeout: 90_000 }, async () => {
    const running = await start('all', 0);
    const activity = await onSale(running, { total: 5, answerWhen: 'ordered' });
    // a stranger's open transaction holds the landing up
    const free = await holdRow(operator, activity);
    const press = async (): ReturnType<typeof buy> => {
      const told = await buy(running.url(), activity, 'ann', { key: 'key-ann-0001' });
      // a process that has just started may have to say so once; the same key asks again
      return told.code === 'busy' || told.code === 'not_ready' ? press() : told;
    };
    const waiting = press();
    await until('the hold is there', async () => {
      const key = operator.keys.meta({ activityId: activity, segment: 0 });
      return (await operator.redis.command('HGET', key, 'seq')) === '1';
    });
    running.kill('SIGTERM');
    await until('the door is shut', async () => {
      return await fetch(`${running.url()}/livez`, { headers: { connection: 'close' } }).then(
        () => false,
        () => true,
      );
    });
    await free();
    const told = await waiting;
    expect([told.status, told.code]).toEqual([201, 'ordered']);
    expect(await running.ended).toEqual({ code: 0, signal: null });
  });

  test('event streams end, and their readers ask another process', { timeout: 90_000 }, async () => {
    const running = await start('api', 0); // nobody lands: the receipt stays queued and its stream open
    const activity = await onSale(running, { total: 5 });
    const { body } = await buy(running.url(), activity, 'ann');
    const stream = await fetch(`${running.url()}/api/v1/receipts/${body['receipt']}/events`, {
      headers: { authorization: `Bearer ${tokenOf('ann')}` },
    });
    const reader = stream.body!.getReader();
    const first = await reader.read();
    expect(Buffer.from(first.value ?? []).toString()).toContain('"state":"queued"');
    running.kill('SIGTERM');
    // ended, not cut: a cut would throw
    for (let part = await reader.read(); !part.done; part = await reader.read());
    expect(await running.ended).toEqual({ code: 0, signal: null });
  });

  test('SIGUSR2 is for the parent of several: one process alone does not die of it', { timeout: 90_000 }, async () => {
    const running = await start('api', 0);
    running.kill('SIGUSR2');
    expect((await ask(running.url(), '/livez')).status).toBe(200);
    running.kill('SIGTERM');
    expect(await running.ended).toEqual({ code: 0, signal: null });
  });
});

/** Locks the activity's row, which every landing of it must change. Returns what lets it go. */
async function holdRow(sluice: TestSluice, activity: string): Promise<() => Promise<void>> {
  let free = (): void => undefined;
  const freed = new Promise<void>((resolve) => {
    free = resolve;
  });
  let held = (): void => undefined;
  const isHeld = new Promise<void>((resolve) => {
    held = resolve;
  });
  const transaction = sluice.database.database.transaction(async (tx) => {
    await tx.query(`select 1 from activities where id = $1 for update`, [activity]);
    held();
    await freed;
  });
  await isHeld;
  return async () => {
    free();
    await transaction;
  };
}
