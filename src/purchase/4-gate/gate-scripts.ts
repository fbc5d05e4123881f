/**
 * The gate's scripts as functions: the one way by which anything reads or changes stock, marks and outbox in Redis.
 * Other stages get these functions through `main/wire.ts`. Replies are checked here; what is done with them is not.
 */
import { readFileSync } from 'node:fs';
import { assert } from '../../domain/fault.ts';
import { formatMark, parseMark, type Mark } from '../../domain/mark.ts';
import { shardOf, type Keys, type SegmentAddress } from '../../platform/redis/keys.ts';
import type { RedisLink, Script } from '../../platform/redis/link.ts';

const script = (name: string): Script => ({
  name,
  text: readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), 'utf8'),
});
const HOLD = script('hold');
const PREHEAT = script('preheat');
const CHANGE = script('gate-change');
const GIVE_BACK = script('give-back');
const MARK_LANDED = script('mark-landed');
const REMOVE = script('remove');
const RETIRE = script('retire');
const SHUT = script('shut');

/** A segment of a run, with its number of buyer shards. */
export type Segment = SegmentAddress & { readonly shards: number };

/** One purchase of a batch, with the order id it gets if it is held. */
export type Candidate = {
  readonly buyerId: string;
  readonly orderId: string;
  readonly requestId: string;
  readonly quantity: number;
};

/** What `hold.lua` said. Codes are those of `GATE_CODES`; times in epoch ms of Redis. */
export type HoldReply =
  | {
      readonly kind: 'decided';
      readonly redisNow: number;
      readonly left: number;
      readonly opensAt: number;
      readonly codes: readonly number[];
      readonly marks: readonly string[];
    }
  | { readonly kind: 'not_ready'; readonly reason: string };

/** What a preheat writes, or expects to read. */
export type PreheatValues = {
  readonly version: number;
  readonly opensAt: number;
  readonly endsAt: number;
  readonly perBuyerLimit: number;
  readonly units: number;
  readonly expiresAt: number;
};

/** What stands at the gate, as text, so that a wrong type shows; absent values are ''. */
export type PreheatReading = {
  readonly kind: 'written' | 'read' | 'missing';
  /** replication id on which the run was made */
  readonly fence: string;
  /** replication id of the server that answers */
  readonly server: string;
  readonly run: string;
  readonly state: string;
  readonly version: string;
  readonly opensAt: string;
  readonly endsAt: string;
  readonly perBuyerLimit: string;
  readonly stock: string;
  readonly outboxEntries: string;
  readonly guards: string;
  readonly lowestExpiry: string;
};

/** State, window and limit at a version. */
export type GateChange = {
  readonly version: number;
  readonly state: 'open' | 'paused' | 'ended' | 'shut';
  readonly opensAt: number;
  readonly endsAt: number;
  readonly perBuyerLimit: number;
  readonly expiresAt: number;
};

/** A landed hold, for its mark. */
export type LandedHold = { readonly buyerId: string; readonly orderId: string; readonly status: 'o' | 'd' };

/** Holds of one `mark-landed` call: the script blocks Redis, so it stays short. */
const MARKS_PER_CALL = 256;

/** Keys that are removed by one command. */
const KEYS_AT_ONCE = 4;

/** Makes the functions over one connection. All throw Fault `redis_refused` (nothing ran) or `redis_unknown`. */
export function makeGateScripts(redis: RedisLink, keys: Keys) {
  const allShards = (segment: Segment): string[] =>
    Array.from({ length: segment.shards }, (_, shard) => keys.buyers(segment, shard));

  /** Gathers the shard keys that some buyers touch, each once, behind `first` keys. */
  function shardKeys(segment: Segment, first: string[]) {
    const indexes = new Map<number, number>();
    return {
      keys: first,
      indexOf(buyerId: string): number {
        const shard = shardOf(buyerId, segment.shards);
        let index = indexes.get(shard);
        if (index === undefined) {
          index = first.push(keys.buyers(segment, shard));
          indexes.set(shard, index);
        }
        return index;
      },
    };
  }

  return {
    /** Decides a batch of purchases of one segment (`hold.lua`). `notAfter` is epoch ms in Redis time. */
    async hold(segment: Segment, batch: readonly Candidate[], notAfter: number): Promise<HoldReply> {
      const touched = shardKeys(segment, [keys.meta(segment), keys.stock(segment), keys.outbox(segment)]);
      let presses = '';
      for (const one of batch) {
        // the script judges quantities itself; one that would break the text is made one that it refuses
        const quantity = Number.isInteger(one.quantity) ? one.quantity : String(one.quantity).replaceAll(/[,;]/g, '?');
        presses += `${one.orderId},${one.buyerId},${one.requestId},${quantity},${touched.indexOf(one.buyerId)};`;
      }
      const reply = (await redis.run(HOLD, touched.keys, [segment.run, notAfter, presses])) as [number, ...unknown[]];
      if (reply[0] === 0) return { kind: 'not_ready', reason: String(reply[1]) };
      const [, redisNow, left, codes, marks, opensAt] = reply as [number, number, number, number[], string[], number];
      assert(codes.length === batch.length, 'hold.lua answers each purchase of its batch');
      return { kind: 'decided', redisNow, left, codes, marks, opensAt };
    },

    /** Makes the keys of a run, or compares them with what they should be (`preheat.lua`). */
    async preheat(
      segment: Segment,
      mode: 'write' | 'compare',
      values: PreheatValues,
    ): Promise<PreheatReading | { readonly kind: 'refused'; readonly reason: string }> {
      const reply = (await redis.run(
        PREHEAT,
        [keys.meta(segment), keys.stock(segment), keys.outbox(segment), keys.lent(segment), ...allShards(segment)],
        [
          mode,
          segment.run,
          values.version,
          values.opensAt,
          values.endsAt,
          values.perBuyerLimit,
          values.units,
          values.expiresAt,
        ],
      )) as string[];
      const [kind, fence, run, state, version, opensAt, endsAt, perBuyerLimit, stock, outboxEntries, guards, expiry] =
        reply;
      if (kind === 'refused') return { kind, reason: String(fence) };
      assert(kind === 'written' || kind === 'read' || kind === 'missing', 'preheat.lua names its outcome');
      return {
        kind,
        fence: fence!,
        server: reply[12]!,
        run: run!,
        state: state!,
        version: version!,
        opensAt: opensAt!,
        endsAt: endsAt!,
        perBuyerLimit: perBuyerLimit!,
        stock: stock!,
        outboxEntries: outboxEntries!,
        guards: guards!,
        lowestExpiry: expiry!,
      };
    },

    /** Brings a segment to a version of the activity (`gate-change.lua`). */
    async change(
      segment: Segment,
      change: GateChange,
    ): Promise<'done' | 'older' | 'other_run' | 'missing' | 'role' | 'past'> {
      const all = [
        keys.meta(segment),
        keys.stock(segment),
        keys.outbox(segment),
        keys.lent(segment),
        ...allShards(segment),
      ];
      const reply = await redis.run(CHANGE, all, [
        segment.run,
        change.version,
        change.state,
        change.opensAt,
        change.endsAt,
        change.perBuyerLimit,
        change.expiresAt,
      ]);
      return reply as 'done' | 'older' | 'other_run' | 'missing' | 'role' | 'past';
    },

    /** Returns an order's units once and closes its mark (`give-back.lua`). `not_now`: ask again later. */
    async giveBack(
      segment: Segment,
      order: { buyerId: string; orderId: string; units: number; closedStatus: string; liveMark: Mark | undefined },
    ): Promise<'done' | 'nothing' | 'not_now'> {
      const reply = await redis.run(
        GIVE_BACK,
        [keys.meta(segment), keys.stock(segment), keys.buyers(segment, shardOf(order.buyerId, segment.shards))],
        [
          segment.run,
          order.buyerId,
          order.orderId,
          order.units,
          order.closedStatus,
          order.liveMark === undefined ? '' : formatMark(order.liveMark),
        ],
      );
      return reply === 1 ? 'done' : reply === 0 ? 'nothing' : 'not_now';
    },

    /** Writes how holds landed into their marks (`mark-landed.lua`); repeats change nothing. */
    async markLanded(segment: Segment, entry: number, holds: readonly LandedHold[]): Promise<void> {
      // an empty list still moves `landed`
      for (let from = 0; from === 0 || from < holds.length; from += MARKS_PER_CALL) {
        const touched = shardKeys(segment, [keys.meta(segment)]);
        const args: (string | number)[] = [segment.run, from + MARKS_PER_CALL >= holds.length ? entry : 0];
        for (const hold of holds.slice(from, from + MARKS_PER_CALL)) {
          args.push(hold.buyerId, hold.orderId, hold.status, touched.indexOf(hold.buyerId));
        }
        await redis.run(MARK_LANDED, touched.keys, args);
      }
    },

    /** Shuts a segment until a rebuild (`shut.lua`); false where the gate is of another run. */
    async shut(segment: SegmentAddress): Promise<boolean> {
      return (await redis.run(SHUT, [keys.meta(segment)], [segment.run])) === 1;
    },

    /** Removes keys of one slot (`remove.lua`). Returns how many were there. */
    async removeKeys(slotKeys: readonly string[]): Promise<number> {
      return Number(await redis.run(REMOVE, [...slotKeys], []));
    },

    /**
     * Every key of a run, a few that share a slot in each list; `meta` only with `isPresent`, since an earlier run's is the
     * present one's too.
     */
    keysOf({ isPresent, ...run }: Omit<Segment, 'segment'> & { segments: number; isPresent: boolean }): string[][] {
      const lists: string[][] = [];
      for (let segment = 0; segment < run.segments; segment++) {
        const at = { ...run, segment };
        const all = [keys.stock(at), keys.lent(at), keys.outbox(at), ...allShards(at)];
        if (isPresent) all.push(keys.meta(at)); // last: without it the rest is not found again by the gate's scripts
        for (let from = 0; from < all.length; from += KEYS_AT_ONCE) lists.push(all.slice(from, from + KEYS_AT_ONCE));
      }
      if (isPresent) lists.push([keys.item(run.activityId)]);
      return lists;
    },

    /** Closes a run that was taken back for good (`retire.lua`); false where units were taken under it. */
    async retire(segment: SegmentAddress, nextRun: number): Promise<boolean> {
      return (await redis.run(RETIRE, [keys.meta(segment)], [segment.run, nextRun])) === 1;
    },

    /** A buyer's mark in a run; undefined where there is none that can be read. */
    async readMark(segment: Segment, buyerId: string): Promise<Mark | undefined> {
      const key = keys.buyers(segment, shardOf(buyerId, segment.shards));
      const text = await redis.command('HGET', key, buyerId);
      return typeof text === 'string' ? parseMark(text) : undefined;
    },

    /** Units left at a segment, as the gate holds them; undefined where missing or unreadable. */
    async readLeft(segment: SegmentAddress): Promise<number | undefined> {
      const text = await redis.command('GET', keys.stock(segment));
      return typeof text === 'string' && /^(0|[1-9][0-9]{0,9})$/.test(text) ? Number(text) : undefined;
    },

    /** Number of the last entry that the gate wrote into a segment's outbox; undefined where `meta` is of another run. */
    async readSeq(segment: SegmentAddress): Promise<number | undefined> {
      const [run, seq] = (await redis.command('HMGET', keys.meta(segment), 'run', 'seq')) as (string | null)[];
      return run === String(segment.run) && typeof seq === 'string' ? Number(seq) : undefined;
    },

    /** Number of the last entry whose marks have been told; undefined where `meta` is of another run. */
    async readLanded(segment: SegmentAddress): Promise<number | undefined> {
      const [run, landed] = (await redis.command('HMGET', keys.meta(segment), 'run', 'landed')) as (string | null)[];
      return run === String(segment.run) && typeof landed === 'string' ? Number(landed) : undefined;
    },

    /** Redis' time, epoch ms, cut. */
    async time(): Promise<number> {
      const [seconds, micros] = (await redis.command('TIME')) as [string, string];
      return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
    },

    /** Writes the snapshot for page and door; it holds nothing that decides. */
    async writeItem(activityId: string, item: Readonly<Record<string, string>>, expiresAt: number): Promise<void> {
      const key = keys.item(activityId);
      const type = await redis.command('TYPE', key);
      if (type !== 'hash' && type !== 'none') await redis.command('DEL', key);
      await redis.command('HSET', key, ...Object.entries(item).flat());
      await redis.command('PEXPIREAT', key, expiresAt);
    },

    /** The snapshot as it stands; empty where there is none. */
    async readItem(activityId: string): Promise<Readonly<Record<string, string>>> {
      const reply = await redis.command('HGETALL', keys.item(activityId));
      if (!Array.isArray(reply)) return reply as Record<string, string>;
      const item: Record<string, string> = {};
      for (let i = 0; i + 1 < reply.length; i += 2) item[String(reply[i])] = String(reply[i + 1]);
      return item;
    },
  };
}

/** The gate's functions. */
export type GateScripts = ReturnType<typeof makeGateScripts>;
