/** Orders: what PostgreSQL stores, and why one ends (contract "Orders"). */

/** States of an order; live are `placed` and `paid`. */
export const ORDER_STATES = [
  'placed',
  'paid',
  'refund_due',
  'refunded',
  'cancelled',
  'expired',
  'refused',
  'lost',
] as const;
/** State of an order. `lost` is never shown: it closes a receipt whose hold was lost with a Redis tail. */
export type OrderState = (typeof ORDER_STATES)[number];

/** Why units came back, or why a receipt failed; the reasons a buyer is told. */
export const GIVE_BACK_REASONS = [
  'cancelled',
  'expired',
  'refunded',
  'sold_out',
  'already_bought',
  'not_ordered',
  'lost',
] as const;
/** Reason of a give-back. */
export type GiveBackReason = (typeof GIVE_BACK_REASONS)[number];

/** An order as its owner sees it; money in minor units, times in epoch milliseconds. */
export type Order = {
  readonly orderId: string;
  readonly activityId: string;
  readonly buyerId: string;
  readonly requestId: string;
  readonly run: number;
  readonly quantity: number;
  readonly state: OrderState;
  readonly reason: GiveBackReason | undefined;
  readonly itemName: string;
  readonly priceMinor: number;
  readonly currency: string;
  readonly placedAt: number;
  readonly closedAt: number | undefined;
};
