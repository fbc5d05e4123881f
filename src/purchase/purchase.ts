/**
 * A purchase's walk, on one screen (article 3.3). The door has checked form and identity; from here on:
 *
 * ```
 * activity known? ──no──► unknown_activity (not_ready until the activities have been read)
 *   │
 * window, from memory ──► not_open
 *   │
 * gate: one atomic step in Redis ──► not_ready key_reused replayed already_bought not_open paused ended sold_out
 *   │ held                                                                              busy (nothing ran)  in_doubt
 *   ├── answerWhen: held ────► held (202): the landing follows by itself
 *   └── answerWhen: ordered ─► ordered (201), or what PostgreSQL said instead, or held after landingWaitMs
 * ```
 *
 * Nothing on this way touches PostgreSQL.
 */
import type { Activity } from '../domain/activity.ts';
import type { Mark } from '../domain/mark.ts';
import { standingOfMark } from '../domain/receipt.ts';
import type { HoldRequest, HoldResult } from '../domain/results.ts';
import type { PurchaseAnswer } from './5-receipt/answer.ts';

/** The stages that the walk asks, in order. */
export type PurchaseStages = {
  /** false until the activities have been read once: an id is then not unknown, only not known yet */
  readonly knowsActivities: () => boolean;
  readonly activity: (id: string) => Activity | undefined;
  readonly refuseByWindow: (activity: Activity) => 'not_open' | undefined;
  readonly hold: (activity: Activity, request: HoldRequest) => Promise<HoldResult>;
  readonly receiptOf: (activityId: string, buyerId: string, mark: Mark) => string;
  /** the mark once the hold has landed, or as it stands after `landingWaitMs`; undefined where it cannot be read */
  readonly awaitLanding: (activity: Activity, buyerId: string, mark: Mark) => Promise<Mark | undefined>;
};

/** Walks one purchase to its answer. Never throws for anything the world does. */
export async function purchase(
  stages: PurchaseStages,
  activityId: string,
  request: HoldRequest,
): Promise<PurchaseAnswer> {
  const activity = stages.activity(activityId);
  if (activity === undefined) return { code: stages.knowsActivities() ? 'unknown_activity' : 'not_ready' };

  if (stages.refuseByWindow(activity) === 'not_open') return { code: 'not_open', opensAt: activity.opensAt };

  const result = await stages.hold(activity, request);
  switch (result.code) {
    case 'held':
      if (activity.answerWhen === 'ordered') return afterLanding(stages, activity, request, result.mark);
      return told(stages, activityId, request.buyerId, 'held', result.mark);
    case 'replayed':
      return told(stages, activityId, request.buyerId, 'replayed', result.mark);
    case 'already_bought': {
      const receipt = stages.receiptOf(activityId, request.buyerId, result.mark);
      return { code: 'already_bought', receipt, orderId: result.mark.orderId };
    }
    case 'not_ready':
      // after the settlement the gate's keys are gone, and nothing is left to become ready
      return activity.state === 'settled' ? { code: 'ended' } : result;
    default:
      return result;
  }
}

/** Strict mode: the reply waits for the same landing, so it has no second set of bugs (design §2). */
async function afterLanding(
  stages: PurchaseStages,
  activity: Activity,
  request: HoldRequest,
  mark: Mark,
): Promise<PurchaseAnswer> {
  const landed = await stages.awaitLanding(activity, request.buyerId, mark);
  const receipt = stages.receiptOf(activity.id, request.buyerId, mark);
  if (landed?.orderId === mark.orderId) {
    if (landed.status === 'o' || landed.status === 'p') {
      return { code: 'ordered', receipt, orderId: mark.orderId, quantity: mark.quantity };
    }
    if (landed.status === 'S') return { code: 'sold_out' };
    if (landed.status === 'A') return { code: 'already_bought', receipt, orderId: mark.orderId };
  } else if (landed !== undefined) {
    // PostgreSQL knew a live order of this buyer; its mark has taken the place of ours
    const other = stages.receiptOf(activity.id, request.buyerId, landed);
    return { code: 'already_bought', receipt: other, orderId: landed.orderId };
  }
  return told(stages, activity.id, request.buyerId, 'held', mark);
}

const told = (
  stages: PurchaseStages,
  activityId: string,
  buyerId: string,
  code: 'held' | 'replayed',
  mark: Mark,
): PurchaseAnswer => ({
  code,
  receipt: stages.receiptOf(activityId, buyerId, mark),
  orderId: mark.orderId,
  quantity: mark.quantity,
  standing: code === 'held' ? { state: 'queued' } : standingOfMark(mark.status),
});
