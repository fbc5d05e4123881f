import { describe, expect, test } from 'vitest';
import { Fault } from '../../../src/domain/fault.ts';
import { endsConnection, faultOf, isHoldsOwnFault, sqlstateOf } from '../../../src/platform/postgres/sql-errors.ts';

const fromServer = (code: string): Error => Object.assign(new Error('said'), { code, severity: 'ERROR' });

describe('an error of PostgreSQL becomes', () => {
  const OWN = 'own' as const;
  const WORLD = 'world' as const;
  const ENDS = 'connection ends' as const;
  const STAYS = 'connection stays' as const;
  test.each([
    ['08000', 'database_unavailable', WORLD, ENDS],
    ['08006', 'database_unavailable', WORLD, ENDS],
    ['08P01', 'database_refused', WORLD, ENDS],
    ['22003', 'database_refused', OWN, STAYS],
    ['22P02', 'database_refused', OWN, STAYS],
    ['23502', 'database_refused', OWN, STAYS],
    ['23505', 'database_refused', OWN, STAYS],
    ['25006', 'database_unavailable', WORLD, ENDS],
    ['25P02', 'database_refused', WORLD, STAYS],
    ['25P03', 'database_busy', WORLD, ENDS],
    ['28P01', 'database_refused', WORLD, STAYS],
    ['40001', 'database_busy', WORLD, STAYS],
    ['40003', 'database_unavailable', WORLD, STAYS],
    ['40P01', 'database_busy', WORLD, STAYS],
    ['42501', 'database_refused', WORLD, STAYS],
    ['42601', 'database_refused', WORLD, STAYS],
    ['42P01', 'database_refused', WORLD, STAYS],
    ['53100', 'database_busy', WORLD, STAYS],
    ['53300', 'database_busy', WORLD, ENDS],
    ['54000', 'database_refused', OWN, STAYS],
    ['55P03', 'database_busy', WORLD, STAYS],
    ['57014', 'database_busy', WORLD, STAYS],
    ['57P01', 'database_unavailable', WORLD, ENDS],
    ['57P02', 'database_unavailable', WORLD, ENDS],
    ['57P03', 'database_unavailable', WORLD, ENDS],
    ['57P04', 'database_unavailable', WORLD, ENDS],
    ['57P05', 'database_unavailable', WORLD, ENDS],
    ['P0001', 'database_refused', OWN, STAYS],
    ['P0003', 'database_refused', OWN, STAYS],
    ['XX000', 'database_refused', WORLD, STAYS],
    ['SLUI1', 'database_refused', WORLD, STAYS],
  ] as const)('%s → %s, the %s fault, %s', (sqlstate, code, whose, connection) => {
    const fault = faultOf(fromServer(sqlstate), 'try');
    expect(fault).toMatchObject({ code, sqlstate, retryable: whose === WORLD, message: 'try: said' });
    expect(isHoldsOwnFault(fault)).toBe(whose === OWN);
    expect(endsConnection(sqlstate)).toBe(connection === ENDS);
  });

  test.each([
    ['a refused connection', Object.assign(new Error('connect'), { code: 'ECONNREFUSED' })],
    ['a broken pipe, whose code looks like a SQLSTATE', Object.assign(new Error('write'), { code: 'EPIPE' })],
    ['a silent server', new Error('Query read timeout')],
    ['something that is no error', 'gone'],
  ])('%s → database_unavailable, and ends the connection', (_name, error) => {
    const fault = faultOf(error, 'try');
    expect(fault).toMatchObject({ code: 'database_unavailable', sqlstate: undefined, retryable: true, cause: error });
    expect(isHoldsOwnFault(fault)).toBe(false);
    expect(sqlstateOf(error)).toBeUndefined();
    expect(endsConnection(undefined)).toBe(true);
  });

  test('a fault stays what it is', () => {
    const fault = new Fault('database_busy', 'wait', { retryable: true });
    expect(faultOf(fault, 'try')).toBe(fault);
  });

  test('the constraint is kept', () => {
    const error = Object.assign(fromServer('23514'), { constraint: 'sold_within_total' });
    expect(faultOf(error, 'try').constraint).toBe('sold_within_total');
  });

  test('an error that is none of the database is nobody’s hold’s fault', () => {
    expect(isHoldsOwnFault(new TypeError('bug'))).toBe(false);
  });
});
