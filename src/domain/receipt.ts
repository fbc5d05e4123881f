/** Receipts: what the buyer keeps to ask again (contract "Receipts"). */
import { unreachable } from './fault.ts';
import type { MarkStatus } from './mark.ts';
import type { GiveBackReason, Order, OrderState } from './order.ts';

/** State of a receipt. */
export type ReceiptState = 'queued' | 'ordered' | 'paid' | 'given_back' | 'failed';

/** How a purchase stands. `delayed`: set aside after repeated failures, it will still end. */
export type Standing = {
  readonly state: ReceiptState;
  readonly delayed?: true;
  readonly reason?: GiveBackReason;
};

/** Standing by the mark at the gate. */
export function standingOfMark(status: MarkStatus): Standing {
  switch (status) {
    case 'q':
      return { state: 'queued' };
    case 'd':
      return { state: 'queued', delayed: true };
    case 'o':
      return { state: 'ordered' };
    case 'p':
      return { state: 'paid' };
    case 'C':
      return { state: 'given_back', reason: 'cancelled' };
    case 'E':
      return { state: 'given_back', reason: 'expired' };
    case 'R':
      return { state: 'given_back', reason: 'refunded' };
    case 'S':
      return { state: 'failed', reason: 'sold_out' };
    case 'A':
      return { state: 'failed', reason: 'already_bought' };
    case 'N':
      return { state: 'failed', reason: 'not_ordered' };
    case 'L':
      return { state: 'failed', reason: 'lost' };
    default:
      return unreachable(status);
  }
}

/** Standing by the order in PostgreSQL. */
export function standingOfOrder(state: OrderState, reason: GiveBackReason | undefined): Standing {
  const why = reason === undefined ? {} : { reason };
  switch (state) {
    case 'placed':
      return { state: 'ordered' };
    case 'paid':
    case 'refund_due':
      return { state: 'paid' };
    case 'cancelled':
    case 'expired':
    case 'refunded':
      return { state: 'given_back', ...why };
    case 'refused':
    case 'lost':
      return { state: 'failed', ...why };
    default:
      return unreachable(state);
  }
}

/** Nothing changes any more without the buyer doing something. */
export const isFinal = (standing: Standing): boolean => standing.state !== 'queued';

/** What PostgreSQL knows of an order id. `nothing`: not landed yet, or lost. */
export type KnownOrder =
  | { readonly kind: 'order'; readonly order: Order }
  | { readonly kind: 'refused'; readonly reason: GiveBackReason }
  | { readonly kind: 'dead_letter' }
  | { readonly kind: 'nothing' };
