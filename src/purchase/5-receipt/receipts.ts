/**
 * How a purchase stands, asked later: from the buyer's mark at the gate, from PostgreSQL where the mark or Redis is gone
 * or where the mark may be behind, at a bounded rate (contract "Receipts").
 *
 * It never says more than is stored: `ordered` only with the order row committed before the mark said so.
 */
import { standingOfMark, standingOfOrder, type KnownOrder, type Standing } from '../../domain/receipt.ts';
import { Fault } from '../../domain/fault.ts';
import type { Activity } from '../../domain/activity.ts';
import type { Mark } from '../../domain/mark.ts';
import type { Order } from '../../domain/order.ts';
import type { Clock } from '../../platform/clock.ts';
import { segmentOf } from '../../platform/redis/keys.ts';
import type { ReceiptFacts, ReceiptSigner } from './receipt-signature.ts';

/** What a buyer is told of his receipt. */
export type ReceiptView = {
  readonly receipt: string;
  readonly orderId: string;
  readonly activityId: string;
  readonly quantity: number;
  readonly standing: Standing;
  /** the order as stored, where it was read */
  readonly order?: Order;
};

/** Where receipts are read from. */
export type ReceiptSources = {
  readonly activity: (id: string) => Activity | undefined;
  readonly readMark: (
    segment: { activityId: string; segment: number; run: number; shards: number },
    buyerId: string,
  ) => Promise<Mark | undefined>;
  readonly findByOrderId: (orderId: string, buyerId: string) => Promise<KnownOrder>;
  readonly latestOrder: (activityId: string, buyerId: string) => Promise<Order | undefined>;
};

/** The read was refused to protect PostgreSQL: ask again later. */
export type TooMany = { readonly kind: 'too_many' };

/** A bound on reads: `perSecond` on average, a second's worth at once. */
export class ReadBudget {
  readonly #clock: Clock;
  readonly #perSecond: number;
  #left: number;
  #at: number;

  constructor(clock: Clock, perSecond: number) {
    this.#clock = clock;
    this.#perSecond = perSecond;
    this.#left = perSecond;
    this.#at = clock.monotonic();
  }

  /** Takes one read from the budget; false when it is used up. */
  take(): boolean {
    const now = this.#clock.monotonic();
    this.#left = Math.min(this.#perSecond, this.#left + ((now - this.#at) * this.#perSecond) / 1000);
    this.#at = now;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}

/** Answers for receipts. */
export class Receipts {
  readonly #sources: ReceiptSources;
  readonly #signer: ReceiptSigner;
  readonly #budget: ReadBudget;

  constructor(sources: ReceiptSources, signer: ReceiptSigner, budget: ReadBudget) {
    this.#sources = sources;
    this.#signer = signer;
    this.#budget = budget;
  }

  /** The receipt of a mark: the same string each time it is made. */
  ofMark(activityId: string, buyerId: string, mark: Mark): string {
    return this.#signer.sign({
      activityId,
      run: mark.run,
      orderId: mark.orderId,
      buyerId,
      quantity: mark.quantity,
    });
  }

  /** What a receipt names, if it is ours and this buyer's. */
  facts(receipt: string, buyerId: string): ReceiptFacts | undefined {
    const facts = this.#signer.read(receipt);
    return facts?.buyerId === buyerId ? facts : undefined;
  }

  /** How a receipt stands now. Throws faults of PostgreSQL where it had to be asked. */
  async read(facts: ReceiptFacts): Promise<ReceiptView | TooMany> {
    const mark = await this.#mark(facts.activityId, facts.buyerId);
    const view = (standing: Standing, order?: Order): ReceiptView => ({
      receipt: this.#signer.sign(facts),
      orderId: facts.orderId,
      activityId: facts.activityId,
      quantity: facts.quantity,
      standing,
      ...(order === undefined ? {} : { order }),
    });
    const byMark = mark?.orderId === facts.orderId ? standingOfMark(mark.status) : undefined;
    // A mark that is still queued is the present truth; a final one is shown with the order as stored.
    if (byMark?.state === 'queued') return view(byMark);
    if (!this.#budget.take()) return byMark === undefined ? { kind: 'too_many' } : view(byMark);
    let known: KnownOrder;
    try {
      known = await this.#sources.findByOrderId(facts.orderId, facts.buyerId);
    } catch (error) {
      if (byMark !== undefined && error instanceof Fault) return view(byMark);
      throw error;
    }
    switch (known.kind) {
      case 'order':
        return view(standingOfOrder(known.order.state, known.order.reason), known.order);
      case 'refused':
        return view({ state: 'failed', reason: known.reason });
      case 'dead_letter':
        return view({ state: 'queued', delayed: true });
      case 'nothing':
        return view(byMark ?? { state: 'queued' });
    }
  }

  /** A buyer's latest purchase of an activity: by the mark, else by PostgreSQL. */
  async latest(activityId: string, buyerId: string): Promise<ReceiptView | TooMany | undefined> {
    const mark = await this.#mark(activityId, buyerId);
    if (mark !== undefined) {
      return this.read({ activityId, buyerId, orderId: mark.orderId, run: mark.run, quantity: mark.quantity });
    }
    if (!this.#budget.take()) return { kind: 'too_many' };
    const order = await this.#sources.latestOrder(activityId, buyerId);
    if (order === undefined) return undefined;
    return this.read({ activityId, buyerId, orderId: order.orderId, run: order.run, quantity: order.quantity });
  }

  async #mark(activityId: string, buyerId: string): Promise<Mark | undefined> {
    const activity = this.#sources.activity(activityId);
    if (activity === undefined || activity.run === 0) return undefined;
    try {
      return await this.#sources.readMark(
        {
          activityId,
          segment: segmentOf(buyerId, activity.segments),
          run: activity.run,
          shards: activity.shards,
        },
        buyerId,
      );
    } catch (error) {
      if (error instanceof Fault) return undefined; // Redis is away: PostgreSQL knows what has landed
      throw error;
    }
  }
}
