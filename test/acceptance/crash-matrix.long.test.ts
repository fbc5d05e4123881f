/**
 * The crash matrix of the landing: a real worker process is killed by SIGKILL before and after each step, another one
 * takes over, and the orders are the same, once.
 *
 * The rows are generated from the steps found in `src/`: a step without a row, or a row without a step, fails.
 * Size: purchases a row (short form 12); full size: 300.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ask, books, buy, isQuiet, startSluice, until, type TestSluice } from '../support/sluice.ts';
import { spawnWorker } from '../support/spawn-worker.ts';

const SIZE = Number(process.env['SLUICE_TEST_SIZE'] ?? 12);

/** Every step, and when it is reached: all of them in each row, since one purchase is a duplicate that is given back. */
const STEPS = ['read', 'commit', 'cursor', 'insert', 'mark', 'give-back', 'trim'] as const;
const MOMENTS = STEPS.flatMap((step) => [`${step}:before`, `${step}:after`]);

function stepsInSource(): string[] {
  const folder = fileURLToPath(new URL('../../src', import.meta.url));
  const found = new Set<string>();
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.ts')) continue;
    for (const match of readFileSync(`${folder}/${file}`, 'utf8').matchAll(/\bstep\(\s*'([^']+)'/g))
      found.add(match[1]!);
  }
  return [...found];
}

describe('a worker killed at any moment of the landing', () => {
  let sluice: TestSluice;
  beforeAll(async () => {
    sluice = await startSluice({ role: 'api' });
  });
  afterAll(() => sluice?.stop());

  test('the matrix has a row for every step in src/, and no other', () => {
    expect([...STEPS].toSorted()).toEqual(stepsInSource().toSorted());
  });

  test.for(MOMENTS)('%s', { timeout: 120_000 }, async (moment) => {
    const activity = await sluice.openActivity({ total: SIZE + 5 });
    const shard = sluice.keys.buyers({ activityId: activity.id, segment: 0, run: activity.run }, 0);
    const buyers = Array.from({ length: SIZE }, (_, i) => `buyer${i}`);
    const told = await Promise.all(buyers.map((buyer) => buy(sluice.url, activity.id, buyer, { key: `key-${buyer}` })));
    expect(told.map((one) => one.code)).toEqual(buyers.map(() => 'held'));
    // Redis forgets one buyer, who buys again: PostgreSQL will refuse the second hold and give it back
    await sluice.redis.command('HDEL', shard, 'buyer0');
    const again = await buy(sluice.url, activity.id, 'buyer0');
    expect(again.code).toBe('held');

    const killed = spawnWorker(sluice, { KILL_AT: moment });
    expect(await killed.ended).toMatchObject({ code: null, signal: 'SIGKILL' });

    const next = await startSluice({
      role: 'worker',
      database: sluice.database,
      settings: { SLUICE_KEY_PREFIX: sluice.config.keyPrefix, SLUICE_OUTBOX_KEEP_SECONDS: '0' },
    });
    try {
      await until(`${moment}: all landed and given back`, () => isQuiet(sluice, activity), 60_000);
      expect(await books(sluice.database, activity.id)).toMatchObject({
        sold: SIZE,
        liveUnits: SIZE,
        liveOrders: SIZE,
        liveBuyers: SIZE,
      });
      // every winner's order is the one he was told of
      const orders = await sluice.database.database.query<{ order_id: string }>(
        `select order_id from orders where activity_id = $1 and state = 'placed' order by order_id`,
        [activity.id],
      );
      expect(orders.map((row) => row.order_id)).toEqual(told.map((one) => one.body['orderId'] as string).toSorted());
      // and everybody hears of it, by poll and by a repeat of his request: no mark is left behind
      for (const [i, buyer] of buyers.entries()) {
        if (i === 0) continue;
        const { body } = await ask(sluice.url, `/api/v1/receipts/${told[i]!.body['receipt']}`, buyer);
        expect(body).toMatchObject({ state: 'ordered', order: { state: 'placed' } });
        const repeat = await buy(sluice.url, activity.id, buyer, { key: `key-${buyer}` });
        expect(repeat).toMatchObject({ code: 'replayed', body: { state: 'ordered' } });
      }
      // the second hold ended with a reason, and its unit is back at the gate
      const receipt = await ask(sluice.url, `/api/v1/receipts/${again.body['receipt']}`, 'buyer0');
      expect(receipt.body).toMatchObject({ state: 'failed', reason: 'already_bought' });
      const left = await sluice.wired.scripts.readLeft({ activityId: activity.id, segment: 0, run: activity.run });
      expect(left).toBe(5);
      const letters = await sluice.database.database.query(`select 1 from dead_letters where activity_id = $1`, [
        activity.id,
      ]);
      expect(letters).toEqual([]);
    } finally {
      await next.stop();
    }
  });
});
