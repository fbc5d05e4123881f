/**
 * The form of a signed JSON Web Token: three base64url parts, `header.payload.signature`.
 *
 * Promises one spelling per token (no padding, no stray bits, no other alphabet), so that a token remembered is a token
 * that cannot come back in disguise; and a bounded length. Checks no signature: hs256.ts and jwks.ts do.
 * @source RFC 7515 (JWS), RFC 8725 (best current practice)
 */

/** Longer tokens are refused unread: no buyer's token needs more, and each is hashed and kept. */
export const TOKEN_CHARACTERS_MAX = 8_192;

/** What a payload or a header is once parsed: an object with anything in it. */
export type Claims = Readonly<Record<string, unknown>>;

/** A token's payload, or why it has none that counts. */
export type Verified = Claims | 'malformed' | 'signature';

/** A token in its parts. */
export type TokenParts = { readonly header: string; readonly payload: string; readonly signature: string };

/** Cuts a token apart; undefined when it is too long or has not three. What is in them shows when they are decoded. */
export function splitToken(token: string): TokenParts | undefined {
  if (token.length > TOKEN_CHARACTERS_MAX) return undefined;
  const headerEnd = token.indexOf('.');
  const payloadEnd = token.indexOf('.', headerEnd + 1);
  if (headerEnd < 1 || payloadEnd < headerEnd + 2 || payloadEnd === token.length - 1) return undefined;
  if (token.includes('.', payloadEnd + 1)) return undefined;
  return {
    header: token.slice(0, headerEnd),
    payload: token.slice(headerEnd + 1, payloadEnd),
    signature: token.slice(payloadEnd + 1),
  };
}

/** The bytes of a part; undefined where it is not the one spelling of them: other characters, padding, spare bits. */
export function decodePart(part: string): Buffer | undefined {
  const bytes = Buffer.from(part, 'base64url');
  return bytes.toString('base64url') === part ? bytes : undefined;
}

/** The JSON object in a part; undefined for anything else. */
export function parsePart(part: string): Claims | undefined {
  const bytes = decodePart(part);
  if (bytes === undefined) return undefined;
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'));
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Claims) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Whether a header part is one that this service takes: exactly the configured algorithm (never the token's choice), a JWT
 * if it says what it is, and no extension that we would have to understand.
 */
export function isOurHeader(part: string, algorithm: string): boolean {
  const header = parsePart(part);
  if (header === undefined || header['alg'] !== algorithm) return false;
  return !Object.hasOwn(header, 'crit') && (!Object.hasOwn(header, 'typ') || header['typ'] === 'JWT');
}
