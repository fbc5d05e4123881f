/** Buyers whose tokens are signed with a key pair; the issuer's key set comes from a server on loopback. */
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, exportSPKI, generateKeyPair, SignJWT } from 'jose';
import type { JWK } from 'jose';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { makeBuyerIdentity } from '../../../src/platform/identity/buyers.ts';
import type { BuyerIdentity, BuyerIdentityOptions } from '../../../src/platform/identity/buyers.ts';
import { makeHs256 } from '../../../src/platform/identity/hs256.ts';
import type { KeyPairAlgorithm } from '../../../src/platform/identity/jwks.ts';
import { base64url, NOON_SECONDS, SetClock } from './set-clock.ts';

const HOUR = NOON_SECONDS + 3_600;
type Pair = { algorithm: KeyPairAlgorithm; kid: string; privateKey: CryptoKey; publicJwk: JWK; pem: string };
type CryptoKey = Awaited<ReturnType<typeof generateKeyPair>>['privateKey'];

async function makePair(algorithm: KeyPairAlgorithm, kid: string): Promise<Pair> {
  const { publicKey, privateKey } = await generateKeyPair(algorithm, { extractable: true });
  const publicJwk = { ...(await exportJWK(publicKey)), kid, alg: algorithm, use: 'sig' };
  return { algorithm, kid, privateKey, publicJwk, pem: await exportSPKI(publicKey) };
}

let rsa: Pair;
let rsaNext: Pair;
let ec: Pair;
beforeAll(async () => {
  [rsa, rsaNext, ec] = await Promise.all([makePair('RS256', 'r1'), makePair('RS256', 'r2'), makePair('ES256', 'e1')]);
});

let clock: SetClock;
beforeEach(() => {
  clock = new SetClock();
});

const sign = (pair: Pair, claims: object = {}, header: object = {}): Promise<string> =>
  new SignJWT({ sub: 'ann', exp: HOUR, ...claims })
    .setProtectedHeader({ alg: pair.algorithm, kid: pair.kid, typ: 'JWT', ...header })
    .sign(pair.privateKey);

async function outcome(identity: BuyerIdentity, token: string): Promise<string> {
  const identified = await identity.identify(`Bearer ${token}`);
  return identified.kind === 'buyer' ? identified.buyerId : identified.reason;
}

/** An issuer's server; what it answers can be changed. */
class Issuer {
  keys: JWK[] = [];
  status = 200;
  body: string | undefined;
  fetches = 0;
  /** holds replies back until released */
  #held: (() => void)[] | undefined;
  readonly #server: Server = createServer((_request, reply) => {
    this.fetches += 1;
    const answer = (): void => {
      reply.writeHead(this.status, { 'content-type': 'application/json' });
      reply.end(this.body ?? JSON.stringify({ keys: this.keys }));
    };
    if (this.#held === undefined) answer();
    else this.#held.push(answer);
    this.#arrived();
  });
  #arrived = (): void => {};

  async listen(port = 0): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(port, '127.0.0.1', resolve));
  }
  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }
  hold(): Promise<void> {
    this.#held = [];
    return new Promise((resolve) => (this.#arrived = resolve));
  }
  release(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const answer of held) answer();
  }
  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

describe('a set of keys in the settings', () => {
  const makeIdentity = (algorithm: KeyPairAlgorithm, options: Partial<BuyerIdentityOptions> = {}): BuyerIdentity =>
    makeBuyerIdentity({
      keys: { jwks: { keys: [rsa.publicJwk, rsaNext.publicJwk, ec.publicJwk] }, algorithm },
      clock,
      ...options,
    });

  test.each<[string, KeyPairAlgorithm, () => Promise<string>, string]>([
    ['RS256', 'RS256', () => sign(rsa), 'ann'],
    ['RS256, the next key', 'RS256', () => sign(rsaNext), 'ann'],
    ['ES256', 'ES256', () => sign(ec), 'ann'],
    ['ES256 where RS256 is configured', 'RS256', () => sign(ec), 'malformed'],
    ['RS256 where ES256 is configured', 'ES256', () => sign(rsa), 'malformed'],
    ['no key id, one key fits', 'ES256', () => sign(ec, {}, { kid: undefined }), 'ann'],
    ['no key id, two keys fit', 'RS256', () => sign(rsa, {}, { kid: undefined }), 'signature'],
    ['an unknown key id', 'RS256', () => sign(rsa, {}, { kid: 'r9' }), 'signature'],
    ["another key's id", 'RS256', () => sign(rsa, {}, { kid: 'r2' }), 'signature'],
    ['another typ', 'RS256', () => sign(rsa, {}, { typ: 'at+jwt' }), 'malformed'],
    ['expired', 'RS256', () => sign(rsa, { exp: NOON_SECONDS - 30 }), 'expired'],
    ['no exp', 'RS256', () => sign(rsa, { exp: undefined }), 'malformed'],
    ['not yet', 'RS256', () => sign(rsa, { nbf: NOON_SECONDS + 31 }), 'not_yet'],
    ["an operator's audience", 'RS256', () => sign(rsa, { aud: 'sluice-operator' }), 'audience'],
    ['an odd buyer', 'RS256', () => sign(rsa, { sub: 'a b' }), 'buyer_id'],
  ])('%s', async (_, algorithm, makeToken, expected) => {
    expect(await outcome(makeIdentity(algorithm), await makeToken())).toBe(expected);
  });

  test('a token signed with the public key as if it were a secret is no token', async () => {
    const identity = makeIdentity('RS256');
    const secrets = [rsa.pem, rsa.pem.trim(), JSON.stringify(rsa.publicJwk)];
    for (const secret of secrets) {
      const confused = makeHs256([secret]).sign({ sub: 'ann', exp: HOUR });
      expect(await outcome(identity, confused)).toBe('malformed');
    }
  });

  test('tampered, unsigned, respelled, too long', async () => {
    const identity = makeIdentity('ES256');
    const [header = '', , signature = ''] = (await sign(ec)).split('.');
    const payload = base64url(JSON.stringify({ sub: 'bob', exp: HOUR }));
    expect(await outcome(identity, `${header}.${payload}.${signature}`)).toBe('signature');
    expect(await outcome(identity, `${header}.${payload}.`)).toBe('malformed');
    expect(await outcome(identity, `${base64url('{"alg":"none"}')}.${payload}.`)).toBe('malformed');
    const good = await sign(ec);
    const respelled = good.slice(0, -1) + String.fromCharCode(good.charCodeAt(good.length - 1) + 1);
    expect(await outcome(identity, respelled)).toBe('malformed');
    expect(await outcome(identity, await sign(ec, { pad: 'x'.repeat(8_192) }))).toBe('malformed');
  });

  test('a token seen before is answered at once, and expires all the same', async () => {
    const identity = makeIdentity('RS256');
    const header = `Bearer ${await sign(rsa)}`;
    const first = identity.identify(header);
    expect(first).toBeInstanceOf(Promise);
    expect(identity.identify(header), 'the same check serves both').toBeInstanceOf(Promise);
    const buyer = await first;
    expect(identity.identify(header), 'no promise any more').toEqual(buyer);
    clock.seconds = HOUR + 30;
    expect(identity.identify(header)).toEqual({ kind: 'unauthenticated', reason: 'expired' });
  });

  test('checks under way are bounded, and one token is checked once', async () => {
    const identity = makeIdentity('RS256', { checksMax: 2 });
    const tokens = await Promise.all(['a', 'b', 'c'].map((sub) => sign(rsa, { sub })));
    const twice = [...tokens, ...tokens].map((token) => outcome(identity, token));
    expect(await Promise.all(twice)).toEqual(['a', 'b', 'unavailable', 'a', 'b', 'unavailable']);
    expect(await outcome(identity, tokens[2] ?? '')).toBe('c');
  });
});

describe('a set of keys from its address', () => {
  let issuer: Issuer;
  let identity: BuyerIdentity;
  const makeIdentity = (port: number, keysTimeoutMs = 5_000): BuyerIdentity =>
    makeBuyerIdentity({
      keys: { jwksUrl: `http://127.0.0.1:${port}/keys.json`, algorithm: 'RS256' },
      clock,
      keysTimeoutMs,
    });

  beforeEach(async () => {
    issuer = new Issuer();
    issuer.keys = [rsa.publicJwk];
    await issuer.listen();
    identity = makeIdentity(issuer.port);
  });
  afterEach(() => issuer.close());

  test('is fetched once for many', async () => {
    const tokens = await Promise.all(Array.from({ length: 20 }, (_, i) => sign(rsa, { sub: `b${i}` })));
    const outcomes = await Promise.all(tokens.map((token) => outcome(identity, token)));
    expect(outcomes).toEqual(tokens.map((_, i) => `b${i}`));
    expect(issuer.fetches).toBe(1);
  });

  test('made-up key ids cost the issuer nothing after a good fetch', async () => {
    expect(await outcome(identity, await sign(rsa))).toBe('ann');
    for (let i = 0; i < 10; i += 1) {
      expect(await outcome(identity, await sign(rsa, {}, { kid: `made-up-${i}` }))).toBe('signature');
    }
    expect(issuer.fetches).toBe(1);
  });

  test.each<[string, (down: Issuer) => void]>([
    ['refuses', (down) => (down.status = 503)],
    ['moves elsewhere', (down) => (down.status = 302)],
    ['answers with a page', (down) => (down.body = '<html>')],
    ['answers with another document', (down) => (down.body = '{"keys":7}')],
  ])('an issuer that %s: unavailable, one fetch a second at most, then well again', async (_, breakIt) => {
    breakIt(issuer);
    const token = await sign(rsa);
    expect(await outcome(identity, token)).toBe('unavailable');
    for (let i = 0; i < 5; i += 1) expect(await outcome(identity, token)).toBe('unavailable');
    expect(issuer.fetches).toBe(1);
    clock.seconds += 0.999;
    expect(await outcome(identity, token)).toBe('unavailable');
    expect(issuer.fetches).toBe(1);
    issuer.status = 200;
    issuer.body = undefined;
    clock.seconds += 0.001;
    expect(await outcome(identity, token)).toBe('ann');
    expect(issuer.fetches).toBe(2);
  });

  test('an issuer that is not there', async () => {
    const { port } = issuer;
    await issuer.close();
    expect(await outcome(identity, await sign(rsa))).toBe('unavailable');
    issuer = new Issuer();
    issuer.keys = [rsa.publicJwk];
    await issuer.listen(port);
    clock.seconds += 1;
    expect(await outcome(identity, await sign(rsa))).toBe('ann');
  });

  test('an issuer that accepts and is silent', async () => {
    identity = makeIdentity(issuer.port, 50);
    void issuer.hold();
    expect(await outcome(identity, await sign(rsa))).toBe('unavailable');
  });

  test('while keys are on their way, checks are bounded', async () => {
    identity = makeBuyerIdentity({
      keys: { jwksUrl: `http://127.0.0.1:${issuer.port}/`, algorithm: 'RS256' },
      clock,
      checksMax: 3,
    });
    const arrived = issuer.hold();
    const tokens = await Promise.all(Array.from({ length: 6 }, (_, i) => sign(rsa, { sub: `b${i}` })));
    const outcomes = tokens.map((token) => outcome(identity, token));
    await arrived;
    expect(await Promise.all(outcomes.slice(3))).toEqual(['unavailable', 'unavailable', 'unavailable']);
    issuer.release();
    expect(await Promise.all(outcomes.slice(0, 3))).toEqual(['b0', 'b1', 'b2']);
    expect(issuer.fetches).toBe(1);
  });
});
