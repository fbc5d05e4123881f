/**
 * The gate: gathers the purchases of one turn of the event loop into a batch per activity segment, sends one script call,
 * and turns the script's codes into answers (design §4; docs/decisions/0004-batched-gate.md).
 *
 * Promises: every purchase gets exactly one answer; at most `pendingMax` wait; nothing is given back on `in_doubt`.
 * It does not decide anything: `hold.lua` does.
 */
import { assert, Bug, Fault, must, unreachable } from '../../domain/fault.ts';
import { isId, isRequestId } from '../../domain/ids.ts';
import type { Activity } from '../../domain/activity.ts';
import { parseMark, type Mark } from '../../domain/mark.ts';
import { GATE_CODES, type GateCode, type HoldRequest, type HoldResult } from '../../domain/results.ts';
import type { Clock } from '../../platform/clock.ts';
import { segmentOf } from '../../platform/redis/keys.ts';
import type { Candidate, GateScripts, HoldReply, Segment } from './gate-scripts.ts';
import type { RedisTime } from './redis-time.ts';

/** Order ids, as the gate needs them. */
export type OrderIdSource = {
  /** `count` new ids at once; undefined while none can be given */
  tryTake(count: number): string[] | undefined;
  /** waits up to a second for the clock; throws Fault `ids_unavailable` */
  take(count: number): Promise<string[]>;
};

/** What the gate reports, for alarms and metrics. */
export type GateReports = {
  /** the gate looked at nothing: keys lost, another run, another server … */
  notReady(activityId: string, reason: string): void;
  /** a bug of ours, or of the server: alarmed */
  broken(activityId: string, error: unknown): void;
  /** a batch was answered; `left` units remain */
  decided(activityId: string, codes: readonly number[], left: number): void;
};

type Waiting = { readonly request: HoldRequest; readonly answer: (result: HoldResult) => void };
type Batch = { readonly segment: Segment; readonly waiting: Waiting[] };

const CODE_NAMES = new Map<number, GateCode>(
  Object.entries(GATE_CODES).map(([name, code]) => [code, name as GateCode]),
);
const BUSY: HoldResult = { code: 'busy' };
const IN_DOUBT: HoldResult = { code: 'in_doubt' };
const NOT_READY: HoldResult = { code: 'not_ready' };
const INVALID: HoldResult = { code: 'invalid' };

/** Batches purchases and asks the scripts. */
export class Gate {
  readonly #scripts: Pick<GateScripts, 'hold'>;
  readonly #ids: OrderIdSource;
  readonly #time: RedisTime;
  readonly #clock: Clock;
  readonly #reports: GateReports;
  readonly #limits: { readonly batchMax: number; readonly pendingMax: number; readonly timeoutMs: number };
  readonly #onTurnEnd: (work: () => void) => void;
  readonly #batches = new Map<string, Batch>();
  #pending = 0;
  #turnEndAsked = false;

  constructor(ports: {
    scripts: Pick<GateScripts, 'hold'>;
    ids: OrderIdSource;
    time: RedisTime;
    clock: Clock;
    reports: GateReports;
    limits: { batchMax: number; pendingMax: number; timeoutMs: number };
    /** runs work when the present turn of the event loop is over (setImmediate) */
    onTurnEnd: (work: () => void) => void;
  }) {
    this.#scripts = ports.scripts;
    this.#ids = ports.ids;
    this.#time = ports.time;
    this.#clock = ports.clock;
    this.#reports = ports.reports;
    this.#limits = ports.limits;
    this.#onTurnEnd = ports.onTurnEnd;
  }

  /** Purchases that wait for an answer of the gate now. */
  get pending(): number {
    return this.#pending;
  }

  /**
   * Holds stock for one buyer. Stock, buyer mark and outbox entry change together or not at all.
   * Safe to repeat: the same `requestId` gets its first answer again.
   * @param request.quantity units, 1 to the activity's per-buyer limit
   * @returns in this precedence: not_ready, key_reused, replayed, already_bought, not_open, paused, ended, sold_out, held;
   *   invalid for what the door should have refused; busy when nothing ran; in_doubt when Redis gave no answer (the hold may exist: ask again, same id)
   * @source article 2.1 and 3.3; docs/decisions/0003-outbox-in-the-hold-script.md
   */
  hold(activity: Activity, request: HoldRequest): Promise<HoldResult> {
    // An id with a separator in it would make the outbox entry of the whole batch unreadable. The script has no time to
    // look; quantities it checks itself.
    if (!isId(request.buyerId) || !isRequestId(request.requestId)) {
      this.#reports.broken(activity.id, new Bug('the door refuses malformed ids'));
      return Promise.resolve(INVALID);
    }
    if (this.#pending >= this.#limits.pendingMax) return Promise.resolve(BUSY);
    // never, or taken back and not again yet
    if (activity.shards === 0) {
      this.#reports.notReady(activity.id, 'never preheated');
      return Promise.resolve(NOT_READY);
    }
    return new Promise((answer) => {
      this.#pending += 1;
      const segment = segmentOf(request.buyerId, activity.segments);
      const name = `${activity.id}.${segment}.${activity.run}`;
      let batch = this.#batches.get(name);
      if (batch === undefined) {
        batch = {
          segment: { activityId: activity.id, segment, run: activity.run, shards: activity.shards },
          waiting: [],
        };
        this.#batches.set(name, batch);
      }
      batch.waiting.push({ request, answer });
      if (batch.waiting.length >= this.#limits.batchMax) {
        this.#batches.delete(name);
        void this.#ask(batch);
      } else if (!this.#turnEndAsked) {
        this.#turnEndAsked = true;
        this.#onTurnEnd(() => this.#turnEnd());
      }
    });
  }

  #turnEnd(): void {
    this.#turnEndAsked = false;
    const batches = [...this.#batches.values()];
    this.#batches.clear();
    for (const batch of batches) void this.#ask(batch);
  }

  /** Asks the gate about one batch. Never rejects: every purchase in it is answered. */
  async #ask(batch: Batch): Promise<void> {
    const { segment, waiting } = batch;
    let results: HoldResult[] | undefined;
    let uniform: HoldResult = IN_DOUBT;
    try {
      const orderIds = this.#ids.tryTake(waiting.length) ?? (await this.#ids.take(waiting.length));
      const latest = this.#time.latest();
      if (latest === undefined) {
        uniform = BUSY; // we do not know Redis' time yet: nothing was sent
      } else {
        const candidates = waiting.map(({ request }, i): Candidate => ({ ...request, orderId: orderIds[i]! }));
        const sentAt = this.#clock.monotonic();
        const reply = await this.#scripts.hold(segment, candidates, Math.ceil(latest) + this.#limits.timeoutMs);
        const receivedAt = this.#clock.monotonic();
        if (reply.kind === 'not_ready') {
          uniform = NOT_READY;
          this.#reports.notReady(segment.activityId, reply.reason);
        } else {
          this.#time.learn({ redisMs: reply.redisNow, sentAt, receivedAt });
          results = read(segment, candidates, reply);
          this.#reports.decided(segment.activityId, reply.codes, reply.left);
        }
      }
    } catch (error) {
      uniform = error instanceof Fault && provesNothingRan(error) ? BUSY : IN_DOUBT;
      if (!(error instanceof Fault)) this.#reports.broken(segment.activityId, error);
    }
    this.#pending -= waiting.length;
    for (let i = 0; i < waiting.length; i++) waiting[i]!.answer(results?.[i] ?? uniform);
  }
}

const provesNothingRan = (fault: Fault): boolean => fault.code === 'redis_refused' || fault.code === 'ids_unavailable';

/** Turns the codes of a decided batch into answers, one a purchase. */
function read(
  segment: Segment,
  candidates: readonly Candidate[],
  reply: Extract<HoldReply, { kind: 'decided' }>,
): HoldResult[] {
  let marksRead = 0;
  const nextMark = (): Mark =>
    must(parseMark(must(reply.marks[marksRead++], 'a mark for each repeat')), 'readable mark');
  return candidates.map((candidate, i): HoldResult => {
    const code = must(CODE_NAMES.get(reply.codes[i]!), `hold.lua returned an unknown code ${reply.codes[i]}`);
    switch (code) {
      case 'held':
        return {
          code,
          mark: {
            orderId: candidate.orderId,
            quantity: candidate.quantity,
            run: segment.run,
            status: 'q',
            requestId: candidate.requestId,
          },
        };
      case 'replayed':
      case 'already_bought':
        return { code, mark: nextMark() };
      case 'not_open':
        return { code, opensAt: reply.opensAt };
      case 'not_ready':
        assert(false, 'not_ready is said of a whole batch');
        return NOT_READY;
      case 'key_reused':
      case 'paused':
      case 'ended':
      case 'sold_out':
      case 'invalid':
        return { code };
      default:
        return unreachable(code);
    }
  });
}
