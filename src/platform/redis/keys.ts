/**
 * The one place where Redis keys are built (article 3.1; docs/decisions/0002-key-shape.md).
 *
 * ```
 * sk:{T}:meta         hash    run, fence, state, version, window, limit, seq, moved, landed …   the only key without a run
 * sk:{T}:stock:r      string  units (strict: tickets) left; a plain decimal ≥ 0
 * sk:{T}:buyers:r:k   hash    guard field "#", buyer -> mark                                     k = shard of the buyer
 * sk:{T}:outbox:r     stream  one numbered entry per batch of holds
 * sk:{T}:lent:r       hash    open transfers out (segments)
 * sk:{a}:item         hash    name, price, currency, limit: the snapshot for page and door
 * ```
 *
 * `T` is activity and segment (`act1001.0`), one hash tag, so that a segment's keys share a slot and two segments do not:
 * the article's `sk:stock:{actId}:{segNo}` hashes the activity alone and spreads nothing. `r` is the run: all keys of a
 * run are made together, and a late command of an old run finds only old keys. A buyers key without its guard field was
 * evicted or deleted and made anew (P12).
 */

/** Names one segment of one run of one activity at the gate. */
export type SegmentAddress = { readonly activityId: string; readonly segment: number; readonly run: number };

/** Buyers in one shard, at most: deleting 10,000 fields takes 1.4 ms, a million 257 ms (docs/data.md). */
export const BUYERS_PER_SHARD_MAX = 10_000;

/** The guard field of a buyers key: without it the key was evicted or deleted and made anew (P12). */
export const GUARD_FIELD = '#';

/** Builds keys under one prefix (default `sk`). */
export function makeKeys(prefix: string) {
  const tag = (a: { activityId: string; segment: number }): string => `${prefix}:{${a.activityId}.${a.segment}}`;
  return {
    meta: (a: { activityId: string; segment: number }): string => `${tag(a)}:meta`,
    stock: (a: SegmentAddress): string => `${tag(a)}:stock:${a.run}`,
    buyers: (a: SegmentAddress, shard: number): string => `${tag(a)}:buyers:${a.run}:${shard}`,
    outbox: (a: SegmentAddress): string => `${tag(a)}:outbox:${a.run}`,
    lent: (a: SegmentAddress): string => `${tag(a)}:lent:${a.run}`,
    item: (activityId: string): string => `${prefix}:{${activityId}}:item`,
    /** the one channel of hints between processes */
    hints: (): string => `${prefix}:hints`,
  };
}

/** Builders of all keys. */
export type Keys = ReturnType<typeof makeKeys>;

/** FNV-1a over the UTF-16 units of an id: same buyer, same segment and shard, in every process and release. */
export function hashId(id: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < id.length; i++) {
    hash ^= id.charCodeAt(i);
    hash = Math.imul(hash, 0x01000193);
  }
  return hash >>> 0;
}

/** Shards that hold `buyers` marks without passing the bound, with room for marks of closed orders. */
export const shardCount = (buyers: number): number =>
  Math.max(1, Math.min(1024, Math.ceil((buyers * 1.25) / BUYERS_PER_SHARD_MAX)));

/** The segment that serves a buyer. */
export const segmentOf = (buyerId: string, segments: number): number =>
  segments === 1 ? 0 : hashId(buyerId) % segments;

/** The shard of a buyer's mark within his segment; other bits of the hash than the segment's. */
export const shardOf = (buyerId: string, shards: number): number =>
  shards === 1 ? 0 : (Math.imul(hashId(buyerId), 0x9e3779b1) >>> 8) % shards;
