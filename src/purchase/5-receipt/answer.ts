/**
 * One table from the result of a purchase to what the buyer is told: status, body, waiting time (contract "Purchase
 * answers"; docs/results.md is tested against this table). Refusals that are alike for everybody are built once, as
 * bytes, per language: a loser costs no serialisation (G8).
 */
import { chooseLanguage, fieldFault, TITLES, type Language, type ProblemCode } from '../../domain/text.ts';
import type { Standing } from '../../domain/receipt.ts';

/** What a purchase ended in, as the walk hands it on. */
export type PurchaseAnswer =
  | {
      readonly code: 'held' | 'replayed';
      readonly receipt: string;
      readonly orderId: string;
      readonly quantity: number;
      readonly standing: Standing;
    }
  | { readonly code: 'ordered'; readonly receipt: string; readonly orderId: string; readonly quantity: number }
  | { readonly code: 'already_bought'; readonly receipt: string; readonly orderId: string }
  | { readonly code: 'not_open'; readonly opensAt: number }
  | {
      readonly code:
        'paused' | 'ended' | 'sold_out' | 'not_ready' | 'busy' | 'in_doubt' | 'unknown_activity' | 'key_reused';
    }
  /** `field` and what is wrong with it; from the gate, which judges quantities only, without both */
  | { readonly code: 'invalid'; readonly field?: string; readonly detail?: string }
  | { readonly code: 'unauthenticated'; readonly reason: string };

/** A reply, ready to be sent. */
export type Reply = {
  readonly status: number;
  readonly contentType: 'application/json; charset=utf-8' | 'application/problem+json; charset=utf-8';
  readonly body: Buffer | string;
  readonly headers: Readonly<Record<string, string>>;
};

/** Status of every code. */
export const STATUS = {
  held: 202,
  ordered: 201,
  replayed: 200,
  already_bought: 409,
  sold_out: 409,
  not_open: 409,
  paused: 409,
  ended: 410,
  busy: 503,
  not_ready: 503,
  in_doubt: 503,
  invalid: 400,
  unauthenticated: 401,
  unknown_activity: 404,
  key_reused: 422,
} as const satisfies Record<PurchaseAnswer['code'], number>;

/** Where waiting helps: the least wait, and how far it is spread so that the crowd does not come back in step. */
export const RETRY_AFTER = {
  busy: { leastMs: 1_000, spreadMs: 2_000 },
  not_ready: { leastMs: 1_000, spreadMs: 2_000 },
  in_doubt: { leastMs: 500, spreadMs: 1_000 },
} as const satisfies Partial<Record<PurchaseAnswer['code'], { leastMs: number; spreadMs: number }>>;

/** Prebuilt variants of an answer with a wait: enough to spread the crowd. */
const SPREAD_VARIANTS = 16;

const PROBLEM = 'application/problem+json; charset=utf-8';
const JSON_TYPE = 'application/json; charset=utf-8';
const NO_HEADERS = {};

const problem = (
  code: PurchaseAnswer['code'] & ProblemCode,
  language: Language,
  more: Readonly<Record<string, unknown>> = {},
  headers: Readonly<Record<string, string>> = NO_HEADERS,
): Reply => ({
  status: STATUS[code],
  contentType: PROBLEM,
  body: JSON.stringify({ code, title: TITLES[code][language], status: STATUS[code], ...more }),
  headers,
});

const bytes = (reply: Reply): Reply => ({ ...reply, body: Buffer.from(reply.body) });

const LANGUAGES: readonly Language[] = ['zh-CN', 'en'];

/** Same bytes for everybody. */
const CONSTANT = new Map<string, Reply>();
for (const language of LANGUAGES) {
  for (const code of ['paused', 'ended', 'sold_out', 'unknown_activity', 'key_reused'] as const) {
    CONSTANT.set(`${code} ${language}`, bytes(problem(code, language)));
  }
}
/** Same bytes but for the wait. */
const SPREAD = new Map<string, readonly Reply[]>();
for (const language of LANGUAGES) {
  for (const code of ['busy', 'not_ready', 'in_doubt'] as const) {
    const { leastMs, spreadMs } = RETRY_AFTER[code];
    SPREAD.set(
      `${code} ${language}`,
      Array.from({ length: SPREAD_VARIANTS }, (_, i) => {
        const retryAfterMs = leastMs + Math.round((spreadMs * i) / (SPREAD_VARIANTS - 1));
        // whole seconds, rounded up: obeying the header must be enough
        const headers = { 'retry-after': String(Math.ceil(retryAfterMs / 1000)) };
        return bytes(problem(code, language, { retryAfterMs }, headers));
      }),
    );
  }
}

/**
 * The reply to a purchase.
 * @param acceptLanguage the caller's header, @param fraction a random number in [0, 1) that spreads the waits
 */
export function replyTo(answer: PurchaseAnswer, acceptLanguage: string | undefined, fraction: number): Reply {
  const language = chooseLanguage(acceptLanguage);
  switch (answer.code) {
    case 'sold_out':
    case 'paused':
    case 'ended':
    case 'unknown_activity':
    case 'key_reused':
      return CONSTANT.get(`${answer.code} ${language}`)!;
    case 'busy':
    case 'not_ready':
    case 'in_doubt': {
      const variants = SPREAD.get(`${answer.code} ${language}`)!;
      return variants[Math.floor(fraction * variants.length)]!;
    }
    case 'held':
    case 'replayed':
      return {
        status: STATUS[answer.code],
        contentType: JSON_TYPE,
        body: JSON.stringify({
          code: answer.code,
          receipt: answer.receipt,
          orderId: answer.orderId,
          quantity: answer.quantity,
          ...answer.standing,
        }),
        headers: answer.code === 'replayed' ? { 'idempotent-replayed': 'true' } : NO_HEADERS,
      };
    case 'ordered':
      return {
        status: STATUS.ordered,
        contentType: JSON_TYPE,
        body: JSON.stringify({
          code: answer.code,
          receipt: answer.receipt,
          orderId: answer.orderId,
          quantity: answer.quantity,
          state: 'ordered',
        }),
        headers: NO_HEADERS,
      };
    case 'already_bought':
      return problem('already_bought', language, { receipt: answer.receipt, orderId: answer.orderId });
    case 'not_open':
      return problem('not_open', language, {
        opensAt: answer.opensAt,
        opensAtIso: new Date(answer.opensAt).toISOString(),
      });
    case 'unauthenticated':
      return problem('unauthenticated', language, { reason: answer.reason }, { 'www-authenticate': 'Bearer' });
    case 'invalid':
      return problem('invalid', language, {
        field: answer.field ?? 'quantity',
        detail: answer.detail ?? fieldFault('other', language, { field: 'quantity' }),
      });
  }
}
