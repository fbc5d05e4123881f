/**
 * The token inside an `Authorization` header.
 * @source RFC 6750 §2.1; the scheme's case does not matter (RFC 9110 §11.1)
 */

/** The token's text, not looked at yet; `missing` without a header, `malformed` with another scheme or none. */
export type Bearer = { readonly token: string } | 'missing' | 'malformed';

/** Reads the header's value as Node hands it over. */
export function readBearer(authorizationHeader: string | undefined): Bearer {
  if (authorizationHeader === undefined || authorizationHeader === '') return 'missing';
  // As nearly everybody writes it: no regular expression over a long token that has been seen before.
  if (authorizationHeader.startsWith('Bearer ') && authorizationHeader.charAt(7) !== ' ') {
    return { token: authorizationHeader.slice(7) };
  }
  const token = ANY_BEARER.exec(authorizationHeader)?.[1];
  return token === undefined ? 'malformed' : { token };
}

const ANY_BEARER = /^bearer +([^ ]+)$/i;
