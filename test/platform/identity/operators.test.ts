import { beforeEach, describe, expect, test } from 'vitest';
import { makeBuyerIdentity } from '../../../src/platform/identity/buyers.ts';
import { issueDevelopmentToken } from '../../../src/platform/identity/development.ts';
import { makeHs256 } from '../../../src/platform/identity/hs256.ts';
import { makeOperatorIdentity, OPERATOR_ROLES } from '../../../src/platform/identity/operators.ts';
import type { OperatorIdentity } from '../../../src/platform/identity/operators.ts';
import { NOON_SECONDS, SetClock } from './set-clock.ts';

const SECRET = "the operators' secret of 32 bytes";
const OTHER = 'another secret, as long as it is';
const HOUR = NOON_SECONDS + 3_600;

let clock: SetClock;
let operators: OperatorIdentity;
beforeEach(() => {
  clock = new SetClock();
  operators = makeOperatorIdentity({ secrets: [SECRET], clock });
});

test.each(OPERATOR_ROLES)('a token for a %s is one until it expires', (role) => {
  const header = `Bearer ${operators.issueOperatorToken({ name: 'li.na@shop', role, hours: 8 })}`;
  expect(operators.identifyOperator(header)).toEqual({ kind: 'operator', name: 'li.na@shop', role });
  clock.seconds += 8 * 3_600 + 30;
  expect(operators.identifyOperator(header)).toEqual({ kind: 'unauthenticated', reason: 'expired' });
});

describe('refused', () => {
  const good = { sub: 'li', role: 'viewer', aud: 'sluice-operator', exp: HOUR };
  test.each<[string, object, string]>([
    ['no exp', { exp: undefined }, 'malformed'],
    ['nbf ahead', { nbf: HOUR }, 'not_yet'],
    ['no audience', { aud: undefined }, 'audience'],
    ['another audience', { aud: 'sale' }, 'audience'],
    ['a list of audiences', { aud: ['sluice-operator'] }, 'audience'],
    ['no role', { role: undefined }, 'operator'],
    ['another role', { role: 'admin' }, 'operator'],
    ['a role that every object inherits', { role: 'constructor' }, 'operator'],
    ['no name', { sub: undefined }, 'operator'],
    ['a name with a space', { sub: 'li na' }, 'operator'],
  ])('%s', (_, change, reason) => {
    const token = makeHs256([SECRET]).sign({ ...good, ...change });
    expect(operators.identifyOperator(`Bearer ${token}`)).toEqual({ kind: 'unauthenticated', reason });
  });

  test('nothing, another scheme, another secret', () => {
    const token = makeHs256([OTHER]).sign(good);
    expect(operators.identifyOperator(undefined)).toMatchObject({ reason: 'missing' });
    expect(operators.identifyOperator('Basic eDp5')).toMatchObject({ reason: 'malformed' });
    expect(operators.identifyOperator(`Bearer ${token}`)).toMatchObject({ reason: 'signature' });
  });
});

test('two secrets while rotating: the first signs, both count', () => {
  const header = `Bearer ${operators.issueOperatorToken({ name: 'li', role: 'viewer', hours: 1 })}`;
  const rotating = makeOperatorIdentity({ secrets: [OTHER, SECRET], clock });
  expect(rotating.identifyOperator(header)).toMatchObject({ kind: 'operator' });
  const next = `Bearer ${rotating.issueOperatorToken({ name: 'li', role: 'viewer', hours: 1 })}`;
  expect(operators.identifyOperator(next)).toMatchObject({ reason: 'signature' });
});

describe("with one secret for both, a buyer's token is no operator's and the other way round", () => {
  test.each([undefined, 'sale'])('buyers of audience %s', (audience) => {
    const addressed = audience === undefined ? {} : { audience };
    const buyers = makeBuyerIdentity({ keys: { hs256Secrets: [SECRET] }, clock, ...addressed });
    const operator = `Bearer ${operators.issueOperatorToken({ name: 'li', role: 'approver', hours: 1 })}`;
    const buyer = `Bearer ${issueDevelopmentToken('li', { secret: SECRET, clock, ...addressed })}`;
    expect(buyers.identify(buyer)).toMatchObject({ kind: 'buyer' });
    expect(buyers.identify(operator)).toEqual({ kind: 'unauthenticated', reason: 'audience' });
    expect(operators.identifyOperator(operator)).toMatchObject({ kind: 'operator' });
    expect(operators.identifyOperator(buyer)).toEqual({ kind: 'unauthenticated', reason: 'audience' });
  });
});

describe('no token is issued', () => {
  test.each<[string, { name?: string; role?: string; hours?: number }]>([
    ['without a name', { name: '' }],
    ['for a name with a line feed', { name: 'li\n' }],
    ['for another role', { role: 'admin' }],
    ['for no time', { hours: 0 }],
    ['for less', { hours: -1 }],
    ['for NaN', { hours: Number.NaN }],
    ['for ever', { hours: Number.POSITIVE_INFINITY }],
  ])('%s', (_, change) => {
    const asked = { name: 'li', role: 'viewer', hours: 1, ...change } as {
      name: string;
      role: 'viewer';
      hours: number;
    };
    expect(() => operators.issueOperatorToken(asked)).toThrow('operator token');
  });
});
