/**
 * Redis' word: stock, marks and outbox of a run as they are, read by a connection of the demo's own. A reader of its own
 * too: the product's would agree with itself.
 */
import { parseMark, type Mark } from '../../domain/mark.ts';
import type { Keys } from '../../platform/redis/keys.ts';
import type { RedisLink } from '../../platform/redis/link.ts';

/** A run at the gate: what is needed to find its keys. */
export type GateRun = {
  readonly activityId: string;
  readonly run: number;
  readonly segments: number;
  readonly shards: number;
};

/** A hold as the outbox has it. */
export type WrittenHold = {
  readonly segment: number;
  /** number of its entry */
  readonly entry: number;
  readonly orderId: string;
  readonly buyerId: string;
  readonly quantity: number;
};

/** What the gate holds. */
export type GateBooks = {
  /** units (strict: tickets) left, all segments */
  readonly left: number;
  /** marks by buyer */
  readonly marks: ReadonlyMap<string, Mark>;
  readonly holds: readonly WrittenHold[];
  /** what could not be read, one sentence each */
  readonly damage: readonly string[];
};

/** How far a run has been landed: entries written, entries landed. */
export type GatePlace = { readonly written: number; readonly landed: number };

const PAGE = 500;

/** Reads a whole run, page by page. */
export async function readGate(redis: RedisLink, keys: Keys, run: GateRun): Promise<GateBooks> {
  let left = 0;
  const marks = new Map<string, Mark>();
  const holds: WrittenHold[] = [];
  const damage: string[] = [];
  for (let segment = 0; segment < run.segments; segment++) {
    const at = { ...run, segment };
    const stock = await redis.command('GET', keys.stock(at));
    if (typeof stock === 'string' && /^(0|[1-9][0-9]{0,9})$/.test(stock)) left += Number(stock);
    else damage.push(`segment ${segment}: the stock is ${JSON.stringify(stock)}`);
    for (let shard = 0; shard < run.shards; shard++) {
      for (let cursor = '0'; ;) {
        const [next, fields] = (await redis.command('HSCAN', keys.buyers(at, shard), cursor, 'COUNT', PAGE)) as [
          string,
          string[],
        ];
        for (let i = 0; i + 1 < fields.length; i += 2) {
          const [buyerId, value] = [fields[i]!, fields[i + 1]!];
          if (buyerId === '#') continue;
          const mark = parseMark(value);
          if (mark === undefined) damage.push(`the mark of ${buyerId} is no mark`);
          else marks.set(buyerId, mark);
        }
        if (next === '0') break;
        cursor = next;
      }
    }
    for (let from = '-'; ;) {
      const page = (await redis.command('XRANGE', keys.outbox(at), from, '+', 'COUNT', PAGE)) as [string, string[]][];
      for (const [id, fields] of page) {
        const named = new Map(fields.map((name, i) => [name, fields[i + 1]!] as const).filter((_, i) => i % 2 === 0));
        const entry = Number(named.get('n'));
        const payload = named.get('1');
        if (!Number.isInteger(entry) || payload === undefined) {
          damage.push(`segment ${segment}: entry ${id} has no number or no holds`);
          continue;
        }
        for (const hold of payload.split(';')) {
          const [orderId = '', buyerId = '', , quantity] = hold.split(',');
          holds.push({ segment, entry, orderId, buyerId, quantity: Number(quantity) });
        }
      }
      if (page.length < PAGE) break;
      from = `(${page.at(-1)![0]}`;
    }
  }
  return { left, marks, holds, damage };
}

/** How far a run has come, of all its segments together. */
export async function readPlace(redis: RedisLink, keys: Keys, run: GateRun): Promise<GatePlace> {
  let [written, landed] = [0, 0];
  for (let segment = 0; segment < run.segments; segment++) {
    const at = { activityId: run.activityId, segment };
    const [seq, done] = (await redis.command('HMGET', keys.meta(at), 'seq', 'landed')) as (string | null)[];
    written += Number(seq ?? 0);
    landed += Number(done ?? 0);
  }
  return { written, landed };
}

/** Deletes the keys of a run, by name: what the demo leaves in a Redis that is not its own. */
export async function deleteRun(redis: RedisLink, keys: Keys, run: GateRun): Promise<void> {
  for (let segment = 0; segment < run.segments; segment++) {
    const at = { ...run, segment };
    await redis.command('UNLINK', keys.stock(at));
    await redis.command('UNLINK', keys.outbox(at));
    await redis.command('UNLINK', keys.lent(at));
    for (let shard = 0; shard < run.shards; shard++) await redis.command('UNLINK', keys.buyers(at, shard));
    await redis.command('UNLINK', keys.meta(at));
  }
  await redis.command('UNLINK', keys.item(run.activityId));
}
