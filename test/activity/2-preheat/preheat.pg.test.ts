/**
 * Speaks for `preheat.ts` and `runs-table.ts` over a real database and a real gate (G10, P20; article 1.4): preheat puts the
 * stock there once, and can be repeated by accident at any time. The script by itself: `preheat.redis.test.ts`.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ActivityPlan } from '../../../src/activity/1-plan/plan.ts';
import type { PreheatReport } from '../../../src/activity/2-preheat/preheat.ts';
import { must } from '../../../src/domain/fault.ts';
import type { HoldResult } from '../../../src/domain/results.ts';
import { systemClock } from '../../../src/platform/clock.ts';
import type { Segment } from '../../../src/purchase/4-gate/gate-scripts.ts';
import { onBothServers, openTestGate, requestIdOf, type Dump, type TestGate } from '../../support/gate.ts';
import { startSluice, type TestSluice } from '../../support/sluice.ts';

const HOUR_MS = 3_600_000;

onBothServers((redisUrl) => {
  let sluice: TestSluice;
  let gate: TestGate;
  let id: string;
  let segment: Segment;
  beforeAll(async () => {
    // no worker: what is held stays in the outbox, what is decided is carried by the call that decides it
    sluice = await startSluice({ role: 'api', redisUrl });
    gate = await openTestGate(redisUrl, { prefix: sluice.config.keyPrefix });
  });
  afterAll(async () => {
    await gate.close();
    await sluice.stop();
  });
  beforeEach(() => {
    id = `act${randomBytes(6).toString('hex')}`;
    segment = { activityId: id, segment: 0, run: 1, shards: 1 };
  });

  const run = (...[name, ...args]: (string | number)[]): Promise<unknown> => gate.redis.command(String(name), ...args);
  const sql = (text: string): Promise<unknown> => sluice.database.database.query(text, [id]);
  const dump = (): Promise<Dump> => gate.dump(segment);
  const preheat = (): Promise<PreheatReport> => sluice.wired.activities.preheat(id);
  const confirm = (): Promise<boolean> => sluice.wired.activities.confirm(id, 'test');

  /** An activity that is scheduled and, by the clock, on sale; approved, not preheated. */
  async function plan(more: Partial<ActivityPlan> = {}): Promise<void> {
    const now = systemClock.now();
    const wishes = {
      id,
      itemName: '测试商品',
      priceMinor: 9_900,
      currency: 'CNY',
      total: 10,
      perBuyerLimit: 2,
      opensAt: now - 1_000,
      endsAt: now + HOUR_MS,
      ...more,
    };
    expect(await sluice.wired.activities.plan(wishes, 'test')).toMatchObject({ kind: 'planned' });
    expect(await sluice.wired.activities.approve(id, 'test')).toBe(true);
  }

  async function hold(buyerId: string, quantity = 1): Promise<HoldResult['code']> {
    const activity = must(await sluice.wired.activities.find(id), 'a planned activity');
    const result = await sluice.wired.gate.hold(activity, { buyerId, requestId: requestIdOf(buyerId), quantity });
    return result.code;
  }

  /** Names of what differs. */
  const differences = (report: PreheatReport): string[] =>
    report.kind === 'refused' ? [report.reason] : report.checks.flatMap((check) => (check.holds ? [] : [check.name]));

  async function preheatState(): Promise<unknown> {
    const [row] = (await sql('select preheat from activities where id = $1')) as { preheat: string }[];
    return row!.preheat;
  }

  test('makes every key with an expiry behind the end, reads all back and compares; confirmed, the gate sells', async () => {
    await plan();
    const report = await preheat();
    expect(report).toMatchObject({ kind: 'verified', run: 1, wrote: true });
    expect(differences(report)).toEqual([]);
    expect(report.kind === 'verified' && report.checks.map(({ name }) => name).toSorted()).toEqual(
      [
        ...['run', 'fence', 'state', 'stock', 'outbox', 'guards', 'expiry', 'opensAt', 'endsAt', 'perBuyerLimit'],
        ...['run.tickets', 'run.segments', 'run.itemName', 'run.priceMinor', 'run.currency'],
        ...['item.name', 'item.priceMinor', 'item.currency', 'item.perBuyerLimit'],
      ].toSorted(),
    );
    const activity = must(await sluice.wired.activities.find(id), 'a planned activity');
    const keys = await dump();
    expect(Object.keys(keys)).toHaveLength(6); // meta, stock, outbox, lent, one shard, the item
    for (const { expiresAt } of Object.values(keys))
      expect(expiresAt).toBeGreaterThan(activity.endsAt + 2 * HOUR_MS - 1);
    expect(await preheatState()).toBe('verified');
    expect(await hold('ann')).toBe('not_ready');

    expect(await confirm()).toBe(true);
    expect(await preheatState()).toBe('confirmed');
    expect(await hold('ann')).toBe('held');
    expect(Object.values(await dump()).map(({ expiresAt }) => expiresAt)).not.toContain(-1);
  });

  test('the run remembers on which server it was built, and what was promised', async () => {
    await plan();
    await preheat();
    const [row] = (await sql('select * from runs where activity_id = $1')) as Record<string, unknown>[];
    const info = String(await run('INFO', 'replication'));
    expect(row).toMatchObject({
      run: '1',
      state: 'building',
      fences: [/master_replid:([0-9a-f]{40})/.exec(info)![1]],
      tickets: 10,
      item_name: '测试商品',
      price_minor: '9900',
    });
  });

  test('a large stock has as many shards as its marks need, each with its guard', async () => {
    await plan({ total: 40_000 });
    expect(await preheat()).toMatchObject({ kind: 'verified' });
    const shards = Object.entries(await dump()).filter(([key]) => key.includes(':buyers:1:'));
    expect(shards.map(([, { holds }]) => holds)).toEqual(Array.from({ length: 5 }, () => ({ '#': '1' })));
  });

  test('strict mode: the gate gets tickets for the surplus, too', async () => {
    await plan({ total: 10, answerWhen: 'ordered', overshoot: 1.25 });
    expect(await preheat()).toMatchObject({ kind: 'verified' });
    expect((await dump())[gate.keys.stock(segment)]!.holds).toBe('12');
    expect(await confirm()).toBe(true);
  });

  test('five at once: one writes, all report it verified, and there is one run', async () => {
    await plan();
    const reports = await Promise.all(Array.from({ length: 5 }, preheat));
    expect(reports).toMatchObject(reports.map(() => ({ kind: 'verified', run: 1 })));
    expect(reports.filter((report) => report.kind === 'verified' && report.wrote)).toHaveLength(1);
    expect(await sql('select run from runs where activity_id = $1')).toEqual([{ run: '1' }]);
    expect(await sql('select segment from landings where activity_id = $1')).toHaveLength(1);
  });

  test('again before the confirmation: verified again, nothing written', async () => {
    await plan();
    await preheat();
    const before = await dump();
    expect(await preheat()).toMatchObject({ kind: 'verified', run: 1, wrote: false });
    expect(await dump()).toEqual(before);
  });

  test('beside the confirmation: whoever loses the race compares, and the sale is open', async () => {
    await plan();
    await preheat();
    const [confirmations, reports] = await Promise.all([
      Promise.all([confirm(), confirm()]),
      Promise.all([preheat(), preheat(), preheat()]),
    ]);
    expect(confirmations.toSorted()).toEqual([false, true]);
    for (const report of reports) {
      expect(report).toMatchObject({ wrote: false });
      expect(['verified', 'compared']).toContain(report.kind);
    }
    expect(await preheatState()).toBe('confirmed');
    expect(await hold('ann')).toBe('held');
  });

  describe('in the middle of the sale', () => {
    test('again, five at once: nothing changes', async () => {
      await plan();
      await preheat();
      await confirm();
      expect([await hold('ann', 2), await hold('bob')]).toEqual(['held', 'held']);
      const before = await dump();
      const reports = await Promise.all(Array.from({ length: 5 }, preheat));
      expect(reports).toMatchObject(reports.map(() => ({ kind: 'compared', wrote: false })));
      expect(reports.flatMap(differences)).toEqual([]);
      expect(await dump()).toEqual(before);
    });

    test('again and again while buyers buy: the stock never rises, and exactly the stock is sold', async () => {
      await plan({ total: 150 });
      await preheat();
      await confirm();
      const lefts: number[] = [];
      let selling = true;
      const preheating = (async () => {
        while (selling) {
          expect(await preheat()).toMatchObject({ kind: 'compared', wrote: false });
          lefts.push(Number(await run('GET', gate.keys.stock(segment))));
        }
      })();
      const codes: string[] = [];
      for (let from = 0; from < 200; from += 10) {
        codes.push(...(await Promise.all(Array.from({ length: 10 }, (_, i) => hold(`buyer${from + i}`)))));
      }
      selling = false;
      await preheating;
      expect(codes.filter((code) => code === 'held')).toHaveLength(150);
      expect(codes.filter((code) => code === 'sold_out')).toHaveLength(50);
      expect(lefts.length).toBeGreaterThan(1);
      expect(lefts).toEqual(lefts.toSorted((a, b) => b - a));
    });

    test('after the keys of the run are gone: nothing is written, the gate is not ready', async () => {
      await plan();
      await preheat();
      await confirm();
      expect(await hold('ann')).toBe('held');
      await run('DEL', ...['meta', 'stock', 'outbox', 'lent'].map(keyOf), gate.keys.buyers(segment, 0));
      await run('DEL', gate.keys.item(id));
      const report = await preheat();
      expect(report).toMatchObject({ kind: 'compared', wrote: false });
      expect(differences(report)).toEqual(expect.arrayContaining(['run', 'stock', 'outbox', 'guards', 'expiry']));
      expect(await dump()).toEqual({});
      expect(await hold('bob')).toBe('not_ready');
      expect(sluice.alarms()).toContain('gate_not_ready');
    });

    test.each([
      ['stock lost', () => run('DEL', keyOf('stock')), ['expiry', 'stock']],
      ['stock "abc"', () => run('SET', keyOf('stock'), 'abc', 'KEEPTTL'), ['stock']],
      ['more stock than there ever was', () => run('SET', keyOf('stock'), '11', 'KEEPTTL'), ['stock']],
      ['outbox lost', () => run('DEL', keyOf('outbox')), ['expiry', 'outbox']],
      ['a shard made anew', () => run('HDEL', gate.keys.buyers(segment, 0), '#'), ['guards']],
      ['a key without expiry', () => run('PERSIST', keyOf('stock')), ['expiry']],
      ['another limit', () => run('HSET', keyOf('meta'), 'perBuyerLimit', '3'), ['perBuyerLimit']],
      ['another server', () => run('HSET', keyOf('meta'), 'fence', 'abc'), ['fence']],
      ['another item', () => run('HSET', gate.keys.item(id), 'name', 'x'), ['item.name']],
    ])('damage shows, and is left to the rebuild: %s', async (_, damage, names) => {
      await plan();
      await preheat();
      await confirm();
      await hold('ann');
      await damage();
      const before = await dump();
      const report = await preheat();
      expect(report).toMatchObject({ kind: 'compared', wrote: false });
      expect(differences(report).toSorted()).toEqual(names);
      expect(await dump()).toEqual(before);
    });
  });

  const keyOf = (name: string): string =>
    ({
      meta: gate.keys.meta(segment),
      stock: gate.keys.stock(segment),
      outbox: gate.keys.outbox(segment),
      lent: gate.keys.lent(segment),
    })[name]!;

  describe('keys that are there before', () => {
    test.each([
      ['stock of another type', () => run('RPUSH', keyOf('stock'), '5')],
      ['stock left over', () => run('SET', keyOf('stock'), '500')],
      ['outbox of another type', () => run('SET', keyOf('outbox'), 'x')],
      ['shard of another type', () => run('SADD', gate.keys.buyers(segment, 0), 'x')],
      ['meta of another type', () => run('SET', keyOf('meta'), 'x')],
      ['meta without a run', () => run('HSET', keyOf('meta'), 'state', 'open')],
    ])('%s: failed, nothing written, not to be confirmed; once it is gone preheat works', async (_, make) => {
      await plan();
      await make();
      const before = await dump();
      const report = await preheat();
      expect(report).toMatchObject({ kind: 'failed', wrote: false });
      expect(differences(report)).toEqual(['keys']);
      const { [gate.keys.item(id)]: item, ...after } = await dump();
      expect(item).toBeDefined(); // the snapshot decides nothing
      expect(after).toEqual(before);
      expect(await preheatState()).toBe('failed');
      expect(await confirm()).toBe(false);
      expect(await hold('ann')).toBe('not_ready');

      await run('DEL', ...Object.keys(before));
      expect(await preheat()).toMatchObject({ kind: 'verified', run: 1, wrote: true });
      expect(await confirm()).toBe(true);
      expect(await hold('ann')).toBe('held');
    });

    test('a newer run at the gate is not overwritten', async () => {
      await plan();
      const newer = { ...segment, run: 2 };
      const now = await gate.scripts.time();
      const values = { version: 1, opensAt: now, endsAt: now + HOUR_MS, perBuyerLimit: 1, units: 3 };
      await gate.scripts.preheat(newer, 'write', { ...values, expiresAt: now + 4 * HOUR_MS });
      const before = await dump();
      const report = await preheat();
      expect(report).toMatchObject({ kind: 'failed', wrote: false });
      expect(differences(report)).toContain('run');
      const { [gate.keys.item(id)]: _, ...after } = await dump();
      expect(after).toEqual(before);
      expect(await confirm()).toBe(false);
    });

    test('a snapshot of the item of another type is replaced', async () => {
      await plan();
      await run('SET', gate.keys.item(id), 'x');
      expect(await preheat()).toMatchObject({ kind: 'verified' });
      expect((await dump())[gate.keys.item(id)]!.holds).toMatchObject({ name: '测试商品', priceMinor: '9900' });
    });
  });

  describe('a run that was preheated on another server', () => {
    test('is not verified: the gate would never open', async () => {
      await plan();
      await preheat();
      await run('HSET', keyOf('meta'), 'fence', 'abc');
      const report = await preheat();
      expect(report.kind).toBe('failed');
      expect(differences(report)).toEqual(['fence']);
      expect(await confirm()).toBe(false);
    });
  });

  test('keys that would expire before they are made are refused', async () => {
    await plan();
    await run('SET', keyOf('stock'), 'x');
    await preheat(); // begins the run
    await run('DEL', keyOf('stock'));
    await sql(`update runs set expires_at = now() - interval '1 s' where activity_id = $1`);
    const report = await preheat();
    expect(report).toMatchObject({ kind: 'failed', wrote: false });
    expect(report.kind === 'failed' && report.checks.find(({ holds }) => !holds)).toMatchObject({
      found: 'expiry in the past',
    });
    expect(Object.keys(await dump())).not.toContain(keyOf('stock'));
  });

  describe('an activity in another state is refused, and nothing is written:', () => {
    test('one that does not exist', async () => {
      expect(await preheat()).toEqual({ kind: 'refused', reason: 'unknown_activity' });
      expect(await confirm()).toBe(false);
    });

    test.each(['in_review', 'rejected', 'open', 'ended', 'settled'])('%s', async (state) => {
      await plan();
      await sql(`update activities set state = '${state}' where id = $1`);
      expect(await preheat()).toEqual({ kind: 'refused', reason: 'wrong_state', state });
      expect(await dump()).toEqual({});
      expect(await sql('select run from activities where id = $1')).toEqual([{ run: '0' }]);
    });

    test('ended in the middle of the sale: nor is anything changed', async () => {
      await plan();
      await preheat();
      await confirm();
      await hold('ann');
      expect(await sluice.wired.activities.change(id, 'end', 'test')).toBe(true);
      const before = await dump();
      expect(await preheat()).toMatchObject({ kind: 'refused', state: 'ended' });
      expect(await dump()).toEqual(before);
    });
  });

  describe('edited between preheat and confirmation', () => {
    const EDITS: [edit: string, differs: string[], stopsConfirmation: boolean][] = [
      ['total = 20', ['run.tickets'], true],
      ['total = 9', ['run.tickets'], true],
      [`item_name = 'other'`, ['run.itemName'], true],
      ['price_minor = 1', ['run.priceMinor'], true],
      [`currency = 'EUR'`, ['run.currency'], true],
      ['segments = 2', ['run.segments'], true],
      // the gate learns these with the confirmation, in one script with their version
      ['per_buyer_limit = 5', ['perBuyerLimit'], false],
      [`opens_at = opens_at - interval '1 h'`, ['opensAt'], false],
      [`ends_at = ends_at + interval '1 h'`, ['endsAt'], false],
      [`ends_at = ends_at + interval '1 day'`, ['endsAt', 'expiry'], false],
    ];

    test.each(EDITS)('%s: the next preheat shows it, and is not to be confirmed', async (edit, differs) => {
      await plan();
      expect(await preheat()).toMatchObject({ kind: 'verified' });
      await sql(`update activities set ${edit} where id = $1`);
      const report = await preheat();
      expect(report).toMatchObject({ kind: 'failed', wrote: false });
      expect(differences(report).toSorted()).toEqual(differs);
      expect(await confirm()).toBe(false);
      expect(await hold('ann')).toBe('not_ready');
    });

    test.each(EDITS)('%s: confirmed at once, what was promised holds', async (edit, _, stopsConfirmation) => {
      await plan();
      await preheat();
      await sql(`update activities set ${edit} where id = $1`);
      expect(await confirm()).toBe(!stopsConfirmation);
      expect(await hold('ann')).toBe(stopsConfirmation ? 'not_ready' : 'held');
      if (stopsConfirmation) return;
      expect(differences(await preheat())).toEqual(edit.startsWith('per_buyer_limit') ? ['item.perBuyerLimit'] : []);
    });
  });
});
