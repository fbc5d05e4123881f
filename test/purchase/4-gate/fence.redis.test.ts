/**
 * Speaks for the fence (P3): a gate that was built on one server does not sell on another, nor on the same one
 * after it was a replica in between. The connection notices nothing of that: its socket stays open, its server's
 * `run_id` the same. So the script itself compares, at every call.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, inject, test } from 'vitest';
import type { HoldRequest } from '../../../src/domain/results.ts';
import type { RedisLink } from '../../../src/platform/redis/link.ts';
import { launchRedis } from '../../../src/platform/servers/launch-redis.ts';
import { activityOf, makeTestGate, openTestGate, requestIdOf, stateOf, type TestGate } from '../../support/gate.ts';
import { startPrivateRedis, until, type PrivateRedis } from '../../support/redis-server.ts';

let p: PrivateRedis;
let r: PrivateRedis;
let direct: TestGate;

beforeEach(async () => {
  [p, r] = await Promise.all([startPrivateRedis(FAST), startPrivateRedis(FAST)]);
});
afterEach(async () => {
  await direct.close();
  await Promise.all([p.stop(), r.stop()]);
});

const FAST = ['--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1'];
const request = (buyerId: string): HoldRequest => ({ buyerId, requestId: requestIdOf(buyerId), quantity: 1 });
const replicationId = async ({ admin }: PrivateRedis): Promise<string> =>
  /master_replid:([0-9a-f]{40})/.exec(String(await admin.command('info', 'replication')))![1]!;

async function follow(replica: PrivateRedis, primary: PrivateRedis): Promise<void> {
  await replica.admin.command('replicaof', '127.0.0.1', primary.server.port);
  await until('the replica has caught up', async () => {
    const info = String(await replica.admin.command('info', 'replication'));
    if (!info.includes('master_link_status:up')) return false;
    const offset = (text: string, name: string): string | undefined => new RegExp(`${name}:(\\d+)`).exec(text)?.[1];
    const ahead = String(await primary.admin.command('info', 'replication'));
    return offset(info, 'slave_repl_offset') === offset(ahead, 'master_repl_offset');
  });
}
const promote = (replica: PrivateRedis): Promise<unknown> => replica.admin.command('replicaof', 'no', 'one');

/** Which connection the server sees, and which process it is: both stay what they are. */
async function seenBy(redis: RedisLink): Promise<{ client: unknown; runId: string | undefined }> {
  const info = String(await redis.command('INFO', 'server'));
  return { client: await redis.command('CLIENT', 'ID'), runId: /run_id:(\w+)/.exec(info)?.[1] };
}

test('a server demoted and promoted again under an open socket: not ready, and it does not sell', async () => {
  await follow(r, p); // before the run is made: a first replica that joins changes the id, too
  direct = await openTestGate(p.server.url);
  const segment = await direct.open({ units: 2 });
  const { gate, reported } = makeTestGate(direct.scripts);
  const activity = activityOf(segment);
  await follow(r, p);
  const socket = await seenBy(direct.redis);
  const built = await replicationId(p);

  // the replica is cut off and promoted; what the old primary sells from now on is lost
  await promote(r);
  expect(await gate.hold(activity, request('ann'))).toMatchObject({ code: 'held' });

  await follow(p, r);
  expect(await gate.hold(activity, request('ann'))).toEqual({ code: 'busy' }); // READONLY: nothing ran
  await promote(p);

  // the same socket, the same process, a run whose number has not moved, and ann's hold is nowhere
  expect(await seenBy(direct.redis)).toEqual(socket);
  const { meta, left, marks } = await stateOf(direct, segment);
  expect([meta['run'], meta['fence'], left, marks]).toEqual(['1', built, '2', {}]);
  expect(await replicationId(p)).not.toBe(built);

  const before = await direct.dump(segment);
  expect(await Promise.all([gate.hold(activity, request('ann')), gate.hold(activity, request('bob'))])).toEqual([
    { code: 'not_ready' },
    { code: 'not_ready' },
  ]);
  expect(reported.notReady).toEqual([[segment.activityId, 'fence']]);
  // nor does it take units back: the rebuild counts them
  const giveBack = { buyerId: 'ann', orderId: '1', units: 1, closedStatus: 'C', liveMark: undefined };
  expect(await direct.scripts.giveBack(segment, giveBack)).toBe('not_now');
  expect(await direct.dump(segment)).toEqual(before);
});

test('the promoted replica has every key of the run, and does not sell from them', async () => {
  await follow(r, p);
  direct = await openTestGate(p.server.url, { prefix: 'fence' });
  const segment = await direct.open({ units: 2 });
  await makeTestGate(direct.scripts).gate.hold(activityOf(segment), request('ann'));
  await follow(r, p);
  await promote(r);

  const other = await openTestGate(r.server.url, { prefix: 'fence' });
  const { gate, reported } = makeTestGate(other.scripts);
  const before = await other.dump(segment);
  expect(before).toEqual(await direct.dump(segment));
  expect(await gate.hold(activityOf(segment), request('bob'))).toEqual({ code: 'not_ready' });
  expect(reported.notReady).toEqual([[segment.activityId, 'fence']]);
  expect(await other.dump(segment)).toEqual(before);
  await other.close();
});

test('a server restarted from its file has every key of the run, and does not sell from them', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-fence-'));
  const launch = { bin: inject('redisBin'), folder, args: ['--appendfsync', 'always'] };
  const first = await launchRedis(launch);
  direct = await openTestGate(first.url);
  const segment = await direct.open({ units: 2 });
  const { gate, reported } = makeTestGate(direct.scripts);
  expect(await gate.hold(activityOf(segment), request('ann'))).toMatchObject({ code: 'held' });
  const before = await direct.dump(segment);
  const { runId } = await seenBy(direct.redis);

  first.kill('SIGKILL');
  await first.exited;
  const second = await launchRedis({ ...launch, port: first.port });
  await until('the gate is connected again', async () => (await seenBy(direct.redis)).runId !== runId);
  expect(await direct.dump(segment)).toEqual(before);
  expect(await gate.hold(activityOf(segment), request('ann'))).toEqual({ code: 'not_ready' });
  expect(reported.notReady).toEqual([[segment.activityId, 'fence']]);
  expect(await direct.dump(segment)).toEqual(before);
  await second.stop();
  await rm(folder, { recursive: true });
});
