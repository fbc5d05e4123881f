/**
 * Receipts as strings: `r1.<base64url of what it names>.<base64url of its HMAC-SHA256>`.
 *
 * ```
 * r1 . a1|act1001|3|7310591234567890|ann|1 . signature
 *      key id, activity, run of the taking, order, buyer, quantity
 * ```
 *
 * Mark and order keep the run of the taking, so a receipt made again from either is the same string. A receipt is no
 * secret and no proof of identity: only its owner, named by his own token, may use it.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import { isId, isOrderId } from '../../domain/ids.ts';

/** What a receipt names. */
export type ReceiptFacts = {
  readonly activityId: string;
  /** run of the taking */
  readonly run: number;
  readonly orderId: string;
  readonly buyerId: string;
  readonly quantity: number;
};

/** Longest receipt (contract). */
export const RECEIPT_LENGTH_MAX = 400;

/** Signs with the first secret, reads with all of them, so that secrets can be rotated. */
export class ReceiptSigner {
  readonly #keys: readonly { readonly id: string; readonly secret: string }[];

  /** @param secrets newest first, at least one */
  constructor(secrets: readonly string[]) {
    // the key's id is derived, so that every process names it alike without being told
    this.#keys = secrets.map((secret) => ({
      id: createHash('sha256').update(`sluice receipt key ${secret}`).digest('base64url').slice(0, 6),
      secret,
    }));
  }

  sign(facts: ReceiptFacts): string {
    const key = this.#keys[0]!;
    const text = `${key.id}|${facts.activityId}|${facts.run}|${facts.orderId}|${facts.buyerId}|${facts.quantity}`;
    const payload = Buffer.from(text).toString('base64url');
    return `r1.${payload}.${mac(key.secret, payload).toString('base64url')}`;
  }

  /** Undefined for anything that we did not sign. */
  read(receipt: string): ReceiptFacts | undefined {
    if (receipt.length > RECEIPT_LENGTH_MAX) return undefined;
    const [version, payload, signature, ...more] = receipt.split('.');
    if (version !== 'r1' || payload === undefined || signature === undefined || more.length > 0) return undefined;
    const parts = Buffer.from(payload, 'base64url').toString().split('|');
    const [keyId, activityId, run, orderId, buyerId, quantity] = parts;
    const key = this.#keys.find((one) => one.id === keyId);
    if (key === undefined || parts.length !== 6) return undefined;
    const given = Buffer.from(signature, 'base64url');
    const right = mac(key.secret, payload);
    if (given.length !== right.length || !timingSafeEqual(given, right)) return undefined;
    // base64url has several spellings of one value; a receipt has one
    if (given.toString('base64url') !== signature) return undefined;
    if (!isId(activityId) || !isId(buyerId) || !isOrderId(orderId)) return undefined;
    return { activityId, run: Number(run), orderId, buyerId, quantity: Number(quantity) };
  }
}

const mac = (secret: string, payload: string): Buffer => createHmac('sha256', secret).update(payload).digest();
