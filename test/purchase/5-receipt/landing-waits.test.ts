import { expect, test } from 'vitest';
import { systemTimers } from '../../../src/platform/clock.ts';
import { LandingWaits } from '../../../src/purchase/5-receipt/landing-waits.ts';

const AGES_MS = 3_600_000;

test('a hint wakes those who wait for its order and nobody else', async () => {
  const waits = new LandingWaits(systemTimers);
  let others = false;
  const stop = new AbortController();
  const other = waits.next('2', AGES_MS, stop.signal).then(() => (others = true));
  const both = Promise.all([waits.next('1', AGES_MS), waits.next('1', AGES_MS)]);
  expect(waits.size).toBe(2);
  waits.hint(['1', '3']);
  await both;
  expect(others).toBe(false);
  expect(waits.size).toBe(1);
  stop.abort();
  await other;
  expect(waits.size).toBe(0);
});

test('without a hint a wait ends by itself, by its signal, or with all others; nothing is left behind', async () => {
  const waits = new LandingWaits(systemTimers);
  await waits.next('1', 1);
  await waits.next('1', AGES_MS, AbortSignal.abort());
  const all = Promise.all([waits.next('1', AGES_MS), waits.next('2', AGES_MS)]);
  waits.hintAll();
  await all;
  expect(waits.size).toBe(0);
});
