/** `/metrics` of a running process: what it shows is what happened, and a crowd does not make it longer. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { METRICS } from '../../src/watch/metrics.ts';
import { ask, buy, isQuiet, startSluice, tokenOf, until, type TestSluice } from '../support/sluice.ts';
import { scrape, valueOf, type Series } from './exposition.ts';

/** The crowd of the promise: each buyer is another, and so is each path. */
const CROWD = 3_000;

async function inCrowd<T>(items: readonly T[], work: (item: T) => Promise<unknown>): Promise<void> {
  let next = 0;
  const runner = async (): Promise<void> => {
    while (next < items.length) await work(items[next++]!);
  };
  await Promise.all(Array.from({ length: 32 }, runner));
}

describe('/metrics', () => {
  let sluice: TestSluice;
  beforeAll(async () => {
    sluice = await startSluice();
  });
  afterAll(() => sluice?.stop());

  const labelled = (series: readonly Series[], name: string, labels: Record<string, string>): number | undefined =>
    valueOf(series, name, labels);

  test('counts what happened: answers by code, batches, holds that landed, units left', async () => {
    const activity = await sluice.openActivity({ total: 3 });
    const before = await scrape(sluice.url);
    for (const buyer of ['ann', 'bob', 'cid', 'dan', 'eve']) await buy(sluice.url, activity.id, buyer);
    await buy(sluice.url, activity.id, 'ann', { key: 'another-key' });
    await until('landed', () => isQuiet(sluice, activity));
    await until('the backlog has been measured', async () => {
      return labelled(await scrape(sluice.url), 'sluice_landing_backlog_entries', {}) === 0;
    });
    const after = await scrape(sluice.url);
    const more = (name: string, labels: Record<string, string> = {}): number =>
      labelled(after, name, labels)! - labelled(before, name, labels)!;

    expect(more('sluice_purchases_total', { code: 'held' })).toBe(3);
    expect(more('sluice_purchases_total', { code: 'sold_out' })).toBe(2);
    expect(more('sluice_purchases_total', { code: 'already_bought' })).toBe(1);
    expect(more('sluice_gate_calls_total', { outcome: 'decided' })).toBe(6);
    expect(more('sluice_gate_batch_purchases_count')).toBe(6);
    expect(more('sluice_gate_batch_purchases_sum')).toBe(6);
    expect(more('sluice_gate_seconds_count')).toBe(6);
    expect(more('sluice_gate_seconds_sum')).toBeGreaterThan(0);
    expect(more('sluice_landing_holds_total', { outcome: 'ordered' })).toBe(3);
    expect(more('sluice_landing_batch_holds_sum')).toBe(3);
    expect(more('sluice_http_replies_total', { status: '2xx' })).toBeGreaterThanOrEqual(3);
    expect(more('sluice_http_replies_total', { status: '4xx' })).toBe(3);
    expect(labelled(after, 'sluice_activity_units_left', { activity: activity.id })).toBe(0);
    expect(labelled(after, 'sluice_redis_ready', { link: 'gate' })).toBe(1);
    expect(labelled(after, 'sluice_ready', {})).toBe(1);
    expect(labelled(after, 'sluice_landing_outboxes', {})).toBeGreaterThanOrEqual(1);
    expect(labelled(after, 'sluice_http_requests_in_flight', {})).toBe(1); // this one
    expect(labelled(after, 'sluice_database_connections_open', {})).toBeGreaterThanOrEqual(1);
    expect(labelled(after, 'process_resident_memory_bytes', {})).toBeGreaterThan(1_000_000);
  });

  test('the buckets of a histogram hold each other, and the last holds all', async () => {
    const series = await scrape(sluice.url);
    const buckets = series.filter((one) => one.name === 'sluice_gate_seconds_bucket');
    const counts = buckets.map((one) => one.value);
    expect(counts).toEqual(counts.toSorted((a, b) => a - b));
    expect(buckets.at(-1)!.labels['le']).toBe('+Inf');
    expect(counts.at(-1)).toBe(labelled(series, 'sluice_gate_seconds_count', {}));
  });

  test(`${CROWD} buyers and ${CROWD} odd paths make no series`, { timeout: 180_000 }, async () => {
    const activity = await sluice.openActivity({ total: 50 });
    await buy(sluice.url, activity.id, 'first');
    const before = await scrape(sluice.url);
    const numbers = Array.from({ length: CROWD }, (_, i) => i);
    await inCrowd(numbers, async (i) => {
      await buy(sluice.url, activity.id, `crowd${i}`, { key: `crowd-key-${i}` });
      const odd = await fetch(`${sluice.url}/api/v1/${i % 2 ? 'odd' : 'activities'}/${i}?x${i}=${i}`, {
        headers: { authorization: `Bearer ${tokenOf(`odd${i}`)}`, 'user-agent': `agent-${i}` },
      });
      await odd.arrayBuffer();
    });
    const after = await scrape(sluice.url);
    const names = (series: readonly Series[]): string[] => [
      ...new Set(series.filter(({ name }) => name.startsWith('sluice_')).map(({ key }) => key)),
    ];
    expect(names(after)).toEqual(names(before));
    // of Node's own a few come and go with handles and kinds of garbage collection
    expect(after.length).toBeLessThan(400);
    expect(labelled(after, 'sluice_purchases_total', { code: 'sold_out' })).toBeGreaterThanOrEqual(CROWD - 50);
    const text = await (await fetch(`${sluice.url}/metrics`)).text();
    for (const trace of ['crowd', 'odd', 'agent-', 'crowd-key']) expect(text).not.toContain(trace);
  });

  test('shows nothing that the table of metrics does not name, and all that it names of one process', async () => {
    const text = await (await fetch(`${sluice.url}/metrics`)).text();
    const shown = [...text.matchAll(/^# TYPE (sluice_\w+) (\w+)$/gm)].map((match) => `${match[1]} ${match[2]}`);
    const named = Object.values(METRICS)
      .filter(({ name }) => !name.startsWith('sluice_process_'))
      .map(({ name, type }) => `${name} ${type}`);
    expect(shown.toSorted()).toEqual(named.toSorted());
  });

  test('a scrape is plain text of Prometheus, for anybody, never cached', async () => {
    const reply = await fetch(`${sluice.url}/metrics`);
    expect(reply.status).toBe(200);
    expect(reply.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(reply.headers.get('cache-control')).toBe('no-store');
    expect((await ask(sluice.url, '/metrics?x=1')).status).toBe(400);
  });
});
