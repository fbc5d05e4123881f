import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  releaseLease,
  renewLease,
  renewLeases,
  takeLease,
  takeLeases,
} from '../../../src/platform/postgres/leases-table.ts';
import type { LeaseAnswer } from '../../../src/platform/postgres/leases-table.ts';
import type { Database } from '../../../src/platform/postgres/database.ts';
import { createTestDatabase } from '../../support/test-database.ts';
import type { TestDatabase } from '../../support/test-database.ts';

let made: TestDatabase;
let sql: Database;

beforeAll(async () => {
  made = await createTestDatabase();
  sql = made.database;
});
beforeEach(() => sql.script('delete from leases'));
afterAll(() => made?.drop());

const ttlMs = 60_000;
const refused = { granted: false, clean: false, token: '0' };
const take = (owner: string, name = 'sweeper'): Promise<LeaseAnswer> => takeLease(sql, { name, owner, ttlMs });
/** As if the ttl had passed. */
const lapse = (name = 'sweeper'): Promise<unknown> =>
  sql.query(`update leases set expires_at = clock_timestamp() - interval '1 millisecond' where name = $1`, [name]);

describe('a lease', () => {
  test('that nobody had is granted, clean', async () => {
    expect(await take('ann')).toEqual({ granted: true, clean: true, token: '1' });
  });

  test('that is held is refused to others, and to its owner too', async () => {
    await take('ann');
    expect(await take('bob')).toEqual(refused);
    expect(await take('ann')).toEqual(refused);
  });

  test('that has lapsed is granted, not clean, under a higher token', async () => {
    await take('ann');
    await lapse();
    expect(await take('bob')).toEqual({ granted: true, clean: false, token: '2' });
  });

  test.each([true, false])('that was released with clean = %s is granted at once, and says so', async (clean) => {
    const { token } = await take('ann');
    expect(await releaseLease(sql, { name: 'sweeper', owner: 'ann', token, clean })).toBe(true);
    expect(await take('bob')).toEqual({ granted: true, clean, token: '2' });
  });

  test('left in order once is not clean for ever', async () => {
    const { token } = await take('ann');
    await releaseLease(sql, { name: 'sweeper', owner: 'ann', token, clean: true });
    await take('bob');
    await lapse();
    expect(await take('eve')).toEqual({ granted: true, clean: false, token: '3' });
  });

  test('lasts its ttl by the database’s clock, from its taking and from each renewal', async () => {
    const remainingMs = async (): Promise<number> => {
      const [row] = await sql.query<{ ms: number }>(
        `select (extract(epoch from expires_at - clock_timestamp()) * 1000)::float8 as ms from leases`,
      );
      return row!.ms;
    };
    const { token } = await take('ann');
    expect(await remainingMs()).toBeGreaterThan(ttlMs - 5_000);
    expect(await remainingMs()).toBeLessThanOrEqual(ttlMs);
    expect(await renewLease(sql, { name: 'sweeper', owner: 'ann', token, ttlMs: 2 * ttlMs })).toBe(true);
    expect(await remainingMs()).toBeGreaterThan(2 * ttlMs - 5_000);
  });

  describe('is not renewed', () => {
    const renew = (owner: string, token: string): Promise<boolean> =>
      renewLease(sql, { name: 'sweeper', owner, token, ttlMs });

    test('when it has lapsed, even if nobody took it', async () => {
      const { token } = await take('ann');
      await lapse();
      expect(await renew('ann', token)).toBe(false);
    });

    test('when it was released', async () => {
      const { token } = await take('ann');
      await releaseLease(sql, { name: 'sweeper', owner: 'ann', token, clean: true });
      expect(await renew('ann', token)).toBe(false);
    });

    test('under the token of an earlier taking, though the owner is the same', async () => {
      const { token } = await take('ann');
      await lapse();
      const again = await take('ann');
      expect(await renew('ann', token)).toBe(false);
      expect(await renew('ann', again.token)).toBe(true);
    });

    test('for another owner', async () => {
      const { token } = await take('ann');
      expect(await renew('bob', token)).toBe(false);
    });
  });

  test('that another has taken since is not released by its former owner', async () => {
    const { token } = await take('ann');
    await lapse();
    await take('bob');
    expect(await releaseLease(sql, { name: 'sweeper', owner: 'ann', token, clean: true })).toBe(false);
    expect(await take('eve')).toEqual(refused);
  });

  test.each(['free', 'lapsed'])('that is %s goes to one of twenty takers at once', async (before) => {
    if (before === 'lapsed') {
      await take('old');
      await lapse();
    }
    const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => take(`taker-${i}`)));
    const granted = answers.filter((answer) => answer.granted);
    expect(granted).toEqual([{ granted: true, clean: before === 'free', token: before === 'free' ? '1' : '2' }]);
  });

  test('taken inside a transaction that rolls back was never taken', async () => {
    await sql
      .transaction(async (tx) => {
        await takeLease(tx, { name: 'sweeper', owner: 'ann', ttlMs });
        throw new Error('changed my mind');
      })
      .catch(() => undefined);
    expect(await take('bob')).toEqual({ granted: true, clean: true, token: '1' });
  });
});

describe('many leases', () => {
  test('are taken in one statement, each with its own answer', async () => {
    await take('bob', 'held');
    await take('bob', 'lapsed');
    await lapse('lapsed');
    const answers = await takeLeases(sql, { names: ['held', 'lapsed', 'new', 'new'], owner: 'ann', ttlMs });
    expect(Object.fromEntries(answers)).toEqual({
      held: refused,
      lapsed: { granted: true, clean: false, token: '2' },
      new: { granted: true, clean: true, token: '1' },
    });
  });

  test('none asked for is none answered', async () => {
    expect(await takeLeases(sql, { names: [], owner: 'ann', ttlMs })).toEqual(new Map());
    expect(await renewLeases(sql, { leases: [], owner: 'ann', ttlMs })).toEqual(new Set());
  });

  test('are renewed in one statement, and those that are lost drop out', async () => {
    const answers = await takeLeases(sql, { names: ['a', 'b', 'c'], owner: 'ann', ttlMs });
    await lapse('b');
    await take('bob', 'b');
    const leases = [...answers].map(([name, { token }]) => ({ name, token }));
    expect(await renewLeases(sql, { leases, owner: 'ann', ttlMs })).toEqual(new Set(['a', 'c']));
  });

  test('wanted by many in opposite orders at once have one owner each, and nobody deadlocks', async () => {
    const names = Array.from({ length: 30 }, (_, i) => `stream-${String(i).padStart(2, '0')}`);
    await takeLeases(sql, { names, owner: 'old', ttlMs });
    await Promise.all(names.map((name) => lapse(name)));
    const all = await Promise.all(
      Array.from({ length: 8 }, (_, i) =>
        takeLeases(sql, { names: i % 2 === 0 ? names : [...names].reverse(), owner: `taker-${i}`, ttlMs }),
      ),
    );
    for (const name of names) {
      expect(all.filter((answers) => answers.get(name)?.granted)).toHaveLength(1);
    }
  });
});
