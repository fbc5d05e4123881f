/**
 * Development identity: anyone may be any buyer, for trying out only (contract, `POST /api/v1/dev/login`).
 * The token is an ordinary buyer's token, so that nothing behind the door knows the difference. Whether development
 * identity may be on at all is decided by the configuration, never here.
 */
import { assert } from '../../domain/fault.ts';
import { isId } from '../../domain/ids.ts';
import type { Clock } from '../clock.ts';
import { makeHs256 } from './hs256.ts';

/** Life of a development token. */
export const DEVELOPMENT_TOKEN_HOURS = 12;

/**
 * A buyer's token, as the buyers' identity with the same settings takes it.
 * @param buyerId of `[A-Za-z0-9_-]{1,64}`; the caller has checked it
 * @param settings.secret the first of the buyers' HS256 secrets
 * @throws Fault `settings_invalid` for a short secret
 */
export function issueDevelopmentToken(
  buyerId: string,
  settings: { secret: string; clock: Clock; claim?: string; issuer?: string; audience?: string; hours?: number },
): string {
  assert(isId(buyerId), 'a development token names a well-formed buyer');
  const { secret, clock, claim = 'sub', issuer, audience, hours = DEVELOPMENT_TOKEN_HOURS } = settings;
  const iat = Math.floor(clock.now() / 1_000);
  return makeHs256([secret]).sign({
    ...(issuer === undefined ? {} : { iss: issuer }),
    ...(audience === undefined ? {} : { aud: audience }),
    iat,
    exp: iat + Math.ceil(hours * 3_600),
    [claim]: buyerId,
  });
}
