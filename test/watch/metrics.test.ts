/** From plain counters to samples: names, labels and their bounds, and several processes as one target. */
import { describe, expect, test } from 'vitest';
import type { Activity } from '../../src/domain/activity.ts';
import { ACTIVITIES_SHOWN_MAX, unitsLeft } from '../../src/main/wire-watch.ts';
import { Histogram } from '../../src/watch/histogram.ts';
import { LABEL_VALUES_MAX, METRICS, Metrics, metricsText, type Readings } from '../../src/watch/metrics.ts';
import { parseExposition, valueOf } from './exposition.ts';

const show = async (readings: Readings, process?: string): Promise<string> =>
  metricsText([await new Metrics(readings, { process, withNode: false }).read()]);

describe('the table of metrics', () => {
  test('keeps to the names that Prometheus expects', () => {
    for (const { name, type, unit } of Object.values(METRICS)) {
      expect(name).toMatch(/^sluice_[a-z]+(_[a-z]+)*$/);
      expect([name, name.endsWith('_total')]).toEqual([name, type === 'counter']);
      if (unit === 'seconds') expect(name).toMatch(/_seconds$/);
      expect(name).not.toMatch(/_(ms|milliseconds|kilobytes|percent)$/); // base units
    }
    const names = Object.values(METRICS).map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
  });
});

describe('a reading', () => {
  test('is read when it is asked for, not before', async () => {
    let pending = 1;
    const metrics = new Metrics({ gatePending: () => pending }, { withNode: false });
    const read = async (): Promise<number | undefined> =>
      valueOf(parseExposition(await metricsText([await metrics.read()])), 'sluice_gate_pending_purchases', {});
    expect(await read()).toBe(1);
    pending = 7;
    expect(await read()).toBe(7);
  });

  test('is a number, one a label, or a histogram', async () => {
    const histogram = new Histogram([0.5, 1]);
    for (const value of [0.1, 0.7, 3]) histogram.observe(value);
    const text = await show({
      gatePending: () => 3,
      purchases: () => new Map([['held', 2]]),
      gateSeconds: () => histogram,
    });
    expect(text).toContain('# TYPE sluice_purchases_total counter\nsluice_purchases_total{code="held"} 2');
    expect(text).toContain(
      [
        '# TYPE sluice_gate_seconds histogram',
        'sluice_gate_seconds_bucket{le="0.5"} 1',
        'sluice_gate_seconds_bucket{le="1"} 2',
        'sluice_gate_seconds_bucket{le="+Inf"} 3',
        'sluice_gate_seconds_sum 3.8',
        'sluice_gate_seconds_count 3',
      ].join('\n'),
    );
  });

  test('that cannot be told now is not shown; no value is better than an old one', async () => {
    const text = await show({ backlogEntries: () => undefined, giveBacks: () => Number.NaN });
    expect(parseExposition(text)).toEqual([]);
    expect(text).toContain('# TYPE sluice_landing_backlog_entries gauge');
  });

  test('shows at most so many values of a label, whatever leaks into it', async () => {
    const leak = new Map(Array.from({ length: 10_000 }, (_, i) => [`buyer${i}`, 1]));
    expect(parseExposition(await show({ purchases: () => leak }))).toHaveLength(LABEL_VALUES_MAX);
  });
});

describe('several processes', () => {
  test('stand side by side under their names; nothing is added up', async () => {
    const of = (process: string, held: number) =>
      new Metrics({ purchases: () => new Map([['held', held]]) }, { process, withNode: true }).read();
    // through JSON, as between processes
    const snapshots = JSON.parse(JSON.stringify([await of('api-1', 3), await of('api-2', 4)])) as Awaited<
      ReturnType<typeof of>
    >[];
    const series = parseExposition(await metricsText(snapshots));
    const held = series.filter((one) => one.name === 'sluice_purchases_total');
    expect(held.map((one) => [one.labels, one.value])).toEqual([
      [{ code: 'held', process: 'api-1' }, 3],
      [{ code: 'held', process: 'api-2' }, 4],
    ]);
    const starts = series.filter((one) => one.name === 'process_start_time_seconds');
    expect(starts.map((one) => one.labels['process'])).toEqual(['api-1', 'api-2']);
  });
});

describe('units left by activity', () => {
  const now = 1_000_000;
  const activity = (i: number, more: Partial<Activity> = {}): Activity =>
    ({ id: `a${i}`, run: 1, opensAt: now - i, endsAt: now + 1_000, total: 10, sold: 0, ...more }) as Activity;

  test(`are shown of the ${ACTIVITIES_SHOWN_MAX} newest on sale`, () => {
    const many = Array.from({ length: 200 }, (_, i) => activity(i));
    const shown = unitsLeft(many, () => 5, now);
    expect(shown.size).toBe(ACTIVITIES_SHOWN_MAX);
    expect([...shown.keys()].slice(0, 2)).toEqual(['a0', 'a1']);
    expect(ACTIVITIES_SHOWN_MAX).toBeLessThanOrEqual(LABEL_VALUES_MAX);
  });

  test('are not shown of those that are not on sale', () => {
    const shown = unitsLeft(
      [
        activity(1),
        activity(2, { opensAt: now + 1 }),
        activity(3, { endsAt: now }),
        activity(4, { run: 0 }), // never preheated
      ],
      () => 5,
      now,
    );
    expect([...shown]).toEqual([['a1', 5]]);
  });
});
