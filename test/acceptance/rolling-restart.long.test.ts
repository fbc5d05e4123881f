/**
 * The rolling restart: `sluice serve --workers 2` sells to a crowd while every one of its processes is replaced, again and
 * again until the crowd is through. Nobody gets another error than `busy` with `Retry-After`, or a connection that is
 * closed under a request, which the same key makes good; no order is lost, none is doubled, and the books are right.
 *
 * Size: buyers (short form 3,000; full size: 60000). At least one whole round of replacing happens, however few they are.
 */
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { Pool } from 'undici';
import { startServe, type ServeProcess } from '../main/serve-process.ts';
import { books, isQuiet, startSluice, tokenOf, until, type TestSluice } from '../support/sluice.ts';

const BUYERS = Number(process.env['SLUICE_TEST_SIZE'] ?? 3_000);
const AT_ONCE = 24;
/** More than anybody buys: a sold-out gate would hide a lost hold. */
const UNITS = 400_000;

type Heard = { readonly code: string; readonly orderId: string | undefined };

describe(`a crowd of ${BUYERS} while every process is replaced`, () => {
  let operator: TestSluice; // plans and preheats; sells nothing
  let server: ServeProcess;
  let pool: Pool;
  beforeAll(async () => {
    operator = await startSluice({ role: 'api' });
    server = startServe({
      args: ['--port', '0', '--workers', '2'],
      databaseUrl: operator.database.url,
      redisUrl: inject('redisUrl'),
      // what a busy machine does to the gate is not what this test is about
      settings: { SLUICE_KEY_PREFIX: operator.config.keyPrefix, SLUICE_GATE_TIMEOUT_MS: '10000' },
    });
    await server.untilServing();
    pool = new Pool(server.url(), { connections: AT_ONCE, pipelining: 1 });
  }, 120_000);
  afterAll(async () => {
    await pool?.close();
    server?.kill('SIGTERM');
    await server?.ended;
    await operator?.stop();
  });

  test('loses nothing and answers everybody', { timeout: 1_800_000 }, async () => {
    const activity = await operator.openActivity({ total: UNITS });
    await until('every process knows the activity', async () => {
      const address = `${server.url()}/api/v1/activities/${activity.id}`;
      const told = await Promise.all(
        Array.from({ length: 8 }, () => fetch(address, { headers: { connection: 'close' } })),
      );
      return told.every(({ status }) => status === 200);
    });

    const counts = { requests: 0, busy: 0, cut: 0, rounds: 0 };
    const errors: unknown[] = [];
    const path = `/api/v1/activities/${activity.id}/purchases`;
    /** Presses with one key until there is an answer: `busy` and a cut connection are tried again. */
    const insist = async (buyer: string, key: string): Promise<Heard> => {
      for (let tries = 0; tries < 100; tries++) {
        counts.requests += 1;
        try {
          const { statusCode, headers, body } = await pool.request({
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
          if (statusCode < 500) return { code: reply.code, orderId: reply.orderId };
          if (reply.code === 'busy' && headers['retry-after'] !== undefined) counts.busy += 1;
          else errors.push({ buyer, statusCode, ...reply });
        } catch (error) {
          // no answer: the outcome is unknown, and the same key finds it out
          if (!isCut(error)) errors.push(error);
          counts.cut += 1;
        }
        await new Promise((resolve) => setTimeout(resolve, 10 + tries * 10));
      }
      return { code: 'never', orderId: undefined };
    };

    const told = new Map<string, string>();
    const wrong: unknown[] = [];
    let next = 0;
    let roundUnderWay = true;
    const runner = async (): Promise<void> => {
      while (next < BUYERS || roundUnderWay) {
        const buyer = `buyer${next++}`;
        const first = await insist(buyer, `${buyer}-key-1`);
        // after a cut the first answer that is heard may be the repeat of one that was not
        if (!['held', 'replayed'].includes(first.code)) wrong.push({ buyer, first });
        told.set(buyer, first.orderId!);
        const again = await insist(buyer, next % 2 ? `${buyer}-key-1` : `${buyer}-key-2`);
        const expected = next % 2 ? 'replayed' : 'already_bought';
        if (again.orderId !== first.orderId) wrong.push({ buyer, first, again, expected });
      }
    };
    const replacer = async (): Promise<void> => {
      do {
        server.kill('SIGUSR2');
        counts.rounds += 1;
        await until('a round of replacing is over', () => replaced(server).length === counts.rounds, 300_000);
      } while (next < BUYERS);
      roundUnderWay = false;
    };
    await Promise.all([replacer(), ...Array.from({ length: AT_ONCE }, runner)]);

    console.log(JSON.stringify({ buyers: told.size, ...counts }));
    expect(errors.slice(0, 3)).toEqual([]);
    expect(wrong.slice(0, 3)).toEqual([]);
    expect(replaced(server).every((all) => all)).toBe(true);
    expect(['api-1', 'api-2', 'worker-1'].map((seat) => server.pidsOf(seat).length)).toEqual(
      Array.from({ length: 3 }, () => counts.rounds + 1),
    );
    expect(server.lines.filter((line) => line['alarm'] !== undefined)).toEqual([]);
    // each process asks its callers to move on before it closes: a cut is an accident, not the way
    expect(counts.cut).toBeLessThanOrEqual(counts.rounds * 2 * AT_ONCE * 0.1);

    await until('landed', () => isQuiet(operator, activity), 120_000);
    const stored = await operator.database.database.query<{ order_id: string; buyer_id: string }>(
      `select order_id, buyer_id from orders where activity_id = $1 and state = 'placed'`,
      [activity.id],
    );
    expect(new Map(stored.map((row) => [row.buyer_id, row.order_id]))).toEqual(told);
    expect(await books(operator.database, activity.id)).toMatchObject({
      sold: told.size,
      liveOrders: told.size,
      liveBuyers: told.size,
    });
    const left = await operator.wired.scripts.readLeft({ activityId: activity.id, segment: 0, run: activity.run });
    expect(left).toBe(UNITS - told.size);
  });
});

/** What each round of replacing ended with. */
const replaced = (server: ServeProcess): boolean[] =>
  server.lines.filter((line) => line.msg === 'replaced').map((line) => line['all'] === true);

/** A connection that was closed under a request; the request may or may not have been read. */
function isCut(error: unknown): boolean {
  const code = (error as { code?: string }).code;
  return code === 'ECONNRESET' || code === 'EPIPE' || code === 'UND_ERR_SOCKET';
}
