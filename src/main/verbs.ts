/**
 * The verbs of `src/cli` on the command: gives them their ports and settings, runs the processes that the demo starts, and
 * says how a verb ended.
 */
import { Command } from 'commander';
import { addActivityVerbs } from '../cli/activity-verbs.ts';
import { addAdminVerbs } from '../cli/admin-verbs.ts';
import { runCrowdProcess } from '../cli/demo/crowd-process.ts';
import { addDemoVerb } from '../cli/demo/demo-verb.ts';
import { addDoctorVerb } from '../cli/doctor-verb.ts';
import { Refused, WrongUse } from '../cli/endings.ts';
import type { VerbPorts } from '../cli/verb-ports.ts';
import { addVerifyVerb } from '../cli/verify-verb.ts';
import { systemClock } from '../platform/clock.ts';
import { makeLog, type Log } from '../platform/log.ts';
import { loadConfig, type Config } from './config.ts';
import { serveEmbedded } from './demo.ts';
import { examine } from './doctor.ts';
import { hiddenValues } from './hidden-values.ts';
import type { Serving } from './serve.ts';

/** What the verbs need of the command. */
export type VerbHost = {
  /** the command's own file: the demo starts it again */
  readonly program: string;
  /** runs a server until it is told to stop */
  readonly runUntilSignal: (serving: Serving, config: Config, log: Log) => Promise<void>;
};

/** Adds the verbs. */
export function addVerbs(command: Command, host: VerbHost): void {
  const ports: VerbPorts = {
    environment: process.env,
    clock: systemClock,
    settings: () => loadConfig({ environment: process.env }).config,
    print: (line) => void process.stdout.write(`${line}\n`),
    tell: (line) => void process.stderr.write(`${line}\n`),
    endWith: (code) => {
      process.exitCode = code;
    },
  };
  addActivityVerbs(command, ports);
  addVerifyVerb(command, ports);
  addAdminVerbs(command, ports);
  addDemoVerb(command, ports, host.program);
  addDoctorVerb(command, ports, (activityId) => {
    const { config } = loadConfig({ environment: process.env });
    return examine(config, makeLog('silent', 2, hiddenValues(config)), activityId);
  });

  // what the demo starts, and nobody types
  const crowd = new Command('demo-crowd').action(runCrowdProcess);
  const server = new Command('demo-server')
    .requiredOption('--data <folder>')
    .requiredOption('--port <port>')
    .action(async (flags: { data: string; port: string }) => {
      const { config } = loadConfig({ environment: process.env, flags: { port: flags.port } });
      const log = makeLog(config.logLevel, 1, hiddenValues(config));
      await host.runUntilSignal(await serveEmbedded(config, flags.data, log), config, log);
    });
  for (const one of [crowd, server]) command.addCommand(one, { hidden: true });
}

/**
 * How a verb ended that threw: one line and an exit code; undefined where that is not for us to say. Under `--json` the
 * document, which tells more than a line can, goes to standard output.
 */
export function endingOf(error: unknown, argv: readonly string[]): { sentence: string; code: 1 | 2 } | undefined {
  if (error instanceof WrongUse) return { sentence: error.message, code: 2 };
  if (!(error instanceof Refused)) return undefined;
  if (error.document !== undefined && argv.includes('--json')) {
    process.stdout.write(`${JSON.stringify(error.document, undefined, 2)}\n`);
  }
  return { sentence: error.message, code: 1 };
}
