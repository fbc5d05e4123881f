#!/usr/bin/env node
/**
 * The command `sluice`. Exit 0: it was done; 1: it was refused or does not hold; 2: wrong use.
 * Standard output is for results, standard error for progress and the log of a server.
 */
import { fileURLToPath } from 'node:url';
import { Command, CommanderError, Option } from 'commander';
import { Fault } from '../domain/fault.ts';
import { systemTimers } from '../platform/clock.ts';
import { makeLog, type Log } from '../platform/log.ts';
import { serveMany } from './cluster.ts';
import { loadConfig, SETTINGS, shownValue, type Config, type SettingName } from './config.ts';
import { hiddenValues } from './hidden-values.ts';
import { serve, stopMsMax } from './serve.ts';
import { start } from './start.ts';
import { joinSupervisor } from './supervised.ts';
import { addVerbs, endingOf } from './verbs.ts';
import type { Role } from './wire.ts';

const program = new Command('sluice')
  .description('A flash-sale engine: refuses the many cheaply and serves the few exactly.')
  .exitOverride()
  .showHelpAfterError();

program
  .command('start', { hidden: true })
  .description('everything in one process, for trying out (npm start)')
  .option('--port <port>')
  .option('--data <folder>')
  .action(async (flags: { port?: string; data?: string }) => {
    const environment = {
      SLUICE_DEV_IDENTITY: 'true',
      SLUICE_SELF_APPROVAL: 'true',
      SLUICE_LOG: 'warn',
      ...process.env,
    };
    const { config } = loadConfig({ environment, flags: { port: flags.port, dataFolder: flags.data } });
    const log = makeLog(config.logLevel, 2, hiddenValues(config));
    await runUntilSignal(await start(config, log, (line) => console.log(line)), config, log);
  });

program
  .command('serve')
  .description('one process of production; needs DATABASE_URL and REDIS_URL')
  .addOption(new Option('--role <role>', 'what it does').choices(['api', 'worker', 'all']).default('all'))
  .option('--port <port>', 'port to listen on; 0 takes any free one')
  .option('--host <host>', 'address to listen on')
  .option('--workers <n>', 'processes that share the port, watched by a parent; SIGUSR2 replaces them one by one')
  .action(async ({ role, ...flags }: { role: Role; port?: string; host?: string; workers?: string }) => {
    const { config } = loadConfig({ environment: process.env, flags });
    const log = makeLog(config.logLevel, 1, hiddenValues(config));
    // unheard it would kill the process on the spot; only the parent of several has use for it
    process.on('SIGUSR2', () => undefined);
    const supervised = joinSupervisor(systemTimers);
    if (supervised === undefined) {
      const serving = config.workers > 0 ? await serveMany(config, role, log) : await serve(config, role, log);
      return runUntilSignal(serving, config, log);
    }
    const among = log.child({ process: supervised.name });
    const serving = await serve(config, role, among, undefined, supervised);
    supervised.serving(serving.url, serving.wired.metrics);
    await runUntilSignal(serving, config, among, supervised.orphaned);
    supervised.leave();
  });

program
  .command('config')
  .description('every setting with unit, default, source and effective value, secrets masked')
  .option('--json', 'one JSON document')
  .action((flags: { json?: true }) => {
    const { config, sources } = loadConfig({ environment: process.env });
    const rows = (Object.keys(SETTINGS) as SettingName[]).map((name) => {
      const setting: { env: string; unit?: string; default: unknown; min?: number; max?: number; why: string } =
        SETTINGS[name];
      return {
        name,
        environment: setting.env,
        unit: setting.unit ?? null,
        default: shownValue(name, setting.default),
        range: setting.min === undefined ? null : [setting.min, setting.max],
        source: sources[name],
        value: shownValue(name, config[name]),
        why: setting.why,
      };
    });
    if (flags.json === true) console.log(JSON.stringify({ settings: rows }, undefined, 2));
    else
      for (const row of rows) {
        const unit = row.unit === null ? '' : ` ${row.unit}`;
        console.log(
          `${row.name} = ${JSON.stringify(row.value)}${unit}  (${row.source}; ${row.environment}) ${row.why}`,
        );
      }
  });

/** Runs until a signal or `orphaned`, then stops in order; a second signal does not hurry what must be finished. */
async function runUntilSignal(
  serving: { stop(): Promise<unknown> },
  config: Config,
  log: Log,
  orphaned?: AbortSignal,
): Promise<void> {
  const signal = await new Promise<string>((resolve) => {
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, resolve);
    const parentGone = (): void => resolve('the parent is gone');
    if (orphaned?.aborted === true) parentGone();
    else orphaned?.addEventListener('abort', parentGone, { once: true });
  });
  log.info({ signal }, 'stopping');
  const cut = setTimeout(() => process.exit(1), (config.workers > 0 ? 2 : 1) * stopMsMax(config));
  if ((await serving.stop()) === false) process.exitCode = 1;
  clearTimeout(cut);
}

addVerbs(program, { program: fileURLToPath(import.meta.url), runUntilSignal });

try {
  await program.parseAsync(process.argv);
} catch (error) {
  const ending = endingOf(error, process.argv);
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : 2;
  } else if (ending !== undefined) {
    giveUp(ending.sentence, ending.code);
  } else if (error instanceof Fault) {
    giveUp(error.message, error.code === 'settings_invalid' ? 2 : 1);
  } else if (isListenError(error)) {
    giveUp(`cannot listen (SLUICE_HOST, SLUICE_PORT): ${error.message}`, 1);
  } else {
    throw error;
  }
}

/** Says why in one line and ends, whatever connections a start that failed half-way has left. */
function giveUp(sentence: string, code: 1 | 2): void {
  console.error(`sluice: ${sentence}`);
  process.exit(code);
}

function isListenError(error: unknown): error is NodeJS.ErrnoException {
  // `bind` is what a process hears that shares the port with others
  const calls: unknown[] = ['listen', 'bind', 'getaddrinfo'];
  return error instanceof Error && 'syscall' in error && calls.includes(error.syscall);
}
