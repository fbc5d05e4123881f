/** docs/telemetry.md says what the code does: every metric and alarm, cell by cell, in both directions. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { Alarms } from '../../src/watch/alarms.ts';
import { METRICS, Metrics } from '../../src/watch/metrics.ts';
import { keptLog } from '../support/sluice.ts';

const PAGE = readFileSync(new URL('../../docs/telemetry.md', import.meta.url), 'utf8');

/** Cells of the first table under a heading, without backticks around a whole cell. */
function tableUnder(heading: string, page = PAGE): string[][] {
  const from = page.indexOf(`\n${heading}\n`);
  expect(from, `a heading "${heading}"`).toBeGreaterThan(-1);
  const lines = page.slice(from).split('\n');
  const first = lines.findIndex((line) => line.startsWith('|'));
  const end = lines.findIndex((line, i) => i > first && !line.startsWith('|'));
  return lines.slice(first + 2, end).map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim().replace(/^`([^`]*)`$/, '$1')),
  );
}

const METRICS_ROWS = Object.values(METRICS).map((metric) => [
  metric.name,
  metric.type,
  'label' in metric ? metric.label : '',
  metric.unit,
  metric.meaning,
]);

describe('docs/telemetry.md', () => {
  test('names each metric with type, label, unit and meaning, in the order of the code, and no other', () => {
    expect(tableUnder('## Metrics')).toEqual(METRICS_ROWS);
  });

  test.each<[string, (page: string) => string]>([
    ['a metric that is missing', (page) => page.replace(/^\| `sluice_gate_seconds`.*\n/m, '')],
    ['a metric that the code does not have', (page) => page.replace('| `sluice_ready`', '| `sluice_moon`')],
    ['a type that is another', (page) => page.replace(/(`sluice_ready` \| )gauge/, '$1counter')],
    ['a label that is another', (page) => page.replace('| `code` |', '| `buyer` |')],
  ])('bites: %s', (_, change) => {
    expect(change(PAGE)).not.toBe(PAGE);
    expect(tableUnder('## Metrics', change(PAGE))).not.toEqual(METRICS_ROWS);
  });

  test('names each metric of Node with its type, and no other', async () => {
    const shown = await new Metrics({}, { withNode: true }).read();
    const inPage = tableUnder('### Of Node and the operating system').map(([name, type]) => `${name} ${type}`);
    const inCode = shown.map(({ name, type }) => `${name} ${type}`);
    expect(inCode.filter((one) => !inPage.includes(one))).toEqual([]);
    // some figures are those of Linux only
    if (process.platform === 'linux') expect(inPage.toSorted()).toEqual(inCode.toSorted());
  });

  test('names each alarm, and no other', () => {
    const alarms = new Alarms(keptLog(), { now: () => 0, monotonic: () => 0 });
    const inPage = tableUnder('## Alarms').map(([name]) => name);
    expect(inPage.toSorted()).toEqual([...alarms.counts().keys()].toSorted());
  });

  test('shows an alarm as it is written', () => {
    const [, example] = /```json\n(.*)\n```/.exec(PAGE)!;
    expect(JSON.parse(example!)).toMatchObject({ level: 50, alarm: 'gate_not_ready', heldBack: 0 });
  });
});
