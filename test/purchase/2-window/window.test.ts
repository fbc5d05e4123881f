import { expect, test } from 'vitest';
import type { Activity } from '../../../src/domain/activity.ts';
import { refuseByWindow } from '../../../src/purchase/2-window/window.ts';

const activity = { opensAt: 1_000, endsAt: 2_000 } as Activity;

test.each<[latest: number | undefined, told: 'not_open' | undefined]>([
  [undefined, undefined], // Redis' time is not known: the gate is asked
  [0, 'not_open'],
  [999.999, 'not_open'],
  [1_000, undefined], // it may be time: the gate is asked
  [1_500, undefined],
  [5_000, undefined], // over by our reckoning, but a winner’s repeat must reach the gate (P10)
])('with Redis’ time at most %s it says %s', (latest, told) => {
  expect(refuseByWindow(activity, { latest: () => latest })).toBe(told);
});
