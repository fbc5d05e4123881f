/** `sluice doctor [--activity ID]`: is all this fit for a sale? Exit 1 while a point is open. */
import type { Command } from 'commander';
import type { Point } from '../watch/doctor/points.ts';
import { printJson, type VerbPorts } from './verb-ports.ts';

/** Looks; the points of the stores and settings, and with an activity its checklist. Throws faults of both stores. */
export type Examine = (activityId: string | undefined) => Promise<readonly Point[]>;

/** Adds the verb to the command. */
export function addDoctorVerb(program: Command, ports: VerbPorts, examine: Examine): void {
  program
    .command('doctor')
    .description('are this Redis, PostgreSQL and configuration fit for a sale; by DATABASE_URL and REDIS_URL')
    .option('--activity <id>', 'and is this activity ready to go live')
    .option('--json', 'one JSON document')
    .action(async (flags: { activity?: string; json?: true }) => {
      const points = await examine(flags.activity);
      const holds = points.every((point) => point.holds);
      if (flags.json === true) printJson(ports, { holds, points });
      else for (const line of describePoints(points)) ports.print(line);
      if (!holds) ports.endWith(1);
    });
}

/** The points in words: a line each, and for what is open what is wanted and why. */
export function describePoints(points: readonly Point[]): string[] {
  const width = Math.max(...points.map(({ name }) => name.length));
  const open = points.filter(({ holds }) => !holds).length;
  return [
    ...points.flatMap(({ name, found, wanted, holds, why }) => [
      `${holds ? 'ok  ' : 'OPEN'}  ${name.padEnd(width)}  ${found}`,
      ...(holds ? [] : [`      ${' '.repeat(width)}  wanted: ${wanted}: ${why}`]),
    ]),
    open === 0 ? `All ${points.length} points hold.` : `${open} of ${points.length} points are open.`,
  ];
}
