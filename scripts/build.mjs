/**
 * The build: TypeScript to `dist/`, and beside it what the program reads at run time (Lua, plain .mjs, migrations).
 * Built aside and swapped in at the end, so that a failed build leaves the last good one.
 * `npm run build` always builds; `prepare.mjs` builds only when its stamp does not match.
 * One process at a time: both take the lock of `prepare.mjs`.
 */
import { chmodSync, cpSync, existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  buildHash,
  filesUnder,
  prepare,
  requireNode,
  root,
  runStep,
  say,
  stampBuild,
  StepFailed,
  withLock,
} from './prepare.mjs';

/** Builds. @throws StepFailed when the types do not hold */
export async function build() {
  say('building');
  const hash = buildHash();
  const aside = join(root, 'dist.new');
  try {
    rmSync(aside, { recursive: true, force: true });
    const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
    const args = [tsc, '-p', 'tsconfig.build.json', '--outDir', aside, '--noEmitOnError'];
    await runStep('tsc', process.execPath, args);
    copyBeside(aside);
    const command = join(aside, 'main', 'sluice.js');
    // Without it `npx sluice` says "Permission denied" after a rebuild.
    if (existsSync(command)) chmodSync(command, 0o755);
    stampBuild(hash, aside);
    rmSync(join(root, 'dist'), { recursive: true, force: true });
    renameSync(aside, join(root, 'dist'));
  } finally {
    rmSync(aside, { recursive: true, force: true });
  }
}

/** Copies what tsc leaves, to the same relative places. */
function copyBeside(target) {
  const source = join(root, 'src');
  const beside = filesUnder(source).filter((file) => file.endsWith('.mjs') || file.includes(`${sep}lua${sep}`));
  for (const file of beside) copy(file, join(target, relative(source, file)));
  for (const file of filesUnder(join(root, 'migrations'))) copy(file, join(target, relative(root, file)));
}

function copy(from, to) {
  mkdirSync(dirname(to), { recursive: true });
  cpSync(from, to);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  requireNode();
  try {
    await prepare({ withBuild: false });
    await withLock(build);
  } catch (error) {
    if (!(error instanceof StepFailed)) throw error;
    say(error.message);
    process.exit(1);
  }
}
