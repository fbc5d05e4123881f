/**
 * A buyer's mark at the gate: what he took last, and how it stands. One string in the buyers hash:
 *
 * ```
 * 7310591234567890|1|3|q|9f1c-…        order id | quantity | run of the taking | status | request id
 * ```
 *
 * Lower-case statuses are *open* (the buyer holds units), upper-case ones *closed* (units given back, the mark stays to
 * answer repeats: P15). `hold.lua`, `give-back.lua` and `mark-landed.lua` read and write the same shape.
 */
import { assert } from './fault.ts';
import type { GiveBackReason } from './order.ts';

/** q queued, o ordered, d delayed (dead letter), p paid; closed: C cancelled, E expired, R refunded, S sold_out, A already_bought, N not_ordered, L lost. */
export type MarkStatus = 'q' | 'o' | 'd' | 'p' | 'C' | 'E' | 'R' | 'S' | 'A' | 'N' | 'L';

/** A parsed mark. */
export type Mark = {
  readonly orderId: string;
  readonly quantity: number;
  /** run of the taking */
  readonly run: number;
  readonly status: MarkStatus;
  readonly requestId: string;
};

const SHAPE = /^([1-9][0-9]{0,18})\|([1-9][0-9]{0,3})\|([1-9][0-9]*)\|([qodpCERSANL])\|(.{8,64})$/;

/** The closed status that carries a reason, and back. */
export const CLOSED_STATUS: Readonly<Record<GiveBackReason, MarkStatus>> = {
  cancelled: 'C',
  expired: 'E',
  refunded: 'R',
  sold_out: 'S',
  already_bought: 'A',
  not_ordered: 'N',
  lost: 'L',
};

/** Reads a mark; undefined where the text is none (the gate then answers `not_ready`). */
export function parseMark(text: string): Mark | undefined {
  const parts = SHAPE.exec(text);
  if (parts === null) return undefined;
  return {
    orderId: parts[1]!,
    quantity: Number(parts[2]),
    run: Number(parts[3]),
    status: parts[4] as MarkStatus,
    requestId: parts[5]!,
  };
}

/** Writes a mark. */
export function formatMark(mark: Mark): string {
  const text = `${mark.orderId}|${mark.quantity}|${mark.run}|${mark.status}|${mark.requestId}`;
  assert(SHAPE.test(text), 'a mark must be readable');
  return text;
}
