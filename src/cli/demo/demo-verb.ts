/** `sluice demo` on the command line: flags, and the report in words or as one JSON document. */
import { InvalidArgumentError, Option, type Command } from 'commander';
import { systemRandom, systemTimers } from '../../platform/clock.ts';
import { WrongUse } from '../endings.ts';
import { printJson, type VerbPorts } from '../verb-ports.ts';
import { runDemo, type DemoRequest } from './demo.ts';
import { summary } from './report.ts';
import { BREAKS, type Break } from './verdict.ts';

type DemoFlags = {
  readonly buyers: number;
  readonly stock: number;
  readonly answer: 'held' | 'ordered';
  readonly overshoot: number;
  readonly workers: number;
  readonly seed?: number;
  readonly generators?: number;
  readonly embedded?: true;
  readonly sabotage?: Break;
  readonly json?: true;
};

const BUYERS_MAX = 1_000_000;
const WORKERS_MAX = 16;
/** Some units must be sold and some left when the sale is broken. */
const SABOTAGE_STOCK_MIN = 12;

/** Adds the verb to the command. `program` is the command's own file: servers and generators are run from it. */
export function addDemoVerb(command: Command, ports: VerbPorts, program: string): void {
  const verb = command
    .command('demo')
    .description('a whole sale through the real HTTP API of real processes, and a verdict by three witnesses')
    .option('--buyers <n>', 'people in the crowd', between(1, BUYERS_MAX), 20_000)
    .option('--stock <n>', 'units for sale', between(1, BUYERS_MAX), 500)
    .addOption(new Option('--answer <when>', 'when a buyer is answered').choices(['held', 'ordered']).default('held'))
    .option('--overshoot <factor>', 'tickets at the gate for each unit, 1 to 2; needs --answer ordered', factor, 1)
    .option('--workers <n>', 'API processes', between(1, WORKERS_MAX), 1)
    .option('--seed <n>', 'who does what; by default at random', between(0, 2 ** 31 - 1))
    .option('--generators <n>', 'processes that play the crowd', between(1, WORKERS_MAX))
    .addOption(new Option('--embedded', 'PGlite in one process, even where PostgreSQL is found'))
    .option('--json', 'one JSON document');
  if (isTestBuild(ports)) {
    verb.addOption(new Option('--sabotage <kind>', 'break the sale: the verdict must name it').choices(BREAKS));
  }
  verb.action(async (flags: DemoFlags) => {
    const request = requestOf(flags, ports);
    const interrupt = new AbortController();
    const stop = (): void => interrupt.abort();
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, stop);
    const report = await runDemo(request, {
      environment: ports.environment,
      program,
      clock: ports.clock,
      timers: systemTimers,
      random: systemRandom,
      tell: ports.tell,
      signal: interrupt.signal,
    });
    if (flags.json === true) printJson(ports, report);
    else for (const line of summary(report)) ports.print(line);
    if (!report.holds) {
      ports.tell(`does not hold: ${report.broken.join(', ')}`);
      ports.endWith(1);
    }
  });
}

/** Whether this is a build that may break sales. */
function isTestBuild({ environment }: VerbPorts): boolean {
  return environment['SLUICE_TEST_BUILD'] === '1' || environment['NODE_ENV'] === 'test';
}

function requestOf(flags: DemoFlags, ports: VerbPorts): DemoRequest {
  if (flags.overshoot > 1 && flags.answer !== 'ordered') throw new WrongUse('--overshoot needs --answer ordered');
  const { sabotage } = flags;
  if (sabotage !== undefined && (flags.stock < SABOTAGE_STOCK_MIN || flags.buyers < 2 * flags.stock)) {
    throw new WrongUse(`--sabotage needs --stock ${SABOTAGE_STOCK_MIN} or more, and twice as many --buyers`);
  }
  if (sabotage !== undefined && flags.embedded === true) throw new WrongUse('--sabotage cannot get at PGlite');
  const { databaseUrl, redisUrl } = ports.settings();
  const isOwn = sabotage !== undefined || flags.embedded === true;
  if (sabotage !== undefined && (databaseUrl ?? redisUrl) !== undefined) {
    ports.tell('--sabotage breaks only what is its own: DATABASE_URL and REDIS_URL are left alone');
  }
  if (flags.embedded === true && flags.workers > 1) throw new WrongUse('--embedded is one process: no --workers');
  return {
    buyers: flags.buyers,
    stock: flags.stock,
    answer: flags.answer,
    overshoot: flags.overshoot,
    workers: flags.workers,
    seed: flags.seed ?? Math.floor(systemRandom.fraction() * 2 ** 31),
    generators: flags.generators,
    databaseUrl: isOwn ? undefined : databaseUrl,
    redisUrl: sabotage === undefined ? redisUrl : undefined,
    embedded: flags.embedded === true,
    sabotage,
  };
}

const between =
  (least: number, most: number) =>
  (text: string): number => {
    const value = Number(text);
    if (!/^\d{1,10}$/.test(text) || value < least || value > most) {
      throw new InvalidArgumentError(`It is a whole number from ${least} to ${most}.`);
    }
    return value;
  };

function factor(text: string): number {
  const value = Number(text);
  if (!/^\d(\.\d{1,3})?$/.test(text) || value < 1 || value > 2) {
    throw new InvalidArgumentError('It is a number from 1 to 2 with at most three decimals.');
  }
  return value;
}
