/** `sluice verify ID`: does the equation of an activity hold, by ids, now. Exit 1 where it does not. */
import type { Command } from 'commander';
import { callOperator, findOperator, type Document } from './operator-api.ts';
import { printJson, type VerbPorts } from './verb-ports.ts';

/** Adds the verb to the command. */
export function addVerifyVerb(program: Command, ports: VerbPorts): void {
  program
    .command('verify')
    .description('does the equation of an activity hold, by ids: total + surplus = left + in flight + live orders')
    .argument('<id>', 'the activity')
    .option('--url <url>', 'the server; by default SLUICE_URL, or the one that runs here')
    .option('--token <token>', 'an operator’s token; by default SLUICE_TOKEN, or that of the server that runs here')
    .option('--json', 'one JSON document')
    .action(async (id: string, flags: { url?: string; token?: string; json?: true }) => {
      const at = findOperator(flags, ports);
      const { document } = await callOperator(at, {
        method: 'GET',
        path: `/activities/${encodeURIComponent(id)}/verify`,
      });
      if (flags.json === true) printJson(ports, document);
      else for (const line of describeVerification(document)) ports.print(line);
      if (!verificationHolds(document)) ports.endWith(1);
    });
}

/** Whether a report says that all is where the books say: it says so itself, or it finds nothing. */
export function verificationHolds(report: Document): boolean {
  if (typeof report['holds'] === 'boolean') return report['holds'];
  return Array.isArray(report['findings']) && report['findings'].length === 0;
}

/** The report in words. */
export function describeVerification(report: Document): string[] {
  const number = (value: unknown): number => (typeof value === 'number' ? value : Number.NaN);
  const inFlight = (report['inFlight'] ?? {}) as Record<string, unknown>;
  const parts = Object.entries(inFlight).map(([name, count]) => `${name} ${String(count)}`);
  const sum = Object.values(inFlight).reduce<number>((total, count) => total + number(count), 0);
  const findings = (report['findings'] ?? []) as readonly Record<string, unknown>[];
  return [
    `${text(report['activityId'])}, run ${text(report['run'])}: ${text(report['total'])} total + ` +
      `${text(report['surplus'])} surplus = ${text(report['left'])} left + ${sum} in flight + ${text(report['live'])} live`,
    `  in flight: ${parts.join(', ')}`,
    ...findings.map((finding) => {
      const about = Object.entries(finding).filter(([name]) => name !== 'kind' && name !== 'repair');
      const repair = finding['repair'] === undefined ? '' : `; repair: ${text(finding['repair'])}`;
      return `  ${text(finding['kind'])}: ${about.map(([name, value]) => `${name} ${text(value)}`).join(', ')}${repair}`;
    }),
    verificationHolds(report) ? 'It holds.' : 'It does not hold.',
  ];
}

/** Whatever a document holds, as a person reads it. */
const text = (value: unknown): string =>
  typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
    ? String(value)
    : (JSON.stringify(value) ?? 'nothing');
