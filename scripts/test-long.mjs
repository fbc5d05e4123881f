/**
 * `npm run test:long -- NAME [--size N] [--seed S]`: one long test in its full form.
 * NAME is a file `test/acceptance/NAME.long.test.ts`; `npm test` runs the same file in its short form.
 *
 * The test reads SLUICE_TEST_FORM=full, SLUICE_TEST_SEED and SLUICE_TEST_SIZE (absent: the file's own full size, which a
 * line `full size: N` in its head tells us). The last line is `NAME holds` or `NAME does not hold: why`.
 */
import { randomInt } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { endWithNpm, prepare, requireNode, root, say, StepFailed } from './prepare.mjs';
import { runVitest } from './run-vitest.mjs';
import { wasInterrupted } from './watched.mjs';

const SUFFIX = '.long.test.ts';
const folder = join('test', 'acceptance');

requireNode();
endWithNpm();
const { name, size, seed } = readArguments();
const file = join(folder, name + SUFFIX);
const fullSize = size ?? /full size: (\d+)/.exec(readFileSync(join(root, file), 'utf8'))?.[1];
say(`${name}: seed ${seed}, size ${fullSize ?? 'as the test has it'}`);

let why;
try {
  await prepare();
  const env = { SLUICE_TEST_FORM: 'full', SLUICE_TEST_SEED: seed, ...(fullSize && { SLUICE_TEST_SIZE: fullSize }) };
  const { code, counts } = await runVitest([file], { env });
  if (wasInterrupted()) why = 'it was interrupted';
  else if (counts === undefined) why = `the run ended early (exit ${code})`;
  else if (counts.failed > 0) why = counts.firstFailure;
  else if (counts.skipped > 0) why = `${counts.skipped} of its tests were skipped`;
  else if (counts.passed === 0 || code !== 0) why = `no test passed (exit ${code})`;
} catch (error) {
  if (!(error instanceof StepFailed)) throw error;
  why = error.message;
}
process.stdout.write(`seed ${seed}, size ${fullSize ?? 'as the test has it'}\n`);
process.stdout.write(why === undefined ? `${name} holds\n` : `${name} does not hold: ${why}\n`);
process.exitCode = why === undefined ? 0 : 1;

/** Wrong use ends here, with exit 2. */
function readArguments() {
  const entries = existsSync(join(root, folder)) ? readdirSync(join(root, folder)) : [];
  const names = entries
    .filter((entry) => entry.endsWith(SUFFIX))
    .map((entry) => entry.slice(0, -SUFFIX.length))
    .sort();
  const usage = `use: npm run test:long -- NAME [--size N] [--seed S], NAME one of: ${names.join(', ')}`;
  let parsed;
  try {
    const options = { size: { type: 'string' }, seed: { type: 'string' } };
    parsed = parseArgs({ options, allowPositionals: true });
  } catch (error) {
    return wrongUse(`${error.message}\n${usage}`);
  }
  const { positionals, values } = parsed;
  if (positionals.length !== 1 || !names.includes(positionals[0])) return wrongUse(usage);
  for (const option of ['size', 'seed']) {
    if (values[option] !== undefined && !/^\d{1,15}$/.test(values[option])) {
      return wrongUse(`--${option} is a whole number, not "${values[option]}"\n${usage}`);
    }
  }
  return { name: positionals[0], size: values.size, seed: values.seed ?? String(randomInt(1, 2 ** 31)) };
}

function wrongUse(sentence) {
  say(sentence);
  process.exit(2);
}
