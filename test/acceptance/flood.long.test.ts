/**
 * The flood: a crowd over real sockets against a real server process, real Redis behind a proxy that loses replies, real
 * PostgreSQL. Some press twice, some repeat with the same key, some send nonsense or no token.
 *
 * An auditor keeps every answer of every buyer and judges it by the contract's order of answers: a winner hears of his own
 * order for ever after, nobody else hears of one, and PostgreSQL ends with exactly the orders that were told.
 * Size: buyers (short form 20,000; units are a fortieth of it); full size: 200000. The seed decides who does what.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { inject } from 'vitest';
import { Pool } from 'undici';
import { startFaultProxy, type FaultProxy } from '../support/fault-proxy.ts';
import { books, isQuiet, startSluice, tokenOf, until, type TestSluice } from '../support/sluice.ts';
import { spawnServer, type ServerProcess } from '../support/spawn-server.ts';

const BUYERS = Number(process.env['SLUICE_TEST_SIZE'] ?? 20_000);
const UNITS = Math.floor(BUYERS / 40);
const SEED = Number(process.env['SLUICE_TEST_SEED'] ?? 20_261_201);
const AT_ONCE = 160;
/** Every so many answers of the gate one is lost on the way. */
const LOSE_EVERY = 100;

/** mulberry32: small, seeded, good enough to choose who misbehaves. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

type Heard = {
  readonly key: string;
  readonly status: number;
  readonly code: string;
  readonly orderId: string | undefined;
};

/** Judges what one buyer heard, in the order in which he heard it. Returns the order he won, or a complaint. */
function judge(heard: readonly Heard[]): { orderId?: string; wonBy?: string; complaint?: string } {
  let won: Heard | undefined;
  for (const answer of heard) {
    switch (answer.code) {
      case 'held':
        if (won !== undefined) return { complaint: `held twice: ${won.orderId} and ${answer.orderId}` };
        won = answer;
        break;
      case 'replayed':
      case 'already_bought':
        // A lost reply may have been the winning one: the first that is heard of an order tells it.
        won ??= answer;
        if (answer.orderId !== won.orderId) return { complaint: `told of ${answer.orderId}, had won ${won.orderId}` };
        break;
      case 'sold_out':
        // in parallel presses a `sold_out` may overtake; in sequence it contradicts the order already told
        if (won !== undefined && won.key === answer.key) return { complaint: 'sold_out for a key that had won' };
        break;
      case 'in_doubt':
      case 'busy':
        break;
      default:
        return { complaint: `unexpected ${answer.status} ${answer.code}` };
    }
  }
  const last = heard.at(-1)!;
  if (last.code === 'in_doubt' || last.code === 'busy') return { complaint: `left ${last.code}` };
  return won === undefined ? {} : { orderId: won.orderId!, wonBy: won.key };
}

describe(`a flood of ${BUYERS} buyers for ${UNITS} units`, () => {
  let operator: TestSluice; // plans and preheats; sells nothing
  let server: ServerProcess;
  let proxy: FaultProxy;
  let pool: Pool;
  beforeAll(async () => {
    proxy = await startFaultProxy({ targetPort: Number(new URL(inject('redisUrl')).port) });
    operator = await startSluice({ role: 'api' });
    server = await spawnServer({
      databaseUrl: operator.database.url,
      redisUrl: proxy.url,
      settings: { SLUICE_KEY_PREFIX: operator.config.keyPrefix },
    });
    pool = new Pool(server.url, { connections: AT_ONCE });
  });
  afterAll(async () => {
    await pool?.close();
    server?.kill('SIGTERM');
    await server?.ended;
    await operator?.stop();
    await proxy?.stop();
  });

  test('ends in exactly that many orders, and every answer is right', { timeout: 600_000 }, async () => {
    const activity = await operator.openActivity({ total: UNITS });
    const path = `/api/v1/activities/${activity.id}/purchases`;
    await until('the server knows the activity', async () => {
      const { statusCode, body } = await pool.request({ method: 'GET', path: `/api/v1/activities/${activity.id}` });
      await body.dump();
      return statusCode === 200;
    });

    const codes = new Map<string, number>();
    const press = async (buyer: string, key: string, heard: Heard[]): Promise<Heard> => {
      const { statusCode, body } = await pool.request({
        method: 'POST',
        path,
        headers: {
          authorization: `Bearer ${tokenOf(buyer)}`,
          'idempotency-key': key,
          'content-type': 'application/json',
        },
        body: '{"quantity":1}',
      });
      const reply = (await body.json()) as { code: string; orderId?: string };
      const answer: Heard = { key, status: statusCode, code: reply.code, orderId: reply.orderId };
      codes.set(answer.code, (codes.get(answer.code) ?? 0) + 1);
      heard.push(answer);
      return answer;
    };
    /** Presses until the answer is one to live with: the same key after `in_doubt` and `busy`. */
    const insist = async (buyer: string, key: string, heard: Heard[]): Promise<void> => {
      for (let tries = 0; tries < 200; tries++) {
        const { code } = await press(buyer, key, heard);
        if (code !== 'in_doubt' && code !== 'busy') return;
        await new Promise((resolve) => setTimeout(resolve, 20 + tries * 10));
      }
    };
    const nonsense = async (buyer: string, kind: number): Promise<void> => {
      const headers: Record<string, string> = {
        authorization: kind === 0 ? 'Bearer nonsense' : `Bearer ${tokenOf(buyer)}`,
        'idempotency-key': 'nonsense-1',
        'content-type': 'application/json',
      };
      const { statusCode, body } = await pool.request({
        method: 'POST',
        path,
        headers,
        body: kind === 0 ? '{"quantity":1}' : '{"quantity":-3}',
      });
      await body.dump();
      expect(statusCode).toBe(kind === 0 ? 401 : 400);
    };

    proxy.loseReplies({ every: LOSE_EVERY, of: ([command]) => command?.toUpperCase() === 'EVALSHA' });
    const random = randomFrom(SEED);
    const buyers = Array.from({ length: BUYERS }, (_, i) => ({
      id: `buyer${i}`,
      mood: random(),
      heard: [] as Heard[],
    }));
    let next = 0;
    const runner = async (): Promise<void> => {
      for (let buyer = buyers[next++]; buyer !== undefined; buyer = buyers[next++]) {
        const { id, mood, heard } = buyer;
        if (mood < 0.1) await nonsense(id, mood < 0.05 ? 0 : 1);
        if (mood < 0.3) await insist(id, `${id}-key-1`, heard);
        else if (mood < 0.6) {
          // a double click: two keys at once
          await Promise.all([insist(id, `${id}-key-1`, heard), insist(id, `${id}-key-2`, heard)]);
        } else if (mood < 0.8) {
          // the network repeats the request: one key twice at once, and again later
          await Promise.all([insist(id, `${id}-key-1`, heard), insist(id, `${id}-key-1`, heard)]);
          await insist(id, `${id}-key-1`, heard);
        } else {
          await insist(id, `${id}-key-1`, heard);
          await insist(id, `${id}-key-2`, heard);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, runner));
    proxy.keepReplies();

    await until('landed', () => isQuiet(operator, activity), 120_000);
    const verdicts = buyers.map(({ id, heard }) => ({ id, ...judge(heard), heard }));
    const complaints = verdicts.filter((one) => one.complaint !== undefined);
    expect(complaints.slice(0, 3)).toEqual([]);
    const told = new Map(verdicts.filter((one) => one.orderId !== undefined).map((one) => [one.orderId!, one.id]));
    const stored = await operator.database.database.query<{ order_id: string; buyer_id: string }>(
      `select order_id, buyer_id from orders where activity_id = $1 and state = 'placed'`,
      [activity.id],
    );
    expect(new Map(stored.map((row) => [row.order_id, row.buyer_id]))).toEqual(told);
    expect(stored.length).toBe(UNITS);
    expect(await books(operator.database, activity.id)).toMatchObject({ sold: UNITS, liveBuyers: UNITS });
    expect(await operator.wired.scripts.readLeft({ activityId: activity.id, segment: 0, run: activity.run })).toBe(0);
    // the faults really happened
    expect(proxy.count.lostReplies).toBeGreaterThan(0);
    expect(codes.get('in_doubt') ?? 0).toBeGreaterThan(0);
    expect(codes.get('replayed') ?? 0).toBeGreaterThan(0);
    console.log(`seed ${SEED}: ${JSON.stringify(Object.fromEntries(codes))}, ${proxy.count.lostReplies} replies lost`);
  });
});
