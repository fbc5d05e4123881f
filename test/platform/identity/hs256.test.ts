import { createHmac } from 'node:crypto';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { compactVerify, SignJWT } from 'jose';
import { describe, expect, test } from 'vitest';
import { makeHs256 } from '../../../src/platform/identity/hs256.ts';
import { base64url } from './set-clock.ts';

const SECRET = 'a secret of thirty-two bytes ...';
const OTHER = 'another secret, as long as it is';
const hs256 = makeHs256([SECRET]);

/** Signs any two parts with the secret, as an issuer with strange ideas would. */
function signParts(header: string, payload: string, secret = SECRET): string {
  const mac = createHmac('sha256', secret).update(`${header}.${payload}`).digest('base64url');
  return `${header}.${payload}.${mac}`;
}
const signed = (header: object, payload: string = base64url('{"sub":"ann"}')): string =>
  signParts(base64url(JSON.stringify(header)), payload);

const GOOD = hs256.sign({ sub: 'ann' });
const [HEADER = '', PAYLOAD = '', SIGNATURE = ''] = GOOD.split('.');

/** The same 32 bytes, spelled with other spare bits at the end. */
const respell = (part: string): string => {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  return part.slice(0, -1) + alphabet.charAt(alphabet.indexOf(part.slice(-1)) ^ 1);
};

/** Characters that only a careless conversion takes for the real ones. */
const wide = (text: string): string => text.replaceAll(/./g, (c) => String.fromCharCode(c.charCodeAt(0) + 0x100));

describe('a token is taken', () => {
  test.each<[string, string]>([
    ['as we sign it', GOOD],
    ['without typ', signed({ alg: 'HS256' })],
    ['with other header fields', signed({ typ: 'JWT', alg: 'HS256', kid: 'k1' })],
    ['at the longest', signed({ alg: 'HS256', pad: 'x'.repeat((8_192 - 43 - 2 - 18) * 0.75 - 27) })],
  ])('%s', (_, token) => {
    expect(token.length).toBeLessThanOrEqual(8_192);
    expect(hs256.verify(token)).toEqual({ sub: 'ann' });
  });
});

describe('a token is refused', () => {
  test.each<[string, string, 'malformed' | 'signature']>([
    ['alg none, no signature', `${base64url('{"alg":"none"}')}.${PAYLOAD}.`, 'malformed'],
    ['alg none, signed', signed({ alg: 'none' }), 'malformed'],
    ['alg in other letters', signed({ alg: 'hs256' }), 'malformed'],
    ['alg HS512', signed({ alg: 'HS512' }), 'malformed'],
    ['alg RS256', signed({ alg: 'RS256' }), 'malformed'],
    ['alg as a list', signed({ alg: ['HS256'] }), 'malformed'],
    ['no alg', signed({ typ: 'JWT' }), 'malformed'],
    ['alg inherited', signParts(base64url('{"__proto__":{"alg":"HS256"}}'), PAYLOAD), 'malformed'],
    ['another typ', signed({ alg: 'HS256', typ: 'at+jwt' }), 'malformed'],
    ['crit', signed({ alg: 'HS256', crit: ['exp'] }), 'malformed'],
    ['crit with b64', signed({ alg: 'HS256', crit: ['b64'], b64: false }), 'malformed'],
    ['empty crit', signed({ alg: 'HS256', crit: null }), 'malformed'],
    ['header not JSON', signParts(base64url('{alg:HS256}'), PAYLOAD), 'malformed'],
    ['header a list', signParts(base64url('["HS256"]'), PAYLOAD), 'malformed'],
    ['payload not JSON', signed({ alg: 'HS256' }, base64url('sub=ann')), 'malformed'],
    ['payload a list', signed({ alg: 'HS256' }, base64url('[1]')), 'malformed'],
    ['payload null', signed({ alg: 'HS256' }, base64url('null')), 'malformed'],
    ['payload with padding', signed({ alg: 'HS256' }, `${base64url('{"sub":"ann"}')}==`), 'malformed'],
    ['payload with spare bits', signed({ alg: 'HS256' }, respell(base64url('{"sub":"anna"}'))), 'malformed'],
    ['payload of an impossible length', signed({ alg: 'HS256' }, `${base64url('{"sub":"ann1"}')}AA`), 'malformed'],
    [
      'base64 instead of base64url',
      signed({ alg: 'HS256' }, Buffer.from('{"a":"ÿÿ>?"}').toString('base64')),
      'malformed',
    ],
    ['two parts', `${HEADER}.${PAYLOAD}`, 'malformed'],
    ['four parts', `${GOOD}.${SIGNATURE}`, 'malformed'],
    ['an empty payload', signParts(HEADER, ''), 'malformed'],
    ['nothing', '', 'malformed'],
    ['a space in the payload', `${HEADER}.${PAYLOAD} .${SIGNATURE}`, 'signature'],
    ['a space in the payload, signed', signed({ alg: 'HS256' }, `${PAYLOAD} `), 'malformed'],
    ['a dot in the payload, signed', signed({ alg: 'HS256' }, `${PAYLOAD}.`), 'malformed'],
    ['a line feed at the end', `${GOOD}\n`, 'malformed'],
    ['over 8 KiB', signed({ alg: 'HS256' }, base64url(JSON.stringify({ pad: 'x'.repeat(8_192) }))), 'malformed'],
    ['a short signature', GOOD.slice(0, -1), 'malformed'],
    ['a long signature', `${GOOD}A`, 'malformed'],
    ['a signature with padding', `${GOOD}=`, 'malformed'],
    ['a signature in another spelling', respell(GOOD), 'signature'],
    [
      'a signature with one other character',
      `${HEADER}.${PAYLOAD}.${SIGNATURE.startsWith('A') ? 'B' : 'A'}${SIGNATURE.slice(1)}`,
      'signature',
    ],
    ['a signature in letters whose low bytes are right', `${HEADER}.${PAYLOAD}.${wide(SIGNATURE)}`, 'signature'],
    ['a changed payload', `${HEADER}.${base64url('{"sub":"bob"}')}.${SIGNATURE}`, 'signature'],
    ['a changed header', `${base64url('{"alg":"HS256"}')}.${PAYLOAD}.${SIGNATURE}`, 'signature'],
    ['another secret', signParts(HEADER, PAYLOAD, OTHER), 'signature'],
  ])('%s', (_, token, reason) => {
    expect(hs256.verify(token)).toBe(reason);
  });

  test('also after a good one with the same payload', () => {
    expect(hs256.verify(signed({ alg: 'HS256', kid: 'k' }))).toEqual({ sub: 'ann' });
    expect(hs256.verify(signed({ alg: 'none', kid: 'k' }))).toBe('malformed');
  });
});

describe('secrets', () => {
  test('rotate: the first signs, all verify', () => {
    const rotating = makeHs256([OTHER, SECRET]);
    expect(rotating.verify(GOOD)).toEqual({ sub: 'ann' });
    expect(makeHs256([OTHER]).verify(rotating.sign({ sub: 'bob' }))).toEqual({ sub: 'bob' });
    expect(hs256.verify(rotating.sign({ sub: 'bob' }))).toBe('signature');
  });

  test.each<{ secrets: string[]; says: string }>([
    { secrets: [], says: 'without a secret' },
    { secrets: ['x'.repeat(31)], says: 'secret 1' },
    { secrets: [SECRET, 'too short, too short'], says: 'secret 2' },
  ])('are long enough, and never told: $says', ({ secrets, says }) => {
    const told = (() => {
      try {
        return inspect(makeHs256(secrets), { depth: 10 });
      } catch (fault) {
        return inspect(fault, { depth: 10 });
      }
    })();
    expect(told).toContain('settings_invalid');
    expect(told).toContain(says);
    for (const secret of secrets) expect(told).not.toContain(secret);
  });

  test('are counted in bytes', () => {
    expect(() => makeHs256(['闸'.repeat(11)])).not.toThrow();
  });
});

describe('jose as the oracle', () => {
  const key = new TextEncoder().encode(SECRET);
  const someClaims = fc.dictionary(fc.string({ unit: 'binary', maxLength: 12 }), fc.jsonValue(), { maxKeys: 6 });
  const sameClaims = (claims: object): unknown => JSON.parse(JSON.stringify(claims));

  test('what jose signs we take, and the other way round', async () => {
    await fc.assert(
      fc.asyncProperty(someClaims, async (claims) => {
        const theirs = await new SignJWT(claims).setProtectedHeader({ alg: 'HS256', typ: 'JWT' }).sign(key);
        expect(hs256.verify(theirs)).toEqual(sameClaims(claims));
        const { payload } = await compactVerify(hs256.sign(claims), key, { algorithms: ['HS256'] });
        expect(JSON.parse(new TextDecoder().decode(payload))).toEqual(sameClaims(claims));
      }),
      { numRuns: 200 },
    );
  });

  test('what we take after any change of characters, jose takes too', async () => {
    const alphabet = fc.constantFrom('A', 'B', 'a', 'b', '0', '1', '-', '_', '.', '=', '+', '/', ' ');
    await fc.assert(
      fc.asyncProperty(
        fc.nat(GOOD.length),
        fc.nat(2),
        fc.string({ unit: alphabet, maxLength: 2 }),
        async (at, cut, put) => {
          const token = GOOD.slice(0, at) + put + GOOD.slice(at + cut);
          const ours = typeof hs256.verify(token) === 'object';
          if (ours) await compactVerify(token, key, { algorithms: ['HS256'] });
          expect(ours).toBe(token === GOOD);
        },
      ),
      { numRuns: 500 },
    );
  });
});
