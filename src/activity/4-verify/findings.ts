/** What verify finds: named once each, by id, never while it may still be on its way. */

/** Kinds of findings. */
export type FindingKind =
  /** the gate has taken units for an order id that no book knows */
  | 'taken_without_order'
  /** an order, or a dead letter, whose buyer has no open mark: he could buy again */
  | 'order_without_mark'
  /** the buyer's mark names another order */
  | 'mark_of_other_order'
  /** mark and order differ in their quantity */
  | 'quantity_differs'
  /** a mark that is none */
  | 'mark_unreadable'
  /** `sold` is not what the live orders say */
  | 'sold_differs'
  /** the stock of a segment is missing or no number */
  | 'stock_unreadable'
  /** another key of a segment is missing or of the wrong type */
  | 'gate_unreadable'
  /** entries between cursor and the gate's number are not in the outbox */
  | 'entries_missing'
  /** units that no other finding explains */
  | 'equation_gap';

/** One thing that is wrong. */
export type VerifyFinding = {
  readonly kind: FindingKind;
  /** order id, buyer id, segment or activity, whatever names it */
  readonly id: string;
  readonly buyerId?: string;
  readonly orderId?: string;
  readonly units?: number;
};

/** Findings that are told; more are counted only. */
export const FINDINGS_MAX = 1_000;

/** Gathers findings, each once, and the units that they explain. */
export class Findings {
  readonly #found = new Map<string, VerifyFinding>();
  /** beyond `FINDINGS_MAX` */
  #more = 0;
  /** units that are neither at the gate nor in the books, by findings that name them */
  #unitsExplained = 0;

  add(finding: VerifyFinding, unitsExplained = 0): void {
    const name = `${finding.kind} ${finding.id}`;
    if (this.#found.has(name)) return;
    this.#unitsExplained += unitsExplained;
    if (this.#found.size < FINDINGS_MAX) this.#found.set(name, finding);
    else this.#more += 1;
  }

  get unitsExplained(): number {
    return this.#unitsExplained;
  }

  get more(): number {
    return this.#more;
  }

  list(): VerifyFinding[] {
    return [...this.#found.values()];
  }
}
