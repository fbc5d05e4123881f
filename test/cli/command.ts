/** The command's verbs in this process: what they print and how they end, without starting one for each question. */
import { Command, CommanderError } from 'commander';
import { addActivityVerbs } from '../../src/cli/activity-verbs.ts';
import { addAdminVerbs } from '../../src/cli/admin-verbs.ts';
import { addDemoVerb } from '../../src/cli/demo/demo-verb.ts';
import { Refused, WrongUse } from '../../src/cli/endings.ts';
import type { VerbPorts, VerbSettings } from '../../src/cli/verb-ports.ts';
import { addVerifyVerb } from '../../src/cli/verify-verb.ts';
import { Fault } from '../../src/domain/fault.ts';
import { systemClock } from '../../src/platform/clock.ts';

/** How a verb went. */
export type Ran = {
  readonly code: 0 | 1 | 2;
  readonly printed: readonly string[];
  readonly told: readonly string[];
  /** the one line of a verb that threw */
  readonly said: string;
  /** the document of a refusal */
  readonly document: object | undefined;
};

/** Runs `sluice …words`. */
export async function runVerb(
  words: readonly string[],
  options: { environment?: Record<string, string>; settings?: Partial<VerbSettings> } = {},
): Promise<Ran> {
  const printed: string[] = [];
  const told: string[] = [];
  let code: 0 | 1 | 2 = 0;
  let said = '';
  let document: object | undefined;
  const ports: VerbPorts = {
    environment: options.environment ?? {},
    clock: systemClock,
    settings: () => ({
      dataFolder: '/nonexistent/sluice',
      operatorSecret: undefined,
      databaseUrl: undefined,
      redisUrl: undefined,
      ...options.settings,
    }),
    print: (line) => printed.push(line),
    tell: (line) => told.push(line),
    endWith: (end) => {
      code = end;
    },
  };
  const program = new Command('sluice').exitOverride().configureOutput({
    writeErr: (text) => {
      said += text;
    },
    writeOut: (text) => printed.push(text),
  });
  addActivityVerbs(program, ports);
  addAdminVerbs(program, ports);
  addVerifyVerb(program, ports);
  addDemoVerb(program, ports, '/nonexistent/sluice.ts');
  try {
    await program.parseAsync(['node', 'sluice', ...words]);
  } catch (error) {
    if (error instanceof CommanderError) code = error.exitCode === 0 ? 0 : 2;
    else if (error instanceof WrongUse) [code, said] = [2, error.message];
    else if (error instanceof Fault) [code, said] = [error.code === 'settings_invalid' ? 2 : 1, error.message];
    else if (error instanceof Refused) [code, said, document] = [1, error.message, error.document];
    else throw error;
  }
  return { code, printed, told, said, document };
}
