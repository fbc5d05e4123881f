/** A share of the crowd against a door that is a function: who presses how, who asks again, and what is kept. */
import { describe, expect, test } from 'vitest';
import type { BuyerCall, BuyerReply } from '../../../src/cli/demo/crowd/buyer-calls.ts';
import { Crowd, type CrowdShare } from '../../../src/cli/demo/crowd/crowd.ts';
import { evidenceLine, readEvidence, type BuyerEvidence } from '../../../src/cli/demo/crowd/evidence.ts';
import { mannerOf, type Manner } from '../../../src/cli/demo/crowd/manners.ts';

const SHARE: CrowdShare = {
  activityId: 'act',
  buyers: 2_000,
  eager: 5,
  seed: 7,
  generator: 0,
  generators: 1,
  inFlight: 50,
};
const SOLD_OUT: BuyerReply = { status: 409, body: '{"code":"sold_out"}', retryAfter: false, replayed: false };

/** A crowd before a door; time passes only where somebody waits. */
function crowdAt(door: (call: BuyerCall) => BuyerReply, share: Partial<CrowdShare> = {}) {
  let now = 1_000;
  const calls: BuyerCall[] = [];
  const flying = { now: 0, most: 0 };
  const crowd = new Crowd(
    { ...SHARE, ...share },
    {
      calls: {
        servers: 2,
        async call(request) {
          calls.push(request);
          flying.most = Math.max(flying.most, ++flying.now);
          await Promise.resolve();
          flying.now -= 1;
          now += 1;
          return door(request);
        },
        close: () => Promise.resolve(),
      },
      now: () => now,
      sleep: async (ms) => {
        now += ms;
        await Promise.resolve();
      },
      tokenOf: (buyerId) => `token-of-${buyerId}`,
      wrongAuthorization: (_, kind) => (kind % 2 === 0 ? undefined : 'Bearer nonsense'),
    },
  );
  const heardBy = (manner: Manner): BuyerEvidence[] =>
    [...crowd.evidence()].filter((_, i) => mannerOf(i, { ...SHARE, ...share }) === manner);
  return { crowd, calls, flying, heardBy };
}

const kindsAndKeys = ({ heard, buyerId }: BuyerEvidence): string =>
  heard.map(({ kind, key }) => `${kind} ${key.replace(`${buyerId}-key-`, '')}`).join(', ');

describe('manners', () => {
  test('each buyer behaves as his number and the seed say, and half of the crowd not as it should', () => {
    const manners = Array.from({ length: 2_000 }, (_, i) => mannerOf(i, SHARE));
    expect(manners).toEqual(Array.from({ length: 2_000 }, (_, i) => mannerOf(i, SHARE)));
    expect(manners.slice(0, 5)).toEqual(['eager', 'eager', 'eager', 'eager', 'eager']);
    for (const manner of [
      'early',
      'double_click',
      'network_repeat',
      'second_thought',
      'wrong_token',
      'bad_body',
      'stranger',
      'late',
      'after_end',
      'single',
    ] as const) {
      expect(manners.filter((one) => one === manner).length, manner).toBeGreaterThan(0);
    }
    expect(Array.from({ length: 2_000 }, (_, i) => mannerOf(i, { ...SHARE, seed: 8 }))).not.toEqual(manners);
  });

  test.each<[Manner, string]>([
    ['eager', 'good 1, good 2, good 1'],
    ['early', 'good 1, good 1'],
    ['single', 'good 1'],
    ['double_click', 'good 1, good 2'],
    ['network_repeat', 'good 1, good 1, good 1'],
    ['second_thought', 'good 1, good 2'],
    ['wrong_token', 'wrong_token 1, good 1'],
    ['bad_body', 'bad_body 1, good 1'],
    ['stranger', 'unknown_activity 1, good 1'],
    ['late', 'good 1'],
    ['after_end', 'good 1'],
  ])('%s: %s', async (manner, presses) => {
    const { crowd, heardBy } = crowdAt(() => SOLD_OUT);
    await crowd.early();
    await crowd.flood();
    await crowd.late();
    await crowd.afterEnd();
    expect(new Set(heardBy(manner).map(kindsAndKeys))).toEqual(new Set([presses]));
  });

  test('eager ones who were let in alone come back before the rest', async () => {
    const { crowd, calls } = crowdAt(() => SOLD_OUT);
    await crowd.eager();
    expect(calls).toHaveLength(5);
    await crowd.flood();
    const eager = new Set(Array.from({ length: 5 }, (_, i) => `Bearer token-of-buyer-${i}`));
    expect(calls.slice(0, 15).every(({ headers }) => eager.has(headers['authorization']!))).toBe(true);
  });

  test('generators share a crowd without a buyer in two of them', () => {
    const ids = [0, 1, 2].flatMap((generator) =>
      [...crowdAt(() => SOLD_OUT, { generator, generators: 3 }).crowd.evidence()].map(({ buyerId }) => buyerId),
    );
    expect(new Set(ids).size).toBe(2_000);
    expect(ids).toHaveLength(2_000);
  });
});

describe('presses', () => {
  test('are spread over the servers, and bounded', async () => {
    const { crowd, calls, flying } = crowdAt(() => SOLD_OUT);
    await crowd.flood();
    expect(new Set(calls.map(({ server }) => server))).toEqual(new Set([0, 1]));
    expect(flying.most).toBeLessThanOrEqual(2 * SHARE.inFlight); // a double click is two
  });

  test('are repeated with the same key while the answer is "not now", and every answer is kept', async () => {
    const replies: BuyerReply[] = [
      { status: 0, body: '', retryAfter: false, replayed: false },
      { status: 503, body: '{"code":"busy","retryAfterMs":1000}', retryAfter: true, replayed: false },
      { status: 503, body: '{"code":"in_doubt","retryAfterMs":500}', retryAfter: true, replayed: false },
      { status: 429, body: '{"code":"limited","retryAfterMs":200}', retryAfter: true, replayed: false },
      {
        status: 200,
        body: '{"code":"replayed","orderId":"11","receipt":"r1.abc.0123456789abcdef","quantity":1,"state":"ordered"}',
        retryAfter: false,
        replayed: true,
      },
    ];
    const { crowd } = crowdAt(() => (replies.length > 1 ? replies.shift()! : replies[0]!), {
      buyers: 1,
      eager: 0,
      seed: 1,
    });
    await crowd.flood();
    const [buyer] = crowd.evidence();
    expect(buyer!.heard.slice(0, 5).map(({ code, key, saysWhen }) => [code, key, saysWhen])).toEqual([
      ['', 'buyer-0-key-1', false],
      ['busy', 'buyer-0-key-1', true],
      ['in_doubt', 'buyer-0-key-1', true],
      ['limited', 'buyer-0-key-1', true],
      ['replayed', 'buyer-0-key-1', false],
    ]);
    expect(buyer!.heard[4]).toMatchObject({
      orderId: '11',
      receiptEnd: '456789abcdef',
      toldQuantity: 1,
      state: 'ordered',
      saysReplayed: true,
    });
  });

  test('end where patience does', async () => {
    const busy = { status: 503, body: '{"code":"busy","retryAfterMs":2000}', retryAfter: true, replayed: false };
    const { crowd } = crowdAt(() => busy, { buyers: 1, eager: 0, seed: 1 });
    await crowd.flood();
    const [buyer] = crowd.evidence();
    expect(buyer!.heard.length).toBeGreaterThan(20);
    expect(buyer!.heard.at(-1)!.code).toBe('busy');
  });

  test('what is no answer of ours is kept as that', async () => {
    const { crowd } = crowdAt(() => ({ status: 502, body: '<html>', retryAfter: false, replayed: false }), {
      buyers: 1,
      eager: 0,
      seed: 1,
    });
    await crowd.flood();
    expect([...crowd.evidence()][0]!.heard[0]).toMatchObject({ status: 502, code: 'not JSON' });
  });
});

describe('winners', () => {
  /** A door that sells one unit to whoever comes first. */
  function oneUnit() {
    let key: string | undefined;
    let winner: string | undefined;
    return (call: BuyerCall): BuyerReply => {
      const told = { orderId: '11', receipt: 'r1.abc.0123456789abcdef', quantity: 1 };
      const reply = (status: number, body: object): BuyerReply => ({
        status,
        body: JSON.stringify(body),
        retryAfter: false,
        replayed: false,
      });
      if (call.path === '/api/v1/orders') return reply(200, { items: [{ orderId: '11' }] });
      if (call.method === 'GET') return reply(200, { ...told, state: 'ordered' });
      const who = call.headers['authorization'];
      if (winner !== undefined && who !== winner) return SOLD_OUT;
      const same = call.headers['idempotency-key'] === key;
      if (winner !== undefined) return reply(same ? 200 : 409, { ...told, code: same ? 'replayed' : 'already_bought' });
      winner = who;
      key = call.headers['idempotency-key'];
      return reply(202, { ...told, code: 'held', state: 'queued' });
    };
  }

  test('come back after sell-out and after the end, and ask how it ended', async () => {
    const { crowd } = crowdAt(oneUnit(), { buyers: 10, eager: 1 });
    await crowd.flood();
    await crowd.late();
    await crowd.afterEnd();
    await crowd.collect();
    const winner = [...crowd.evidence()].find(({ heard }) => heard.some(({ code }) => code === 'held'))!;
    expect(winner.heard.map(({ code }) => code)).toEqual([
      'held',
      'already_bought',
      'replayed',
      'replayed',
      'already_bought',
      'replayed',
      'already_bought',
    ]);
    expect(winner.ends).toEqual([{ orderId: '11', state: 'ordered', reason: undefined, delayed: false, listed: true }]);
    expect(crowd.progress()).toMatchObject({ accepted: 1 });
  });

  test('evidence survives its file', async () => {
    const { crowd } = crowdAt(oneUnit(), { buyers: 10, eager: 1 });
    await crowd.flood();
    await crowd.collect();
    for (const buyer of crowd.evidence()) {
      const read = readEvidence(evidenceLine(buyer));
      expect(read.heard).toEqual(buyer.heard);
      expect(JSON.stringify(read.ends)).toBe(JSON.stringify(buyer.ends));
    }
  });
});
