/**
 * Planning an activity: what may be asked for, checked in one place, and its approval (design §9; contract "Bounds").
 * What is not here (segments, tickets, durable winners) cannot be planned.
 */
import type { Activity } from '../../domain/activity.ts';
import { surplusOf } from '../../domain/activity.ts';
import { isId, PER_BUYER_LIMIT_MAX, PRICE_MINOR_MAX, TOTAL_MAX } from '../../domain/ids.ts';
import type { Clock } from '../../platform/clock.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { findActivity, insertActivity, moveActivity } from './activities-table.ts';

/** An activity as planned. Instants in epoch ms, money in minor units. */
export type ActivityPlan = {
  readonly id: string;
  readonly itemName: string;
  readonly imageUrl?: string;
  readonly priceMinor: number;
  readonly currency: string;
  readonly total: number;
  readonly perBuyerLimit?: number;
  readonly opensAt: number;
  readonly endsAt: number;
  readonly answerWhen?: 'held' | 'ordered';
  readonly overshoot?: number;
};

/** Outcome of planning. */
export type Planned =
  | { readonly kind: 'planned'; readonly activity: Activity }
  | { readonly kind: 'invalid'; readonly field: keyof ActivityPlan; readonly must: string }
  | { readonly kind: 'exists' };

const DAY_MS = 86_400_000;
// control, bidirectional-control and lone surrogate characters (contract: "names and reasons")
const UNSHOWABLE = /[\p{Cc}\p{Cs}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u;

/** The first thing that is wrong with a plan; undefined where nothing is. */
export function findFault(plan: ActivityPlan, now: number): { field: keyof ActivityPlan; must: string } | undefined {
  const whole = (value: number, min: number, max: number): boolean =>
    Number.isInteger(value) && value >= min && value <= max;
  const limit = plan.perBuyerLimit ?? 1;
  const overshoot = plan.overshoot ?? 1;
  if (!isId(plan.id)) return { field: 'id', must: 'be 1 to 64 of A-Z a-z 0-9 _ -' };
  const length = [...plan.itemName].length;
  if (length < 1 || length > 120) return { field: 'itemName', must: 'have 1 to 120 code points' };
  if (UNSHOWABLE.test(plan.itemName)) return { field: 'itemName', must: 'have no control characters' };
  if (plan.itemName.normalize('NFC') !== plan.itemName) return { field: 'itemName', must: 'be in normal form C' };
  if (!whole(plan.priceMinor, 0, PRICE_MINOR_MAX))
    return { field: 'priceMinor', must: `be a whole number from 0 to ${PRICE_MINOR_MAX}` };
  if (!/^[A-Z]{3}$/.test(plan.currency)) return { field: 'currency', must: 'be an ISO 4217 code' };
  if (!whole(plan.total, 1, TOTAL_MAX)) return { field: 'total', must: `be a whole number from 1 to ${TOTAL_MAX}` };
  if (!whole(limit, 1, PER_BUYER_LIMIT_MAX))
    return { field: 'perBuyerLimit', must: `be a whole number from 1 to ${PER_BUYER_LIMIT_MAX}` };
  if (plan.priceMinor * limit > Number.MAX_SAFE_INTEGER)
    return { field: 'priceMinor', must: 'times perBuyerLimit be at most 2^53 − 1' };
  if (!whole(plan.opensAt, 0, now + 366 * DAY_MS))
    return { field: 'opensAt', must: 'be an instant at most 366 days ahead' };
  if (!whole(plan.endsAt, 0, now + 366 * DAY_MS))
    return { field: 'endsAt', must: 'be an instant at most 366 days ahead' };
  if (plan.endsAt <= plan.opensAt) return { field: 'endsAt', must: 'be after opensAt' };
  if (plan.endsAt <= now) return { field: 'endsAt', must: 'be in the future' };
  if (!(overshoot >= 1 && overshoot <= 2) || Math.abs(overshoot * 1000 - Math.round(overshoot * 1000)) > 1e-6) {
    return { field: 'overshoot', must: 'be from 1 to 2 with at most three decimals' };
  }
  if (overshoot > 1 && plan.answerWhen !== 'ordered')
    return { field: 'overshoot', must: 'be 1 unless answerWhen is ordered' };
  return undefined;
}

/** Plans an activity; it waits in review. */
export async function planActivity(
  database: Database,
  clock: Clock,
  plan: ActivityPlan,
  actor: string,
): Promise<Planned> {
  const fault = findFault(plan, clock.now());
  if (fault !== undefined) return { kind: 'invalid', ...fault };
  const overshoot = plan.overshoot ?? 1;
  const made = await insertActivity(database, {
    id: plan.id,
    itemName: plan.itemName,
    imageUrl: plan.imageUrl,
    priceMinor: plan.priceMinor,
    currency: plan.currency,
    total: plan.total,
    surplus: surplusOf(plan.total, overshoot),
    perBuyerLimit: plan.perBuyerLimit ?? 1,
    opensAt: plan.opensAt,
    endsAt: plan.endsAt,
    answerWhen: plan.answerWhen ?? 'held',
    overshoot,
    createdBy: actor,
  });
  if (!made) return { kind: 'exists' };
  return { kind: 'planned', activity: (await findActivity(database, plan.id))! };
}

/** 待审核 → 待开始. False where it was not in review. */
export function approveActivity(database: Database, id: string, actor: string): Promise<boolean> {
  return moveActivity(database, { id, from: 'in_review', to: 'scheduled', actor });
}
