/** Activities: one sale each, and the states it walks through (design §9; article 1.5). */

/** 待审核 → 待开始 → 进行中 → 已结束 → 已结算, or rejected. */
export type ActivityState = 'in_review' | 'scheduled' | 'open' | 'ended' | 'settled' | 'rejected';

/** How far the preheat of a scheduled activity has come. */
export type PreheatState = 'none' | 'written' | 'verified' | 'confirmed' | 'failed';

/** When the buyer is answered: with the hold (model 1), or with the stored order (model 2, strict). */
export type AnswerWhen = 'held' | 'ordered';

/** An activity as every process keeps it in memory; instants in epoch milliseconds, money in minor units. */
export type Activity = {
  readonly id: string;
  readonly state: ActivityState;
  readonly paused: boolean;
  readonly preheat: PreheatState;
  readonly itemName: string;
  readonly imageUrl: string | undefined;
  readonly priceMinor: number;
  readonly currency: string;
  readonly total: number;
  readonly sold: number;
  readonly surplus: number;
  readonly perBuyerLimit: number;
  readonly opensAt: number;
  readonly endsAt: number;
  readonly answerWhen: AnswerWhen;
  readonly overshoot: number;
  readonly segments: number;
  readonly autoConfirm: boolean;
  /** 0 where it was never preheated */
  readonly run: number;
  /** buyer shards a segment of the present run; 0 without a run */
  readonly shards: number;
  /** state of the present run, `lost` where the gate must stay shut until a rebuild */
  readonly runState: 'building' | 'open' | 'lost' | 'closed' | undefined;
  readonly version: number;
};

/** An activity with what only operators see, and the instant at which it was read. */
export type ActivityRecord = Activity & {
  readonly createdBy: string;
  /** who changed the plan last; undefined while nobody has */
  readonly editedBy: string | undefined;
  readonly createdAt: number;
  /** the database's clock when this was read: what guards measure by */
  readonly readAt: number;
};

/**
 * The state by the clock: past `opensAt` a confirmed activity is open to every check, past `endsAt` it has ended, whatever
 * its row still says (P20). One that was never confirmed stays `scheduled` until its end.
 */
export function stateAt(
  activity: Pick<Activity, 'state' | 'preheat' | 'opensAt' | 'endsAt'>,
  now: number,
): ActivityState {
  if (activity.state !== 'scheduled' && activity.state !== 'open') return activity.state;
  if (now >= activity.endsAt) return 'ended';
  const opened = activity.preheat === 'confirmed' && now >= activity.opensAt;
  return activity.state === 'open' || opened ? 'open' : 'scheduled';
}

/** Tickets beyond the stock in strict mode: ⌊(overshoot − 1) × total⌋ (design §2). */
export function surplusOf(total: number, overshoot: number): number {
  // overshoot has three decimals; count in thousandths, so that 1.1 × 10 is 11 and not 10.999…
  return Math.floor(((Math.round(overshoot * 1000) - 1000) * total) / 1000);
}
