/**
 * Anything at all, over sockets, to `sluice serve` in a process of its own: methods, paths, headers, bodies, framing and
 * bytes by fast-check, many at a time, from strangers, buyers and operators. Whatever comes in, there is no 5xx but a
 * deliberate 503, every error is a problem document, the process lives and has nothing to complain of, and nothing has
 * changed: no row, no key, no series of metrics.
 *
 * The activities asked about sell nothing (paused, not open, ended, sold out, in review, settled), so that a request may be
 * right in every part and still change nothing; that they would sell, were it not for this, is tested last.
 *
 * Size: conversations (short form 1,000; full size: 100000). Seed: SLUICE_TEST_SEED, else at random; a failure says it.
 */
import { randomInt } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { systemClock } from '../../src/platform/clock.ts';
import { TITLES } from '../../src/domain/text.ts';
import { conversationsAbout, type Sent, type Targets } from '../api/any-request.ts';
import { readReply, talk } from '../api/raw-http.ts';
import { comeToRest, stateOf } from '../api/state-of.ts';
import { operatorToken } from '../console/operator.ts';
import { inSituation } from '../console/situations.ts';
import { startServe, type Ended, type ServeProcess } from '../main/serve-process.ts';
import { buy, startSluice, TEST_OPERATOR_SECRET, tokenOf, type TestSluice } from '../support/sluice.ts';
import { scrape } from '../watch/exposition.ts';

const SIZE = Number(process.env['SLUICE_TEST_SIZE'] ?? 1_000);
const SEED = Number(process.env['SLUICE_TEST_SEED'] ?? randomInt(1, 2 ** 31));
/** conversations under way at once */
const AT_ONCE = 24;
const DAY_MS = 86_400_000;
/** Codes of a 503 that was meant. */
const DELIBERATE = ['busy', 'not_ready', 'in_doubt'];

let operator: TestSluice; // plans; sells nothing
let server: ServeProcess;
let ended: Ended | undefined;
let targets: Targets;

beforeAll(async () => {
  operator = await startSluice({ role: 'api' });
  server = startServe({
    databaseUrl: operator.database.url,
    redisUrl: inject('redisUrl'),
    settings: {
      SLUICE_KEY_PREFIX: operator.config.keyPrefix,
      SLUICE_OPERATOR_SECRET: TEST_OPERATOR_SECRET,
      SLUICE_DEV_IDENTITY: 'true',
      SLUICE_EVENT_STREAMS_MAX: '5',
    },
  });
  void server.ended.then((how) => (ended = how));
  const now = systemClock.now();
  const endsAt = now + 2 * DAY_MS;
  const paused = await operator.openActivity({ perBuyerLimit: 5, endsAt });
  const over = await operator.openActivity({ endsAt });
  const soldOut = await operator.openActivity({ total: 1, endsAt });
  const notOpen = await operator.openActivity({ opensAt: now + DAY_MS, endsAt });
  await operator.wired.activities.change(paused.id, 'pause', 'test');
  await operator.wired.activities.change(over.id, 'end', 'test');
  const inReview = await inSituation(operator, 'in review');
  const settled = await inSituation(operator, 'settled');
  await server.untilServing();
  const { receipt, orderId } = (await buy(server.url(), soldOut.id, 'winner', { key: 'a-good-key' })).body;
  targets = {
    activities: { paused: paused.id, notOpen: notOpen.id, ended: over.id, soldOut: soldOut.id, inReview, settled },
    orderId: String(orderId),
    receipt: String(receipt),
    loser: `Bearer ${tokenOf('loser')}`,
    winner: `Bearer ${tokenOf('winner')}`,
    viewer: `Bearer ${operatorToken('viewer')}`,
    approver: `Bearer ${operatorToken('approver')}`,
  };
  await comeToRest(operator, soldOut.id);
}, 120_000);
afterAll(async () => {
  server?.kill('SIGTERM');
  await server?.ended;
  await operator?.stop();
});

/** The series of ours, by name and labels. */
const series = async (): Promise<string[]> =>
  (await scrape(server.url()))
    .filter(({ name }) => name.startsWith('sluice_'))
    .map(({ key }) => key)
    .toSorted();

/** Holds one conversation and judges what came back; returns the code that was heard, or the status. */
async function converse(sent: Sent): Promise<string | undefined> {
  const reply = readReply(await talk(server.url(), sent.bytes, sent.ending));
  const about = (): string =>
    `seed ${SEED}: ${sent.bytes.toString('latin1').slice(0, 2_000)}\n--- ${reply?.status} ${reply?.text}`;
  if (reply === undefined) {
    expect(sent.isAnswered, about()).toBe(false);
    return undefined;
  }
  const { status, body, text } = reply;
  const code = String(body['code'] ?? status);
  if (status < 400) {
    expect(status, about()).toBe(200);
    return code;
  }
  expect(status < 500 || (status === 503 && DELIBERATE.includes(code)), about()).toBe(true);
  expect(reply.headers['content-type'], about()).toBe('application/problem+json; charset=utf-8');
  // a HEAD that does not parse is no HEAD, and what was mutated may have become one
  if (text === '') {
    expect(sent.isHead || !sent.isAnswered, about()).toBe(true);
    return code;
  }
  expect(Object.keys(TITLES), about()).toContain(code);
  expect(body, about()).toMatchObject({ code, title: expect.any(String), status });
  if (code === 'invalid') expect(body, about()).toMatchObject({ field: expect.any(String) });
  return code;
}

test(
  `${SIZE} conversations, seed ${SEED}: nothing breaks and nothing changes`,
  { timeout: 60_000 + SIZE * 50 },
  async () => {
    const before = await stateOf(operator);
    const seriesBefore = await series();
    const codes = new Map<string, number>();
    await fc.assert(
      fc.asyncProperty(
        fc.array(conversationsAbout(targets), { minLength: AT_ONCE, maxLength: AT_ONCE, size: 'max' }),
        async (batch) => {
          for (const code of await Promise.all(batch.map(converse))) {
            const name = code ?? 'no answer';
            codes.set(name, (codes.get(name) ?? 0) + 1);
          }
          expect(ended, `seed ${SEED}: it ended; ${server.complaints()}`).toBeUndefined();
        },
      ),
      // a batch is not made smaller: the same one again is met by a server that has heard it before
      { seed: SEED, numRuns: Math.ceil(SIZE / AT_ONCE), endOnFailure: true },
    );
    console.log(JSON.stringify({ seed: SEED, ...Object.fromEntries([...codes].toSorted(([, a], [, b]) => b - a)) }));
    expect(await stateOf(operator)).toEqual(before);
    expect(await series()).toEqual(seriesBefore);
    expect(server.lines.filter(({ level, alarm }) => Number(level) >= 50 || alarm !== undefined)).toEqual([]);
    expect(server.complaints()).toBe('');
    // it went through the door and not only against it
    const common = [
      ...['paused', 'not_open', 'ended', 'invalid', 'unauthenticated', 'unknown_activity', 'unknown_receipt'],
      ...['method_not_allowed', 'not_found', 'not_json', 'body_too_large', 'headers_too_large', '200', 'no answer'],
    ];
    const rare = ['sold_out', 'already_bought', 'replayed', 'unknown_order', 'forbidden', 'wrong_state', 'old_version'];
    for (const code of [...common, ...(SIZE < 20_000 ? [] : rare)]) {
      expect(codes.get(code) ?? 0, `seed ${SEED}: ${code}`).toBeGreaterThan(0);
    }
    expect((await fetch(`${server.url()}/livez`)).status).toBe(200);
    expect((await fetch(`${server.url()}/readyz`)).status).toBe(200);
  },
);

test('and the requests were such as buy where there is something to be had', async () => {
  const { paused } = targets.activities;
  await operator.wired.activities.change(paused, 'resume', 'test');
  expect((await buy(server.url(), paused, 'loser', { key: 'a-good-key' })).code).toBe('held');
});
