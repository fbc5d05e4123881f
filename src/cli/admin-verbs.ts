/** `sluice admin token`: an operator's token, signed here with the secret of the server's settings. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { InvalidArgumentError, Option, type Command } from 'commander';
import { makeOperatorIdentity, OPERATOR_ROLES, type OperatorRole } from '../platform/identity/operators.ts';
import { WrongUse } from './endings.ts';
import { printJson, type VerbPorts } from './verb-ports.ts';

const HOURS_DEFAULT = 12;

/** Adds the verb to the command. */
export function addAdminVerbs(program: Command, ports: VerbPorts): void {
  program
    .command('admin')
    .description('operators and their tokens')
    .command('token')
    .description('a token for an operator, signed with SLUICE_OPERATOR_SECRET or the secret of the data folder')
    .requiredOption('--name <name>', 'who it is: kept in the audit')
    .addOption(new Option('--role <role>', 'what he may do').choices(OPERATOR_ROLES).makeOptionMandatory())
    .option('--hours <hours>', 'how long it is good for', readHours, HOURS_DEFAULT)
    .option('--json', 'one JSON document')
    .action((flags: { name: string; role: OperatorRole; hours: number; json?: true }) => {
      const { name, role, hours } = flags;
      const identity = makeOperatorIdentity({ secrets: [operatorSecret(ports)], clock: ports.clock });
      const token = identity.issueOperatorToken({ name, role, hours });
      const [, payload = ''] = token.split('.');
      const { exp } = JSON.parse(Buffer.from(payload, 'base64url').toString()) as { exp: number };
      const expiresAt = exp * 1_000;
      if (flags.json === true) {
        printJson(ports, { token, name, role, expiresAt, expiresAtIso: new Date(expiresAt).toISOString() });
      } else ports.print(token);
    });
}

function readHours(text: string): number {
  const hours = Number(text);
  if (!/^\d{1,5}(\.\d{1,3})?$/.test(text) || hours <= 0) throw new InvalidArgumentError('hours is a number above 0.');
  return hours;
}

/** The secret that the server checks with: the setting, else what `npm start` made for itself. */
function operatorSecret(ports: VerbPorts): string {
  const { operatorSecret: set, dataFolder } = ports.settings();
  if (set !== undefined) return set;
  const file = join(dataFolder, 'secrets.json');
  try {
    const { operatorSecret: made } = JSON.parse(readFileSync(file, 'utf8')) as { operatorSecret?: unknown };
    if (typeof made === 'string') return made;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' && !(error instanceof SyntaxError)) throw error;
  }
  throw new WrongUse(
    `no operator secret: set SLUICE_OPERATOR_SECRET, or run npm start, which makes one in ${dataFolder}`,
  );
}
