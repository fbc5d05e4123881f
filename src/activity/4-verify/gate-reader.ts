/**
 * What stands at the gate, read without changing or stopping it: state and counters of a segment together with its stock,
 * and marks in small batches. A key that is missing or of the wrong type is said to be so, never read as empty.
 */
import { GUARD_FIELD, shardOf, type Keys, type SegmentAddress } from '../../platform/redis/keys.ts';
import type { RedisLink } from '../../platform/redis/link.ts';

/** A segment of a run, with its number of buyer shards and those among them that cannot be read. */
export type VerifiedSegment = SegmentAddress & { readonly shards: number; readonly unreadable: ReadonlySet<number> };

/** Whether a buyer's mark can be read. */
export const isReadable = (at: VerifiedSegment, buyerId: string): boolean =>
  !at.unreadable.has(shardOf(buyerId, at.shards));

/** A segment at one instant: `left` belongs to `seq` and `moved`. */
export type SegmentReading =
  /** no `meta`, or none that can be read, or of another run */
  | { readonly kind: 'missing' }
  | {
      readonly kind: 'read';
      readonly state: string;
      readonly version: number;
      /** number of the last outbox entry */
      readonly seq: number;
      /** give-backs applied so far */
      readonly moved: number;
      /** units left; undefined where the stock is missing or no plain decimal */
      readonly left: number | undefined;
      readonly outboxIsThere: boolean;
    }
  /** it changed during every try: ask again */
  | { readonly kind: 'restless' };

/** Tries to catch a segment between two changes. */
const TRIES_MAX = 30;
/** Fields of one HMGET: each blocks Redis for some microseconds. */
const FIELDS_PER_CALL = 250;
/** What HSCAN looks at in one call. */
const SCAN_COUNT = 250;
const DECIMAL = /^(0|[1-9][0-9]{0,14})$/;
const STOCK = /^(0|[1-9][0-9]{0,9})$/;

/** Makes the reader over one connection. All throw Fault `redis_refused` or `redis_unknown`. */
export function makeGateReader(redis: RedisLink, keys: Keys) {
  const meta = async (at: SegmentAddress): Promise<(string | null)[]> =>
    (await redis.command('HMGET', keys.meta(at), 'run', 'state', 'version', 'seq', 'moved')) as (string | null)[];

  async function readOnce(at: SegmentAddress): Promise<SegmentReading> {
    // One bundle, so nearly always no other client comes between; that none did is checked: every change of the stock
    // moves `seq` or `moved` in the same script.
    const [metaType, stockType, outboxType, before, stock, after] = await Promise.allSettled([
      redis.command('TYPE', keys.meta(at)),
      redis.command('TYPE', keys.stock(at)),
      redis.command('TYPE', keys.outbox(at)),
      meta(at),
      redis.command('GET', keys.stock(at)),
      meta(at),
    ]);
    if (valueOf(metaType) !== 'hash') return { kind: 'missing' };
    const [run, state, version, seq, moved] = valueOf(before);
    const again = valueOf(after);
    if (run !== String(at.run) || typeof state !== 'string') return { kind: 'missing' };
    if (![version, seq, moved].every((value) => typeof value === 'string' && DECIMAL.test(value))) {
      return { kind: 'missing' };
    }
    if ([run, state, version, seq, moved].some((value, i) => value !== again[i])) return { kind: 'restless' };
    const text = valueOf(stockType) === 'string' ? valueOf(stock) : undefined;
    return {
      kind: 'read',
      state,
      version: Number(version),
      seq: Number(seq),
      moved: Number(moved),
      left: typeof text === 'string' && STOCK.test(text) ? Number(text) : undefined,
      outboxIsThere: valueOf(outboxType) === 'stream',
    };
  }

  return {
    /** State, counters and stock of a segment, as they stood together at one instant. */
    async readSegment(at: SegmentAddress): Promise<SegmentReading> {
      for (let tries = 0; tries < TRIES_MAX; tries++) {
        const reading = await readOnce(at);
        if (reading.kind !== 'restless') return reading;
      }
      return { kind: 'restless' };
    },

    /** Whether a shard of marks can be read. */
    async shardIsThere(at: SegmentAddress, shard: number): Promise<boolean> {
      const key = keys.buyers(at, shard);
      if ((await redis.command('TYPE', key)) !== 'hash') return false;
      return (await redis.command('HGET', key, GUARD_FIELD)) !== null;
    },

    /** The next few marks of a shard; the guard field is left out, and a mark may come twice. `next` '0': that was all. */
    async scanMarks(
      at: SegmentAddress,
      shard: number,
      cursor: string,
    ): Promise<{ next: string; marks: [buyerId: string, mark: string][] }> {
      const key = keys.buyers(at, shard);
      const [next, flat] = (await redis.command('HSCAN', key, cursor, 'COUNT', SCAN_COUNT)) as [string, string[]];
      const marks: [string, string][] = [];
      for (let i = 0; i + 1 < flat.length; i += 2) {
        if (flat[i] !== GUARD_FIELD) marks.push([flat[i]!, flat[i + 1]!]);
      }
      return { next, marks };
    },

    /** Marks of some buyers; who has none, or whose shard cannot be read, is not in the map. */
    async readMarks(at: VerifiedSegment, buyerIds: readonly string[]): Promise<Map<string, string>> {
      const byShard = new Map<number, string[]>();
      for (const buyerId of buyerIds) {
        if (!isReadable(at, buyerId)) continue;
        const shard = shardOf(buyerId, at.shards);
        const others = byShard.get(shard);
        if (others === undefined) byShard.set(shard, [buyerId]);
        else others.push(buyerId);
      }
      const found = new Map<string, string>();
      for (const [shard, buyers] of byShard) {
        for (let from = 0; from < buyers.length; from += FIELDS_PER_CALL) {
          const some = buyers.slice(from, from + FIELDS_PER_CALL);
          const key = keys.buyers(at, shard);
          const marks = (await redis.command('HMGET', key, ...some)) as (string | null)[];
          marks.forEach((mark, i) => mark !== null && found.set(some[i]!, mark));
        }
      }
      return found;
    },
  };
}

/** The gate's reader. */
export type GateReader = ReturnType<typeof makeGateReader>;

function valueOf<T>(settled: PromiseSettledResult<T>): T {
  if (settled.status === 'rejected') throw settled.reason as Error;
  return settled.value;
}
