/**
 * Who is buying: the buyer id in the JWT that the shop gave its customer.
 *
 * ```
 * Authorization ──► Bearer token ──► seen before? ──yes──► still valid by the clock? ──► buyer        (a look-up, synchronous)
 *                                        │ no
 *                                        ▼
 *                    form, algorithm, signature ──► exp, nbf ──► iss ──► aud ──► buyer id ──► remembered ──► buyer
 * ```
 *
 * Promises that algorithm and keys are those configured and never the token's choice; that `exp` and `nbf` are asked again
 * on every use, since a remembered token outlives a sale; that what is remembered is bounded by number and by characters;
 * that refused tokens are not remembered (a flood of them must not push out good ones); that with HS256 the answer is
 * synchronous, seen or new. Does not call home: a token withdrawn by the shop counts until its `exp`.
 * @source contract, "Buyers are identified by a JWT"
 */
import { LRUCache } from 'lru-cache';
import { Fault } from '../../domain/fault.ts';
import { isId } from '../../domain/ids.ts';
import type { Clock } from '../clock.ts';
import { readBearer } from './bearer.ts';
import { isFor, judgeTime, readValidity } from './claims.ts';
import type { Validity } from './claims.ts';
import { makeHs256 } from './hs256.ts';
import { makeJwksVerifier } from './jwks.ts';
import type { KeyPairAlgorithm, KeySet } from './jwks.ts';
import { OPERATOR_AUDIENCE } from './operators.ts';
import type { Verified } from './token.ts';

/** Tokens remembered, at most. */
export const SEEN_TOKENS_MAX = 100_000;
/** Characters of remembered tokens, at most: 100,000 of the usual 300 fit, 100,000 of the longest do not. */
export const SEEN_CHARACTERS_MAX = 64_000_000;

/** Why nobody is known. In this precedence; `unavailable` (no keys, or too many checks under way) may pass with time. */
export type UnauthenticatedReason =
  'missing' | 'malformed' | 'unavailable' | 'signature' | 'expired' | 'not_yet' | 'issuer' | 'audience' | 'buyer_id';

/** Who is asking. */
export type Identified =
  | { readonly kind: 'buyer'; readonly buyerId: string }
  | { readonly kind: 'unauthenticated'; readonly reason: UnauthenticatedReason };

/** Where the keys come from; which algorithm follows from it, or is fixed beside it. */
export type BuyerKeys =
  | { readonly hs256Secrets: readonly string[] }
  | { readonly jwksUrl: string; readonly algorithm: KeyPairAlgorithm }
  | { readonly jwks: KeySet; readonly algorithm: KeyPairAlgorithm };

/** What buyers' identity is made of. */
export type BuyerIdentityOptions = {
  readonly keys: BuyerKeys;
  readonly clock: Clock;
  /** claim that holds the buyer id. @defaultValue 'sub' */
  readonly claim?: string;
  /** `iss` must be this, if given */
  readonly issuer?: string;
  /** `aud` must be or hold this, if given */
  readonly audience?: string;
  /** @defaultValue SEEN_TOKENS_MAX */
  readonly seenTokensMax?: number;
  /** checks of key-pair signatures under way, at most. @defaultValue CHECKS_MAX of jwks.ts */
  readonly checksMax?: number;
  /** how long one fetch of the JWKS may take. @defaultValue KEYS_TIMEOUT_MS of jwks.ts */
  readonly keysTimeoutMs?: number;
};

/** Identifies buyers. */
export interface BuyerIdentity {
  /** Who sent this `Authorization` header. A promise only for a token not seen before under a JWKS; never rejects. */
  identify(authorizationHeader: string | undefined): Identified | Promise<Identified>;
  /** tokens remembered at present, for metrics */
  seenTokens(): number;
}

/**
 * Makes buyers' identity.
 * @throws Fault `settings_invalid` for keys that cannot be, or the operators' audience; never with a secret in it
 */
export function makeBuyerIdentity(options: BuyerIdentityOptions): BuyerIdentity {
  const { clock, issuer, audience, claim = 'sub' } = options;
  if (audience === OPERATOR_AUDIENCE) {
    throw new Fault('settings_invalid', `the buyers' audience cannot be the operators' (${OPERATOR_AUDIENCE})`, {
      retryable: false,
    });
  }
  const verify = makeVerify(options);
  const seen = new LRUCache<string, Seen>({
    max: options.seenTokensMax ?? SEEN_TOKENS_MAX,
    maxSize: SEEN_CHARACTERS_MAX,
    sizeCalculation: (_, token) => token.length,
  });

  /** What a verified payload amounts to; a buyer is remembered. */
  function conclude(token: string, verified: Verified | 'unavailable'): Identified {
    if (typeof verified === 'string') return REFUSED[verified];
    const validity = readValidity(verified);
    if (validity === undefined) return REFUSED.malformed;
    const untimely = judgeTime(validity, clock.now());
    if (untimely !== undefined) return REFUSED[untimely];
    if (issuer !== undefined && verified['iss'] !== issuer) return REFUSED.issuer;
    // Whatever is configured, an operator's token is no buyer's.
    if (isFor(verified, OPERATOR_AUDIENCE)) return REFUSED.audience;
    if (audience !== undefined && !isFor(verified, audience)) return REFUSED.audience;
    const buyerId = verified[claim];
    if (!isId(buyerId)) return REFUSED.buyer_id;
    const buyer: Identified = Object.freeze({ kind: 'buyer', buyerId });
    seen.set(token, { buyer, validity });
    return buyer;
  }

  return {
    identify(authorizationHeader) {
      const bearer = readBearer(authorizationHeader);
      if (typeof bearer === 'string') return REFUSED[bearer];
      const { token } = bearer;
      const known = seen.get(token);
      if (known !== undefined) {
        const untimely = judgeTime(known.validity, clock.now());
        if (untimely === undefined) return known.buyer;
        seen.delete(token);
        return REFUSED[untimely];
      }
      const verified = verify(token);
      return verified instanceof Promise
        ? verified.then((result) => conclude(token, result))
        : conclude(token, verified);
    },
    seenTokens: () => seen.size,
  };
}

type Seen = { readonly buyer: Identified; readonly validity: Validity };
type Verify = (token: string) => Verified | Promise<Verified | 'unavailable'>;

function makeVerify({ keys, clock, checksMax, keysTimeoutMs }: BuyerIdentityOptions): Verify {
  if ('hs256Secrets' in keys) {
    const hs256 = makeHs256(keys.hs256Secrets);
    return (token) => hs256.verify(token);
  }
  const jwks = makeJwksVerifier({
    keys: 'jwks' in keys ? keys.jwks : parseAddress(keys.jwksUrl),
    algorithm: keys.algorithm,
    clock,
    ...(checksMax === undefined ? {} : { checksMax }),
    ...(keysTimeoutMs === undefined ? {} : { keysTimeoutMs }),
  });
  return (token) => jwks.verify(token);
}

function parseAddress(address: string): URL {
  if (!URL.canParse(address))
    throw new Fault('settings_invalid', 'the address of the JWKS is no URL', { retryable: false });
  return new URL(address);
}

const refused = (reason: UnauthenticatedReason): Identified => Object.freeze({ kind: 'unauthenticated', reason });

/** One object per reason, made once: a refused buyer costs nothing to answer. */
const REFUSED = {
  missing: refused('missing'),
  malformed: refused('malformed'),
  unavailable: refused('unavailable'),
  signature: refused('signature'),
  expired: refused('expired'),
  not_yet: refused('not_yet'),
  issuer: refused('issuer'),
  audience: refused('audience'),
  buyer_id: refused('buyer_id'),
} satisfies Record<UnauthenticatedReason, Identified>;
