import { inspect } from 'node:util';
import { exportSPKI, generateKeyPair, SignJWT } from 'jose';
import { beforeEach, describe, expect, test } from 'vitest';
import { makeBuyerIdentity } from '../../../src/platform/identity/buyers.ts';
import type { BuyerIdentity, BuyerIdentityOptions, Identified } from '../../../src/platform/identity/buyers.ts';
import { issueDevelopmentToken } from '../../../src/platform/identity/development.ts';
import { makeHs256 } from '../../../src/platform/identity/hs256.ts';
import { base64url, NOON_SECONDS, SetClock } from './set-clock.ts';

const SECRET = 'a secret of thirty-two bytes ...';
const OTHER = 'another secret, as long as it is';
const ANN: Identified = { kind: 'buyer', buyerId: 'ann' };
const HOUR = NOON_SECONDS + 3_600;

let clock: SetClock;
beforeEach(() => {
  clock = new SetClock();
});

const makeIdentity = (options: Partial<BuyerIdentityOptions> = {}): BuyerIdentity =>
  makeBuyerIdentity({ keys: { hs256Secrets: [SECRET] }, clock, ...options });
const token = (claims: object, secret = SECRET): string => makeHs256([secret]).sign({ ...claims });
const bearer = (claims: object, secret = SECRET): string => `Bearer ${token(claims, secret)}`;

/** Asks a fresh identity; with HS256 the answer is there at once. */
function identify(header: string | undefined, options: Partial<BuyerIdentityOptions> = {}): string {
  const identified = makeIdentity(options).identify(header);
  if (identified instanceof Promise) return expect.unreachable('HS256 answers synchronously');
  return identified.kind === 'buyer' ? identified.buyerId : identified.reason;
}

describe('with HS256', () => {
  const good = { sub: 'ann', exp: HOUR };

  test.each<[string, () => string | undefined, string]>([
    ['no header', () => undefined, 'missing'],
    ['an empty header', () => '', 'missing'],
    ['another scheme', () => `Basic ${base64url('ann:x')}`, 'malformed'],
    ['a scheme alone', () => 'Bearer', 'malformed'],
    ['a token alone', () => token(good), 'malformed'],
    ['two tokens', () => `${bearer(good)} ${token(good)}`, 'malformed'],
    ['two headers joined', () => `${bearer(good)}, ${bearer(good)}`, 'malformed'],
    ['no token at all', () => 'Bearer x', 'malformed'],
    ['over 8 KiB', () => bearer({ ...good, pad: 'x'.repeat(8_192) }), 'malformed'],
    ['alg none', () => `Bearer ${base64url('{"alg":"none"}')}.${base64url(JSON.stringify(good))}.`, 'malformed'],
    ['a good token', () => bearer(good), 'ann'],
    ['scheme in other letters, more spaces', () => `bEARER   ${token(good)}`, 'ann'],
    ['another secret', () => bearer(good, OTHER), 'signature'],
    ['another secret, and expired', () => bearer({ sub: 'ann', exp: 1 }, OTHER), 'signature'],
    ['no exp', () => bearer({ sub: 'ann' }), 'malformed'],
    ['exp as text', () => bearer({ sub: 'ann', exp: `${HOUR}` }), 'malformed'],
    ['exp null', () => bearer({ sub: 'ann', exp: null }), 'malformed'],
    ['nbf as text', () => bearer({ ...good, nbf: '0' }), 'malformed'],
    ['exp just within the tolerance', () => bearer({ sub: 'ann', exp: NOON_SECONDS - 29 }), 'ann'],
    ['exp at the end of the tolerance', () => bearer({ sub: 'ann', exp: NOON_SECONDS - 30 }), 'expired'],
    ['nbf at the end of the tolerance', () => bearer({ ...good, nbf: NOON_SECONDS + 30 }), 'ann'],
    ['nbf beyond the tolerance', () => bearer({ ...good, nbf: NOON_SECONDS + 31 }), 'not_yet'],
    ['exp with fractions', () => bearer({ sub: 'ann', exp: NOON_SECONDS + 0.5 }), 'ann'],
    ['exp in milliseconds by mistake', () => bearer({ sub: 'ann', exp: HOUR * 1_000 }), 'ann'],
    ['no sub', () => bearer({ exp: HOUR }), 'buyer_id'],
    ['sub a number', () => bearer({ sub: 7, exp: HOUR }), 'buyer_id'],
    ['sub empty', () => bearer({ sub: '', exp: HOUR }), 'buyer_id'],
    ['sub of 64 characters', () => bearer({ sub: 'a'.repeat(64), exp: HOUR }), 'a'.repeat(64)],
    ['sub of 65 characters', () => bearer({ sub: 'a'.repeat(65), exp: HOUR }), 'buyer_id'],
    ['sub with a line feed', () => bearer({ sub: 'ann\n', exp: HOUR }), 'buyer_id'],
    ['sub with a colon', () => bearer({ sub: 'shop:ann', exp: HOUR }), 'buyer_id'],
    ['sub in Chinese', () => bearer({ sub: '安', exp: HOUR }), 'buyer_id'],
    ["an operator's audience", () => bearer({ ...good, aud: 'sluice-operator' }), 'audience'],
    ["an operator's audience among others", () => bearer({ ...good, aud: ['shop', 'sluice-operator'] }), 'audience'],
  ])('%s', (_, header, outcome) => {
    expect(identify(header())).toBe(outcome);
  });

  test.each<[string, Partial<BuyerIdentityOptions>, object, string]>([
    ['issuer right', { issuer: 'shop' }, { iss: 'shop' }, 'ann'],
    ['issuer wrong', { issuer: 'shop' }, { iss: 'shop2' }, 'issuer'],
    ['issuer missing', { issuer: 'shop' }, {}, 'issuer'],
    ['issuer a list', { issuer: 'shop' }, { iss: ['shop'] }, 'issuer'],
    ['issuer not asked', {}, { iss: 'anybody' }, 'ann'],
    ['audience right', { audience: 'sale' }, { aud: 'sale' }, 'ann'],
    ['audience among others', { audience: 'sale' }, { aud: ['shop', 'sale'] }, 'ann'],
    ['audience wrong', { audience: 'sale' }, { aud: 'sales' }, 'audience'],
    ['audience missing', { audience: 'sale' }, {}, 'audience'],
    ['audience a number', { audience: 'sale' }, { aud: 5 }, 'audience'],
    ['issuer before audience', { issuer: 'shop', audience: 'sale' }, {}, 'issuer'],
    ['expiry before issuer', { issuer: 'shop' }, { exp: 1 }, 'expired'],
    ['audience before buyer id', { audience: 'sale' }, { sub: '' }, 'audience'],
    ['another claim', { claim: 'uid' }, { uid: 'u-1' }, 'u-1'],
    ['another claim, missing', { claim: 'uid' }, {}, 'buyer_id'],
    ['a claim that every object inherits', { claim: 'constructor' }, {}, 'buyer_id'],
  ])('%s', (_, options, claims, outcome) => {
    expect(identify(bearer({ ...good, ...claims }), options)).toBe(outcome);
  });

  test('a public key taken for a secret opens nothing', async () => {
    const { publicKey, privateKey } = await generateKeyPair('RS256', { extractable: true });
    const pem = await exportSPKI(publicKey);
    const rs256 = await new SignJWT(good).setProtectedHeader({ alg: 'RS256' }).sign(privateKey);
    expect(identify(`Bearer ${rs256}`, { keys: { hs256Secrets: [pem] } })).toBe('malformed');
  });

  test('two secrets while rotating', () => {
    const keys = { hs256Secrets: [OTHER, SECRET] };
    expect(identify(bearer(good, SECRET), { keys })).toBe('ann');
    expect(identify(bearer(good, OTHER), { keys })).toBe('ann');
    expect(identify(bearer(good, SECRET), { keys: { hs256Secrets: [OTHER] } })).toBe('signature');
  });
});

describe('a token seen before', () => {
  test('is answered by the same object', () => {
    const identity = makeIdentity();
    const header = bearer({ sub: 'ann', exp: HOUR });
    const first = identity.identify(header);
    expect(first).toEqual(ANN);
    expect(identity.identify(`Bearer ${header.slice(7)}`)).toBe(first);
    expect(identity.seenTokens()).toBe(1);
  });

  test('expires all the same', () => {
    const identity = makeIdentity();
    const header = bearer({ sub: 'ann', exp: HOUR });
    clock.seconds = HOUR + 29;
    expect(identity.identify(header)).toEqual(ANN);
    clock.seconds = HOUR + 30;
    expect(identity.identify(header)).toEqual({ kind: 'unauthenticated', reason: 'expired' });
    expect(identity.seenTokens(), 'and is forgotten').toBe(0);
  });

  test('is not yet valid again after the clock stepped back', () => {
    const identity = makeIdentity();
    const header = bearer({ sub: 'ann', nbf: NOON_SECONDS, exp: HOUR });
    expect(identity.identify(header)).toEqual(ANN);
    clock.seconds = NOON_SECONDS - 31;
    expect(identity.identify(header)).toEqual({ kind: 'unauthenticated', reason: 'not_yet' });
  });

  test('is remembered only if it was good', () => {
    const identity = makeIdentity();
    void identity.identify(bearer({ sub: 'ann', exp: HOUR }, OTHER));
    void identity.identify(bearer({ sub: 'ann', exp: 1 }));
    void identity.identify(bearer({ sub: 'a b', exp: HOUR }));
    void identity.identify('Bearer x.y.z');
    expect(identity.seenTokens()).toBe(0);
  });

  test('is one of 100,000 at most, the latest used', { timeout: 60_000 }, () => {
    const identity = makeIdentity();
    const hs256 = makeHs256([SECRET]);
    const headerOf = (i: number): string => `Bearer ${hs256.sign({ sub: `b${i}`, exp: HOUR })}`;
    const used = headerOf(0);
    let most = 0;
    for (let i = 0; i < 150_000; i += 1) {
      void identity.identify(headerOf(i));
      if (i % 50_000 === 0) void identity.identify(used);
      most = Math.max(most, identity.seenTokens());
    }
    expect(most).toBe(100_000);
    expect(identity.identify(used)).toEqual({ kind: 'buyer', buyerId: 'b0' });
  });

  test('is one of 64 million characters at most', { timeout: 60_000 }, () => {
    const identity = makeIdentity();
    const hs256 = makeHs256([SECRET]);
    const pad = 'x'.repeat(6_000);
    const length = hs256.sign({ sub: 'b10000', exp: HOUR, pad }).length;
    for (let i = 10_000; i < 10_000 + 64_000_000 / length + 500; i += 1) {
      void identity.identify(`Bearer ${hs256.sign({ sub: `b${i}`, exp: HOUR, pad })}`);
    }
    expect(identity.seenTokens()).toBe(Math.floor(64_000_000 / length));
  });

  test('costs a fifth of a new one at most', () => {
    const hs256 = makeHs256([SECRET]);
    const headers = Array.from({ length: 5_000 }, (_, i) => `Bearer ${hs256.sign({ sub: `b${i}`, exp: HOUR })}`);
    /** ms for all; each header a string of its own, as it comes from a socket */
    const spend = (identity: BuyerIdentity): number => {
      const arriving = headers.map((header) => Buffer.from(header).toString('latin1'));
      const begun = performance.now();
      for (const header of arriving) void identity.identify(header);
      return performance.now() - begun;
    };
    // The best of several turns each, so that neither the compiler's warming up nor a neighbour decides.
    const turns = Array.from({ length: 5 }, () => {
      const identity = makeIdentity();
      return { fresh: spend(identity), seen: spend(identity) };
    });
    const best = (which: 'fresh' | 'seen'): number => Math.min(...turns.map((turn) => turn[which]));
    expect(best('fresh') / best('seen')).toBeGreaterThan(5);
  });
});

describe('settings', () => {
  test.each<[string, Partial<BuyerIdentityOptions>]>([
    ['no secret', { keys: { hs256Secrets: [] } }],
    ['a short secret', { keys: { hs256Secrets: ['short but not told'] } }],
    ["the operators' audience", { audience: 'sluice-operator' }],
    ['no address', { keys: { jwksUrl: 'keys.json', algorithm: 'RS256' } }],
    ['an address of another kind', { keys: { jwksUrl: 'file:///keys.json', algorithm: 'RS256' } }],
    ['no key set', { keys: { jwks: {} as { keys: [] }, algorithm: 'ES256' } }],
  ])('refuse %s', (_, options) => {
    expect(() => makeIdentity(options)).toThrow(expect.objectContaining({ code: 'settings_invalid' }) as Error);
  });

  test('keep the secret to themselves', () => {
    const identity = makeIdentity({ keys: { hs256Secrets: [SECRET, OTHER] } });
    const answers = [identity.identify('Bearer x'), identity.identify(bearer({ sub: 'ann', exp: HOUR }))];
    const told = inspect([identity, answers], { depth: 20, showHidden: true });
    expect(told).not.toContain(SECRET);
    expect(told).not.toContain(OTHER);
  });
});

describe('development identity', () => {
  test('issues a token that the same settings take, for twelve hours', () => {
    const settings = { issuer: 'sluice-dev', audience: 'sale', claim: 'uid' };
    const issued = issueDevelopmentToken('ann', { secret: SECRET, clock, ...settings });
    const identity = makeIdentity(settings);
    expect(identity.identify(`Bearer ${issued}`)).toEqual(ANN);
    clock.seconds += 12 * 3_600 + 30;
    expect(identity.identify(`Bearer ${issued}`)).toEqual({ kind: 'unauthenticated', reason: 'expired' });
  });

  test('needs nothing but a secret', () => {
    expect(identify(`Bearer ${issueDevelopmentToken('ann', { secret: SECRET, clock })}`)).toBe('ann');
  });

  test('names nobody who cannot be a buyer', () => {
    expect(() => issueDevelopmentToken('a b', { secret: SECRET, clock })).toThrow('well-formed buyer');
  });
});
