/**
 * The landing on real Redis and PostgreSQL: once whatever repeats it, in order, bad holds set aside, losses noticed.
 * Purchases come over HTTP; the landing is turned by hand, so that each test decides what happens between two turns.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Activity } from '../../../src/domain/activity.ts';
import { Fault } from '../../../src/domain/fault.ts';
import { Landing, type LandingPorts } from '../../../src/purchase/6-landing/landing.ts';
import { ask, books, buy, startSluice, until, type TestSluice } from '../../support/sluice.ts';

let sluice: TestSluice;
beforeAll(async () => {
  sluice = await startSluice({ role: 'api', settings: { SLUICE_LANDING_TRIES_MAX: '3' } });
});
afterAll(() => sluice?.stop());

const segmentOf = (activity: Activity) => ({
  activityId: activity.id,
  segment: 0,
  run: activity.run,
  shards: activity.shards,
});

/** A landing of an activity, with what it reported. */
function makeLanding(activity: Activity, more: Partial<LandingPorts> = {}, suspicious = false) {
  const reported: string[] = [];
  const ports: LandingPorts = {
    ...sluice.wired.landingPorts,
    reports: {
      landed: (_at, { orders, refused, known }) => reported.push(`landed ${orders} refused ${refused} known ${known}`),
      refused: () => undefined,
      deadLetters: (_at, letters) => reported.push(...letters.map((one) => `dead letter ${one.hold.buyerId}`)),
      lost: (_at, reason) => reported.push(`lost: ${reason}`),
      retrying: (_at, error) => reported.push(`retrying: ${String(error)}`),
    },
    ...more,
  };
  return { landing: new Landing(segmentOf(activity), ports, suspicious), reported };
}

/** Turns until there is nothing left. */
async function landAll(landing: Landing): Promise<void> {
  for (let turns = 0; turns < 500; turns++) {
    const turn = await landing.turn();
    if (turn === 'idle' || turn === 'closed') return;
  }
  throw new Error('the landing does not come to rest');
}

const outboxOf = (activity: Activity): string => sluice.keys.outbox(segmentOf(activity));
const placed = async (activity: Activity): Promise<string[]> =>
  (
    await sluice.database.database.query<{ buyer_id: string }>(
      `select buyer_id from orders where activity_id = $1 and state = 'placed' order by order_id`,
      [activity.id],
    )
  ).map((row) => row.buyer_id);

describe('lands once', () => {
  test('two workers on one stream, without any lease between them', async () => {
    const activity = await sluice.openActivity({ total: 60 });
    const buyers = Array.from({ length: 60 }, (_, i) => `buyer${i}`);
    for (let from = 0; from < 60; from += 10) {
      await Promise.all(buyers.slice(from, from + 10).map((buyer) => buy(sluice.url, activity.id, buyer)));
    }
    const limits = { ...sluice.wired.landingPorts.limits, holdsMax: 7 };
    const workers = [makeLanding(activity, { limits }), makeLanding(activity, { limits })];
    await Promise.all(workers.map(({ landing }) => landAll(landing)));
    expect(await books(sluice.database, activity.id)).toMatchObject({ sold: 60, liveOrders: 60, liveBuyers: 60 });
    const landed = workers
      .flatMap(({ reported }) => reported)
      .map((line) => Number(/landed (\d+)/.exec(line)?.[1] ?? 0));
    expect(landed.reduce((sum, n) => sum + n, 0)).toBe(60);
    // the loser of the cursor's compare-and-set wrote nothing that had to be recognised again
    expect(workers.flatMap(({ reported }) => reported).filter((line) => !line.endsWith('known 0'))).toEqual([]);
  });

  test('every entry delivered five times under new ids', async () => {
    const activity = await sluice.openActivity({ total: 10, perBuyerLimit: 3 });
    for (const buyer of ['ann', 'bob', 'cid']) await buy(sluice.url, activity.id, buyer, { quantity: 2 });
    const entries = (await sluice.redis.command('XRANGE', outboxOf(activity), '-', '+')) as [string, string[]][];
    for (let copy = 0; copy < 4; copy++) {
      for (const [, fields] of entries) await sluice.redis.command('XADD', outboxOf(activity), '*', ...fields);
    }
    const { landing, reported } = makeLanding(activity);
    await landAll(landing);
    expect(await books(sluice.database, activity.id)).toMatchObject({ sold: 6, liveOrders: 3 });
    expect(reported.filter((line) => line.startsWith('lost'))).toEqual([]);
  });

  test('a COMMIT whose answer is lost: the place is read again (P25)', async () => {
    const activity = await sluice.openActivity();
    await buy(sluice.url, activity.id, 'ann');
    const { database } = sluice.wired.landingPorts;
    let lose = true;
    const unsure: LandingPorts['database'] = {
      ...database,
      query: (text, values) => database.query(text, values),
      async transaction(work) {
        const result = await database.transaction(work);
        if (!lose) return result;
        lose = false;
        throw new Fault('database_unavailable', 'commit: no answer', { retryable: true });
      },
    };
    const { landing } = makeLanding(activity, { database: unsure });
    const stop = new AbortController();
    const running = landing.run(stop.signal, () => 5);
    await buy(sluice.url, activity.id, 'bob');
    await until('both landed', async () => (await placed(activity)).length === 2);
    stop.abort();
    await running;
    expect(lose).toBe(false);
    expect(await books(sluice.database, activity.id)).toMatchObject({ sold: 2, liveOrders: 2 });
  });

  test('a closed outbox is never landed, whatever a worker still holds', async () => {
    const activity = await sluice.openActivity();
    await buy(sluice.url, activity.id, 'ann');
    const { landing } = makeLanding(activity, {
      step: async (name, work) => {
        if (name === 'commit') {
          await sluice.database.database.query(`update landings set closed = true where activity_id = $1`, [
            activity.id,
          ]);
        }
        return work();
      },
    });
    await landAll(landing);
    expect(await placed(activity)).toEqual([]);
  });
});

describe('sets aside what cannot be placed, and nothing else (P25)', () => {
  /** Makes PostgreSQL refuse some buyers, as damaged data would. */
  async function refuseBuyers(activity: Activity, pattern: string): Promise<void> {
    await sluice.database.database.script(`
      create or replace function refuse_${activity.id}() returns trigger language plpgsql as $$
      begin
        if new.activity_id = '${activity.id}' and new.buyer_id like '${pattern}' and new.state = 'placed' then
          raise exception 'planted: % cannot be stored', new.buyer_id;
        end if;
        return new;
      end $$;
      create trigger refuse_${activity.id} before insert on orders for each row execute function refuse_${activity.id}();`);
  }

  test('one bad hold in a batch: its neighbours become orders, it becomes a dead letter', async () => {
    const activity = await sluice.openActivity({ total: 50 });
    await refuseBuyers(activity, 'bad%');
    const buyers = Array.from({ length: 30 }, (_, i) => (i % 13 === 5 ? `bad${i}` : `good${i}`));
    await Promise.all(buyers.map((buyer) => buy(sluice.url, activity.id, buyer)));
    const { landing, reported } = makeLanding(activity);
    await landAll(landing);
    expect((await placed(activity)).toSorted()).toEqual(buyers.filter((one) => one.startsWith('good')).toSorted());
    expect(reported.filter((line) => line.startsWith('dead')).toSorted()).toEqual([
      'dead letter bad18',
      'dead letter bad5',
    ]);
    const letters = await sluice.database.database.query<{
      buyer_id: string;
      tries: number;
      error: string;
      state: string;
    }>(`select buyer_id, tries, error, state from dead_letters where activity_id = $1 order by buyer_id`, [
      activity.id,
    ]);
    expect(letters).toEqual([
      { buyer_id: 'bad18', tries: 3, error: 'planted: bad18 cannot be stored', state: 'open' },
      { buyer_id: 'bad5', tries: 3, error: 'planted: bad5 cannot be stored', state: 'open' },
    ]);
    // the buyer is told that it takes longer, and the tries are forgotten
    expect((await ask(sluice.url, `/api/v1/activities/${activity.id}/receipt`, 'bad5')).body).toMatchObject({
      state: 'queued',
      delayed: true,
    });
    expect(await sluice.database.database.query(`select 1 from landing_tries`)).toEqual([]);
  });

  test('a dead letter that nobody replays is given back, its buyer told, its unit on sale again', async () => {
    const activity = await sluice.openActivity({ total: 1 });
    await refuseBuyers(activity, 'bad%');
    await buy(sluice.url, activity.id, 'bad');
    const { landing } = makeLanding(activity);
    await landAll(landing);
    const worker = await startSluice({
      role: 'worker',
      database: sluice.database,
      settings: { SLUICE_KEY_PREFIX: sluice.config.keyPrefix, SLUICE_DEAD_LETTER_HOLD_SECONDS: '1' },
    });
    try {
      await until('given back', async () => {
        const { body } = await ask(sluice.url, `/api/v1/activities/${activity.id}/receipt`, 'bad');
        return body['state'] === 'failed' && body['reason'] === 'not_ordered';
      });
      expect((await buy(sluice.url, activity.id, 'good')).code).toBe('held');
      await until('landed', async () => (await placed(activity)).length === 1);
    } finally {
      await worker.stop();
    }
  });

  test('a hold that kills its worker is counted before each attempt and set aside', async () => {
    const activity = await sluice.openActivity({ total: 9 });
    await Promise.all(['ann', 'killer', 'bob'].map((buyer) => buy(sluice.url, activity.id, buyer)));
    class Killed extends Error {}
    const { database } = sluice.wired.landingPorts;
    let deaths = 0;
    // stands for a process that dies: the attempt never returns to the landing, which is thrown away
    const deadly: LandingPorts['database'] = {
      ...database,
      query: (text, values) => database.query(text, values),
      transaction: (work) =>
        database.transaction((tx) =>
          work({
            query: (text, values) => {
              if (text.includes('place_orders') && JSON.stringify(values).includes('killer')) {
                deaths += 1;
                throw new Killed('killed');
              }
              return tx.query(text, values);
            },
          }),
        ),
    };
    const first = makeLanding(activity, { database: deadly });
    await expect(landAll(first.landing)).rejects.toThrow(Killed);
    let last = first;
    for (let restart = 0; restart < 10; restart++) {
      last = makeLanding(activity, { database: deadly }, true); // the lease was not given up in order
      try {
        await landAll(last.landing);
        break;
      } catch (error) {
        expect(error).toBeInstanceOf(Killed);
      }
    }
    expect(await placed(activity)).toEqual(expect.arrayContaining(['ann', 'bob']));
    expect(last.reported).toContain('dead letter killer');
    expect(deaths).toBe(1 + 3); // once uncounted, then as often as tries are allowed
  });

  test('faults of the world use up no tries', async () => {
    const activity = await sluice.openActivity();
    await buy(sluice.url, activity.id, 'ann');
    const { database } = sluice.wired.landingPorts;
    let away = 12;
    const flaky: LandingPorts['database'] = {
      ...database,
      query: (text, values) => database.query(text, values),
      transaction: (work) =>
        away-- > 0
          ? Promise.reject(new Fault('database_busy', 'deadlock', { retryable: true, sqlstate: '40P01' }))
          : database.transaction(work),
    };
    const { landing, reported } = makeLanding(activity, { database: flaky }, true);
    for (let i = 0; i < 12; i++) await expect(landing.turn()).rejects.toThrow(Fault);
    await landAll(landing);
    expect(await placed(activity)).toEqual(['ann']);
    expect(reported.filter((line) => line.startsWith('dead'))).toEqual([]);
  });
});

describe('notices what was lost, shuts the gate, and lands what is there (P17)', () => {
  const damages: [string, (activity: Activity, ids: string[]) => Promise<unknown>, string[]][] = [
    [
      'an entry deleted in the middle',
      (a, ids) => sluice.redis.command('XDEL', outboxOf(a), ids[1]!),
      ['b0', 'b2', 'b3'],
    ],
    ['the first entry deleted', (a, ids) => sluice.redis.command('XDEL', outboxOf(a), ids[0]!), ['b1', 'b2', 'b3']],
    ['the last entry deleted', (a, ids) => sluice.redis.command('XDEL', outboxOf(a), ids[3]!), ['b0', 'b1', 'b2']],
    ['trimmed too far', (a, ids) => sluice.redis.command('XTRIM', outboxOf(a), 'MINID', ids[2]!), ['b2', 'b3']],
    ['everything deleted, the stream kept', (a) => sluice.redis.command('XTRIM', outboxOf(a), 'MAXLEN', 0), []],
    [
      'an entry without its content',
      async (a, ids) => {
        await sluice.redis.command('XDEL', outboxOf(a), ids[3]!);
        await sluice.redis.command('XADD', outboxOf(a), '*', 'n', 4);
      },
      ['b0', 'b1', 'b2'],
    ],
  ];
  test.for(damages)('%s', async ([, damage, kept]) => {
    const activity = await sluice.openActivity();
    for (let i = 0; i < 4; i++) await buy(sluice.url, activity.id, `b${i}`);
    const entries = (await sluice.redis.command('XRANGE', outboxOf(activity), '-', '+')) as [string, unknown][];
    await damage(
      activity,
      entries.map(([id]) => id),
    );
    const { landing, reported } = makeLanding(activity);
    await landAll(landing);
    expect(await placed(activity)).toEqual(kept);
    expect(reported.filter((line) => line.startsWith('lost'))).toHaveLength(1);
    const [run] = await sluice.database.database.query(`select state from runs where activity_id = $1`, [activity.id]);
    expect(run).toEqual({ state: 'lost' });
    // nothing more is sold on a run that has lost something, and nobody is told a final no
    expect((await buy(sluice.url, activity.id, 'late')).code).toBe('not_ready');
    // the buyer whose hold is lost is not told that he has failed: a rebuild may still find his unit
    const lost = ['b0', 'b1', 'b2', 'b3'].filter((buyer) => !kept.includes(buyer));
    for (const buyer of lost) {
      expect((await ask(sluice.url, `/api/v1/activities/${activity.id}/receipt`, buyer)).body['state']).toBe('queued');
    }
  });
});

describe('PostgreSQL decides last', () => {
  test('a dead order’s key never takes again, even when Redis has forgotten it (P15)', async () => {
    const activity = await sluice.openActivity();
    const first = await buy(sluice.url, activity.id, 'ann', { key: 'key-ann-0001' });
    const { landing } = makeLanding(activity);
    await landAll(landing);
    const cancelled = await ask(sluice.url, `/api/v1/orders/${first.body['orderId']}/cancel`, 'ann', {
      method: 'POST',
    });
    expect(cancelled.body['state']).toBe('cancelled');
    await sluice.wired.giveBacks.carry();
    // the old press again: the closed mark answers
    const repeat = await buy(sluice.url, activity.id, 'ann', { key: 'key-ann-0001' });
    expect(repeat).toMatchObject({ code: 'replayed', body: { orderId: first.body['orderId'], state: 'given_back' } });
    // the mark is gone: the gate takes, PostgreSQL does not
    await sluice.redis.command('HDEL', sluice.keys.buyers(segmentOf(activity), 0), 'ann');
    const taken = await buy(sluice.url, activity.id, 'ann', { key: 'key-ann-0001' });
    expect(taken.code).toBe('held');
    await landAll(landing);
    expect(await placed(activity)).toEqual([]);
    const receipt = await ask(sluice.url, `/api/v1/receipts/${taken.body['receipt']}`, 'ann');
    expect(receipt.body).toMatchObject({ state: 'failed', reason: 'already_bought' });
    expect(await sluice.wired.scripts.readLeft(segmentOf(activity))).toBe(10);
  });

  test('an order written by hand meets the same walls, and `sold` moves with it (P25)', async () => {
    const activity = await sluice.openActivity({ total: 2 });
    const byHand = (orderId: number, buyer: string, quantity = 1) =>
      sluice.database.database.query(
        `insert into orders (order_id, activity_id, buyer_id, request_id, run, quantity, state, item_name, price_minor, currency, held_at)
         values ($1, $2, $3, $4, 1, $5, 'placed', 'x', 1, 'CNY', now())`,
        [orderId, activity.id, buyer, `by-hand-${orderId}`, quantity],
      );
    await byHand(1, 'ann');
    expect((await books(sluice.database, activity.id)).sold).toBe(1);
    await expect(byHand(2, 'ann')).rejects.toMatchObject({ constraint: 'orders_one_live_per_buyer' });
    await expect(byHand(3, 'bob', 2)).rejects.toMatchObject({ constraint: 'sold_within_total' });
    await byHand(4, 'bob');
    await sluice.database.database.query(`update orders set state = 'cancelled' where order_id = 1`);
    expect((await books(sluice.database, activity.id)).sold).toBe(1);
    await sluice.database.database.query(`delete from orders where order_id = 4`);
    expect((await books(sluice.database, activity.id)).sold).toBe(0);
  });
});
