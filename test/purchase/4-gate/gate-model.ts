/**
 * The gate as a few lines of plain code: the oracle of the property test. It knows nothing of Redis, batches or scripts;
 * it decides one purchase after another, in the contract's order of answers, and gives back one order at a time.
 *
 * Written from docs/results.md and the design, not from the script: where the two differ, one of them is wrong.
 */
import type { Mark, MarkStatus } from '../../../src/domain/mark.ts';
import type { GateCode } from '../../../src/domain/results.ts';

/** Where the clock stands in the window. */
export type Phase = 'before' | 'during' | 'after';

/** One purchase, with the order id it gets if it is held. `quantity` as it arrives. */
export type Purchase = {
  readonly buyerId: string;
  readonly requestId: string;
  readonly orderId: string;
  readonly quantity: unknown;
};

/** An answer, with the mark that is told. */
export type Answer = { readonly code: GateCode; readonly mark?: Mark };

/** One outbox entry: its number and the holds of one batch. */
export type Entry = { readonly number: number; readonly holds: readonly Purchase[] };

const QUANTITY_MAX = 9_999;

/** A segment of a run, healthy and on its server. */
export class GateModel {
  readonly #run: number;
  readonly marks = new Map<string, Mark>();
  readonly entries: Entry[] = [];
  left: number;
  landed = 0;
  /** give-backs that came through */
  moved = 0;
  version: number;
  state: 'open' | 'paused' | 'ended' = 'open';
  phase: Phase = 'during';
  limit: number;

  constructor(start: { run: number; units: number; limit: number; version: number }) {
    this.#run = start.run;
    this.left = start.units;
    this.limit = start.limit;
    this.version = start.version;
  }

  /** Decides a batch, in order. */
  hold(batch: readonly Purchase[]): Answer[] {
    const holds: Purchase[] = [];
    const answers = batch.map((purchase) => {
      const answer = this.#decide(purchase);
      if (answer.code === 'held') holds.push(purchase);
      return answer;
    });
    if (holds.length > 0) this.entries.push({ number: this.entries.length + 1, holds });
    return answers;
  }

  #decide({ buyerId, requestId, orderId, quantity }: Purchase): Answer {
    if (!isQuantity(quantity)) return { code: 'invalid' };
    const mark = this.marks.get(buyerId);
    if (mark?.requestId === requestId) {
      return mark.quantity === quantity ? { code: 'replayed', mark } : { code: 'key_reused' };
    }
    if (mark !== undefined && isOpen(mark)) return { code: 'already_bought', mark };
    if (this.phase === 'before') return { code: 'not_open' };
    if (this.state === 'paused') return { code: 'paused' };
    if (this.state === 'ended' || this.phase === 'after') return { code: 'ended' };
    if (quantity > this.limit) return { code: 'invalid' };
    if (quantity > this.left) return { code: 'sold_out' };
    this.left -= quantity;
    this.marks.set(buyerId, { orderId, quantity, run: this.#run, status: 'q', requestId });
    return { code: 'held' };
  }

  /** Gives an order's units back, once. */
  giveBack(run: number, order: { buyerId: string; orderId: string; units: number; closedStatus: MarkStatus }) {
    if (run !== this.#run) return 'not_now';
    const mark = this.marks.get(order.buyerId);
    if (mark?.orderId !== order.orderId || !isOpen(mark)) return 'nothing';
    this.marks.set(order.buyerId, { ...mark, status: order.closedStatus });
    this.left += order.units;
    this.moved += 1;
    return 'done';
  }

  /** Hears how holds of an entry landed. */
  land(run: number, entry: number, holds: readonly { buyerId: string; orderId: string; status: 'o' | 'd' }[]): void {
    if (run !== this.#run) return;
    for (const { buyerId, orderId, status } of holds) {
      const mark = this.marks.get(buyerId);
      const waits = mark?.status === 'q' || mark?.status === 'd';
      if (mark?.orderId === orderId && waits) this.marks.set(buyerId, { ...mark, status });
    }
    this.landed = Math.max(this.landed, entry);
  }

  /** Learns a version of the activity's rules. */
  change(run: number, rules: { version: number; state: GateModel['state']; phase: Phase; limit: number }) {
    if (run !== this.#run) return 'other_run';
    if (rules.version <= this.version) return 'older';
    Object.assign(this, rules);
    return 'done';
  }
}

/** Whether the buyer holds units by this mark. */
export const isOpen = (mark: Mark): boolean => 'qodp'.includes(mark.status);

function isQuantity(quantity: unknown): quantity is number {
  return Number.isInteger(quantity) && (quantity as number) >= 1 && (quantity as number) <= QUANTITY_MAX;
}
