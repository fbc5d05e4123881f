/**
 * The outbox as the landing reads it: one stream a segment and run, one numbered entry a batch of holds.
 *
 * ```
 * 1764600000123-0   n  42   1  7310591234567890,ann,9f1c-0001,1;7310591234567891,bob,77aa-0002,2
 *   Redis time      number    version of the payload: order id, buyer, request id, quantity; …
 * ```
 *
 * Read from the cursor in PostgreSQL, never by consumer groups (docs/decisions/0006-cursor-in-postgresql.md).
 */
import { isId, isOrderId, isRequestId, PER_BUYER_LIMIT_MAX } from '../../domain/ids.ts';
import type { Keys, SegmentAddress } from '../../platform/redis/keys.ts';
import type { RedisLink } from '../../platform/redis/link.ts';

/** A hold on its way to become an order. `heldAt` is Redis' time of the batch, epoch ms. */
export type OutboxHold = {
  readonly orderId: string;
  readonly buyerId: string;
  readonly requestId: string;
  readonly quantity: number;
  readonly heldAt: number;
};

/** One entry. `holds` is undefined where the entry came back empty or cannot be read: a loss (P17). */
export type OutboxEntry = {
  readonly id: string;
  readonly number: number | undefined;
  readonly holds: readonly OutboxHold[] | undefined;
};

/** Reads what a stream entry says. */
export function parseEntry(id: string, fields: readonly string[] | null): OutboxEntry {
  const heldAt = Number(id.slice(0, id.indexOf('-')));
  let number: number | undefined;
  let holds: OutboxHold[] | undefined;
  for (let i = 0; fields !== null && i + 1 < fields.length; i += 2) {
    if (fields[i] === 'n' && /^[1-9][0-9]{0,14}$/.test(fields[i + 1]!)) number = Number(fields[i + 1]);
    if (fields[i] === '1') holds = parseHolds(fields[i + 1]!, heldAt);
  }
  return { id, number, holds };
}

function parseHolds(payload: string, heldAt: number): OutboxHold[] | undefined {
  const holds: OutboxHold[] = [];
  for (const row of payload.split(';')) {
    const [orderId, buyerId, requestId, quantity, ...more] = row.split(',');
    const units = Number(quantity);
    if (!isOrderId(orderId) || !isId(buyerId) || !isRequestId(requestId) || more.length > 0) return undefined;
    if (!Number.isInteger(units) || units < 1 || units > PER_BUYER_LIMIT_MAX) return undefined;
    holds.push({ orderId, buyerId, requestId, quantity: units, heldAt });
  }
  return holds;
}

/** Reads and trims outboxes over one connection. Throws Fault `redis_refused` or `redis_unknown`. */
export function makeOutbox(redis: RedisLink, keys: Keys) {
  return {
    /** Up to `count` entries behind `cursor`, oldest first. */
    async read(segment: SegmentAddress, cursor: string, count: number): Promise<OutboxEntry[]> {
      const reply = await redis.command('XRANGE', keys.outbox(segment), `(${cursor}`, '+', 'COUNT', count);
      return (reply as [string, string[] | null][]).map(([id, fields]) => parseEntry(id, fields));
    },
    /** Up to `count` entries from `last` back (`(id`: before it), newest first. */
    async readBack(segment: SegmentAddress, last: string, count: number): Promise<OutboxEntry[]> {
      const reply = await redis.command('XREVRANGE', keys.outbox(segment), last, '-', 'COUNT', count);
      return (reply as [string, string[] | null][]).map(([id, fields]) => parseEntry(id, fields));
    },
    /** Drops landed entries before `minId`. */
    async trim(segment: SegmentAddress, minId: string): Promise<void> {
      await redis.command('XTRIM', keys.outbox(segment), 'MINID', minId);
    },
  };
}

/** The outbox's functions. */
export type Outbox = ReturnType<typeof makeOutbox>;
