/**
 * Verify and settle against the moments that a busy sale shows only by chance: something happens exactly between two of
 * their looks. No worker runs; landings and give-backs are made by the test, between the looks it names.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { makeGateReader, type GateReader } from '../../../src/activity/4-verify/gate-reader.ts';
import { verify, type Verified } from '../../../src/activity/4-verify/verify.ts';
import { settle } from '../../../src/activity/6-settle/settle.ts';
import type { Activity } from '../../../src/domain/activity.ts';
import { systemTimers } from '../../../src/platform/clock.ts';
import type { Sql } from '../../../src/platform/postgres/database.ts';
import { Landing } from '../../../src/purchase/6-landing/landing.ts';
import { makeOutbox } from '../../../src/purchase/6-landing/outbox.ts';
import { endOrder } from '../../../src/order/3-give-back/give-backs-table.ts';
import { buy, startSluice, type TestSluice } from '../../support/sluice.ts';

let sluice: TestSluice;
let activity: Activity;
let at: { activityId: string; segment: number; run: number; shards: number };
/** order ids by buyer */
let orders: Map<string, string>;
beforeAll(async () => {
  sluice = await startSluice({ role: 'api' });
});
afterAll(() => sluice.stop());

const BUYERS = ['ann', 'bob', 'cyd', 'dan', 'eve'];
beforeEach(async () => {
  activity = await sluice.openActivity({ total: 20, perBuyerLimit: 2 });
  at = { activityId: activity.id, segment: 0, run: activity.run, shards: activity.shards };
  orders = new Map();
  for (const buyer of BUYERS) await take(buyer);
  await land();
});

async function take(buyer: string): Promise<void> {
  const told = await buy(sluice.url, activity.id, buyer, { quantity: 2 });
  expect(told.code).toBe('held');
  orders.set(buyer, String(told.body['orderId']));
}
async function land(): Promise<void> {
  const landing = new Landing(at, sluice.wired.landingPorts, false);
  while ((await landing.turn()) === 'landed');
}
/** the order ends in PostgreSQL; its units are on their way back */
const cancel = (buyer: string): Promise<unknown> =>
  endOrder(sluice.database.database, {
    orderId: orders.get(buyer)!,
    buyerId: buyer,
    state: 'cancelled',
    reason: 'cancelled',
  });
/** the gate has its units back; PostgreSQL does not know it yet, as after a crash between the two */
const returnAtGate = (buyer: string): Promise<unknown> =>
  sluice.wired.scripts.giveBack(at, {
    buyerId: buyer,
    orderId: orders.get(buyer)!,
    units: 2,
    closedStatus: 'C',
    liveMark: undefined,
  });
const carry = (): Promise<unknown> => sluice.wired.giveBacks.carry();

/** What happens around verify's looks; each is given how often it has been looked so far. */
type Around = {
  beforeMarks?: (times: number) => Promise<unknown>;
  afterBooks?: (times: number) => Promise<unknown>;
  beforeEntries?: (times: number) => Promise<unknown>;
};

async function verifyAround(around: Around): Promise<Verified> {
  const database = sluice.database.database;
  const reader = makeGateReader(sluice.redis, sluice.keys);
  const outbox = makeOutbox(sluice.redis, sluice.keys);
  const times = { marks: 0, books: 0, entries: 0 };
  const gate: GateReader = {
    ...reader,
    async readMarks(...args) {
      await around.beforeMarks?.(++times.marks);
      return reader.readMarks(...args);
    },
  };
  const sql: Sql = {
    async query(text, values) {
      const rows = await database.query(text, values);
      if (text.includes('as places')) await around.afterBooks?.(++times.books);
      return rows as never;
    },
  };
  const verified = await verify(
    {
      sql,
      gate,
      timers: systemTimers,
      async entries(where, cursor, count) {
        await around.beforeEntries?.(++times.entries);
        return outbox.read(where, cursor, count);
      },
    },
    activity.id,
  );
  return verified!;
}

const once =
  (work: () => Promise<unknown>) =>
  async (times: number): Promise<void> => {
    if (times === 1) await work();
  };

test('nothing happens between', async () => {
  expect(await verifyAround({})).toMatchObject({ left: 10, live: 10, holds: 10, weighed: true, findings: [] });
});

test('an order is cancelled and its mark closed, between the page of orders and the marks', async () => {
  const verified = await verifyAround({
    beforeMarks: once(async () => {
      await cancel('bob');
      await carry();
    }),
  });
  expect(verified).toMatchObject({ left: 12, live: 8, weighed: true, findings: [] });
});

test('the same, and the worker died before it could note that the gate has the units', async () => {
  const verified = await verifyAround({
    beforeMarks: once(async () => {
      await cancel('bob');
      await returnAtGate('bob');
    }),
  });
  expect(verified).toMatchObject({ left: 12, live: 8, inFlight: { giveBacks: 0 }, weighed: true, findings: [] });
});

test('units on their way back are in flight until the gate has them, whatever PostgreSQL has noted', async () => {
  await cancel('bob');
  expect(await verifyAround({})).toMatchObject({ left: 10, live: 8, inFlight: { giveBacks: 2 }, findings: [] });
  await returnAtGate('bob');
  expect(await verifyAround({})).toMatchObject({ left: 12, live: 8, inFlight: { giveBacks: 0 }, findings: [] });
});

test('a hold is set aside and its entry trimmed, between the marks and the outbox', async () => {
  await take('fay');
  const verified = await verifyAround({
    beforeEntries: once(async () => {
      const outbox = sluice.keys.outbox(at);
      const entries = (await sluice.redis.command('XRANGE', outbox, '-', '+')) as [string, string[]][];
      const last = entries.at(-1)![0];
      await sluice.database.database.transaction(async (tx) => {
        await tx.query('update landings set cursor = $2, entry = entry + 1 where activity_id = $1', [
          activity.id,
          last,
        ]);
        await tx.query(
          `insert into dead_letters (order_id, activity_id, run, segment, entry_id, buyer_id, request_id, quantity, held_at, error, tries)
           values ($1, $2, 1, 0, $3, 'fay', 'request-1', 2, now(), 'test', 5)`,
          [orders.get('fay'), activity.id, last],
        );
      });
      await sluice.redis.command('XTRIM', outbox, 'MAXLEN', 0);
    }),
  });
  expect(verified).toMatchObject({ left: 8, live: 10, inFlight: { deadLetters: 2, outbox: 0 }, findings: [] });
});

test('units come back between the books and the gate, time and again', async () => {
  const waiting = ['bob', 'cyd', 'dan', 'eve'];
  const verified = await verifyAround({
    // the first two looks at the books come before the equation
    async afterBooks(times) {
      const buyer = times > 2 ? waiting.pop() : undefined;
      if (buyer === undefined) return;
      await cancel(buyer);
      await carry();
    },
  });
  expect(waiting).toEqual([]);
  expect(verified).toMatchObject({ left: 18, live: 2, weighed: true, findings: [] });
});

test('units are taken between the gate and its outbox, time and again', async () => {
  await take('fay');
  const verified = await verifyAround({
    async beforeEntries(times) {
      if (times <= 4) await take(`late${times}-${randomBytes(2).toString('hex')}`);
    },
  });
  expect(verified).toMatchObject({ live: 10, weighed: true, findings: [] });
  expect(verified.left! + verified.inFlight.outbox).toBe(10);
});

test('entries land and are trimmed before they are looked for, time and again', async () => {
  await take('fay');
  const verified = await verifyAround({
    async beforeEntries(times) {
      if (times > 4) return;
      await land();
      await sluice.redis.command('XTRIM', sluice.keys.outbox(at), 'MAXLEN', 0);
      await take(`next${times}-${randomBytes(2).toString('hex')}`);
    },
  });
  expect(verified).toMatchObject({ weighed: true, findings: [] });
});

test('holds land between the books and the gate', async () => {
  await take('fay');
  const verified = await verifyAround({ afterBooks: () => land() });
  expect(verified).toMatchObject({ left: 8, weighed: true, findings: [] });
  expect(verified.live + verified.inFlight.outbox).toBe(12);
});

test('an order is cancelled after a settlement has looked: it is not settled over it', async () => {
  await sluice.wired.activities.change(activity.id, 'end', 'op');
  const { database } = sluice.database;
  const reader = makeGateReader(sluice.redis, sluice.keys);
  let moved = 0;
  const settleNow = (between: () => Promise<unknown>) =>
    settle(
      {
        database,
        timers: systemTimers,
        gate: reader,
        carry: (id) => sluice.wired.gateChanges.carry(id),
        async verify() {
          const verified = await verifyAround({});
          await between();
          return verified;
        },
        async move(tx) {
          moved += 1;
          await tx.query(`update activities set state = 'settled' where id = $1`, [activity.id]);
          return true;
        },
      },
      activity.id,
    );
  expect(await settleNow(() => cancel('bob'))).toMatchObject({ kind: 'unsettled', open: { giveBacks: 1 } });
  expect(moved).toBe(1); // and taken back
  expect(await sluice.wired.activities.find(activity.id)).toMatchObject({ state: 'ended' });
  await carry();
  expect(await settleNow(async () => undefined)).toEqual({ kind: 'settled' });
});
