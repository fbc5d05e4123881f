/**
 * The landing of one outbox: reads entries from the cursor in PostgreSQL, places them as orders in one transaction a
 * batch, then tells marks, gives refused units back and trims (design §5; article 3.4).
 *
 * Invariant: the cursor moves in the transaction that places the orders behind it, and in no other way. So a redelivery,
 * a crash at any step, or two workers at once change nothing; whoever finds the cursor elsewhere reads it again.
 *
 * Faults of the world (connection, deadlock, full disk) are retried with growing, random waits and use up no tries. A
 * batch that fails for a reason of its own is halved until one entry stands alone, then its holds are tried one by one;
 * one that has used up its tries becomes a dead letter in the cursor's transaction, and the stream goes on.
 *
 * Entries are numbered by the gate: a gap, an empty entry, or a quiet stream behind the gate's number is a loss. It is
 * noted and alarmed, the gate is shut for a rebuild, and what is there still lands (P17).
 */
import type { Clock, Random, Timers } from '../../platform/clock.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { SegmentAddress } from '../../platform/redis/keys.ts';
import type { Outbox, OutboxEntry } from './outbox.ts';
import {
  noteLostRun,
  readLandedHolds,
  readPlace,
  uncountTries,
  type LandingPlace,
  type NotPlaced,
} from './orders-table.ts';
import { placeEntries, tryOneByOne, type BadHold, type Step } from './place-orders.ts';

/** A segment of a run whose outbox is landed. */
export type LandingSegment = SegmentAddress & { readonly shards: number };

/** What the landing needs of the gate. */
export type LandingGate = {
  markLanded(
    segment: LandingSegment,
    entry: number,
    holds: readonly { buyerId: string; orderId: string; status: 'o' | 'd' }[],
  ): Promise<void>;
  readSeq(segment: SegmentAddress): Promise<number | undefined>;
  readLanded(segment: SegmentAddress): Promise<number | undefined>;
  shut(segment: SegmentAddress): Promise<boolean>;
};

/** What the landing reports, for alarms and metrics. */
export type LandingReports = {
  landed(at: SegmentAddress, counts: { orders: number; refused: number; known: number; tookMs: number }): void;
  /** PostgreSQL refused holds that the gate took: expected in strict mode, drift otherwise */
  refused(at: SegmentAddress, refusals: readonly NotPlaced[]): void;
  deadLetters(at: SegmentAddress, letters: readonly BadHold[]): void;
  lost(at: SegmentAddress, reason: string): void;
  retrying(at: SegmentAddress, error: unknown, waitMs: number): void;
};

/** Everything around one landing. */
export type LandingPorts = {
  readonly database: Database;
  readonly outbox: Outbox;
  readonly gate: LandingGate;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly reports: LandingReports;
  /** carries give-backs of these orders to the gate now; what fails is left to the sweeper */
  readonly giveBack: (orderIds: readonly string[]) => Promise<void>;
  /** tells whoever waits that these orders have changed; a hint, never relied upon */
  readonly hint: (activityId: string, orderIds: readonly string[]) => void;
  readonly isHoldsOwnFault: (fault: unknown) => boolean;
  readonly step: Step;
  readonly limits: {
    readonly idleMs: number;
    readonly holdsMax: number;
    readonly triesMax: number;
    readonly outboxKeepMs: number;
  };
};

/** Entries read at once; a batch is cut at `holdsMax` holds. */
const ENTRIES_PER_READ = 128;
/** A quiet outbox is compared with the gate's number this often. */
const QUIET_CHECK_MS = 1_000;
/** Landed entries are trimmed this often. */
const TRIM_EVERY_MS = 30_000;
/** The waits between retries grow from and to. */
const RETRY_MS = { first: 50, last: 5_000 } as const;

/** Whether a turn found work: `landed`, `idle`, or the outbox is `closed` to us. */
export type Turn = 'landed' | 'idle' | 'closed' | 'again';

/** Lands one outbox. */
export class Landing {
  readonly #at: LandingSegment;
  readonly #ports: LandingPorts;
  #place: LandingPlace | undefined;
  /** entries a batch may have; halved by a failing batch, doubled by a good one */
  #entriesMax = ENTRIES_PER_READ;
  /** entries, and holds in them, that may have killed the previous worker: these are tried one by one */
  #suspects: { entries: number; holds: number };
  /** counted tries to take back: the database went away before it could be done */
  #owed: string[] = [];
  #quietCheckedAt = 0;
  #trimmedAt = 0;

  /** @param suspicious the previous owner did not stop in order: what it may have had in hand is tried one by one */
  constructor(at: LandingSegment, ports: LandingPorts, suspicious: boolean) {
    this.#at = at;
    this.#ports = ports;
    this.#suspects = suspicious
      ? { entries: ENTRIES_PER_READ, holds: ports.limits.holdsMax }
      : { entries: 0, holds: 0 };
    this.#trimmedAt = ports.clock.monotonic();
  }

  /** Lands until `signal` aborts or the outbox is closed; the batch under way is finished. Never throws. */
  async run(signal: AbortSignal, idleMs: () => number): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      try {
        const turn = await this.turn();
        failures = 0;
        if (turn === 'closed') return;
        if (turn === 'idle') await this.#ports.timers.sleep(idleMs(), signal);
        if (turn === 'again')
          await this.#ports.timers.sleep(RETRY_MS.first * (1 + this.#ports.random.fraction()), signal);
      } catch (error) {
        // the world's fault: our idea of the place may be wrong too (COMMIT unanswered), so it is read again
        this.#place = undefined;
        const grown = Math.min(RETRY_MS.last, RETRY_MS.first * 2 ** failures++);
        const waitMs = grown * (0.5 + this.#ports.random.fraction());
        this.#ports.reports.retrying(this.#at, error, waitMs);
        await this.#ports.timers.sleep(waitMs, signal);
      }
    }
  }

  /** One turn: read, place, follow up. Throws faults of the world. */
  async turn(): Promise<Turn> {
    const { outbox, step } = this.#ports;
    if (this.#place === undefined) {
      this.#place = await readPlace(this.#ports.database, this.#at);
      if (this.#place === undefined) return 'closed';
      await this.#tellAgain(this.#place);
    }
    const from = this.#place;
    await this.#payOwed();

    const suspicious = this.#suspects.entries > 0 && this.#suspects.holds > 0;
    const count = suspicious ? 1 : this.#entriesMax;
    const read = await step('read', () => outbox.read(this.#at, from.cursor, count));
    if (read.length === 0) {
      this.#suspects = { entries: 0, holds: 0 }; // nothing is left that could have killed anybody
      await this.#checkQuiet(from);
      await this.#trim(from);
      return 'idle';
    }
    const entries = this.#cut(read);
    const lossBefore = findLoss(from, entries);
    if (lossBefore !== undefined) await this.#noteLoss(lossBefore);

    const last = entries[entries.length - 1]!;
    const to: LandingPlace = {
      cursor: last.id,
      entry: entries.reduce((number, entry) => Math.max(entry.number ?? number + 1, number), from.entry),
    };
    const bad = suspicious ? await this.#tryOneByOne(entries[0]!) : [];
    if (bad === 'again') return 'again';

    const startedAt = this.#ports.clock.monotonic();
    let placed;
    try {
      placed = await placeEntries(this.#ports.database, this.#at, { from, to, entries, bad }, step);
    } catch (error) {
      if (!this.#ports.isHoldsOwnFault(error)) throw error;
      if (entries.length > 1) {
        this.#entriesMax = Math.ceil(entries.length / 2);
      } else {
        // one entry stands alone: its holds are tried one by one
        this.#suspects = { entries: 1, holds: Number.POSITIVE_INFINITY };
      }
      return 'again';
    }
    if (placed === 'stale') {
      this.#place = undefined;
      return 'again';
    }
    this.#place = to;
    if (suspicious) {
      this.#suspects.entries -= 1;
      this.#suspects.holds -= entries[0]!.holds?.length ?? 0;
    } else {
      this.#entriesMax = Math.min(ENTRIES_PER_READ, this.#entriesMax * 2);
    }
    await this.#followUp(entries, to, placed.notPlaced, bad, startedAt);
    return 'landed';
  }

  /** Tells marks, gives back, trims. A crash here loses nothing: sweeper and poll read PostgreSQL. */
  async #followUp(
    entries: readonly OutboxEntry[],
    to: LandingPlace,
    notPlaced: readonly NotPlaced[],
    bad: readonly BadHold[],
    startedAt: number,
  ): Promise<void> {
    const { reports, step, gate, clock } = this.#ports;
    const holds = entries.flatMap((entry) => entry.holds ?? []);
    const refused = new Set(notPlaced.filter((one) => one.outcome === 'refused').map((one) => one.orderId));
    const known = notPlaced.length - refused.size;
    const setAside = new Set(bad.map(({ hold }) => hold.orderId));
    const orders = holds.length - refused.size - known - bad.length;
    reports.landed(this.#at, { orders, refused: refused.size, known, tookMs: clock.monotonic() - startedAt });
    if (refused.size > 0) reports.refused(this.#at, notPlaced);
    if (bad.length > 0) reports.deadLetters(this.#at, bad);

    const marks = holds
      .filter((hold) => !refused.has(hold.orderId))
      .map((hold) => ({
        buyerId: hold.buyerId,
        orderId: hold.orderId,
        status: setAside.has(hold.orderId) ? ('d' as const) : ('o' as const),
      }));
    try {
      await step('mark', () => gate.markLanded(this.#at, to.entry, marks));
      if (refused.size > 0) await step('give-back', () => this.#ports.giveBack([...refused]));
    } catch (error) {
      // The orders stand, and the cursor is past them: the next turn reads the place again and tells their marks.
      this.#place = undefined;
      throw error;
    }
    this.#ports.hint(
      this.#at.activityId,
      holds.map((hold) => hold.orderId),
    );
    await this.#trim(to);
  }

  /**
   * Tells the marks of holds that landed without their marks being told: a worker died, or Redis was away, between COMMIT
   * and the marks. `landed` at the gate says how far the marks are; entries stay behind the cursor long enough for this.
   */
  async #tellAgain(place: LandingPlace): Promise<void> {
    const { gate, outbox, database, hint } = this.#ports;
    const told = await gate.readLanded(this.#at);
    if (told === undefined || told >= place.entry) return;
    let before = place.cursor;
    for (;;) {
      const entries = await outbox.readBack(this.#at, before, ENTRIES_PER_READ);
      const untold = entries.filter((entry) => (entry.number ?? place.entry) > told);
      const landed = await readLandedHolds(database, orderIds(untold));
      const marks = untold
        .flatMap((entry) => entry.holds ?? [])
        .flatMap((hold) => {
          const status = landed.get(hold.orderId);
          return status === undefined ? [] : [{ buyerId: hold.buyerId, orderId: hold.orderId, status }];
        });
      const done = untold.length < ENTRIES_PER_READ;
      // `landed` moves last, so that a crash in between begins again
      await gate.markLanded(this.#at, done ? place.entry : told, marks);
      hint(
        this.#at.activityId,
        marks.map((mark) => mark.orderId),
      );
      if (done) return;
      before = `(${entries.at(-1)!.id}`;
    }
  }

  /** Cuts a batch at `holdsMax` holds; one entry is always taken. */
  #cut(entries: readonly OutboxEntry[]): readonly OutboxEntry[] {
    let holds = 0;
    const end = entries.findIndex((entry, i) => {
      holds += entry.holds?.length ?? 0;
      return i > 0 && holds > this.#ports.limits.holdsMax;
    });
    return end === -1 ? entries : entries.slice(0, end);
  }

  /** Tries the holds of one entry one by one; a try whose taking back failed with the database is owed. */
  async #tryOneByOne(entry: OutboxEntry): Promise<readonly BadHold[] | 'again'> {
    const { bad, again } = await tryOneByOne(this.#ports.database, this.#at, entry, {
      triesMax: this.#ports.limits.triesMax,
      isHoldsOwnFault: this.#ports.isHoldsOwnFault,
      owe: (orderId) => this.#owed.push(orderId),
    });
    return again ? 'again' : bad;
  }

  async #payOwed(): Promise<void> {
    if (this.#owed.length === 0) return;
    await uncountTries(this.#ports.database, this.#owed);
    this.#owed = [];
  }

  /** A stream that is quiet behind the gate's number has lost its last entries. */
  async #checkQuiet(from: LandingPlace): Promise<void> {
    const now = this.#ports.clock.monotonic();
    if (now - this.#quietCheckedAt < QUIET_CHECK_MS) return;
    this.#quietCheckedAt = now;
    const seq = await this.#ports.gate.readSeq(this.#at);
    if (seq === undefined || seq <= from.entry) return;
    // read again after the number: an entry written in between is no loss
    const since = await this.#ports.outbox.read(this.#at, from.cursor, 1);
    if (since.length === 0) await this.#noteLoss(`the gate wrote entry ${seq}, the outbox ends at ${from.entry}`);
  }

  /** Shuts the gate first, so that nothing more is sold on a run that has lost something, then notes it. */
  async #noteLoss(reason: string): Promise<void> {
    await this.#ports.gate.shut(this.#at);
    if (await noteLostRun(this.#ports.database, this.#at, reason)) this.#ports.reports.lost(this.#at, reason);
  }

  async #trim(place: LandingPlace): Promise<void> {
    const now = this.#ports.clock.monotonic();
    if (now - this.#trimmedAt < Math.min(TRIM_EVERY_MS, this.#ports.limits.outboxKeepMs)) return;
    this.#trimmedAt = now;
    const landedAt = Number(place.cursor.slice(0, place.cursor.indexOf('-')));
    // by the stream's own clock: entries this much older than the last landed one
    const keepFrom = landedAt - this.#ports.limits.outboxKeepMs;
    if (keepFrom <= 0) return;
    await this.#ports.step('trim', () => this.#ports.outbox.trim(this.#at, String(keepFrom)));
  }
}

/** The first thing that is not as the gate numbered it; undefined where all is there. A repeat of an old number is none. */
function findLoss(from: LandingPlace, entries: readonly OutboxEntry[]): string | undefined {
  let expected = from.entry + 1;
  for (const entry of entries) {
    if (entry.number === undefined || entry.holds === undefined) return `entry ${entry.id} cannot be read`;
    if (entry.number > expected) return `entries ${expected} to ${entry.number - 1} are missing before ${entry.id}`;
    if (entry.number === expected) expected += 1;
  }
  return undefined;
}

const orderIds = (entries: readonly OutboxEntry[]): string[] =>
  entries.flatMap((entry) => entry.holds ?? []).map((hold) => hold.orderId);
