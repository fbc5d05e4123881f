/**
 * Planning an activity: what may be asked for, checked in one place for making and for editing (design §9; contract
 * "Bounds"). What is not offered yet (segments, tickets, durable winners) cannot be planned.
 */
import type { ActivityRecord, AnswerWhen } from '../../domain/activity.ts';
import { surplusOf } from '../../domain/activity.ts';
import { isId, PER_BUYER_LIMIT_MAX, PRICE_MINOR_MAX, TOTAL_MAX } from '../../domain/ids.ts';
import { fieldFault, type FIELD_FAULTS } from '../../domain/text.ts';
import type { Clock } from '../../platform/clock.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { findActivity, insertActivity } from './activities-table.ts';

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
  readonly answerWhen?: AnswerWhen;
  readonly overshoot?: number;
  readonly autoConfirm?: boolean;
};

/** What is wrong with one field, by its name in the API; `fault` is a key of FIELD_FAULTS. */
export type PlanFault = { readonly field: string; readonly fault: keyof typeof FIELD_FAULTS; readonly limit?: unknown };

/** Outcome of planning. `must` is the fault as an English sentence. */
export type Planned =
  | { readonly kind: 'planned'; readonly activity: ActivityRecord }
  | ({ readonly kind: 'invalid'; readonly must: string } & PlanFault)
  | { readonly kind: 'exists' };

/** How far ahead a sale may end. */
export const DAYS_AHEAD_MAX = 366;
const DAY_MS = 86_400_000;
const NAME_CODE_POINTS_MAX = 120;
const IMAGE_URL_CHARACTERS_MAX = 2_000;
// control, bidirectional-control and lone surrogate characters (contract: "names and reasons")
const UNSHOWABLE = /[\p{Cc}\p{Cs}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u;

/** What is wrong with a name or a reason: 1 to 120 code points, NFC, nothing that cannot be shown. */
export function nameFault(field: string, text: string): PlanFault | undefined {
  const length = [...text].length;
  if (length < 1 || length > NAME_CODE_POINTS_MAX) return { field, fault: 'length', limit: NAME_CODE_POINTS_MAX };
  if (UNSHOWABLE.test(text)) return { field, fault: 'control' };
  if (text.normalize('NFC') !== text) return { field, fault: 'normal_form' };
  return undefined;
}

/** The first thing that is wrong with a plan; undefined where nothing is. */
export function findFault(plan: Omit<ActivityPlan, 'autoConfirm'>, now: number): PlanFault | undefined {
  const limit = plan.perBuyerLimit ?? 1;
  const overshoot = plan.overshoot ?? 1;
  const latest = now + DAYS_AHEAD_MAX * DAY_MS;
  if (!isId(plan.id)) return { field: 'id', fault: 'pattern' };
  return (
    nameFault('item.name', plan.itemName) ??
    (plan.imageUrl === undefined ? undefined : imageFault(plan.imageUrl)) ??
    wholeFault('item.priceMinor', plan.priceMinor, 0, PRICE_MINOR_MAX) ??
    (/^[A-Z]{3}$/.test(plan.currency) ? undefined : { field: 'item.currency', fault: 'currency' }) ??
    wholeFault('total', plan.total, 1, TOTAL_MAX) ??
    wholeFault('perBuyerLimit', limit, 1, PER_BUYER_LIMIT_MAX) ??
    (plan.priceMinor * limit > Number.MAX_SAFE_INTEGER
      ? { field: 'item.priceMinor', fault: 'amount', limit: Number.MAX_SAFE_INTEGER }
      : undefined) ??
    instantFault('opensAt', plan.opensAt, latest) ??
    instantFault('endsAt', plan.endsAt, latest) ??
    (plan.endsAt <= plan.opensAt ? { field: 'endsAt', fault: 'after', limit: 'opensAt' } : undefined) ??
    (plan.endsAt <= now ? { field: 'endsAt', fault: 'future' } : undefined) ??
    overshootFault(overshoot, plan.answerWhen)
  );
}

function wholeFault(field: string, value: number, min: number, max: number): PlanFault | undefined {
  if (!Number.isInteger(value)) return { field, fault: 'type', limit: 'integer' };
  if (value < min) return { field, fault: 'minimum', limit: min };
  return value > max ? { field, fault: 'maximum', limit: max } : undefined;
}

function instantFault(field: string, at: number, latest: number): PlanFault | undefined {
  if (!Number.isInteger(at) || at < 0) return { field, fault: 'instant' };
  return at > latest ? { field, fault: 'days_ahead', limit: DAYS_AHEAD_MAX } : undefined;
}

function imageFault(address: string): PlanFault | undefined {
  const good =
    address.length <= IMAGE_URL_CHARACTERS_MAX &&
    !UNSHOWABLE.test(address) &&
    URL.canParse(address) &&
    /^https?:$/.test(new URL(address).protocol);
  return good ? undefined : { field: 'item.imageUrl', fault: 'web_address' };
}

function overshootFault(overshoot: number, answerWhen: AnswerWhen | undefined): PlanFault | undefined {
  const field = 'overshoot';
  if (!(overshoot >= 1)) return { field, fault: 'minimum', limit: 1 };
  if (overshoot > 2) return { field, fault: 'maximum', limit: 2 };
  // the column has three decimals
  if (Math.abs(overshoot * 1000 - Math.round(overshoot * 1000)) > 1e-6) return { field, fault: 'thousandths' };
  return overshoot > 1 && answerWhen !== 'ordered' ? { field, fault: 'strict_only' } : undefined;
}

/** Plans an activity; it waits in review. */
export async function planActivity(
  database: Database,
  clock: Clock,
  plan: ActivityPlan,
  actor: string,
): Promise<Planned> {
  const fault = findFault(plan, clock.now());
  if (fault !== undefined) return { kind: 'invalid', ...fault, must: fieldFault(fault.fault, 'en', fault) };
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
    autoConfirm: plan.autoConfirm ?? true,
    createdBy: actor,
  });
  if (!made) return { kind: 'exists' };
  return { kind: 'planned', activity: (await findActivity(database, plan.id))! };
}
