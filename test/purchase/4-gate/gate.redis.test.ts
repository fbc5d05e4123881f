/**
 * Speaks for `Gate` and its scripts together, over a real server and a connection that fails: an unknown outcome is told
 * as one, undone never, and answered exactly when the same key asks again (G7); scripts that the server forgets are no
 * event at all.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { HoldRequest } from '../../../src/domain/results.ts';
import { systemClock } from '../../../src/platform/clock.ts';
import { makeGateScripts, type Segment } from '../../../src/purchase/4-gate/gate-scripts.ts';
import { startFaultProxy, type FaultProxy } from '../../support/fault-proxy.ts';
import {
  activityOf,
  codesOf,
  makeTestGate,
  onBothServers,
  openTestGate,
  requestIdOf,
  stateOf,
  type TestGate,
} from '../../support/gate.ts';
import { startPrivateRedis, until, type PrivateRedis } from '../../support/redis-server.ts';

const request = (buyerId: string, key: string, quantity = 1): HoldRequest => ({
  buyerId,
  requestId: requestIdOf(key),
  quantity,
});
const isHold = ([command = '']: readonly string[]): boolean => command === 'evalsha' || command === 'eval';

onBothServers((redisUrl) => {
  /** straight to the server */
  let direct: TestGate;
  /** through the proxy, on the same keys */
  let proxied: TestGate;
  let proxy: FaultProxy;
  let segment: Segment;

  beforeAll(async () => {
    direct = await openTestGate(redisUrl);
  });
  afterAll(() => direct.close());

  beforeEach(async () => {
    segment = await direct.open({ units: 5 });
    proxy = await startFaultProxy({ targetPort: Number(new URL(redisUrl).port) });
    proxied = await openTestGate(proxy.url, { commandTimeoutMs: 500 });
  });
  afterEach(async () => {
    await proxied.close();
    await proxy.stop();
  });

  /** A gate whose calls go through the proxy; the server has seen its scripts before. */
  async function gateThroughProxy(timeoutMs = 500) {
    const scripts = makeGateScripts(proxied.redis, direct.keys);
    expect(await codesOf({ ...direct, scripts }, segment, [['zoe', 'r0', 6]])).toEqual(['invalid']);
    return makeTestGate(scripts, { timeoutMs });
  }

  /** Calls pass again; a link may still think itself ready on the connection that was cut. */
  const connected = (): Promise<void> => until('calls pass', () => proxied.redis.command('PING'));

  test('a reply is lost: in doubt; the same key is then told the first order, and the stock moved once', async () => {
    const { gate, reported } = await gateThroughProxy();
    const activity = activityOf(segment);
    proxy.loseReplies({ every: 1, of: isHold });
    const first = await Promise.all([
      gate.hold(activity, request('ann', 'r1', 2)),
      gate.hold(activity, request('bob', 'r2')),
      gate.hold(activity, request('bob', 'r3')),
    ]);
    expect(first).toEqual([{ code: 'in_doubt' }, { code: 'in_doubt' }, { code: 'in_doubt' }]);
    expect(proxy.count.lostReplies).toBe(1);
    const { marks, left } = await stateOf(direct, segment);
    expect(left).toBe('2');

    proxy.keepReplies();
    await connected();
    const again = await Promise.all([
      gate.hold(activity, request('ann', 'r1', 2)),
      gate.hold(activity, request('bob', 'r2')),
      gate.hold(activity, request('bob', 'r3')),
    ]);
    const orderOf = (buyer: string): string => marks[buyer]!.split('|')[0]!;
    expect(again).toMatchObject([
      { code: 'replayed', mark: { orderId: orderOf('ann'), quantity: 2, requestId: requestIdOf('r1') } },
      { code: 'replayed', mark: { orderId: orderOf('bob') } },
      { code: 'already_bought', mark: { orderId: orderOf('bob'), requestId: requestIdOf('r2') } },
    ]);
    const after = await stateOf(direct, segment);
    expect(after).toMatchObject({ left: '2', marks });
    expect(after.entries).toHaveLength(1);
    expect(reported.broken).toEqual([]);
  });

  test('a connection cut before the request arrives: the same key is then held, once', async () => {
    const { gate } = await gateThroughProxy();
    proxy.hang();
    const first = gate.hold(activityOf(segment), request('ann', 'r1'));
    await new Promise((resolve) => setImmediate(resolve)); // the turn ends, the bytes are on their way
    proxy.cut();
    expect(['in_doubt', 'busy']).toContain((await first).code);
    proxy.resume();
    await connected();
    expect(await gate.hold(activityOf(segment), request('ann', 'r1'))).toMatchObject({ code: 'held' });
    expect((await stateOf(direct, segment)).left).toBe('4');
  });

  test('without a connection: busy at once, and nothing is sent when it is back', async () => {
    const { gate } = await gateThroughProxy();
    await proxy.refuseNew(true);
    proxy.cut();
    await until('the connection is lost', async () => !proxied.redis.isReady());
    const before = await direct.dump(segment);
    expect(await gate.hold(activityOf(segment), request('ann', 'r1'))).toEqual({ code: 'busy' });
    await proxy.refuseNew(false);
    await connected();
    expect(await direct.dump(segment)).toEqual(before);
  });

  test('a script that arrives after its deadline takes nothing from a buyer who has gone', async () => {
    const { gate } = await gateThroughProxy(200);
    proxy.hang();
    expect(await gate.hold(activityOf(segment), request('ann', 'r1'))).toEqual({ code: 'in_doubt' });
    const before = await direct.dump(segment);
    const tooLate = systemClock.now() + 300;
    await until('its deadline has passed by Redis’ clock', async () => (await direct.scripts.time()) > tooLate);
    // what was held back runs now, the PING behind it
    const arrived = proxy.passed(isHold);
    proxy.resume();
    await arrived;
    await connected();
    expect(await direct.dump(segment)).toEqual(before);
    expect(await gate.hold(activityOf(segment), request('ann', 'r1'))).toMatchObject({ code: 'held' });
  });
});

describe('SCRIPT FLUSH in the middle of a sale', () => {
  let server: PrivateRedis;
  afterEach(() => server.stop());

  test.each([
    ['a plain Redis', []],
    ['a one-node cluster', ['--cluster-enabled', 'yes']],
  ])('on %s: 500 holds in batches, none lost, none double', async (_, args) => {
    server = await startPrivateRedis(args);
    if (args.length > 0) {
      await server.admin.command('cluster', 'addslotsrange', 0, 16_383);
      await until('the cluster serves', async () =>
        String(await server.admin.command('cluster', 'info')).includes('cluster_state:ok'),
      );
    }
    const direct = await openTestGate(server.server.url);
    const segment = await direct.open({ units: 500, shards: 3 });
    const { gate, reported } = makeTestGate(direct.scripts, { batchMax: 16 });
    const activity = activityOf(segment);

    let flushing = true;
    let flushes = 0;
    const flusher = (async () => {
      while (flushing) {
        await server.admin.command('script', 'flush');
        flushes += 1;
      }
    })();
    const told = new Map<string, string>();
    for (let from = 0; from < 600; from += 50) {
      const buyers = Array.from({ length: 50 }, (_, i) => `buyer${from + i}`);
      const presses = buyers.flatMap((buyer) => [request(buyer, 'r1'), request(buyer, 'r1'), request(buyer, 'r2')]);
      const results = await Promise.all(presses.map((press) => gate.hold(activity, press)));
      for (const [i, { buyerId }] of presses.entries()) {
        const result = results[i]!;
        const won = from + 50 <= 500;
        expect(result.code).toBe(won ? ['held', 'replayed', 'already_bought'][i % 3] : 'sold_out');
        if (!('mark' in result)) continue;
        // whatever word the buyer is told, it is of one and the same order
        expect(told.get(buyerId) ?? result.mark.orderId).toBe(result.mark.orderId);
        told.set(buyerId, result.mark.orderId);
      }
    }
    flushing = false;
    await flusher;
    expect(flushes).toBeGreaterThan(10);

    const { left, marks, entries } = await stateOf(direct, segment);
    expect(left).toBe('0');
    expect(Object.keys(marks)).toHaveLength(500);
    const landed = entries.flatMap(({ payload }) => payload.split(';').map((hold) => hold.split(',')));
    expect(landed).toHaveLength(500);
    expect(new Map(landed.map(([orderId, buyer]) => [buyer, orderId]))).toEqual(told);
    expect(entries.map(({ number }) => Number(number))).toEqual(entries.map((_, i) => i + 1));
    expect(reported).toMatchObject({ notReady: [], broken: [] });
    await direct.close();
  });
});
