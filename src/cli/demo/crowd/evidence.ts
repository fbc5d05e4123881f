/**
 * What one buyer of the crowd heard, press by press: the first of the demo's three witnesses.
 *
 * ```
 * a line of an evidence file, one a buyer:
 * ["b17", [[kind, key, quantity, sentAt, gotAt, status, code, orderId, receipt, told quantity, state, flags], …], end]
 * ```
 *
 * Instants are epoch milliseconds by the host's clock, the same for every process of the demo. Receipts are kept as their
 * last characters: they end in the signature, so two receipts that end alike are alike.
 */

/** What a press was meant to be. */
export type PressKind = 'good' | 'wrong_token' | 'bad_body' | 'unknown_activity';

/** One press and its answer. */
export type Heard = {
  readonly kind: PressKind;
  readonly key: string;
  readonly quantity: number;
  readonly sentAt: number;
  readonly gotAt: number;
  /** 0 where no answer came: the connection broke or the deadline passed */
  readonly status: number;
  /** the answer's `code`; empty where no answer came */
  readonly code: string;
  readonly orderId: string | undefined;
  readonly receiptEnd: string | undefined;
  readonly toldQuantity: number | undefined;
  /** the receipt's state as the answer told it */
  readonly state: string | undefined;
  /** the answer said when to come back, in the body and in `Retry-After` */
  readonly saysWhen: boolean;
  /** `Idempotent-Replayed: true` */
  readonly saysReplayed: boolean;
};

/** How a receipt stood when the buyer asked for the last time. */
export type ToldEnd = {
  readonly orderId: string;
  /** empty where no answer came */
  readonly state: string;
  readonly reason: string | undefined;
  readonly delayed: boolean;
  /** whether the buyer's list of orders had it; undefined where he did not look */
  readonly listed: boolean | undefined;
};

/** Everything one buyer heard. */
export type BuyerEvidence = {
  readonly buyerId: string;
  /** in the order of the answers */
  readonly heard: readonly Heard[];
  readonly ends: readonly ToldEnd[];
};

/** How much of a receipt's end is kept: 72 bits of its signature. */
export const RECEIPT_END_LENGTH = 12;

const SAYS_WHEN = 1;
const SAYS_REPLAYED = 2;

/** One line of an evidence file, without its end of line. */
export function evidenceLine({ buyerId, heard, ends }: BuyerEvidence): string {
  const presses = heard.map((one) => [
    one.kind,
    one.key,
    one.quantity,
    one.sentAt,
    one.gotAt,
    one.status,
    one.code,
    one.orderId ?? null,
    one.receiptEnd ?? null,
    one.toldQuantity ?? null,
    one.state ?? null,
    (one.saysWhen ? SAYS_WHEN : 0) | (one.saysReplayed ? SAYS_REPLAYED : 0),
  ]);
  return JSON.stringify([buyerId, presses, ends]);
}

type Press = [
  PressKind,
  string,
  number,
  number,
  number,
  number,
  string,
  string | null,
  string | null,
  number | null,
  string | null,
  number,
];

/** Reads a line of an evidence file. */
export function readEvidence(line: string): BuyerEvidence {
  const [buyerId, presses, ends] = JSON.parse(line) as [string, Press[], ToldEnd[]];
  const heard = presses.map(
    ([kind, key, quantity, sentAt, gotAt, status, code, orderId, receiptEnd, toldQuantity, state, flags]): Heard => ({
      kind,
      key,
      quantity,
      sentAt,
      gotAt,
      status,
      code,
      orderId: orderId ?? undefined,
      receiptEnd: receiptEnd ?? undefined,
      toldQuantity: toldQuantity ?? undefined,
      state: state ?? undefined,
      saysWhen: (flags & SAYS_WHEN) !== 0,
      saysReplayed: (flags & SAYS_REPLAYED) !== 0,
    }),
  );
  return { buyerId, heard, ends };
}
