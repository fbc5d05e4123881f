/**
 * Speaks for `RedisTime`: whatever the network does, what it says contains the truth. The world of the property has three
 * clocks: true time, our monotonic one and Redis', the latter two each up to 99 ppm off, and off differently at any time.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { RedisTime } from '../../../src/purchase/4-gate/redis-time.ts';

/** Epoch ms of the property's Redis at the start; numbers of this size are exact to 0.0003 ms. */
const EPOCH_MS = 1_764_600_000_000;
const ROUNDING_MS = 0.002;

/** Two clocks that run on without a step, faster or slower as told. */
function makeWorld(offsetMs: number) {
  let ours = 1_000;
  let redis = EPOCH_MS + offsetMs;
  return {
    clock: { now: () => 0, monotonic: () => ours },
    redis: () => redis,
    pass(trueMs: number, oursPpm: number, redisPpm: number) {
      ours += trueMs * (1 + oursPpm * 1e-6);
      redis += trueMs * (1 + redisPpm * 1e-6);
    },
    step(ms: number) {
      redis += ms;
    },
  };
}

// fc.double would draw from the floating-point numbers, of which most are next to nothing
const ppm = fc.oneof(fc.constantFrom(-99, 99), fc.integer({ min: -99, max: 99 }));
const ms = (max: number) => fc.integer({ min: 0, max: max * 1_000 }).map((micros) => micros / 1_000);
const sample = fc.record({
  idleMs: fc.oneof(ms(50), ms(5_000), ms(600_000)),
  thereMs: fc.oneof(ms(2), ms(200), ms(10_000)),
  backMs: fc.oneof(ms(2), ms(200), ms(10_000)),
  oursPpm: ppm,
  redisPpm: ppm,
});

const seed = Number(process.env.SLUICE_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));

describe('Redis’ time', () => {
  test('is not known before the first sample', () => {
    const time = new RedisTime({ now: () => 0, monotonic: () => 5 });
    expect([time.earliest(), time.latest(), time.ageMs()]).toEqual([undefined, undefined, Number.POSITIVE_INFINITY]);
  });

  test(`lies within its bounds, always (seed ${seed})`, () => {
    fc.assert(
      fc.property(ms(1_000), fc.array(sample, { minLength: 1, maxLength: 30 }), (offsetMs, samples) => {
        const world = makeWorld(offsetMs);
        const time = new RedisTime(world.clock);
        const expectWithin = (): void => {
          const earliest = time.earliest();
          if (earliest === undefined) return;
          expect(earliest).toBeLessThanOrEqual(world.redis() + ROUNDING_MS);
          expect(time.latest()).toBeGreaterThanOrEqual(world.redis() - ROUNDING_MS);
        };
        for (const { idleMs, thereMs, backMs, oursPpm, redisPpm } of samples) {
          world.pass(idleMs, oursPpm, redisPpm);
          expectWithin();
          const sentAt = world.clock.monotonic();
          world.pass(thereMs, redisPpm, oursPpm);
          const redisMs = Math.floor(world.redis());
          world.pass(backMs, oursPpm, redisPpm);
          time.learn({ redisMs, sentAt, receivedAt: world.clock.monotonic() });
          expect(time.ageMs()).toBe(0);
          expectWithin();
        }
        world.pass(60_000, 99, -99);
        expectWithin();
        world.pass(60_000, -99, 99);
        expectWithin();
      }),
      { seed, numRuns: 2_000 },
    );
  });

  test('narrows with every sample: as good as the quickest, and better', () => {
    const world = makeWorld(0.25);
    const time = new RedisTime(world.clock);
    const learn = (thereMs: number, backMs: number): number => {
      const sentAt = world.clock.monotonic();
      world.pass(thereMs, 0, 0);
      const redisMs = Math.floor(world.redis());
      world.pass(backMs, 0, 0);
      time.learn({ redisMs, sentAt, receivedAt: world.clock.monotonic() });
      return time.latest()! - time.earliest()!;
    };
    expect(learn(40, 60)).toBeCloseTo(101, 1);
    expect(learn(1, 1)).toBeLessThan(3.1);
    // a slow one in between does no harm
    expect(learn(400, 600)).toBeLessThan(3.7);
    // samples whose slack lies on either side cut from either side
    learn(0.1, 3);
    expect(learn(3, 0.1)).toBeLessThan(2.5);
  });

  test('is known less well as the last sample grows old', () => {
    const world = makeWorld(0);
    const time = new RedisTime(world.clock);
    const at = world.clock.monotonic();
    time.learn({ redisMs: world.redis(), sentAt: at, receivedAt: at });
    world.pass(10_000, 0, 0);
    expect(time.ageMs()).toBe(10_000);
    expect(time.latest()! - time.earliest()!).toBeCloseTo(1 + 2 * 2, 1); // 200 ppm of 10 s, both ways
  });

  test.each([-3_600_000, -1_000, -60, 60, 1_000, 86_400_000])('starts anew after a step of %i ms', (stepMs) => {
    const world = makeWorld(0);
    const time = new RedisTime(world.clock);
    const learn = (): void => {
      const sentAt = world.clock.monotonic();
      world.pass(1, 0, 0);
      const redisMs = Math.floor(world.redis());
      world.pass(1, 0, 0);
      time.learn({ redisMs, sentAt, receivedAt: world.clock.monotonic() });
    };
    learn();
    world.pass(1_000, 0, 0);
    learn();
    world.step(stepMs);
    learn();
    for (const idleMs of [0, 500, 5_000]) {
      world.pass(idleMs, 0, 0);
      expect(time.earliest()).toBeLessThanOrEqual(world.redis() + ROUNDING_MS);
      expect(time.latest()).toBeGreaterThanOrEqual(world.redis() - ROUNDING_MS);
    }
    expect(time.latest()! - time.earliest()!).toBeLessThan(6);
  });
});
