/** The auditor, as tables: every kind of wrong answer is found, once and under its name; right ones are left alone. */
import { describe, expect, test } from 'vitest';
import { judge, type BookedOrder, type SaleFacts } from '../../../src/cli/demo/auditor.ts';
import type { Heard, ToldEnd } from '../../../src/cli/demo/crowd/evidence.ts';
import { end, heardBy, order, press, SALE } from './evidence-made.ts';

type Case = {
  readonly heard: readonly Heard[];
  readonly ends?: readonly ToldEnd[];
  readonly orders?: readonly BookedOrder[];
  readonly sale?: Partial<SaleFacts>;
};
const judged = ({ heard, ends = [], orders = [], sale = {} }: Case) =>
  judge(
    heardBy(heard, ends),
    orders,
    (id) => (id === '99' ? 'bob' : orders.find(({ orderId }) => orderId === id)?.buyerId),
    { ...SALE, ...sale },
  );

const won = [order()];
const STRICT = { answerWhen: 'ordered', stockOnlyFalls: false } as const;
const refused = (more: Partial<BookedOrder> = {}) => order({ state: 'refused', reason: 'sold_out', ...more });

describe('right answers are left alone', () => {
  test.each<[string, Case]>([
    ['a yes', { heard: [press(1, 'held', 2_000)], orders: won, ends: [end('ordered', { listed: true })] }],
    ['a yes after the landing', { heard: [press(1, 'ordered', 2_000)], orders: won, sale: STRICT }],
    ['a no', { heard: [press(1, 'sold_out', 2_000)] }],
    [
      'too early, then in time with the same key',
      { heard: [press(1, 'not_open', 500), press(1, 'held', 1_000)], orders: won },
    ],
    ['too early by the buyer, in time by the gate', { heard: [press(1, 'held', 985, { tookMs: 20 })], orders: won }],
    ['on the way while it opens', { heard: [press(1, 'not_open', 1_005)] }],
    ['too late', { heard: [press(1, 'ended', 9_200)] }],
    ['on the way while it ends', { heard: [press(1, 'ended', 9_050)] }],
    ['sold out on the way while it ends', { heard: [press(1, 'sold_out', 9_050)] }],
    ['sold out from memory just after the end', { heard: [press(1, 'sold_out', 10_000)] }],
    [
      'not now, then a yes',
      { heard: [press(1, 'busy', 1_500), press(1, 'not_ready', 1_600), press(1, 'held', 2_000)], orders: won },
    ],
    ['too often, then a no', { heard: [press(1, 'limited', 1_500), press(1, 'sold_out', 2_000)] }],
    [
      'in doubt, then the first answer again',
      { heard: [press(1, 'in_doubt', 1_500), press(1, 'replayed', 2_000)], orders: won },
    ],
    [
      'no answer, then the first answer again',
      { heard: [press(1, '', 1_500), press(1, 'replayed', 2_000)], orders: won },
    ],
    [
      'no answer, then the other key hears of it',
      {
        heard: [press(1, '', 1_500), press(2, 'already_bought', 2_000), press(1, 'replayed', 2_100)],
        orders: won,
      },
    ],
    ['a double click', { heard: [press(1, 'held', 2_000), press(2, 'already_bought', 2_001)], orders: won }],
    [
      'a double click, the answers crossing',
      {
        heard: [press(1, 'held', 2_000, { tookMs: 50 }), press(2, 'already_bought', 2_001)],
        orders: won,
      },
    ],
    [
      'one key twice at once',
      { heard: [press(1, 'replayed', 2_000), press(1, 'held', 2_000, { tookMs: 50 })], orders: won },
    ],
    [
      'the same again after sell-out and after the end',
      {
        heard: [
          press(1, 'held', 2_000),
          press(1, 'replayed', 5_000),
          press(1, 'replayed', 9_500),
          press(2, 'already_bought', 9_600),
        ],
        orders: won,
      },
    ],
    [
      'queued, then stored',
      {
        heard: [press(1, 'held', 2_000), press(1, 'replayed', 2_100, { state: 'queued' }), press(1, 'replayed', 2_200)],
        orders: won,
      },
    ],
    ['no token', { heard: [press(1, 'unauthenticated', 2_000, { kind: 'wrong_token' })] }],
    [
      'no token, but what is the same for everybody',
      {
        heard: [
          press(1, 'not_open', 500, { kind: 'wrong_token' }),
          press(1, 'sold_out', 5_000, { kind: 'wrong_token' }),
          press(1, 'ended', 9_500, { kind: 'wrong_token' }),
        ],
      },
    ],
    ['nonsense', { heard: [press(1, 'invalid', 2_000, { kind: 'bad_body' }), press(1, 'sold_out', 2_100)] }],
    [
      'nonsense to a busy server',
      { heard: [press(1, 'busy', 2_000, { kind: 'bad_body' }), press(1, 'sold_out', 2_100)] },
    ],
    ['an activity that there is not', { heard: [press(1, 'unknown_activity', 2_000, { kind: 'unknown_activity' })] }],
    [
      'strict: refused by PostgreSQL at once',
      { heard: [press(1, 'sold_out', 2_000)], orders: [refused()], sale: STRICT },
    ],
    [
      'strict: a yes that PostgreSQL took back, and the buyer was told',
      {
        heard: [press(1, 'held', 2_000)],
        orders: [refused()],
        ends: [end('failed')],
        sale: STRICT,
      },
    ],
    [
      'strict: the other key heard of the first one while it waited',
      {
        heard: [press(1, 'sold_out', 2_000, { tookMs: 90 }), press(2, 'already_bought', 2_010)],
        orders: [refused()],
        ends: [end('failed')],
        sale: STRICT,
      },
    ],
    [
      'strict: a ticket comes back, and a refused buyer wins',
      {
        heard: [press(1, 'sold_out', 2_000), press(2, 'ordered', 3_000)],
        orders: [order({ requestId: 'key-2' })],
        sale: STRICT,
      },
    ],
  ])('%s', (_, one) => {
    expect(judged(one)).toMatchObject({ wrong: [], lost: false, duplicate: false });
  });
});

describe('wrong answers are found, once', () => {
  test.each<[string, Case, string]>([
    ['a code of its own', { heard: [press(1, 'maybe', 2_000)] }, '"maybe" is no answer'],
    ['a page of HTML', { heard: [press(1, 'not JSON', 2_000, { status: 502 })] }, '"not JSON" is no answer'],
    [
      'a status that is another code’s',
      { heard: [press(1, 'sold_out', 2_000, { status: 410 })] },
      'sold_out with status 410',
    ],
    [
      'not now, but not when',
      { heard: [press(1, 'busy', 2_000, { saysWhen: false }), press(1, 'sold_out', 2_100)] },
      'when to come back',
    ],
    ['a good request is called invalid', { heard: [press(1, 'invalid', 2_000)] }, 'invalid to a good request'],
    ['a good token is refused', { heard: [press(1, 'unauthenticated', 2_000)] }, 'unauthenticated to a good request'],
    ['our activity is unknown', { heard: [press(1, 'unknown_activity', 2_000)] }, 'unknown_activity to a good request'],
    ['paused, which nobody did', { heard: [press(1, 'paused', 2_000)] }, 'which this sale does not have'],
    ['nonsense is sold', { heard: [press(1, 'held', 2_000, { kind: 'bad_body' })] }, 'held to a request that is none'],
    ['nobody buys', { heard: [press(1, 'held', 2_000, { kind: 'wrong_token' })] }, 'held to somebody who is nobody'],
    [
      'nobody hears of an order',
      { heard: [press(1, 'replayed', 2_000, { kind: 'wrong_token' })] },
      'somebody who is nobody',
    ],
    [
      'sold out of what there is not',
      { heard: [press(1, 'sold_out', 2_000, { kind: 'unknown_activity' })] },
      'that there is not',
    ],
    ['a yes before the opening', { heard: [press(1, 'held', 900)], orders: won }, 'held before the opening'],
    ['a no before the opening', { heard: [press(1, 'sold_out', 900)] }, 'sold_out before the opening'],
    ['not open after the opening', { heard: [press(1, 'not_open', 1_100)] }, 'not_open after the opening'],
    ['ended before the end', { heard: [press(1, 'ended', 8_000)] }, 'ended before the end'],
    ['a yes after the end', { heard: [press(1, 'held', 9_200)], orders: won }, 'held after the end'],
    ['sold out long after the end', { heard: [press(1, 'sold_out', 11_500)] }, 'sold_out after the end'],
    ['ordered where nobody waits', { heard: [press(1, 'ordered', 2_000)], orders: won }, 'does not promise'],
    [
      'a yes without a receipt',
      { heard: [press(1, 'held', 2_000, { receiptEnd: undefined })], orders: won },
      'without order or receipt',
    ],
    [
      'already bought without a receipt',
      {
        heard: [press(1, 'held', 2_000), press(2, 'already_bought', 2_100, { receiptEnd: undefined })],
        orders: won,
      },
      'without order or receipt',
    ],
    [
      'a repeat that does not say so',
      {
        heard: [press(1, 'held', 2_000), press(1, 'replayed', 2_100, { saysReplayed: false })],
        orders: won,
      },
      'without Idempotent-Replayed',
    ],
    ['another quantity', { heard: [press(1, 'held', 2_000, { toldQuantity: 2 })], orders: won }, 'held of 2 for 1'],
    [
      'another quantity in the books',
      { heard: [press(1, 'held', 2_000)], orders: [order({ quantity: 2 })], sale: { perBuyerLimit: 2 } },
      '1 asked, 2 stored',
    ],
    [
      'somebody else’s order',
      {
        heard: [press(1, 'held', 2_000), press(1, 'replayed', 2_100, { orderId: '99' })],
        orders: won,
      },
      'which is bob’s',
    ],
    [
      'an order that is stored nowhere',
      {
        heard: [press(1, 'held', 2_000), press(1, 'replayed', 2_100, { orderId: '12' })],
        orders: won,
      },
      'stored nowhere',
    ],
    ['an order of another key', { heard: [press(2, 'held', 2_000)], orders: won }, 'is of key key-1'],
    [
      'already bought, by this very key',
      {
        heard: [press(1, 'held', 2_000), press(2, 'already_bought', 2_100), press(1, 'already_bought', 2_200)],
        orders: won,
      },
      'is of key key-1',
    ],
    [
      'another receipt',
      {
        heard: [press(1, 'held', 2_000), press(1, 'replayed', 2_100, { receiptEnd: 'another end' })],
        orders: won,
      },
      'another receipt',
    ],
    [
      'a second yes for the same order',
      { heard: [press(1, 'held', 2_000), press(1, 'held', 2_100)], orders: won },
      'for the second time',
    ],
    [
      'a winner hears sold out',
      { heard: [press(1, 'held', 2_000), press(1, 'sold_out', 2_100)], orders: won },
      'somebody who has an order',
    ],
    [
      'a winner hears sold out, by another key, at once',
      {
        heard: [press(1, 'held', 2_000), press(2, 'sold_out', 2_001)],
        orders: won,
      },
      'somebody who has an order',
    ],
    [
      'a winner hears ended',
      { heard: [press(1, 'held', 2_000), press(1, 'ended', 9_500)], orders: won },
      'somebody who has an order',
    ],
    [
      'strict: a winner is forgotten',
      {
        heard: [press(1, 'ordered', 2_000), press(1, 'sold_out', 2_100)],
        orders: won,
        sale: STRICT,
      },
      'sold_out where replayed was due',
    ],
    [
      'strict: a winner’s second key is refused otherwise',
      {
        heard: [press(1, 'ordered', 2_000), press(2, 'sold_out', 2_100)],
        orders: won,
        sale: STRICT,
      },
      'sold_out where already_bought was due',
    ],
    ['a repeat of nothing', { heard: [press(1, 'replayed', 2_000)], orders: won }, 'never sent before'],
    [
      'already bought without another request',
      { heard: [press(2, 'already_bought', 2_000)], orders: won },
      'no other request',
    ],
    [
      'a key that was used once is called used twice',
      { heard: [press(1, 'sold_out', 2_000), press(1, 'key_reused', 2_100)] },
      'one quantity only',
    ],
    [
      'stored, then queued',
      {
        heard: [press(1, 'held', 2_000), press(1, 'replayed', 2_100), press(1, 'replayed', 2_200, { state: 'queued' })],
        orders: won,
      },
      'queued, after the order had been stored',
    ],
    ['left in doubt', { heard: [press(1, 'in_doubt', 2_000)] }, 'left with in_doubt'],
    ['left without an answer', { heard: [press(1, '', 2_000)] }, 'left with no answer'],
    [
      'an order that nobody was told of',
      { heard: [press(1, 'sold_out', 2_000)], orders: won, sale: STRICT },
      'never told of',
    ],
    [
      'a receipt that says failed of a stored order',
      {
        heard: [press(1, 'held', 2_000)],
        orders: won,
        ends: [end('failed')],
      },
      'its receipt says "failed"',
    ],
    [
      'a receipt that never becomes ordered',
      { heard: [press(1, 'held', 2_000)], orders: won, ends: [end('queued')] },
      'its receipt says "queued"',
    ],
    [
      'a list without the order',
      {
        heard: [press(1, 'held', 2_000)],
        orders: won,
        ends: [end('ordered', { listed: false })],
      },
      'missing in the buyer’s list',
    ],
  ])('%s', (_, one, why) => {
    const { wrong } = judged(one);
    expect(wrong.map((found) => found.why.replaceAll("'", '’'))).toEqual([expect.stringContaining(why)]);
  });
});

describe('what is not a wrong answer but worse', () => {
  test('lost: told yes, stored nowhere, and never told otherwise; who spoke of the order is not blamed', () => {
    const heard = [press(1, 'held', 2_000), press(1, 'replayed', 3_000), press(2, 'already_bought', 9_500)];
    expect(judged({ heard, ends: [end('ordered')] })).toMatchObject({ accepted: true, lost: true, wrong: [] });
  });
  test('lost: a yes that PostgreSQL refused and nobody told', () => {
    const one = { heard: [press(1, 'held', 2_000)], orders: [refused()], ends: [end('queued')] };
    expect(judged(one)).toMatchObject({ lost: true, wrong: [] });
  });
  test('lost: an end without a reason is no end', () => {
    const one = { heard: [press(1, 'held', 2_000)], orders: [refused()], ends: [end('failed', { reason: undefined })] };
    expect(judged(one)).toMatchObject({ lost: true });
  });
  test('lost, and lied to besides: told of two orders, and neither is stored', () => {
    const heard = [press(1, 'held', 2_000), press(1, 'replayed', 3_000, { orderId: '12' })];
    const { lost, wrong } = judged({ heard });
    expect(lost).toBe(true);
    expect(wrong.map(({ why }) => why)).toEqual(['told of order 12 after another one']);
  });
  test('not lost: a told end', () => {
    const one = { heard: [press(1, 'held', 2_000)], orders: [refused()], ends: [end('failed')] };
    expect(judged(one)).toMatchObject({ accepted: true, lost: false, believesInAnOrder: false });
  });
  test('duplicate: two live orders; the two yeses are not wrong besides', () => {
    const heard = [
      press(1, 'held', 2_000),
      press(2, 'held', 3_000, { orderId: '12' }),
      press(1, 'already_bought', 4_000, { orderId: '12' }),
    ];
    const orders = [order(), order({ orderId: '12', requestId: 'key-2' })];
    expect(judged({ heard, orders })).toMatchObject({ duplicate: true, lost: false, wrong: [] });
  });
  test('duplicate: more units than the limit', () => {
    const heard = [press(1, 'held', 2_000, { quantity: 2, toldQuantity: 2 })];
    expect(judged({ heard, orders: [order({ quantity: 2 })] })).toMatchObject({ duplicate: true, wrong: [] });
  });
  test('accepted: told yes, or of an order whose answer did not come; not by the word of a second key alone', () => {
    expect(judged({ heard: [press(1, 'held', 2_000)], orders: won })).toMatchObject({
      accepted: true,
      acceptedAt: 2_005,
    });
    const repeated = { heard: [press(1, '', 2_000), press(1, 'replayed', 2_500)], orders: won };
    expect(judged(repeated)).toMatchObject({ accepted: true, acceptedAt: 2_505 });
    const second = {
      heard: [press(1, 'sold_out', 2_000, { tookMs: 90 }), press(2, 'already_bought', 2_010)],
      orders: [refused()],
      sale: STRICT,
    };
    expect(judged(second)).toMatchObject({ accepted: false, acceptedAt: undefined });
  });
});
