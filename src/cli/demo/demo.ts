/**
 * `sluice demo`: a whole sale through the real HTTP API of real processes, and whether it can be believed.
 *
 * ```
 * stage: Redis, PostgreSQL, servers, generators ─► create ─► approve (somebody else) ─► preheat ─► confirm
 *   ─► early birds ─► it opens by its time ─► the crowd ─► late comers ─► landed ─► end ─► those who come after it
 *   ─► everybody asks how it ended ─► verify ─► what PostgreSQL and Redis hold ─► settle ─► the verdict
 * ```
 *
 * The demo uses what everybody else uses: the operator API and the buyer API. Only its witnesses look behind them.
 */
import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { availableParallelism } from 'node:os';
import { Fault } from '../../domain/fault.ts';
import { makeOperatorIdentity } from '../../platform/identity/operators.ts';
import { Refused } from '../endings.ts';
import { callOperator, languageOf, type Document, type OperatorAddress } from '../operator-api.ts';
import { describeVerification, verificationHolds } from '../verify-verb.ts';
import type { SaleFacts } from './auditor.ts';
import { readEvidence, type BuyerEvidence } from './crowd/evidence.ts';
import { deleteRun, readGate, readPlace, type GateRun } from './gate-witness.ts';
import { startGenerators, type Generators } from './generators.ts';
import { areGiveBacksOpen, readLedger } from './ledger-table.ts';
import { grouped, type DemoReport } from './report.ts';
import { sabotage } from './sabotage.ts';
import { setStage, type Stage, type StagePorts } from './stage.ts';
import { startTamperingProxy } from './tampering-proxy.ts';
import { reachVerdict, type Break } from './verdict.ts';

/** What is to be shown. */
export type DemoRequest = {
  readonly buyers: number;
  readonly stock: number;
  readonly answer: 'held' | 'ordered';
  readonly overshoot: number;
  /** API processes */
  readonly workers: number;
  readonly seed: number;
  /** processes that play the crowd; by default half as many as there are processors, 1 to `GENERATORS_MAX` */
  readonly generators: number | undefined;
  readonly databaseUrl: string | undefined;
  readonly redisUrl: string | undefined;
  readonly embedded: boolean;
  readonly sabotage: Break | undefined;
};

/** What the demo needs from outside. */
export type DemoPorts = StagePorts & {
  /** aborted by Ctrl-C: everything is taken down in order */
  readonly signal: AbortSignal;
};

/** From planning to opening: time for approval, preheat and the early birds. */
const LEAD_MS = 4_000;
const LEAD_MS_PER_BUYER = 0.1;
const SALE_MS = 30 * 60_000;
const EAGER_MAX = 100;
const GENERATORS_MAX = 4;
const LANDED_MS_MAX = 120_000;
const SETTLED_MS_MAX = 20_000;
const SETTLE_AGAIN_MS = 500;
const LOOK_AGAIN_MS = 20;
const PROGRESS_EVERY_MS = 1_000;
const TIME_ASKED = 7;
/** The clocks of gate and crowd are compared through two processes that may be kept waiting. */
const SKEW_MS = 150;

/** Shows it. Throws Fault and Refused where it cannot be shown; a sale that does not hold is a report. */
export async function runDemo(request: DemoRequest, ports: DemoPorts): Promise<DemoReport> {
  const stage = await setStage(request, ports);
  const ends: (() => Promise<void> | void)[] = [stage.close];
  try {
    if (request.sabotage !== undefined && stage.database === undefined) {
      throw new Refused('--sabotage needs a PostgreSQL of its own, and none was found (SLUICE_POSTGRES_BIN)');
    }
    const generators = startGenerators({
      program: ports.program,
      count: request.generators ?? Math.max(1, Math.min(GENERATORS_MAX, Math.floor(availableParallelism() / 2))),
      folder: stage.folder,
    });
    ends.push(generators.stop);
    const urls = [...stage.urls];
    if (request.sabotage === 'wrong-answer') {
      const proxy = await startTamperingProxy(urls[0]!);
      ends.push(proxy.close);
      urls[0] = proxy.url;
    }
    const interrupted = new Promise<never>((_, reject) => {
      const stop = (): void => reject(new Refused('interrupted: everything that was started is taken down'));
      if (ports.signal.aborted) stop();
      ports.signal.addEventListener('abort', stop, { once: true });
    });
    return await Promise.race([interrupted, new Sale(request, ports, stage, generators, urls).run()]);
  } finally {
    for (const end of ends.toReversed()) await end();
  }
}

/** One sale and its witnesses. */
class Sale {
  readonly #request: DemoRequest;
  readonly #ports: DemoPorts;
  readonly #stage: Stage;
  readonly #generators: Generators;
  readonly #urls: readonly string[];
  readonly #id: string;
  readonly #planner: OperatorAddress;
  readonly #approver: OperatorAddress;
  readonly #base: number;
  /** ends the loops that run beside the sale */
  readonly #over = new AbortController();
  #run: GateRun | undefined;

  constructor(
    request: DemoRequest,
    ports: DemoPorts,
    stage: Stage,
    generators: Generators,
    /** where the crowd goes */
    urls: readonly string[],
  ) {
    this.#request = request;
    this.#ports = ports;
    this.#stage = stage;
    this.#generators = generators;
    this.#urls = urls;
    this.#id = `demo-${ports.clock.now().toString(36)}-${ports.random.token(3).replaceAll(/[^A-Za-z0-9]/g, '0')}`;
    const identity = makeOperatorIdentity({ secrets: [stage.operatorSecret], clock: ports.clock });
    const url = stage.urls[0]!;
    const language = languageOf(ports.environment);
    const token = (name: string, role: 'operator' | 'approver'): string =>
      identity.issueOperatorToken({ name, role, hours: 2 });
    this.#planner = { url, token: token('demo-planner', 'operator'), language };
    // four eyes: who plans a sale does not approve it
    this.#approver = { url, token: token('demo-approver', 'approver'), language };
    // as in every generator: one clock that never steps, on the host's time
    this.#base = ports.clock.now() - ports.clock.monotonic();
  }

  async run(): Promise<DemoReport> {
    try {
      return await this.#sell();
    } finally {
      this.#over.abort();
    }
  }

  async #sell(): Promise<DemoReport> {
    const { request, tell } = this.#with();
    const eager = Math.max(1, Math.min(EAGER_MAX, Math.floor(request.stock / 3)));
    await this.#generators.prepare({
      share: { activityId: this.#id, buyers: request.buyers, eager, seed: request.seed },
      urls: this.#urls,
      buyerSecret: this.#stage.buyerSecret,
    });
    const clock = await this.#compareClocks();
    const opensAt = await this.#plan(clock.offsetMs);
    await this.#preheat();

    if (this.#now() < opensAt) {
      tell('Early birds press before the opening …');
      await this.#generators.run('early');
    }
    const letInAt = Math.max(opensAt, this.#now());
    const landing = this.#watchLanding();
    this.#showProgress(opensAt);
    if (request.sabotage !== undefined && request.sabotage !== 'wrong-answer') {
      await this.#generators.run('eager', opensAt);
      tell(`Breaking the sale: ${request.sabotage}`);
      await sabotage(request.sabotage, {
        database: this.#stage.database!,
        redis: this.#stage.redis,
        keys: this.#stage.keys,
        run: this.#run!,
        timers: this.#ports.timers,
      });
    }
    await this.#generators.run('flood', opensAt);
    tell('Late comers, and winners who cannot believe it …');
    await this.#generators.run('late');
    await this.#untilLanded();
    tell('All landed. The sale ends by hand …');
    const endAskedAt = this.#now();
    await this.#post(this.#planner, 'end');
    const endToldAt = this.#now();
    await this.#generators.run('afterEnd');
    await this.#untilLanded();
    const landedAt = landing.caughtUpAt();
    tell('Everybody who was told of an order asks how it ended …');
    await this.#generators.run('collect');
    await this.#generators.run('finish');

    const verified = await this.#verify();
    const gate = await readGate(this.#stage.redis, this.#stage.keys, this.#run!);
    const before = this.#stage.database === undefined ? undefined : await this.#ledger();
    const settled = await this.#settle();
    const alarms = this.#stage.alarms();
    const ledger = before ?? (await this.#ledger());
    if (this.#stage.sharesRedis) await deleteRun(this.#stage.redis, this.#stage.keys, this.#run!);

    const sale: SaleFacts = {
      opensAt,
      endAskedAt,
      endToldAt,
      skewMs: clock.skewMs,
      answerWhen: request.answer,
      perBuyerLimit: 1,
      stockOnlyFalls: request.overshoot === 1,
    };
    const verdict = await reachVerdict(
      { ledger, gate, sale, admitsSurplus: request.overshoot > 1, letInAt, landedAt, saysItself: [verified, settled] },
      evidenceOf(this.#generators.evidenceFiles),
    );
    return {
      ...verdict,
      activityId: this.#id,
      answer: request.answer,
      overshoot: request.overshoot,
      workers: this.#stage.urls.length,
      seed: request.seed,
      database: this.#stage.databaseName,
      redis: this.#stage.redisName,
      settled: settled.holds,
      alarms,
    };
  }

  #with() {
    return { request: this.#request, tell: this.#ports.tell };
  }

  #now(): number {
    return this.#base + this.#ports.clock.monotonic();
  }

  /** How far the server's time is ahead of ours: the answer that came soonest knows best. */
  async #compareClocks(): Promise<{ offsetMs: number; skewMs: number }> {
    let best = { offsetMs: 0, skewMs: Number.POSITIVE_INFINITY };
    for (let i = 0; i < TIME_ASKED; i++) {
      const askedAt = this.#now();
      const { document } = await callOperator(this.#planner, { method: 'GET', path: '/api/v1/time' });
      const toldAt = this.#now();
      const halfTrip = (toldAt - askedAt) / 2;
      if (halfTrip < best.skewMs) best = { offsetMs: Number(document['now']) - askedAt - halfTrip, skewMs: halfTrip };
    }
    return { ...best, skewMs: best.skewMs + SKEW_MS };
  }

  /** Creates and approves; returns the opening by our clock. */
  async #plan(offsetMs: number): Promise<number> {
    const { request, tell } = this.#with();
    const serverNow = this.#now() + offsetMs;
    const leadMs = LEAD_MS + request.buyers * LEAD_MS_PER_BUYER;
    const opensAt = Math.ceil(serverNow + leadMs);
    await callOperator(this.#planner, {
      method: 'POST',
      path: '/activities',
      body: {
        id: this.#id,
        item: { name: '演示商品 Demo item', priceMinor: 9_900, currency: 'CNY' },
        total: request.stock,
        perBuyerLimit: 1,
        opensAt: new Date(opensAt).toISOString(),
        endsAt: new Date(opensAt + SALE_MS).toISOString(),
        answerWhen: request.answer,
        overshoot: request.overshoot,
        // the scheduler may preheat it before we do; confirming is ours
        autoConfirm: false,
      },
    });
    await this.#post(this.#approver, 'approve');
    tell(`Activity ${this.#id}: ${grouped(request.stock)} units, opens in ${(leadMs / 1_000).toFixed(1)} s. Approved.`);
    return opensAt - offsetMs;
  }

  async #preheat(): Promise<void> {
    await this.#post(this.#planner, 'preheat');
    await this.#post(this.#approver, 'confirm');
    const path = `/activities/${this.#id}`;
    const { document } = await callOperator(this.#planner, { method: 'GET', path });
    const run = Number(document['run']);
    const segments = Number(document['segments']);
    const shards = await this.#shards(run);
    this.#run = { activityId: this.#id, run, segments, shards };
    for (const url of this.#stage.urls) await this.#untilKnownAt(url);
    this.#ports.tell('Preheated, read back, confirmed.');
  }

  /** Shards of the run's marks: PostgreSQL knows, and where we cannot ask it, the keys that are there do. */
  async #shards(run: number): Promise<number> {
    if (this.#stage.database !== undefined) return (await this.#ledger()).shards;
    for (let shards = 0; ; shards++) {
      const at = { activityId: this.#id, segment: 0, run };
      const { keys, redis } = this.#stage;
      if ((await redis.command('EXISTS', keys.buyers(at, shards))) === 0) return shards;
    }
  }

  async #untilKnownAt(url: string): Promise<void> {
    await this.#until(`${url} knows the activity`, async () => {
      const response = await fetch(`${url}/api/v1/activities/${this.#id}`);
      await response.body?.cancel();
      return response.status === 200;
    });
  }

  /** Notes when the landing caught up for the last time. */
  #watchLanding(): { caughtUpAt: () => number } {
    let caughtUpAt = this.#now();
    let caughtUpWith = 0;
    const watch = async (): Promise<void> => {
      while (!this.#over.signal.aborted) {
        const { written, landed } = await readPlace(this.#stage.redis, this.#stage.keys, this.#run!);
        if (landed === written && written !== caughtUpWith) {
          caughtUpAt = this.#now();
          caughtUpWith = written;
        }
        await this.#ports.timers.sleep(LOOK_AGAIN_MS, this.#over.signal);
      }
    };
    watch().catch(() => undefined); // a Redis that is gone shows in the verdict
    return { caughtUpAt: () => caughtUpAt };
  }

  /** Waits until every hold is an order or has been given back; goes on where that does not come: the verdict says so. */
  async #untilLanded(): Promise<void> {
    try {
      await this.#until('everything has landed', async () => {
        const { written, landed } = await readPlace(this.#stage.redis, this.#stage.keys, this.#run!);
        if (written !== landed) return false;
        if (this.#stage.database !== undefined) return !(await areGiveBacksOpen(this.#stage.database, this.#id));
        const { inFlight } = await this.#verificationNow();
        return Object.values((inFlight ?? {}) as Record<string, number>).every((units) => units === 0);
      });
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.#ports.tell(`${error.message}; the demo goes on`);
    }
  }

  async #verificationNow(): Promise<Document> {
    const path = `/activities/${this.#id}/verify`;
    return (await callOperator(this.#planner, { method: 'GET', path })).document;
  }

  async #verify(): Promise<{ holds: boolean; says: string }> {
    const report = await this.#verificationNow();
    const lines = describeVerification(report);
    for (const line of lines) this.#ports.tell(`verify: ${line.trim()}`);
    return { holds: verificationHolds(report), says: `verify: ${lines.join(' ')}` };
  }

  /** Settles, or says why that is refused. */
  async #settle(): Promise<{ holds: boolean; says: string }> {
    const until = this.#now() + SETTLED_MS_MAX;
    for (;;) {
      try {
        await this.#post(this.#planner, 'settle');
        return { holds: true, says: 'settled' };
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        const isBusy = error.status === 503;
        if (isBusy && this.#now() < until) {
          await this.#ports.timers.sleep(SETTLE_AGAIN_MS);
          continue;
        }
        this.#ports.tell(`settle: ${error.message}`);
        return { holds: false, says: `settle: ${error.message}` };
      }
    }
  }

  async #ledger() {
    return readLedger(await this.#stage.databaseAlone(), this.#id);
  }

  #post(at: OperatorAddress, move: string): Promise<unknown> {
    return callOperator(at, { method: 'POST', path: `/activities/${this.#id}/${move}` });
  }

  async #until(what: string, holds: () => Promise<boolean>): Promise<void> {
    const until = this.#now() + LANDED_MS_MAX;
    while (!(await holds())) {
      if (this.#now() > until) {
        throw new Fault('not_ready', `waiting until ${what}: not within ${LANDED_MS_MAX / 1_000} s`, {
          retryable: true,
        });
      }
      await this.#ports.timers.sleep(LOOK_AGAIN_MS);
    }
  }

  /** A line a second while the crowd is at work. */
  #showProgress(opensAt: number): void {
    const show = async (): Promise<void> => {
      let last = '';
      while (!this.#over.signal.aborted) {
        const { requests, accepted, codes } = this.#generators.progress();
        const since = (this.#now() - opensAt) / 1_000;
        const soldOut = codes['sold_out'] === undefined ? '' : `, sold_out ${grouped(codes['sold_out'])}`;
        const line = `${grouped(requests)} requests, ${grouped(accepted)} told yes${soldOut}`;
        if (line !== last && since > 0) this.#ports.tell(`  ${since.toFixed(1)} s: ${line}`);
        last = line;
        await this.#ports.timers.sleep(PROGRESS_EVERY_MS, this.#over.signal);
      }
    };
    void show();
  }
}

/** What the buyers heard, buyer by buyer, from the generators' files. */
async function* evidenceOf(files: readonly string[]): AsyncGenerator<BuyerEvidence> {
  for (const file of files) {
    for await (const line of createInterface({ input: createReadStream(file), crlfDelay: Number.POSITIVE_INFINITY })) {
      yield readEvidence(line);
    }
  }
}
