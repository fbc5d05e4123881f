/**
 * The forms of the operator API: what an activity looks like in a request, strictly, and in a reply.
 *
 * What the contract knows and this service does not offer yet is refused by name, never ignored: a sale that was planned
 * with tickets must not open without them.
 */
import Type from 'typebox';
import { nameFault, type ActivityPlan, type PlanFault } from '../activity/1-plan/plan.ts';
import { movesAllowed } from '../activity/lifecycle.ts';
import { stateAt, type ActivityRecord } from '../domain/activity.ts';
import { ID_PATTERN, PER_BUYER_LIMIT_MAX, PRICE_MINOR_MAX, TOTAL_MAX } from '../domain/ids.ts';
import { instant } from '../platform/http/instant.ts';
import { parseInstant } from './rfc3339.ts';

/** Longest text that is looked at at all; the bounds of each text are narrower. */
const TEXT_CHARACTERS_MAX = 4_000;
const strict = { additionalProperties: false };
const text = Type.String({ maxLength: TEXT_CHARACTERS_MAX });
const oneOf = <T extends string>(...values: T[]) => Type.Unsafe<T>({ type: 'string', enum: values });

const item = {
  name: text,
  priceMinor: Type.Integer({ minimum: 0, maximum: PRICE_MINOR_MAX }),
  currency: text,
};
const rules = {
  perBuyerLimit: Type.Optional(Type.Integer({ minimum: 1, maximum: PER_BUYER_LIMIT_MAX })),
  answerWhen: Type.Optional(oneOf('held', 'ordered')),
  overshoot: Type.Optional(Type.Number({ minimum: 1, maximum: 2 })),
  segments: Type.Optional(Type.Integer({ minimum: 1, maximum: 64 })),
  durability: Type.Optional(oneOf('memory', 'replicated', 'synced')),
  requireTicket: Type.Optional(Type.Boolean()),
  autoConfirm: Type.Optional(Type.Boolean()),
  payWithinSeconds: Type.Optional(Type.Integer({ minimum: 1, maximum: 31_622_400 })),
  limits: Type.Optional(
    Type.Object(
      {
        activityPerSecond: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
        buyerPerSecond: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000 })),
      },
      strict,
    ),
  ),
};

/** Body of a new activity. */
export const NewActivity = Type.Object(
  {
    id: Type.Optional(Type.String({ pattern: ID_PATTERN })),
    item: Type.Object({ ...item, imageUrl: Type.Optional(text) }, strict),
    total: Type.Integer({ minimum: 1, maximum: TOTAL_MAX }),
    opensAt: text,
    endsAt: text,
    ...rules,
  },
  strict,
);

const edited = {
  item: Type.Optional(
    Type.Object(
      {
        name: Type.Optional(item.name),
        priceMinor: Type.Optional(item.priceMinor),
        currency: Type.Optional(item.currency),
        imageUrl: Type.Optional(Type.Unsafe<string | null>({ ...text, nullable: true })),
      },
      { ...strict, minProperties: 1 },
    ),
  ),
  total: Type.Optional(Type.Integer({ minimum: 1, maximum: TOTAL_MAX })),
  opensAt: Type.Optional(text),
  endsAt: Type.Optional(text),
  ...rules,
};

/** Body of an edit: what is named changes, the rest stays; `item.imageUrl: null` takes the picture away. */
export const ActivityEdit = Type.Object(edited, { ...strict, minProperties: 1 });

/** Body of a copy: what is otherwise than in the original. */
export const ActivityCopy = Type.Object({ id: Type.Optional(Type.String({ pattern: ID_PATTERN })), ...edited }, strict);

/** Body of a move: nothing, or why. */
export const WhyBody = {
  type: 'object',
  nullable: true,
  additionalProperties: false,
  properties: { reason: { type: 'string', maxLength: TEXT_CHARACTERS_MAX } },
};

/** Body of a settlement: nothing, or why, and whether the keys go at once. */
export const SettleBody = { ...WhyBody, properties: { ...WhyBody.properties, now: { type: 'boolean' } } };

/** Path of one activity. */
export const OneActivity = Type.Object({ id: Type.String({ pattern: ID_PATTERN }) });

type Rules = {
  readonly perBuyerLimit?: number;
  readonly answerWhen?: 'held' | 'ordered';
  readonly overshoot?: number;
  readonly segments?: number;
  readonly durability?: 'memory' | 'replicated' | 'synced';
  readonly requireTicket?: boolean;
  readonly autoConfirm?: boolean;
  readonly payWithinSeconds?: number;
  readonly limits?: { readonly activityPerSecond?: number; readonly buyerPerSecond?: number };
};
type Item = { readonly name: string; readonly priceMinor: number; readonly currency: string };

/** A checked body of a new activity. */
export type NewActivityBody = Rules & {
  readonly id?: string;
  readonly item: Item & { readonly imageUrl?: string };
  readonly total: number;
  readonly opensAt: string;
  readonly endsAt: string;
};
/** A checked body of an edit. */
export type ActivityEditBody = Rules & {
  readonly item?: Partial<Item> & { readonly imageUrl?: string | null };
  readonly total?: number;
  readonly opensAt?: string;
  readonly endsAt?: string;
};

/** The first option of a request that is not offered yet. */
export function notOffered(body: Rules): string | undefined {
  if ((body.segments ?? 1) > 1) return 'segments';
  if ((body.durability ?? 'memory') !== 'memory') return 'durability';
  if (body.requireTicket === true) return 'requireTicket';
  if (body.payWithinSeconds !== undefined) return 'payWithinSeconds';
  return body.limits === undefined ? undefined : 'limits';
}

/** What an edit changes of a plan; null takes the picture away. */
export type PlanEdit = Partial<Omit<ActivityPlan, 'id' | 'imageUrl'>> & { readonly imageUrl?: string | null };

/** Reads a body, all but the bounds that `1-plan` checks: instants, and names as plans have them. */
export function readEdit(body: ActivityEditBody): PlanEdit | PlanFault {
  const { item: product = {}, total, perBuyerLimit, answerWhen, overshoot, autoConfirm } = body;
  const opensAt = body.opensAt === undefined ? undefined : parseInstant(body.opensAt);
  const endsAt = body.endsAt === undefined ? undefined : parseInstant(body.endsAt);
  if (body.opensAt !== undefined && opensAt === undefined) return { field: 'opensAt', fault: 'instant' };
  if (body.endsAt !== undefined && endsAt === undefined) return { field: 'endsAt', fault: 'instant' };
  return definedOf({
    itemName: product.name,
    imageUrl: product.imageUrl,
    priceMinor: product.priceMinor,
    currency: product.currency,
    total,
    perBuyerLimit,
    opensAt,
    endsAt,
    answerWhen,
    overshoot,
    autoConfirm,
  });
}

/** Reads the body of a new activity. `id` is the one it gets where it names none. */
export function readPlan(body: NewActivityBody, id: string): ActivityPlan | PlanFault {
  const edit = readEdit(body);
  if ('fault' in edit) return edit;
  return { ...(edit as Omit<ActivityPlan, 'id'>), id: body.id ?? id };
}

/** Reads why a move is made. */
export function readReason(body: unknown): { readonly reason: string | undefined } | PlanFault {
  const reason = (body as { reason?: string } | null | undefined)?.reason;
  return (reason === undefined ? undefined : nameFault('reason', reason)) ?? { reason };
}

/** The members of an object that are not undefined. */
function definedOf<T extends object>(object: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}

/** An activity as operators see it. `now`: the instant by which its state is told. */
export function showActivity(activity: ActivityRecord, now: number): object {
  return {
    id: activity.id,
    item: {
      name: activity.itemName,
      priceMinor: activity.priceMinor,
      currency: activity.currency,
      ...(activity.imageUrl === undefined ? {} : { imageUrl: activity.imageUrl }),
    },
    total: activity.total,
    sold: activity.sold,
    surplus: activity.surplus,
    perBuyerLimit: activity.perBuyerLimit,
    ...instant('opensAt', activity.opensAt),
    ...instant('endsAt', activity.endsAt),
    answerWhen: activity.answerWhen,
    overshoot: activity.overshoot,
    segments: activity.segments,
    durability: 'memory',
    requireTicket: false,
    autoConfirm: activity.autoConfirm,
    state: stateAt(activity, now),
    paused: activity.paused,
    preheat: activity.preheat,
    run: activity.run,
    ...(activity.runState === undefined ? {} : { runState: activity.runState }),
    version: activity.version,
    createdBy: activity.createdBy,
    ...(activity.editedBy === undefined ? {} : { editedBy: activity.editedBy }),
    ...instant('createdAt', activity.createdAt),
    moves: movesAllowed(activity, now),
    ...instant('now', Math.floor(now)),
  };
}
