/**
 * Speaks for `withdraw.ts`: an activity that was preheated may leave `scheduled` again, and the gate never sells by what was
 * taken back (design §9, P20 b). "Yesterday's buyer" asks with what his process still has in memory of the old run.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { withdrawRun } from '../../../src/activity/2-preheat/withdraw-table.ts';
import type { Activity, ActivityRecord } from '../../../src/domain/activity.ts';
import { must } from '../../../src/domain/fault.ts';
import type { HoldResult } from '../../../src/domain/results.ts';
import { systemClock } from '../../../src/platform/clock.ts';
import { admin, auditOf } from '../../console/operator.ts';
import { startFaultProxy, type FaultProxy } from '../../support/fault-proxy.ts';
import { onBothServers, requestIdOf } from '../../support/gate.ts';
import { startSluice, until, type TestSluice, type Told } from '../../support/sluice.ts';

const HOUR_MS = 3_600_000;

onBothServers((redisUrl) => {
  let proxy: FaultProxy;
  let sluice: TestSluice;
  let id: string;
  beforeAll(async () => {
    proxy = await startFaultProxy({ targetPort: Number(new URL(redisUrl).port) });
    // a worker too: its scheduler sweeps
    sluice = await startSluice({ redisUrl: proxy.url, directRedisUrl: redisUrl });
  });
  afterAll(async () => {
    await sluice.stop();
    await proxy.stop();
  });
  beforeEach(async () => {
    // a test before may have cut connections: they come back by themselves, in their own time
    await until('the process is ready', async () => (await fetch(`${sluice.url}/readyz`)).status === 200);
    id = `act${randomBytes(6).toString('hex')}`;
    const now = systemClock.now();
    const plan = { id, itemName: '测试商品', priceMinor: 9_900, currency: 'CNY', total: 10 };
    const { activities } = sluice.wired;
    await activities.plan({ ...plan, opensAt: now + HOUR_MS, endsAt: now + 2 * HOUR_MS }, 'maker');
    await activities.approve(id, 'test');
    expect(await activities.preheat(id)).toMatchObject({ kind: 'verified', run: 1 });
    expect(await activities.confirm(id, 'test')).toBe(true);
  });

  const read = async (): Promise<ActivityRecord> =>
    must(await sluice.wired.activities.find(id), 'the activity that was planned');
  const meta = (): string => sluice.keys.meta({ activityId: id, segment: 0 });
  const etag = async (): Promise<string> => `"${(await read()).version}"`;
  const edit = async (body: object): Promise<Told> =>
    admin(sluice.url, 'PATCH', `/activities/${id}`, { role: 'operator', ifMatch: await etag(), body });
  /** the opening comes, as far as the gate can tell */
  const openAtTheGate = (): Promise<unknown> =>
    sluice.redis.command('HSET', meta(), 'opensAt', systemClock.now() - 1_000);
  const hold = async (by: Activity, buyerId: string): Promise<HoldResult['code']> =>
    (await sluice.wired.gate.hold(by, { buyerId, requestId: requestIdOf(buyerId), quantity: 1 })).code;
  const openOutboxes = async (): Promise<unknown[]> =>
    sluice.database.database.query('select run from landings where activity_id = $1 and not closed order by run', [id]);

  test('without a withdrawal yesterday’s buyer is sold to', async () => {
    const before = await read();
    await openAtTheGate();
    expect(await hold(before, 'ann')).toBe('held');
  });

  test('an edit takes the preheat back: review, and a gate that sells nothing when the hour comes', async () => {
    const before = await read();
    const edited = await edit({ total: 7, item: { priceMinor: 100 } });
    expect(edited.body).toMatchObject({ state: 'in_review', preheat: 'none', run: 2, total: 7 });
    expect(edited.headers.get('etag')).toBe(`"${before.version + 2}"`);
    expect(await auditOf(sluice, id)).toEqual([
      'maker create →in_review',
      'test approve in_review→scheduled',
      'test confirm scheduled→scheduled',
      'operator withdraw scheduled→scheduled',
      'operator edit scheduled→in_review',
    ]);
    await openAtTheGate();
    expect(await hold(before, 'ann')).toBe('not_ready');
    expect(await openOutboxes()).toEqual([]);
    // a change of the old run that was still under way finds another number
    const late = { ...before, activityId: id, segment: 0, state: 'open' as const, expiresAt: before.endsAt + HOUR_MS };
    expect(await sluice.wired.scripts.change(late, { ...late, version: 99 })).toBe('other_run');

    // and the walk begins again, under a third number, with what was edited
    await admin(sluice.url, 'POST', `/activities/${id}/approve`, { name: 'bob' });
    expect(await sluice.wired.activities.preheat(id)).toMatchObject({ kind: 'verified', run: 3, wrote: true });
    expect(await sluice.wired.activities.confirm(id, 'test')).toBe(true);
    expect(await sluice.redis.command('GET', sluice.keys.stock({ activityId: id, segment: 0, run: 3 }))).toBe('7');
    await openAtTheGate();
    expect(await hold(before, 'ann')).toBe('not_ready');
    expect(await hold(await read(), 'ann')).toBe('held');
  });

  test('so does a rejection', async () => {
    const before = await read();
    const rejected = await admin(sluice.url, 'POST', `/activities/${id}/reject`, { body: { reason: '供应商取消' } });
    expect(rejected.body).toMatchObject({ state: 'rejected', preheat: 'none' });
    await openAtTheGate();
    expect(await hold(before, 'ann')).toBe('not_ready');
  });

  test('bad input, an old version and the last minute take nothing back', async () => {
    const before = await read();
    expect((await edit({ total: 7, item: { currency: 'yuan' } })).body).toMatchObject({ code: 'invalid' });
    const old = await admin(sluice.url, 'PATCH', `/activities/${id}`, { ifMatch: '"1"', body: { total: 7 } });
    expect(old.body).toMatchObject({ code: 'old_version', status: 412 });
    await sluice.database.database.query(
      `update activities set opens_at = clock_timestamp() + interval '50 s' where id = $1`,
      [id],
    );
    expect((await edit({ total: 7 })).body).toMatchObject({ code: 'wrong_state', reason: 'last_minute' });
    expect(await read()).toMatchObject({ run: 1, preheat: 'confirmed', version: before.version });
  });

  test('of an edit and an opening at once one wins, and what is open sells', { timeout: 60_000 }, async () => {
    const [edited, opened] = await Promise.all([
      edit({ total: 7 }),
      admin(sluice.url, 'POST', `/activities/${id}/open`, { role: 'operator' }),
    ]);
    const after = await read();
    if (opened.status === 200) {
      expect(edited.status).not.toBe(200);
      expect(after).toMatchObject({ state: 'open', run: 1 });
      await until('it sells', async () => (await hold(await read(), 'ann')) === 'held');
    } else {
      expect([edited.status, opened.status]).toEqual([200, 409]);
      expect(after).toMatchObject({ state: 'in_review', run: 2 });
      await openAtTheGate();
      expect(await hold({ ...after, run: 1, shards: 1, runState: 'open' }, 'ann')).toBe('not_ready');
    }
  });

  test('a withdrawal that was cut short after the row is finished by the sweep', async () => {
    const before = await read();
    expect(await withdrawRun(sluice.database.database, before, { actor: 'test' })).toBe(true);
    await until('the gate is retired', async () => (await sluice.redis.command('HGET', meta(), 'run')) === '2');
    await until('its outbox is closed', async () => (await openOutboxes()).length === 0);
    await openAtTheGate();
    expect(await hold(before, 'ann')).toBe('not_ready');
  });

  test(
    'with the gate out of reach the edit fails, and is made when it is asked again',
    { timeout: 60_000 },
    async () => {
      await proxy.refuseNew(true);
      proxy.cut();
      const failed = await edit({ total: 7 });
      expect(failed.status).toBe(503);
      expect(await read()).toMatchObject({ state: 'scheduled', total: 10, preheat: 'none' });
      await proxy.refuseNew(false);
      await until('the gate is back', async () => (await edit({ total: 7 })).status === 200);
      expect(await read()).toMatchObject({ state: 'in_review', total: 7 });
    },
  );

  test('a run under which units were taken is left for people to look at', async () => {
    const before = await read();
    await openAtTheGate();
    expect(await hold(before, 'ann')).toBe('held');
    await withdrawRun(sluice.database.database, before, { actor: 'test' });
    await until('somebody is told', () =>
      sluice.log.lines.some(({ fields }) => fields['activityId'] === id && fields['reason'] === 'withdrawn'),
    );
    expect(await openOutboxes()).toEqual([{ run: '1' }]);
  });
});
