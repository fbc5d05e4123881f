/**
 * The contract's order of answers, first match wins: every pair of faults in one request is answered by the earlier one.
 * A fault is a change to a request that would otherwise be held.
 */
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { systemClock } from '../../src/platform/clock.ts';
import { startFaultProxy, type FaultProxy } from '../support/fault-proxy.ts';
import { buy, startSluice, tokenOf, until, type TestSluice } from '../support/sluice.ts';
import { exchange, type RawReply } from './raw-http.ts';
import { comeToRest, stateOf } from './state-of.ts';

let sluice: TestSluice;
let proxy: FaultProxy;
let open: string;
let notOpen: string;
let soldOut: string;
beforeAll(async () => {
  proxy = await startFaultProxy({ targetPort: Number(new URL(inject('redisUrl')).port) });
  sluice = await startSluice({ redisUrl: proxy.url, directRedisUrl: inject('redisUrl') });
  const opensAt = systemClock.now() + 3_600_000;
  open = (await sluice.openActivity({ perBuyerLimit: 3 })).id;
  notOpen = (await sluice.openActivity({ opensAt, endsAt: opensAt + 1_000 })).id;
  soldOut = (await sluice.openActivity({ total: 1 })).id;
  await buy(sluice.url, soldOut, 'winner', { key: 'winners-key' });
  await comeToRest(sluice, soldOut);
});
afterAll(async () => {
  await sluice.stop();
  await proxy.stop();
});

/** A purchase as it is written, in parts that faults change. */
type Parts = {
  method: string;
  activity: string;
  authorization: string | undefined;
  key: string;
  type: string;
  body: string;
  padding: number;
};

/** In the contract's order. */
const FAULTS: readonly { answer: string; status: number; spoil: (parts: Parts) => void }[] = [
  { answer: 'method_not_allowed', status: 405, spoil: (parts) => (parts.method = 'PUT') },
  { answer: 'body_too_large', status: 413, spoil: (parts) => (parts.padding = 17 * 1024) },
  { answer: 'not_json', status: 415, spoil: (parts) => (parts.type = 'text/plain') },
  { answer: 'invalid', status: 400, spoil: (parts) => (parts.body = '{"quantity":-3}') },
  { answer: 'unauthenticated', status: 401, spoil: (parts) => (parts.authorization = 'Bearer x.y.z') },
  { answer: 'unknown_activity', status: 404, spoil: (parts) => (parts.activity = 'no-such') },
  { answer: 'not_open', status: 409, spoil: (parts) => (parts.activity = notOpen) },
  { answer: 'sold_out', status: 409, spoil: (parts) => (parts.activity = soldOut) },
];

function send(spoil: readonly ((parts: Parts) => void)[]): Promise<RawReply> {
  const parts: Parts = {
    method: 'POST',
    activity: open,
    authorization: `Bearer ${tokenOf('ann')}`,
    key: 'a-key-of-ann',
    type: 'application/json',
    body: '{"quantity":1}',
    padding: 0,
  };
  for (const change of spoil) change(parts);
  return exchange(sluice.url, {
    method: parts.method,
    path: `/api/v1/activities/${parts.activity}/purchases`,
    headers: [
      ['content-type', parts.type],
      ['idempotency-key', parts.key],
      ...(parts.authorization === undefined ? [] : [['authorization', parts.authorization] as const]),
    ],
    body: parts.body + ' '.repeat(parts.padding),
  });
}

const PAIRS = FAULTS.flatMap((first, i) => FAULTS.slice(i).map((second) => ({ first, second })))
  // one request names one activity: of two faults in its place the later would undo the earlier
  .filter(({ first, second }) => first === second || FAULTS.indexOf(first) < 5 || FAULTS.indexOf(second) < 5);

test.each(PAIRS.map((pair) => ({ ...pair, name: `${pair.first.answer} before ${pair.second.answer}` })))(
  '$name',
  async ({ first, second }) => {
    const before = await stateOf(sluice);
    for (const spoil of [
      [first.spoil, second.spoil],
      [second.spoil, first.spoil],
    ]) {
      const reply = await send(spoil);
      expect(reply.body).toMatchObject({ code: first.answer, status: first.status });
      expect(reply.status).toBe(first.status);
    }
    expect(await stateOf(sluice)).toEqual(before);
  },
);

describe('within `invalid` and around it', () => {
  test('a quantity above the limit of the activity comes before the question who is asking', async () => {
    const reply = await send([
      (parts) => (parts.body = '{"quantity":4}'),
      (parts) => (parts.authorization = undefined),
    ]);
    expect(reply.body).toMatchObject({ code: 'invalid', field: 'quantity' });
  });

  test('but of an activity that nobody knows there is no limit', async () => {
    const reply = await send([(parts) => (parts.body = '{"quantity":4}'), (parts) => (parts.activity = 'no-such')]);
    expect(reply.body).toMatchObject({ code: 'unknown_activity' });
  });

  test('405 names the methods that there are, HEAD with GET, and never reads the body', async () => {
    const rows: [method: string, path: string, allow: string][] = [
      ['GET', `/api/v1/activities/${open}/purchases`, 'POST'],
      ['DELETE', `/api/v1/activities/${open}/purchases`, 'POST'],
      ['OPTIONS', `/api/v1/activities/${open}/purchases`, 'POST'],
      ['TRACE', `/api/v1/activities/${open}/purchases`, 'POST'],
      ['PROPFIND', `/api/v1/activities/${open}/purchases`, 'POST'],
      ['QUERY', `/api/v1/activities/${open}/purchases`, 'POST'],
      ['POST', '/api/v1/activities', 'GET, HEAD'],
      ['PATCH', `/api/v1/activities/${open}`, 'GET, HEAD'],
      ['POST', '/api/v1/time', 'GET, HEAD'],
      ['GET', '/api/v1/orders/1/cancel', 'POST'],
      ['POST', '/api/v1/receipts/r1.a.b', 'GET, HEAD'],
      ['POST', '/livez', 'GET, HEAD'],
      ['GET', '/api/v1/dev/login', 'POST'],
    ];
    for (const [method, path, allow] of rows) {
      const body = method === 'GET' ? undefined : 'neither JSON nor anything else';
      const reply = await exchange(sluice.url, { method, path, body });
      expect({ method, status: reply.status, allow: reply.headers['allow'] }).toEqual({ method, status: 405, allow });
      expect(reply.body).toMatchObject({ code: 'method_not_allowed', status: 405 });
    }
  });

  test('405 to HEAD has no body', async () => {
    const reply = await exchange(sluice.url, { method: 'HEAD', path: `/api/v1/activities/${open}/purchases` });
    expect(reply).toMatchObject({ status: 405, text: '', headers: { allow: 'POST' } });
  });
});

describe('at the gate', () => {
  test('the key comes before the stock, the repeat before both', async () => {
    const told = async (buyer: string, key: string, quantity = 1): Promise<string> =>
      (await buy(sluice.url, soldOut, buyer, { key, quantity })).code;
    expect(await told('winner', 'winners-key')).toBe('replayed');
    expect(await told('winner', 'another-key')).toBe('already_bought');
    expect(await told('loser', 'winners-key')).toBe('sold_out');
    const twice = (await sluice.openActivity({ total: 2, perBuyerLimit: 2 })).id;
    await buy(sluice.url, twice, 'winner', { key: 'winners-key', quantity: 2 });
    expect((await buy(sluice.url, twice, 'winner', { key: 'winners-key', quantity: 1 })).code).toBe('key_reused');
    await sluice.wired.activities.change(twice, 'end', 'test');
    expect((await buy(sluice.url, twice, 'winner', { key: 'winners-key', quantity: 2 })).code).toBe('replayed');
    expect((await buy(sluice.url, twice, 'winner', { key: 'another-key' })).code).toBe('already_bought');
    expect((await buy(sluice.url, twice, 'loser')).code).toBe('ended');
  });

  test('everything up to `not_open` is said without it', async () => {
    await proxy.refuseNew(true);
    proxy.cut();
    for (const { answer, spoil } of FAULTS.slice(0, 7)) expect((await send([spoil])).body['code']).toBe(answer);
    expect((await send([FAULTS[7]!.spoil])).body['code']).toBe('busy');
    await proxy.refuseNew(false);
    await until('Redis is back', async () => (await send([FAULTS[7]!.spoil])).body['code'] === 'sold_out');
  });
});
