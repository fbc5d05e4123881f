/**
 * The promise of order ids under everything that can be wrong at once: hosts whose clocks step by milliseconds or hours,
 * hosts that freeze and wake up after their lease, a database clock that steps, a line to the database that is down, slow
 * or loses replies, processes killed in mid-burst and started again, and fewer numbers than processes, so that numbers
 * change hands all the time.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { OrderIds } from '../../../src/platform/ids/order-ids.ts';
import { WorkerNumber } from '../../../src/platform/ids/worker-number.ts';
import { readOrderId } from './ids-read.ts';
import { keptLog, NumbersInMemory, NumbersOverLine, plainRandom, World } from './stepped-world.ts';
import type { Host, Line } from './stepped-world.ts';

const PROCESSES = 3;
const NUMBERS = 2;
const HOUR_MS = 3_600_000;

type Step =
  | { do: 'pass'; ms: number }
  | { do: 'draw'; process: number; count: number; times: number }
  | { do: 'step_clock'; process: number; ms: number }
  | { do: 'step_database_clock'; ms: number }
  | { do: 'freeze' | 'thaw' | 'kill' | 'restart' | 'deliver'; process: number }
  | { do: 'line'; process: number; line: Line };

const someProcess = fc.nat(PROCESSES - 1);
const span = fc.oneof(fc.nat(3), fc.nat(1_500), fc.nat(40_000));
const jump = fc.oneof(
  fc.integer({ min: -5, max: 5 }),
  fc.integer({ min: -2_000, max: 2_000 }),
  fc.integer({ min: -2 * HOUR_MS, max: 2 * HOUR_MS }),
);
const someLine = fc.constantFrom<Line>('good', 'good', 'down', 'loses_replies', 'slow');

const someStep: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('draw' as const),
      process: someProcess,
      count: fc.constantFrom(1, 3, 128, 4_096),
      times: fc.integer({ min: 1, max: 4 }),
    }),
  },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('pass' as const), ms: span }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('step_clock' as const), process: someProcess, ms: jump }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('step_database_clock' as const), ms: jump }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constantFrom(
        'freeze' as const,
        'thaw' as const,
        'thaw' as const,
        'kill' as const,
        'restart' as const,
        'deliver' as const,
      ),
      process: someProcess,
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('line' as const), process: someProcess, line: someLine }) },
);

/** All that happens, and what was seen of it. */
class Story {
  readonly world = new World();
  databaseOffMs = 0;
  readonly table = new NumbersInMemory(() => this.world.timeMs + this.databaseOffMs, NUMBERS);
  readonly random = plainRandom();
  readonly seen = new Set<string>();
  readonly numbersOf = new Map<number, Set<number>>();
  readonly processes = Array.from({ length: PROCESSES }, (_, i) => new Process(this, i, this.world.host()));

  async take(step: Step): Promise<void> {
    if (step.do === 'pass') return this.world.pass(step.ms);
    if (step.do === 'step_database_clock') return void (this.databaseOffMs += step.ms);
    const process = this.processes[step.process];
    if (process === undefined) return;
    switch (step.do) {
      case 'draw':
        for (let i = 0; i < step.times; i += 1) process.draw(step.count);
        return;
      case 'step_clock':
        return process.host.step(step.ms);
      case 'freeze':
        return process.host.freeze();
      case 'thaw':
        return process.host.thaw();
      case 'line':
        process.numbers.line = step.line;
        return;
      case 'deliver':
        process.numbers.deliver();
        return this.world.pass(0);
      case 'restart':
      case 'kill': {
        if (step.do === 'restart') void process.worker.release();
        await this.world.pass(0);
        const next = new Process(this, step.process, process.host);
        this.processes[step.process] = next;
        return next.start();
      }
    }
  }
}

/** One life of a process. A killed one is dropped, with whatever it had under way to the database. */
class Process {
  readonly host: Host;
  readonly numbers: NumbersOverLine;
  readonly worker: WorkerNumber;
  readonly #ids: OrderIds;
  readonly #story: Story;
  #last = 0n;

  constructor(story: Story, place: number, host: Host) {
    this.#story = story;
    this.host = host;
    this.numbers = new NumbersOverLine(story.table);
    const { clock, timers } = host;
    const { numbers } = this;
    this.worker = new WorkerNumber({
      numbers,
      clock,
      timers,
      random: story.random,
      log: keptLog(),
      ownerName: `p${place}`,
    });
    this.#ids = new OrderIds({ worker: this.worker, clock, timers });
  }

  async start(): Promise<void> {
    // Without a number or a database it comes up unready, and goes on trying.
    this.worker.start().catch(() => {});
    await this.#story.world.pass(0);
  }

  draw(count: number): void {
    const { seen, table, numbersOf } = this.#story;
    for (const id of this.#ids.tryTake(count) ?? []) {
      if (seen.has(id)) throw new Error(`repeated: ${id} ${JSON.stringify(readOrderId(id))}`);
      if (BigInt(id) <= this.#last) throw new Error(`does not grow: ${id} after ${this.#last}`);
      const { instantMs, number } = readOrderId(id);
      if (instantMs >= (table.rows.get(number)?.idUntilMs ?? 0)) throw new Error(`not on record: ${id}`);
      seen.add(id);
      this.#last = BigInt(id);
      const place = this.#story.processes.indexOf(this);
      numbersOf.set(number, (numbersOf.get(number) ?? new Set()).add(place));
    }
  }
}

test(
  'never a repeat, and ids of one process only grow, whatever the clocks, the line and the processes do',
  { timeout: 120_000 },
  async () => {
    let drawn = 0;
    let shared = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(someStep, { minLength: 10, maxLength: 80, size: 'max' }), async (steps) => {
        const story = new Story();
        for (const process of story.processes) await process.start();
        for (const step of steps) await story.take(step);
        drawn += story.seen.size;
        shared += [...story.numbersOf.values()].filter((holders) => holders.size > 1).length;
      }),
      { numRuns: 300 },
    );
    // Against a test that draws nothing, or in which every number stays with one process.
    expect(drawn).toBeGreaterThan(100_000);
    expect(shared).toBeGreaterThan(20);
  },
);
