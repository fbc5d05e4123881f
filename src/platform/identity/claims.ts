/**
 * What a verified payload says about time and addressee: `exp`, `nbf`, `iss`, `aud`.
 * For payloads whose signature has been checked; who is named in them is the caller's business.
 * @source RFC 7519 §4.1
 */
import type { Claims } from './token.ts';

/** Clocks of issuer and service may differ by this much, either way. */
export const CLOCK_SKEW_MS = 30_000;

/** The instants at which a token counts, epoch ms, the allowed skew included: `fromMs <= now < untilMs`. */
export type Validity = { readonly fromMs: number; readonly untilMs: number };

/** Reads `exp` (required) and `nbf`; undefined when a date is missing or is no number. */
export function readValidity(claims: Claims): Validity | undefined {
  const exp = claims['exp'];
  const nbf = claims['nbf'];
  if (!isNumericDate(exp) || (nbf !== undefined && !isNumericDate(nbf))) return undefined;
  return {
    fromMs: nbf === undefined ? Number.NEGATIVE_INFINITY : nbf * 1_000 - CLOCK_SKEW_MS,
    untilMs: exp * 1_000 + CLOCK_SKEW_MS,
  };
}

/** Why a token does not count at this instant; undefined when it does. */
export function judgeTime({ fromMs, untilMs }: Validity, nowMs: number): 'expired' | 'not_yet' | undefined {
  if (nowMs >= untilMs) return 'expired';
  return nowMs < fromMs ? 'not_yet' : undefined;
}

/** Whether `aud`, a name or a list of names, holds `audience`. */
export function isFor(claims: Claims, audience: string): boolean {
  const aud = claims['aud'];
  return aud === audience || (Array.isArray(aud) && aud.includes(audience));
}

const isNumericDate = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);
