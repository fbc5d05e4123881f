/**
 * A small world for tests of worker numbers and ids: true time that passes when told to, hosts whose wall clocks step and
 * which can be frozen, and the table of numbers in memory. Everything that can run has run when `pass` returns.
 * The table passes worker-numbers-promises.ts like the real one.
 */
import { Fault } from '../../../src/domain/fault.ts';
import type { Clock, Random, Timer, Timers } from '../../../src/platform/clock.ts';
import type { Log } from '../../../src/platform/log.ts';
import type { WorkerNumbers } from '../../../src/platform/ids/worker-numbers-table.ts';

/** 2026-12-01T12:00:00Z */
export const NOON_MS = 1_796_126_400_000;

type Waiting = { readonly atMs: number; readonly host: Host; readonly work: () => void };

/** True time, and the hosts that live in it. */
export class World {
  timeMs = NOON_MS;
  readonly #waiting = new Set<Waiting>();

  host(): Host {
    return new Host(this);
  }

  schedule(waiting: Waiting): Timer {
    this.#waiting.add(waiting);
    return { cancel: () => void this.#waiting.delete(waiting) };
  }

  /** Lets `ms` pass, timers firing at their times (those of a frozen host as soon as it thaws). */
  async pass(ms: number): Promise<void> {
    const endMs = this.timeMs + ms;
    for (;;) {
      await settle();
      const next = this.#nextBefore(endMs);
      if (next === undefined) break;
      this.#waiting.delete(next);
      this.timeMs = Math.max(this.timeMs, next.atMs);
      next.work();
    }
    this.timeMs = endMs;
  }

  #nextBefore(endMs: number): Waiting | undefined {
    let first: Waiting | undefined;
    for (const waiting of this.#waiting) {
      if (waiting.host.frozen || waiting.atMs > endMs) continue;
      if (first === undefined || waiting.atMs < first.atMs) first = waiting;
    }
    return first;
  }
}

/** A host: its clocks and timers. */
export class Host {
  readonly #world: World;
  /** how far the wall clock is off */
  offMs = 0;
  /** waits begun, in order */
  readonly waits: number[] = [];
  #frozenAtMs: number | undefined;
  #sleptMs = 0;

  constructor(world: World) {
    this.#world = world;
  }

  get frozen(): boolean {
    return this.#frozenAtMs !== undefined;
  }

  /** Steps the wall clock. */
  step(ms: number): void {
    this.offMs += ms;
  }

  /** Stops everything but the wall clock, as a suspended machine does: the monotonic clock does not count the time. */
  freeze(): void {
    this.#frozenAtMs ??= this.#world.timeMs;
  }

  thaw(): void {
    if (this.#frozenAtMs !== undefined) this.#sleptMs += this.#world.timeMs - this.#frozenAtMs;
    this.#frozenAtMs = undefined;
  }

  readonly clock: Clock = {
    now: () => this.#world.timeMs + this.offMs,
    monotonic: () => (this.#frozenAtMs ?? this.#world.timeMs) - this.#sleptMs - NOON_MS,
  };

  readonly timers: Timers = {
    after: (delayMs, work) => this.#world.schedule({ atMs: this.#world.timeMs + delayMs, host: this, work }),
    sleep: (delayMs, signal) =>
      new Promise((resolve) => {
        this.waits.push(delayMs);
        if (signal?.aborted) return resolve();
        const timer = this.timers.after(delayMs, resolve);
        signal?.addEventListener('abort', () => {
          timer.cancel();
          resolve();
        });
      }),
  };
}

/** The table in memory, with a clock of its own. */
export class NumbersInMemory implements WorkerNumbers {
  readonly rows = new Map<number, { owner: string; expiresAtMs: number; idUntilMs: number }>();
  readonly #now: () => number;

  /** @param now the database's clock, epoch ms */
  constructor(now: () => number, numbers = 1_024) {
    this.#now = now;
    for (let n = 0; n < numbers; n += 1) this.rows.set(n, { owner: '', expiresAtMs: 0, idUntilMs: 0 });
  }

  async take(request: Parameters<WorkerNumbers['take']>[0]): ReturnType<WorkerNumbers['take']> {
    const order = (row: { idUntilMs: number }): number => Math.max(row.idUntilMs, request.pastMs);
    const [found] = [...this.rows]
      .filter(([, row]) => row.expiresAtMs <= this.#now())
      .sort(([a, rowA], [b, rowB]) => order(rowA) - order(rowB) || a - b);
    if (found === undefined) return undefined;
    const [number, row] = found;
    const floorMs = row.idUntilMs;
    row.owner = request.owner;
    row.expiresAtMs = this.#now() + request.ttlMs;
    row.idUntilMs = Math.max(floorMs, request.untilMs);
    return { number, floorMs, untilMs: row.idUntilMs };
  }

  async renew(request: Parameters<WorkerNumbers['renew']>[0]): ReturnType<WorkerNumbers['renew']> {
    const row = this.#ownedRow(request);
    if (row === undefined) return undefined;
    row.expiresAtMs = this.#now() + request.ttlMs;
    row.idUntilMs = Math.max(row.idUntilMs, request.untilMs);
    return { untilMs: row.idUntilMs };
  }

  async giveUp(request: Parameters<WorkerNumbers['giveUp']>[0]): Promise<boolean> {
    const row = this.#ownedRow(request);
    if (row === undefined) return false;
    Object.assign(row, { owner: '', expiresAtMs: this.#now(), idUntilMs: request.untilMs });
    return true;
  }

  #ownedRow({ number, owner }: { number: number; owner: string }) {
    const row = this.rows.get(number);
    return row?.owner === owner ? row : undefined;
  }
}

/** How the way to the database behaves for one process. */
export type Line = 'good' | 'down' | 'loses_replies' | 'slow';

/** A process's own line to the table: down, losing replies after the work was done, or slow until delivered. */
export class NumbersOverLine implements WorkerNumbers {
  line: Line = 'good';
  readonly #table: WorkerNumbers;
  readonly #held: (() => void)[] = [];

  constructor(table: WorkerNumbers) {
    this.#table = table;
  }

  /** Lets the calls arrive that a slow line has held back. */
  deliver(): void {
    for (const go of this.#held.splice(0)) go();
  }

  take: WorkerNumbers['take'] = (request) => this.#call(() => this.#table.take(request));
  renew: WorkerNumbers['renew'] = (request) => this.#call(() => this.#table.renew(request));
  giveUp: WorkerNumbers['giveUp'] = (request) => this.#call(() => this.#table.giveUp(request));

  async #call<T>(work: () => Promise<T>): Promise<T> {
    const line = this.line;
    if (line === 'down') throw databaseAway();
    if (line === 'slow') await new Promise<void>((go) => void this.#held.push(go));
    const result = await work();
    if (line === 'loses_replies') throw databaseAway();
    return result;
  }
}

/** Randomness without any: every fraction is `fraction`, every uuid the next number. */
export function plainRandom(fraction = 0.5): Random {
  let uuids = 0;
  return { fraction: () => fraction, uuid: () => `u${(uuids += 1)}`, token: (length) => 't'.repeat(length) };
}

/** A log that keeps its sentences. */
export function keptLog(): Log & { readonly sentences: string[] } {
  const sentences: string[] = [];
  const keep = (_fields: object, sentence: string): void => void sentences.push(sentence);
  const log = { debug: keep, info: keep, warn: keep, error: keep, child: () => log, sentences };
  return log;
}

/** Lets everything run that does not wait for time. */
export const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const databaseAway = (): Fault => new Fault('database_unavailable', 'reach the table', { retryable: true });
