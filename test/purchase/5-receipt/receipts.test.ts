/** Where a receipt's state is read, and that it never says more than is stored. */
import { describe, expect, test } from 'vitest';
import { Fault } from '../../../src/domain/fault.ts';
import type { Activity } from '../../../src/domain/activity.ts';
import type { Mark, MarkStatus } from '../../../src/domain/mark.ts';
import type { Order, OrderState } from '../../../src/domain/order.ts';
import type { KnownOrder } from '../../../src/domain/receipt.ts';
import { ReceiptSigner } from '../../../src/purchase/5-receipt/receipt-signature.ts';
import { ReadBudget, Receipts } from '../../../src/purchase/5-receipt/receipts.ts';

const activity = { id: 'a', run: 1, segments: 1, shards: 1 } as Activity;
const facts = { activityId: 'a', run: 1, orderId: '7', buyerId: 'ann', quantity: 1 };
const mark = (status: MarkStatus, orderId = '7'): Mark => ({
  orderId,
  quantity: 1,
  run: 1,
  status,
  requestId: 'the-first-key',
});
const order = (state: OrderState, reason?: Order['reason']): KnownOrder => ({
  kind: 'order',
  order: { orderId: '7', activityId: 'a', buyerId: 'ann', run: 1, quantity: 1, state, reason } as Order,
});
const NOTHING: KnownOrder = { kind: 'nothing' };
const away = (code: 'redis_refused' | 'database_unavailable'): Fault => new Fault(code, 'ask', { retryable: true });

type World = { mark?: Mark | Fault | undefined; known?: KnownOrder | Fault; reads?: number };
function receiptsOf(world: World): { receipts: Receipts; asked: () => number } {
  let asked = 0;
  const sources = {
    activity: () => activity,
    readMark: async () => {
      if (world.mark instanceof Fault) throw world.mark;
      return world.mark;
    },
    findByOrderId: async () => {
      asked += 1;
      if (world.known instanceof Fault) throw world.known;
      return world.known ?? NOTHING;
    },
    latestOrder: async () => undefined,
  };
  const clock = { now: () => 0, monotonic: () => 0 };
  const budget = new ReadBudget(clock, world.reads ?? 10);
  return { receipts: new Receipts(sources, new ReceiptSigner(['x'.repeat(32)]), budget), asked: () => asked };
}
const standing = async (world: World): Promise<string> => {
  const view = await receiptsOf(world).receipts.read(facts);
  if ('kind' in view) return view.kind;
  const { state, delayed, reason } = view.standing;
  return [state, delayed === true ? 'delayed' : '', reason ?? '', view.order === undefined ? '' : '+order']
    .filter((part) => part !== '')
    .join(' ');
};

test.each<[told: string, by: string, world: World]>([
  // the mark alone, where it says that nothing has been decided
  ['queued', 'mark', { mark: mark('q'), known: order('placed') }],
  ['queued delayed', 'mark', { mark: mark('d') }],
  // else PostgreSQL, which may be ahead of the mark
  ['ordered +order', 'order', { mark: mark('o'), known: order('placed') }],
  ['given_back cancelled +order', 'order', { mark: mark('o'), known: order('cancelled', 'cancelled') }],
  ['paid +order', 'order', { mark: mark('o'), known: order('paid') }],
  ['paid +order', 'order', { mark: mark('p'), known: order('refund_due') }],
  ['given_back refunded +order', 'order', { known: order('refunded', 'refunded') }],
  ['given_back expired +order', 'order', { known: order('expired', 'expired') }],
  ['failed sold_out +order', 'order', { known: order('refused', 'sold_out') }],
  ['failed already_bought', 'give-back', { known: { kind: 'refused', reason: 'already_bought' } }],
  ['queued delayed', 'dead letter', { known: { kind: 'dead_letter' } }],
  // the mark is another purchase's, or gone, or Redis is away
  ['ordered +order', 'order', { mark: mark('q', '8'), known: order('placed') }],
  ['ordered +order', 'order', { mark: undefined, known: order('placed') }],
  ['ordered +order', 'order', { mark: away('redis_refused'), known: order('placed') }],
  ['queued', 'nothing', { mark: undefined }],
  ['queued', 'nothing', { mark: away('redis_refused') }],
  // PostgreSQL is away, or asked too often: the mark's word stands, since the order was committed before it
  ['ordered', 'mark', { mark: mark('o'), known: away('database_unavailable') }],
  ['given_back cancelled', 'mark', { mark: mark('C'), known: away('database_unavailable') }],
  ['failed lost', 'mark', { mark: mark('L'), known: NOTHING }],
  ['ordered', 'mark', { mark: mark('o'), known: order('placed'), reads: 0 }],
  ['too_many', 'nobody', { mark: undefined, known: order('placed'), reads: 0 }],
])('%s, by the %s', async (told, _by, world) => {
  expect(await standing(world)).toBe(told);
});

test('a receipt that is queued costs PostgreSQL nothing, however often it is asked for', async () => {
  const { receipts, asked } = receiptsOf({ mark: mark('q') });
  for (let i = 0; i < 1_000; i++) await receipts.read(facts);
  expect(asked()).toBe(0);
});

test('both away is a fault, not a state', async () => {
  const world = { mark: away('redis_refused'), known: away('database_unavailable') };
  await expect(receiptsOf(world).receipts.read(facts)).rejects.toThrow(Fault);
});

describe('the budget', () => {
  test('allows a second’s worth at once, then as much as time brings, and saves up no more', () => {
    let nowMs = 0;
    const budget = new ReadBudget({ now: () => nowMs, monotonic: () => nowMs }, 10);
    const taken = (): number => {
      let count = 0;
      while (budget.take()) count += 1;
      return count;
    };
    expect(taken()).toBe(10);
    nowMs = 300;
    expect(taken()).toBe(3);
    nowMs = 60_000;
    expect(taken()).toBe(10);
  });
});
