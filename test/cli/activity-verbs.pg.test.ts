/** `sluice activity …`, `sluice verify` and `sluice admin token` against a running server: an activity's whole walk by hand. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makeOperatorIdentity } from '../../src/platform/identity/operators.ts';
import { systemClock } from '../../src/platform/clock.ts';
import { buy, isQuiet, startSluice, TEST_OPERATOR_SECRET, until, type TestSluice } from '../support/sluice.ts';
import { runVerb, type Ran } from './command.ts';

let sluice: TestSluice;
beforeAll(async () => {
  sluice = await startSluice();
});
afterAll(() => sluice?.stop());

/** A token as `sluice admin token` makes it. */
async function tokenOf(name: string, role: string): Promise<string> {
  const words = ['admin', 'token', '--name', name, '--role', role, '--hours', '1'];
  const { code, printed } = await runVerb(words, { settings: { operatorSecret: TEST_OPERATOR_SECRET } });
  expect(code).toBe(0);
  expect(printed).toHaveLength(1);
  return printed[0]!;
}

/** Runs a verb as somebody, against the server. */
async function as(role: 'viewer' | 'operator' | 'approver', ...words: string[]): Promise<Ran> {
  const environment = { SLUICE_URL: sluice.url, SLUICE_TOKEN: await tokenOf(`test-${role}`, role) };
  return runVerb(words, { environment });
}
const documentOf = ({ printed, code, said }: Ran): Record<string, unknown> => {
  expect(said).toBe('');
  expect(code).toBe(0);
  expect(printed).toHaveLength(1);
  return JSON.parse(printed[0]!) as Record<string, unknown>;
};
const create = (id: string, ...more: string[]): string[] => [
  ...['activity', 'create', '--id', id, '--name', '一件商品', '--price-minor', '9900', '--total', '5'],
  ...['--opens', '+10m', '--ends', '+2h', ...more],
];

describe('an activity’s walk by hand', () => {
  test('from planning to settling, one document a verb', async () => {
    const planned = documentOf(await as('operator', ...create('walk', '--limit', '2', '--no-confirm', '--json')));
    expect(planned).toMatchObject({ id: 'walk', state: 'in_review', total: 5, perBuyerLimit: 2, autoConfirm: false });
    const opensIn = (planned['opensAt'] as number) - systemClock.now();
    expect(opensIn).toBeGreaterThan(500_000); // +10m by the server's clock
    expect(opensIn).toBeLessThan(700_000);

    expect(documentOf(await as('approver', 'activity', 'approve', 'walk', '--json'))).toMatchObject({
      state: 'scheduled',
    });
    const report = documentOf(await as('operator', 'activity', 'preheat', 'walk', '--json'));
    expect(report['checks']).toBeInstanceOf(Array);
    expect(documentOf(await as('approver', 'activity', 'confirm', 'walk', '--json'))).toMatchObject({
      preheat: 'confirmed',
    });
    expect(documentOf(await as('operator', 'activity', 'pause', 'walk', '--json'))).toMatchObject({ paused: true });
    expect(documentOf(await as('operator', 'activity', 'resume', 'walk', '--json'))).toMatchObject({ paused: false });
    expect(
      documentOf(await as('operator', 'activity', 'open', 'walk', '--reason', 'the crowd is here', '--json')),
    ).toMatchObject({ state: 'open' });

    await until(
      'the door knows that it is open',
      async () => (await buy(sluice.url, 'walk', 'ann')).code !== 'not_open',
    );
    await sluice.wired.memory.refresh();
    await until('landed', () => isQuiet(sluice, sluice.wired.memory.get('walk')!));
    expect(documentOf(await as('viewer', 'verify', 'walk', '--json'))).toMatchObject({
      live: 1,
      left: 4,
      findings: [],
    });

    expect(documentOf(await as('operator', 'activity', 'end', 'walk', '--json'))).toMatchObject({ state: 'ended' });
    expect(documentOf(await as('operator', 'activity', 'settle', 'walk', '--json'))).toMatchObject({
      state: 'settled',
    });
    expect(documentOf(await as('viewer', 'activity', 'show', 'walk', '--json'))).toMatchObject({
      state: 'settled',
      sold: 1,
    });
  });

  test('in words: the activity on one line, what it says below', async () => {
    await as('operator', ...create('words'));
    const { printed, code } = await as('viewer', 'activity', 'show', 'words');
    expect(code).toBe(0);
    expect(printed[0]).toMatch(/^words: 一件商品, in_review, 0 of 5 sold, opens \d{4}-\d\d-\d\dT[\d:.]+Z$/);
    expect(printed).toContainEqual(expect.stringMatching(/^ {2}perBuyerLimit: 1$/));
    expect(printed.filter((line) => line.includes('opensAt'))).toHaveLength(1); // one spelling of an instant
    const listed = await as('viewer', 'activity', 'list', '--limit', '1');
    expect(listed.printed).toEqual([expect.stringMatching(/^words: /), 'more: --after words']);
    const more = await as('viewer', 'activity', 'list', '--after', 'words');
    expect(more.printed).toEqual([expect.stringMatching(/^walk: 一件商品, settled, 1 of 5 sold/)]);
    expect(documentOf(await as('viewer', 'activity', 'list', '--json'))).toMatchObject({
      items: [{ id: 'words' }, { id: 'walk' }],
    });
  });

  test('rejected is rejected', async () => {
    await as('operator', ...create('no'));
    expect(documentOf(await as('approver', 'activity', 'reject', 'no', '--json'))).toMatchObject({ state: 'rejected' });
  });
});

describe('refusals: exit 1, one line with the server’s title and field', () => {
  test.each<[string, () => Promise<Ran>, RegExp]>([
    [
      'a field out of its bounds',
      () => as('operator', ...create('bad', '--limit', '5000')),
      /^The request is not valid \(invalid; field perBuyerLimit; /,
    ],
    [
      'an end before the opening',
      () =>
        as(
          'operator',
          'activity',
          'create',
          '--name',
          'x',
          '--price-minor',
          '1',
          '--total',
          '1',
          '--opens',
          '+2h',
          '--ends',
          '+1h',
        ),
      /field endsAt/,
    ],
    [
      'an id that is taken',
      async () => {
        await as('operator', ...create('taken'));
        return as('operator', ...create('taken'));
      },
      /^[^\n]+ \(activity_exists\)$/,
    ],
    [
      'an activity that there is not',
      () => as('viewer', 'activity', 'show', 'nowhere'),
      /^There is no such activity \(unknown_activity\)$/,
    ],
    ['an id that would be another path', () => as('viewer', 'activity', 'show', '../orders'), /\(invalid; field id/],
    ['a role that does not reach', () => as('viewer', ...create('role')), /^You may not do this \(forbidden/],
    [
      'a move from the wrong state',
      async () => {
        await as('operator', ...create('early'));
        return as('operator', 'activity', 'end', 'early');
      },
      /\(wrong_state; .*state in_review/,
    ],
    [
      'four eyes',
      async () => {
        await as('approver', ...create('own'));
        return as('approver', 'activity', 'approve', 'own');
      },
      /^You may not do this \(forbidden; /,
    ],
    ['verify of nothing', () => as('viewer', 'verify', 'nowhere'), /unknown_activity/],
  ])('%s', async (_, run, line) => {
    const ran = await run();
    expect(ran.said).toMatch(line);
    expect(ran.said).not.toContain('\n');
    expect(ran).toMatchObject({ code: 1, printed: [] });
    expect(ran.document).toHaveProperty('title');
  });

  test('in the language of the terminal', async () => {
    const environment = { SLUICE_URL: sluice.url, SLUICE_TOKEN: await tokenOf('ann', 'viewer'), LANG: 'zh_CN.UTF-8' };
    expect((await runVerb(['activity', 'show', 'nowhere'], { environment })).said).toBe(
      '活动不存在 (unknown_activity)',
    );
  });

  test('a token that is none', async () => {
    const environment = { SLUICE_URL: sluice.url, SLUICE_TOKEN: 'nonsense' };
    const { code, said } = await runVerb(['activity', 'list'], { environment });
    expect([code, said]).toEqual([1, expect.stringContaining('unauthenticated')]);
  });

  test('a server that is not there', async () => {
    const environment = { SLUICE_URL: 'http://127.0.0.1:1', SLUICE_TOKEN: 'x' };
    const { code, said } = await runVerb(['activity', 'list'], { environment });
    expect([code, said]).toEqual([1, expect.stringMatching(/^cannot reach http:\/\/127\.0\.0\.1:1: /)]);
  });

  test('verify that does not hold: the report, and exit 1', async () => {
    const activity = await sluice.openActivity({ total: 3 });
    const at = { activityId: activity.id, segment: 0, run: activity.run };
    await sluice.redis.command('DECRBY', sluice.keys.stock(at), 1);
    const json = await as('viewer', 'verify', activity.id, '--json');
    expect(json.code).toBe(1);
    expect(json.printed).toHaveLength(1);
    expect(JSON.parse(json.printed[0]!)).toMatchObject({ activityId: activity.id, left: 2, live: 0 });
    const words = await as('viewer', 'verify', activity.id);
    expect(words.code).toBe(1);
    expect(words.printed[0]).toBe(`${activity.id}, run 1: 3 total + 0 surplus = 2 left + 0 in flight + 0 live`);
    expect(words.printed.at(-1)).toBe('It does not hold.');
  });
});

describe('sluice admin token', () => {
  const identity = makeOperatorIdentity({ secrets: [TEST_OPERATOR_SECRET], clock: systemClock });

  test('signs what the server reads', async () => {
    const token = await tokenOf('li.lei@shop', 'approver');
    expect(identity.identifyOperator(`Bearer ${token}`)).toEqual({
      kind: 'operator',
      name: 'li.lei@shop',
      role: 'approver',
    });
  });
  test('--json says until when', async () => {
    const words = ['admin', 'token', '--name', 'ann', '--role', 'viewer', '--hours', '0.5', '--json'];
    const document = documentOf(await runVerb(words, { settings: { operatorSecret: TEST_OPERATOR_SECRET } }));
    expect(document).toMatchObject({ name: 'ann', role: 'viewer' });
    const lifeMs = (document['expiresAt'] as number) - systemClock.now();
    expect(lifeMs).toBeGreaterThan(1_790_000);
    expect(lifeMs).toBeLessThanOrEqual(1_800_000);
    expect(document['expiresAtIso']).toBe(new Date(document['expiresAt'] as number).toISOString());
  });
});
