/** Activities brought into every situation that a move can meet, for tests of the moves. */
import { randomBytes } from 'node:crypto';
import { systemClock } from '../../src/platform/clock.ts';
import type { TestSluice } from '../support/sluice.ts';

const HOUR_MS = 3_600_000;

/** Situations by name; who plans them is `maker`. */
export const SITUATIONS = {
  'in review': async () => {},
  'in review, its end past': (it) => it.shift({ opensInMs: -HOUR_MS, endsInMs: -1_000 }),
  scheduled: (it) => it.approve(),
  'scheduled, opens within a minute': async (it) => {
    await it.approve();
    await it.shift({ opensInMs: 50_000, endsInMs: HOUR_MS });
  },
  'scheduled, verified': (it) => it.verified(),
  'scheduled, confirmed': (it) => it.confirmed(),
  'scheduled, confirmed, paused': async (it) => {
    await it.confirmed();
    await it.change('pause');
  },
  'scheduled, not confirmed, its opening past': async (it) => {
    await it.verified();
    await it.shift({ opensInMs: -1_000, endsInMs: HOUR_MS });
  },
  'due to open': async (it) => {
    await it.confirmed();
    await it.shift({ opensInMs: -1_000, endsInMs: HOUR_MS });
  },
  open: (it) => it.open(),
  'open, paused': async (it) => {
    await it.open();
    await it.change('pause');
  },
  'due to end': async (it) => {
    await it.open();
    await it.shift({ opensInMs: -HOUR_MS, endsInMs: -1_000 });
  },
  ended: async (it) => {
    await it.open();
    await it.change('end');
  },
  settled: async (it) => {
    await it.open();
    await it.change('end');
    await it.settle();
  },
  rejected: (it) => it.reject(),
} as const satisfies Record<string, (it: Steps) => Promise<void>>;

/** Name of a situation. */
export type Situation = keyof typeof SITUATIONS;

type Steps = {
  approve(): Promise<void>;
  reject(): Promise<void>;
  verified(): Promise<void>;
  confirmed(): Promise<void>;
  open(): Promise<void>;
  change(action: 'pause' | 'resume' | 'end'): Promise<void>;
  settle(): Promise<void>;
  /** sets the instants behind everybody's back, as the clock would bring them */
  shift(window: { opensInMs: number; endsInMs: number }): Promise<void>;
};

/** Makes an activity in a situation; returns its id. */
export async function inSituation({ wired, database }: TestSluice, situation: Situation): Promise<string> {
  const id = `act${randomBytes(6).toString('hex')}`;
  const { activities, walk } = wired;
  const now = systemClock.now();
  const did = (what: string, outcome: unknown): void => {
    if (outcome !== true) throw new Error(`${situation}: ${what}: ${JSON.stringify(outcome)}`);
  };
  const planned = await activities.plan(
    {
      id,
      itemName: '测试商品',
      priceMinor: 9_900,
      currency: 'CNY',
      total: 10,
      opensAt: now + HOUR_MS,
      endsAt: now + 2 * HOUR_MS,
    },
    'maker',
  );
  did('plan', planned.kind === 'planned');
  const steps: Steps = {
    approve: async () => did('approve', await activities.approve(id, 'setter')),
    reject: async () => did('reject', (await walk.reject(id, { actor: 'setter' })).kind === 'moved'),
    async verified() {
      await steps.approve();
      did('preheat', (await activities.preheat(id)).kind === 'verified');
    },
    async confirmed() {
      await steps.verified();
      did('confirm', await activities.confirm(id, 'setter'));
    },
    async open() {
      await steps.confirmed();
      did('open', (await walk.open(id, { actor: 'setter' })).kind === 'moved');
    },
    change: async (action) => did(action, await activities.change(id, action, 'setter')),
    settle: async () => did('settle', (await walk.settle(id, { actor: 'setter' })).kind === 'moved'),
    async shift({ opensInMs, endsInMs }) {
      await database.database.query(
        `update activities set opens_at = clock_timestamp() + $2::int * interval '1 millisecond',
                               ends_at = clock_timestamp() + $3::int * interval '1 millisecond' where id = $1`,
        [id, opensInMs, endsInMs],
      );
    },
  };
  await SITUATIONS[situation](steps);
  return id;
}
