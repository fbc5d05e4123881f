/**
 * Operators' tokens: HS256 with a secret of their own, made by `sluice admin token`.
 *
 * ```
 * {"sub": name, "role": viewer|operator|approver, "aud": "sluice-operator", "iat": s, "exp": s}
 * ```
 *
 * Promises that no buyer's token is an operator's and none of these a buyer's, even where both are signed with one secret:
 * the audience decides, and buyers.ts refuses this one always. Does not know what a role may do: the console does.
 */
import { Fault } from '../../domain/fault.ts';
import type { Clock } from '../clock.ts';
import { readBearer } from './bearer.ts';
import { judgeTime, readValidity } from './claims.ts';
import { makeHs256 } from './hs256.ts';

/** The audience that makes a token an operator's. */
export const OPERATOR_AUDIENCE = 'sluice-operator';
/** Longest life of an operator's token. */
export const OPERATOR_HOURS_MAX = 24 * 366;

/** What operators may be, from least to most (contract, operator API). */
export const OPERATOR_ROLES = ['viewer', 'operator', 'approver'] as const;
/** What an operator is. */
export type OperatorRole = (typeof OPERATOR_ROLES)[number];

/** Who is asking. */
export type IdentifiedOperator =
  | { readonly kind: 'operator'; readonly name: string; readonly role: OperatorRole }
  | {
      readonly kind: 'unauthenticated';
      readonly reason: 'missing' | 'malformed' | 'signature' | 'expired' | 'not_yet' | 'audience' | 'operator';
    };

/** Issues and reads operators' tokens. */
export interface OperatorIdentity {
  /**
   * A token for `hours` from now.
   * @param operator.name of `[A-Za-z0-9_.@-]{1,64}`, kept in the audit
   * @throws Fault `settings_invalid` for a name, role or time that no token may carry
   */
  issueOperatorToken(operator: { name: string; role: OperatorRole; hours: number }): string;
  /**
   * Reasons in this precedence: `missing`, `malformed`, `signature`, `expired`, `not_yet`, `audience` (a buyer's token,
   * most likely), `operator` (no name or role in it).
   */
  identifyOperator(authorizationHeader: string | undefined): IdentifiedOperator;
}

/**
 * Makes the operators' identity.
 * @param options.secrets the one in use first, then those still valid while rotating
 * @throws Fault `settings_invalid` for a short or missing secret
 */
export function makeOperatorIdentity(options: { secrets: readonly string[]; clock: Clock }): OperatorIdentity {
  const hs256 = makeHs256(options.secrets);
  const { clock } = options;
  return {
    issueOperatorToken({ name, role, hours }) {
      if (!isOperatorName(name)) throw invalid('operator token: the name must be 1 to 64 of A-Z a-z 0-9 _ . @ -');
      if (!isOperatorRole(role)) throw invalid(`operator token: the role must be one of ${OPERATOR_ROLES.join(', ')}`);
      if (!(hours > 0 && hours <= OPERATOR_HOURS_MAX)) {
        throw invalid(`operator token: hours must be above 0 and at most ${OPERATOR_HOURS_MAX}`);
      }
      const iat = Math.floor(clock.now() / 1_000);
      return hs256.sign({ sub: name, role, aud: OPERATOR_AUDIENCE, iat, exp: iat + Math.ceil(hours * 3_600) });
    },
    identifyOperator(authorizationHeader) {
      const bearer = readBearer(authorizationHeader);
      if (typeof bearer === 'string') return refuse(bearer);
      const claims = hs256.verify(bearer.token);
      if (typeof claims === 'string') return refuse(claims);
      const validity = readValidity(claims);
      if (validity === undefined) return refuse('malformed');
      const untimely = judgeTime(validity, clock.now());
      if (untimely !== undefined) return refuse(untimely);
      // Exactly this one: a list of audiences is nothing that we have issued.
      if (claims['aud'] !== OPERATOR_AUDIENCE) return refuse('audience');
      const name = claims['sub'];
      const role = claims['role'];
      return isOperatorName(name) && isOperatorRole(role) ? { kind: 'operator', name, role } : refuse('operator');
    },
  };
}

const OPERATOR_NAME = /^[A-Za-z0-9_.@-]{1,64}$/;

const isOperatorName = (value: unknown): value is string => typeof value === 'string' && OPERATOR_NAME.test(value);
const isOperatorRole = (value: unknown): value is OperatorRole => OPERATOR_ROLES.some((role) => role === value);

type OperatorReason = Extract<IdentifiedOperator, { kind: 'unauthenticated' }>['reason'];
const refuse = (reason: OperatorReason): IdentifiedOperator => ({ kind: 'unauthenticated', reason });
const invalid = (sentence: string): Fault => new Fault('settings_invalid', sentence, { retryable: false });
