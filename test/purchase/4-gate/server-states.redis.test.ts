/**
 * Speaks for the first line of `hold.lua`, `#!lua` (P18, P24): a server that cannot write refuses the script before it
 * begins, also when the batch would only refuse. Without it a demoted or cut-off primary goes on telling "sold out" to the
 * winners of the new one. Through the gate such a refusal is `busy`: nothing ran, ask again soon.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { HoldRequest } from '../../../src/domain/results.ts';
import type { Segment } from '../../../src/purchase/4-gate/gate-scripts.ts';
import {
  activityOf,
  codesOf,
  hold,
  makeTestGate,
  openTestGate,
  requestIdOf,
  type Press,
  type TestGate,
} from '../../support/gate.ts';
import { startPrivateRedis, until, type PrivateRedis } from '../../support/redis-server.ts';

let server: PrivateRedis;
let gate: TestGate;
let segment: Segment;

beforeAll(async () => {
  server = await startPrivateRedis(['--repl-diskless-sync-delay', '0']);
  gate = await openTestGate(server.server.url);
});
afterAll(async () => {
  await gate.close();
  await server.stop();
});
beforeEach(async () => {
  segment = await gate.open({ units: 1 });
  expect(await codesOf(gate, segment, [['ann', 'r1']])).toEqual(['held']);
});

const admin = (...[name, ...args]: (string | number)[]): Promise<unknown> =>
  server.admin.command(String(name), ...args);

/** Each of these writes nothing: a winner's repeat, his second press, a loser, a used key, a bug. */
const REFUSALS: readonly Press[] = [
  ['ann', 'r1'],
  ['ann', 'r2'],
  ['bob', 'r3'],
  ['ann', 'r1', 2],
  ['cid', 'r4', 6],
];
const ANSWERS = ['replayed', 'already_bought', 'sold_out', 'key_reused', 'invalid'];

async function expectRefused(word: string): Promise<void> {
  const before = await gate.dump(segment);
  for (const press of [REFUSALS, ...REFUSALS.map((one) => [one])]) {
    await expect(hold(gate, segment, press)).rejects.toMatchObject({
      code: 'redis_refused',
      cause: { message: expect.stringMatching(new RegExp(`^${word} `)) as string },
    });
  }
  const { gate: through, reported } = makeTestGate(gate.scripts);
  const requests: HoldRequest[] = ['r1', 'r2'].map((key) => ({
    buyerId: 'ann',
    requestId: requestIdOf(key),
    quantity: 1,
  }));
  const results = await Promise.all(requests.map((request) => through.hold(activityOf(segment), request)));
  expect(results).toEqual([{ code: 'busy' }, { code: 'busy' }]);
  expect(reported).toEqual({ notReady: [], broken: [], decided: [] });
  expect(await gate.dump(segment)).toEqual(before);
}

describe('a batch of nothing but refusals is not answered', () => {
  test('by a primary short of the replicas it must have', async () => {
    await admin('config', 'set', 'min-replicas-to-write', 1);
    await expectRefused('NOREPLICAS');
    await admin('config', 'set', 'min-replicas-to-write', 0);
    expect(await codesOf(gate, segment, REFUSALS)).toEqual(ANSWERS);
  });

  test('by a server that is full', async () => {
    await admin('config', 'set', 'maxmemory', 1_000_000);
    await expectRefused('OOM');
    await admin('config', 'set', 'maxmemory', 0);
    expect(await codesOf(gate, segment, REFUSALS)).toEqual(ANSWERS);
  });

  describe('by a replica', () => {
    let primary: PrivateRedis;
    beforeEach(async () => {
      primary = await startPrivateRedis(['--repl-diskless-sync-delay', '0']);
    });
    afterEach(async () => {
      await admin('replicaof', 'no', 'one');
      await primary.stop();
    });

    test('read-only, with the run’s keys and all', async () => {
      // the primary has what the replica has: nothing is lost in the copying
      await primary.admin.command('replicaof', '127.0.0.1', server.server.port);
      await until('the copy is whole', async () =>
        String(await primary.admin.command('info', 'replication')).includes('master_link_status:up'),
      );
      await primary.admin.command('replicaof', 'no', 'one');
      await admin('replicaof', '127.0.0.1', primary.server.port);
      await expectRefused('READONLY');
    });
  });
});

test('a script that writes is refused as a whole by a full server: no half hold, no half give-back', async () => {
  const two = await gate.open({ units: 5 });
  expect(await codesOf(gate, two, [['ann', 'r1']])).toEqual(['held']);
  const before = await gate.dump(two);
  await admin('config', 'set', 'maxmemory', 1_000_000);
  const refused = { code: 'redis_refused' };
  const giveBack = { buyerId: 'ann', orderId: '1', units: 1, closedStatus: 'C', liveMark: undefined };
  await expect(hold(gate, two, [['bob', 'r2']])).rejects.toMatchObject(refused);
  await expect(gate.scripts.giveBack(two, giveBack)).rejects.toMatchObject(refused);
  await expect(gate.scripts.markLanded(two, 1, [])).rejects.toMatchObject(refused);
  await expect(gate.change(two, { state: 'paused' })).rejects.toMatchObject(refused);
  await expect(gate.scripts.shut(two)).rejects.toMatchObject(refused);
  await admin('config', 'set', 'maxmemory', 0);
  expect(await gate.dump(two)).toEqual(before);
});
