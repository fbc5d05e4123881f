/** Evidence as tests write it: a press in one line, with what does not matter filled in. */
import type { BookedOrder, SaleFacts } from '../../../src/cli/demo/auditor.ts';
import type { BuyerEvidence, Heard, ToldEnd } from '../../../src/cli/demo/crowd/evidence.ts';

/** The sale of these tests opens at 1,000, ends at 9,000 (asked) to 9,100 (answered). */
export const SALE: SaleFacts = {
  opensAt: 1_000,
  endAskedAt: 9_000,
  endToldAt: 9_100,
  skewMs: 10,
  answerWhen: 'held',
  perBuyerLimit: 1,
  stockOnlyFalls: true,
};

const STATUS: Readonly<Record<string, number>> = {
  held: 202,
  ordered: 201,
  replayed: 200,
  already_bought: 409,
  sold_out: 409,
  not_open: 409,
  paused: 409,
  ended: 410,
  busy: 503,
  not_ready: 503,
  in_doubt: 503,
  limited: 429,
  invalid: 400,
  unauthenticated: 401,
  unknown_activity: 404,
  key_reused: 422,
  blocked: 403,
  '': 0,
};
const WITH_ORDER = new Set(['held', 'ordered', 'replayed', 'already_bought']);
const WITH_WAIT = new Set(['busy', 'not_ready', 'in_doubt', 'limited']);

/** A press with key `key-<n>`, answered `code` about order `orderId` (11 where one is told), from `at` on for 5 ms. */
export function press(
  n: number,
  code: string,
  at: number,
  more: Partial<Heard> & { readonly tookMs?: number } = {},
): Heard {
  const { tookMs = 5, ...rest } = more;
  const told = WITH_ORDER.has(code);
  const orderId = rest.orderId ?? (told ? '11' : undefined);
  return {
    kind: 'good',
    key: `key-${n}`,
    quantity: 1,
    sentAt: at,
    gotAt: at + tookMs,
    status: STATUS[code] ?? 200,
    code,
    receiptEnd: told ? `end-of-${orderId}` : undefined,
    toldQuantity: told && code !== 'already_bought' ? 1 : undefined,
    state: code === 'held' ? 'queued' : told && code !== 'already_bought' ? 'ordered' : undefined,
    saysWhen: WITH_WAIT.has(code),
    saysReplayed: code === 'replayed',
    ...rest,
    orderId,
  };
}

/** What `ann` heard. */
export const heardBy = (heard: readonly Heard[], ends: readonly ToldEnd[] = [], buyerId = 'ann'): BuyerEvidence => ({
  buyerId,
  heard,
  ends,
});

/** Order 11 of ann by key-1, unless said otherwise. */
export const order = (more: Partial<BookedOrder> = {}): BookedOrder => ({
  orderId: '11',
  buyerId: 'ann',
  requestId: 'key-1',
  quantity: 1,
  state: 'placed',
  reason: undefined,
  ...more,
});

/** How a receipt stood in the end. */
export const end = (state: string, more: Partial<ToldEnd> = {}): ToldEnd => ({
  orderId: '11',
  state,
  reason: state === 'failed' || state === 'given_back' ? 'sold_out' : undefined,
  delayed: false,
  listed: undefined,
  ...more,
});
