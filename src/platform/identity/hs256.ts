/**
 * Tokens signed with a shared secret: HS256 by node:crypto.
 *
 * Promises one algorithm, whatever a token's header asks for; signature before content, so that nothing inside an unsigned
 * payload is ever looked at; no error or answer that holds a secret.
 * Does not judge what the payload says: claims.ts does. Own code because it is short, synchronous and costs about 3 µs a
 * token, where WebCrypto behind a promise costs 64 µs; jose is the oracle in the tests.
 * @source RFC 7518 §3.2
 */
import { createHmac, createSecretKey, timingSafeEqual } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { Fault } from '../../domain/fault.ts';
import { isOurHeader, parsePart, splitToken } from './token.ts';
import type { Claims, Verified } from './token.ts';

/** Shortest secret: as long as the hash (RFC 7518 §3.2). */
export const SECRET_BYTES_MIN = 32;

/** Signs and verifies with shared secrets. */
export interface Hs256 {
  /** a token over `claims`, signed with the first secret */
  sign(claims: Claims): string;
  /** the payload of a token signed with any of the secrets */
  verify(token: string): Verified;
}

/**
 * Makes signer and verifier.
 * @param secrets the one in use first, then those still valid while rotating; each at least SECRET_BYTES_MIN bytes of UTF-8
 * @throws Fault `settings_invalid` that names which secret, never its text
 */
export function makeHs256(secrets: readonly string[]): Hs256 {
  const keys = secrets.map((secret, i) => {
    const bytes = Buffer.from(secret, 'utf8');
    if (bytes.length < SECRET_BYTES_MIN) {
      throw new Fault('settings_invalid', `HS256 secret ${i + 1} has under ${SECRET_BYTES_MIN} bytes`, {
        retryable: false,
      });
    }
    return createSecretKey(bytes);
  });
  const [signingKey] = keys;
  if (signingKey === undefined) throw new Fault('settings_invalid', 'HS256 without a secret', { retryable: false });
  // An issuer writes the same header on every token: the last good one is not parsed again.
  let knownHeader = HEADER;

  return {
    sign(claims) {
      const signed = `${HEADER}.${Buffer.from(JSON.stringify(claims)).toString('base64url')}`;
      return `${signed}.${mac(signingKey, signed)}`;
    },
    verify(token) {
      const parts = splitToken(token);
      if (parts === undefined || parts.signature.length !== MAC_CHARACTERS) return 'malformed';
      if (parts.header !== knownHeader) {
        if (!isOurHeader(parts.header, 'HS256')) return 'malformed';
        knownHeader = parts.header;
      }
      const signed = token.slice(0, -MAC_CHARACTERS - 1);
      if (!keys.some((key) => sameText(mac(key, signed), parts.signature))) return 'signature';
      return parsePart(parts.payload) ?? 'malformed';
    },
  };
}

/** 32 bytes as base64url. */
const MAC_CHARACTERS = 43;
const HEADER = Buffer.from('{"alg":"HS256","typ":"JWT"}').toString('base64url');

/**
 * Whether two signatures are one, in the same time whatever they have in common. Compared as text: a signature has one
 * spelling, so there is nothing to decode and nothing lenient about it. Written as UTF-8, in which no other character
 * passes for one of base64url's.
 */
function sameText(expected: string, given: string): boolean {
  if (GIVEN.write(given, 'utf8') !== MAC_CHARACTERS) return false;
  EXPECTED.write(expected, 'utf8');
  return timingSafeEqual(EXPECTED, GIVEN.subarray(0, MAC_CHARACTERS));
}

// Used within one synchronous call only; new ones for every token would be a tenth of its cost.
const EXPECTED = Buffer.alloc(MAC_CHARACTERS);
const GIVEN = Buffer.alloc(MAC_CHARACTERS * 3);

const mac = (key: KeyObject, signed: string): string => createHmac('sha256', key).update(signed).digest('base64url');
