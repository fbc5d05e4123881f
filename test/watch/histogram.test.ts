import { describe, expect, test } from 'vitest';
import { Histogram, SECONDS, SIZES } from '../../src/watch/histogram.ts';

describe('a histogram', () => {
  test('counts each observation in the first bucket that holds it, bounds inclusive', () => {
    const histogram = new Histogram([1, 2, 4]);
    for (const value of [0, 1, 1.5, 2, 4, 4.1, 100]) histogram.observe(value);
    // value     0 1 | 1.5 2 | 4 | 4.1 100
    expect(histogram.read()).toEqual({ upTo: [2, 4, 5], count: 7, sum: 112.6 });
  });

  test('reads nothing as nothing, and reading changes nothing', () => {
    const histogram = new Histogram([1]);
    expect(histogram.read()).toEqual({ upTo: [0], count: 0, sum: 0 });
    histogram.observe(1);
    expect(histogram.read()).toEqual(histogram.read());
  });

  test('has bounds that ascend', () => {
    expect(() => new Histogram([1, 1])).toThrow('bounds of a histogram ascend');
    for (const bounds of [SECONDS, SIZES]) expect(() => new Histogram(bounds)).not.toThrow();
  });
});
