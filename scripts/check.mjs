/**
 * `npm run check`: types, lint (with types, for forgotten promises), format, dead code. Two at a time.
 * Says one line for each that holds, and everything that one says which does not.
 */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { endWithNpm, prepare, requireNode, root, say, StepFailed } from './prepare.mjs';
import { runWatched, wasInterrupted } from './watched.mjs';

const CHECKS = [
  { name: 'types', program: ['typescript', 'bin', 'tsc'], args: ['-p', '.', '--pretty', 'false'] },
  { name: 'lint', program: ['oxlint', 'bin', 'oxlint'], args: ['--type-aware', '--deny-warnings'] },
  { name: 'format', program: ['prettier', 'bin', 'prettier.cjs'], args: ['--check', '--log-level', 'warn', '.'] },
  { name: 'dead code', program: ['knip', 'bin', 'knip.js'], args: ['--no-progress'] },
];

/** Runs the checks. @returns the names of those that do not hold */
export async function check() {
  const waiting = [...CHECKS];
  const failed = [];
  const work = async () => {
    for (let next = waiting.shift(); next !== undefined && !wasInterrupted(); next = waiting.shift()) {
      const startedMs = performance.now();
      const { code, output } = await run(next);
      const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
      if (code === 0) say(`check: ${next.name}: holds (${seconds} s)`);
      else {
        failed.push(next.name);
        say(`${output.trimEnd()}\ncheck: ${next.name}: does not hold (exit ${code})`);
      }
    }
  };
  await Promise.all([work(), work()]);
  return failed;
}

function run({ program, args }) {
  const path = join(root, 'node_modules', ...program);
  return runWatched(process.execPath, [path, ...args], { cwd: root, output: 'keep' });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  requireNode();
  endWithNpm();
  try {
    await prepare({ withBuild: false });
    const failed = await check();
    process.exit(failed.length === 0 ? 0 : 1);
  } catch (error) {
    if (!(error instanceof StepFailed)) throw error;
    say(error.message);
    process.exit(1);
  }
}
