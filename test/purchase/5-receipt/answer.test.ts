/** The table of answers by itself: status of every code, the wait of those that have one, the same bytes for everybody. */
import { describe, expect, test } from 'vitest';
import { PURCHASE_CODES } from '../../../src/domain/results.ts';
import { TITLES } from '../../../src/domain/text.ts';
import { replyTo, RETRY_AFTER, STATUS, type PurchaseAnswer } from '../../../src/purchase/5-receipt/answer.ts';

const bought = { receipt: 'r1.x.y', orderId: '7', quantity: 2 };
const ANSWERS: { readonly [C in PurchaseAnswer['code']]: readonly [status: number, answer: PurchaseAnswer] } = {
  held: [202, { code: 'held', ...bought, standing: { state: 'queued' } }],
  ordered: [201, { code: 'ordered', ...bought }],
  replayed: [200, { code: 'replayed', ...bought, standing: { state: 'given_back', reason: 'cancelled' } }],
  already_bought: [409, { code: 'already_bought', receipt: 'r1.x.y', orderId: '7' }],
  sold_out: [409, { code: 'sold_out' }],
  not_open: [409, { code: 'not_open', opensAt: 1_796_126_400_000 }],
  paused: [409, { code: 'paused' }],
  ended: [410, { code: 'ended' }],
  busy: [503, { code: 'busy' }],
  not_ready: [503, { code: 'not_ready' }],
  in_doubt: [503, { code: 'in_doubt' }],
  invalid: [400, { code: 'invalid' }],
  unauthenticated: [401, { code: 'unauthenticated', reason: 'expired' }],
  unknown_activity: [404, { code: 'unknown_activity' }],
  key_reused: [422, { code: 'key_reused' }],
};
const table = Object.entries(ANSWERS) as [PurchaseAnswer['code'], (typeof ANSWERS)['held']][];
const read = (answer: PurchaseAnswer, language?: string, fraction = 0): Record<string, unknown> =>
  JSON.parse(String(replyTo(answer, language, fraction).body)) as Record<string, unknown>;

test.each(table)('%s', (code, [status, answer]) => {
  const reply = replyTo(answer, undefined, 0.5);
  expect(reply.status).toBe(status);
  expect(STATUS[code]).toBe(status);
  expect(read(answer)['code']).toBe(code);
  const isProblem = status >= 400;
  expect(reply.contentType).toContain(isProblem ? 'application/problem+json' : 'application/json');
  if (isProblem) {
    expect(read(answer)).toMatchObject({ status, title: TITLES[code as 'busy']['zh-CN'] });
    expect(read(answer, 'en')['title']).toBe(TITLES[code as 'busy'].en);
  }
});

test('codes that are not answered yet are named here, so that none is forgotten', () => {
  expect(PURCHASE_CODES.filter((code) => !(code in ANSWERS))).toEqual([
    'blocked',
    'limited',
    'ticket_required',
    'ticket_invalid',
  ]);
});

describe('the wait', () => {
  test.each(['busy', 'not_ready', 'in_doubt'] as const)('of %s is in whole seconds and enough, and spread', (code) => {
    const waits = Array.from({ length: 200 }, (_, i) => {
      const reply = replyTo({ code }, 'en', i / 200);
      const { retryAfterMs } = JSON.parse(String(reply.body)) as { retryAfterMs: number };
      expect(reply.headers['retry-after']).toBe(String(Math.ceil(retryAfterMs / 1_000)));
      expect(reply.headers['retry-after']).toMatch(/^[1-9]$/);
      return retryAfterMs;
    });
    const { leastMs, spreadMs } = RETRY_AFTER[code];
    expect(Math.min(...waits)).toBe(leastMs);
    expect(Math.max(...waits)).toBe(leastMs + spreadMs);
    expect(new Set(waits).size).toBeGreaterThanOrEqual(8);
  });

  test('of nothing else is named: waiting would not help', () => {
    for (const [code, [, answer]] of table) {
      expect('retry-after' in replyTo(answer, 'en', 0).headers).toBe(code in RETRY_AFTER);
    }
  });
});

test('a loser costs no serialisation: the same bytes for everybody of one language', () => {
  for (const code of ['sold_out', 'paused', 'ended', 'unknown_activity', 'key_reused', 'busy'] as const) {
    const body = replyTo({ code }, 'en', 0).body;
    expect(Buffer.isBuffer(body)).toBe(true);
    expect(replyTo({ code }, 'en-GB', 0).body).toBe(body);
    expect(replyTo({ code }, 'zh', 0).body).not.toBe(body);
  }
});

test('what the gate finds invalid is the quantity', () => {
  expect(read({ code: 'invalid' })).toMatchObject({ field: 'quantity', detail: expect.stringContaining('quantity') });
});
