/** Lag of the event loop: the longest delay of each second, for operators and for whoever sheds. */
import { afterEach, describe, expect, test } from 'vitest';
import { systemTimers, type Timers } from '../../src/platform/clock.ts';
import { EventLoopLag } from '../../src/watch/event-loop.ts';

describe('the lag', () => {
  let lag: EventLoopLag | undefined;
  afterEach(() => lag?.stop());

  test('is the longest gap between two looks, less the pause that was meant', () => {
    const due: (() => void)[] = [];
    const timers: Timers = {
      after(_delayMs, work) {
        due.push(work);
        return { cancel: () => void due.splice(0) };
      },
      sleep: () => Promise.resolve(),
    };
    const gaps = [9_999, 20.4, 320, 19];
    lag = new EventLoopLag(timers, () => gaps.shift()!);
    lag.start(); // what came before, 9,999 ms, is not counted
    expect(lag.lagMs()).toBe(0);
    due.pop()!();
    expect(lag.lagMs()).toBeCloseTo(0.4);
    due.pop()!();
    expect(lag.lagMs()).toBe(300);
    due.pop()!();
    expect(lag.lagMs()).toBe(0); // never less than none
    const { count, sum } = lag.seconds.read();
    expect(count).toBe(3);
    expect(sum).toBeCloseTo(0.3004);
    lag.stop();
    expect(due).toEqual([]);
  });

  test('sees a loop that was really blocked', { timeout: 20_000 }, async () => {
    lag = new EventLoopLag(systemTimers);
    lag.start();
    await systemTimers.sleep(50);
    const until = performance.now() + 400;
    while (performance.now() < until);
    while (lag.seconds.read().count === 0) await systemTimers.sleep(20);
    expect(lag.lagMs()).toBeGreaterThan(300);
  });
});
