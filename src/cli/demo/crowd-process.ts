/**
 * The process of one generator: a share of the crowd, told by its parent what to do next, one message an order.
 *
 *     parent ── {do: 'prepare', share, urls, …} ──▶ ── {done: 'prepare'}
 *            ── {do: 'early' | 'eager' | 'flood' | 'late' | 'afterEnd' | 'collect', startAt?} ──▶ ── {done, progress}
 *            ── {do: 'finish'} ──▶ writes the evidence file ── {done: 'finish'}, and ends
 *     meanwhile {progress} twice a second
 *
 * It ends when the parent does: the channel closes. This file gives the crowd clock, tokens and files; the crowd itself
 * knows none of them.
 */
import { createWriteStream } from 'node:fs';
import { once } from 'node:events';
import { systemClock, systemTimers } from '../../platform/clock.ts';
import { issueDevelopmentToken } from '../../platform/identity/development.ts';
import { openBuyerCalls, type BuyerCalls } from './crowd/buyer-calls.ts';
import { Crowd, type CrowdProgress, type CrowdShare } from './crowd/crowd.ts';
import { evidenceLine } from './crowd/evidence.ts';

/** What a generator may be told to do, after `prepare`. */
export type CrowdPhase = 'early' | 'eager' | 'flood' | 'late' | 'afterEnd' | 'collect' | 'finish';

/** A message to a generator. */
export type CrowdOrder =
  | {
      readonly do: 'prepare';
      readonly share: CrowdShare;
      readonly urls: readonly string[];
      /** the shop's secret: the crowd is logged in by the shop, not by Sluice */
      readonly buyerSecret: string;
      readonly evidenceFile: string;
    }
  | {
      readonly do: CrowdPhase;
      /** not before this instant, epoch ms by the host's clock */
      readonly startAt?: number;
    };

/** A message of a generator. */
export type CrowdReport =
  | { readonly done: CrowdPhase | 'prepare'; readonly progress: CrowdProgress }
  | { readonly progress: CrowdProgress }
  | { readonly failed: string };

const PROGRESS_EVERY_MS = 500;
/** Close enough to an opening to wait awake for it. */
const ALERT_MS = 2;

/** Runs a generator until its parent has had enough of it. */
export async function runCrowdProcess(): Promise<void> {
  const parent = process;
  if (parent.send === undefined) throw new Error('a generator is started by sluice demo, not by hand');
  // a terminal's Ctrl-C reaches the whole group; the parent ends us in its own order
  process.on('SIGINT', () => undefined);
  process.on('disconnect', () => process.exit(0));

  // one clock that never steps, on the host's time: comparable between the processes of a demo
  const base = systemClock.now() - systemClock.monotonic();
  const now = (): number => base + systemClock.monotonic();
  const say = (report: CrowdReport): void => void parent.send!(report);
  let crowd: Crowd | undefined;
  let calls: BuyerCalls | undefined;
  let evidenceFile = '';

  const tick = (): void => {
    if (crowd !== undefined && parent.connected) say({ progress: crowd.progress() });
    systemTimers.after(PROGRESS_EVERY_MS, tick);
  };
  tick();

  async function obey(order: CrowdOrder): Promise<void> {
    if (order.do === 'prepare') {
      const secret = order.buyerSecret;
      calls = openBuyerCalls(order.urls, order.share.inFlight * 2);
      evidenceFile = order.evidenceFile;
      crowd = new Crowd(order.share, {
        calls,
        now,
        sleep: (ms) => systemTimers.sleep(ms),
        tokenOf: (buyerId) => issueDevelopmentToken(buyerId, { secret, clock: systemClock }),
        wrongAuthorization: (buyerId, kind) => wrongAuthorization(buyerId, kind, secret),
      });
    } else {
      if (crowd === undefined) throw new Error('a generator is prepared before it works');
      if (order.startAt !== undefined) {
        const leftMs = order.startAt - now() - ALERT_MS;
        if (leftMs > 0) await systemTimers.sleep(leftMs);
        while (now() < order.startAt) await new Promise((resolve) => process.nextTick(resolve));
      }
      if (order.do === 'finish') await writeEvidence(crowd, evidenceFile);
      else await crowd[order.do]();
    }
    say({ done: order.do, progress: crowd.progress() });
    if (order.do === 'finish') {
      await calls?.close();
      process.disconnect();
    }
  }

  process.on('message', (order: CrowdOrder) => {
    obey(order).catch((error: unknown) => say({ failed: error instanceof Error ? error.message : String(error) }));
  });
  await once(process, 'disconnect');
}

/** Tokens that are none: no header, no token, another secret, run out. */
function wrongAuthorization(buyerId: string, kind: number, secret: string): string | undefined {
  switch (kind % 4) {
    case 0:
      return undefined;
    case 1:
      return 'Bearer nonsense';
    case 2:
      return `Bearer ${issueDevelopmentToken(buyerId, { secret: `${secret}-of-somebody-else`, clock: systemClock })}`;
    default: {
      const yesterday = { ...systemClock, now: () => systemClock.now() - 86_400_000 };
      return `Bearer ${issueDevelopmentToken(buyerId, { secret, clock: yesterday, hours: 1 })}`;
    }
  }
}

async function writeEvidence(crowd: Crowd, file: string): Promise<void> {
  const stream = createWriteStream(file, { mode: 0o600 });
  for (const buyer of crowd.evidence()) {
    if (!stream.write(`${evidenceLine(buyer)}\n`)) await once(stream, 'drain');
  }
  stream.end();
  await once(stream, 'close');
}
