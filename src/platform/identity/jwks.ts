/**
 * Tokens signed by somebody else's key pair: RS256 or ES256, checked with the keys of a JWKS, by jose (its one home).
 *
 * Promises one algorithm, fixed by configuration, so that a public key is never taken for a shared secret; at most
 * `checksMax` checks under way; one check for a token however often it arrives meanwhile; at most one fetch of keys at a
 * time, none for `KEYS_COOLDOWN_MS` after a good one (made-up key ids cost the issuer nothing) and none for `RETRY_MS`
 * after a failed one. Keys are fetched anew when they are older than `KEYS_AGE_MS_MAX`; while that fails, tokens not seen
 * before are `unavailable`.
 * Does not judge what the payload says (claims.ts), nor remember what it checked (buyers.ts).
 */
import { compactVerify, createLocalJWKSet, createRemoteJWKSet, customFetch, errors } from 'jose';
import type { CompactVerifyGetKey, FetchImplementation, JSONWebKeySet } from 'jose';
import { Fault } from '../../domain/fault.ts';
import type { Clock } from '../clock.ts';
import { decodePart, isOurHeader, parsePart, splitToken } from './token.ts';
import type { TokenParts, Verified } from './token.ts';

/** After a good fetch, unknown key ids cause no other for this long. */
export const KEYS_COOLDOWN_MS = 30_000;
/** Keys older than this are fetched again before they are used: a withdrawn key ends here. */
export const KEYS_AGE_MS_MAX = 600_000;
/** How long one fetch of keys may take. */
export const KEYS_TIMEOUT_MS = 5_000;
/** Checks under way at most; at 64 µs each on one core a full house is some 65 ms of waiting. */
export const CHECKS_MAX = 1_024;

const RETRY_MS = 1_000;

/** Signature algorithms with a key pair. */
export type KeyPairAlgorithm = 'RS256' | 'ES256';

/** A set of public keys as an issuer publishes it (RFC 7517 §5). */
export type KeySet = { readonly keys: readonly Readonly<Record<string, unknown>>[] };

/** Verifies with the keys of a JWKS. */
export interface JwksVerifier {
  /** the payload, or why there is none; `unavailable` when keys or room for the check are missing; never rejects */
  verify(token: string): Promise<Verified | 'unavailable'>;
}

/**
 * Makes the verifier.
 * @param options.keys the set itself, or where it is published (`http:` only makes sense inside one host or mesh)
 * @throws Fault `settings_invalid` for an address or a set that cannot be one
 */
export function makeJwksVerifier(options: {
  keys: URL | KeySet;
  algorithm: KeyPairAlgorithm;
  clock: Clock;
  checksMax?: number;
  keysTimeoutMs?: number;
}): JwksVerifier {
  const { algorithm, clock } = options;
  const checksMax = options.checksMax ?? CHECKS_MAX;
  const keys =
    options.keys instanceof URL ? remoteKeys(options.keys, clock, options.keysTimeoutMs) : localKeys(options.keys);
  const underWay = new Map<string, Promise<Verified | 'unavailable'>>();

  async function check(token: string, { payload }: TokenParts): Promise<Verified | 'unavailable'> {
    try {
      await compactVerify(token, keys, { algorithms: [algorithm] });
      return parsePart(payload) ?? 'malformed';
    } catch (cause) {
      return judge(cause);
    }
  }

  return {
    verify(token) {
      const known = underWay.get(token);
      if (known !== undefined) return known;
      const parts = splitToken(token);
      if (parts === undefined || !isOurHeader(parts.header, algorithm) || decodePart(parts.signature) === undefined) {
        return Promise.resolve('malformed');
      }
      if (underWay.size >= checksMax) return Promise.resolve('unavailable');
      const checking = check(token, parts).finally(() => underWay.delete(token));
      underWay.set(token, checking);
      return checking;
    },
  };
}

/** jose's errors in our words. What is neither the token's fault nor the key's is the world's: no keys. */
function judge(cause: unknown): 'malformed' | 'signature' | 'unavailable' {
  if (cause instanceof errors.JWSSignatureVerificationFailed || cause instanceof errors.JWKSNoMatchingKey) {
    return 'signature';
  }
  // Several keys fit and the token does not say which: its issuer must name one (`kid`).
  if (cause instanceof errors.JWKSMultipleMatchingKeys) return 'signature';
  if (
    cause instanceof errors.JWSInvalid ||
    cause instanceof errors.JOSEAlgNotAllowed ||
    cause instanceof errors.JOSENotSupported
  ) {
    return 'malformed';
  }
  return 'unavailable';
}

function localKeys(set: KeySet): CompactVerifyGetKey {
  try {
    return createLocalJWKSet(set as unknown as JSONWebKeySet);
  } catch (cause) {
    throw new Fault('settings_invalid', 'the JWKS is not a set of keys', { retryable: false, cause });
  }
}

/** jose's remote set: it shares a fetch and cools down after a good one, but after a failed one it would ask at once. */
function remoteKeys(url: URL, clock: Clock, keysTimeoutMs: number = KEYS_TIMEOUT_MS): CompactVerifyGetKey {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw new Fault('settings_invalid', 'the address of a JWKS begins with https: or http:', { retryable: false });
  }
  let failedAtMs = Number.NEGATIVE_INFINITY;
  const tooSoon = new Error('the last fetch of keys failed a moment ago');
  const fetchWithPauses: FetchImplementation = async (address, init) => {
    if (clock.monotonic() < failedAtMs + RETRY_MS) throw tooSoon;
    return await fetch(address, init);
  };
  const remote = createRemoteJWKSet(url, {
    cooldownDuration: KEYS_COOLDOWN_MS,
    cacheMaxAge: KEYS_AGE_MS_MAX,
    timeoutDuration: keysTimeoutMs,
    [customFetch]: fetchWithPauses,
  });
  return async (header, token) => {
    try {
      return await remote(header, token);
    } catch (cause) {
      if (cause !== tooSoon && judge(cause) === 'unavailable') failedAtMs = clock.monotonic();
      throw cause;
    }
  };
}
