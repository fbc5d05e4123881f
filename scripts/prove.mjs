/**
 * `npm run prove [-- NAME…]`: does each guarantee's test fail when its mechanism is removed?
 *
 * A proof is `test/proofs/NAME.patch`: a unified diff that removes one mechanism, headed by comment lines
 *     # test: test/purchase/4-gate/hold.redis.test.ts -t "a name pattern"
 * that name the test, or tests, that must then fail. For each proof the checkout is copied, the patch applied, the copy
 * built, and the test run. Proved means: at least one test failed. A patch that does not apply, types that do not
 * hold, a file that does not load, or no test at all prove nothing. All the tests named are first run unpatched.
 *
 * Prints a line a proof and `N proved, N not proved`; exit 1 when one is not.
 */
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { endWithNpm, prepare, requireNode, root, say, StepFailed } from './prepare.mjs';
import { runVitest } from './run-vitest.mjs';
import { wasInterrupted } from './watched.mjs';

const folder = join(root, 'test', 'proofs');

requireNode();
endWithNpm();
const proofs = chosenProofs(process.argv.slice(2));
try {
  await prepare();
} catch (error) {
  if (!(error instanceof StepFailed)) throw error;
  say(error.message);
  process.exit(1);
}

let proved = 0;
let notProved = 0;
const whole = await runWhole();
for (const proof of proofs) {
  const why = whole ?? (await prove(proof));
  if (why === undefined) proved += 1;
  else notProved += 1;
  process.stdout.write(why === undefined ? `proved      ${proof.name}\n` : `NOT PROVED  ${proof.name}: ${why}\n`);
}
process.stdout.write(`${proved} proved, ${notProved} not proved\n`);
process.exitCode = notProved === 0 && proved > 0 ? 0 : 1;

/** Runs all the tests named, as they are. @returns why they prove nothing, undefined when they pass */
async function runWhole() {
  for (const filtered of [false, true]) {
    // Without a pattern they share one run; with one, each needs its own.
    const tests = proofs.flatMap(({ tests: named }) =>
      named.filter(({ pattern }) => (pattern !== undefined) === filtered),
    );
    const runs = filtered
      ? tests.map(argumentsOf)
      : tests.length > 0
        ? [[...new Set(tests.map(({ file }) => file))]]
        : [];
    for (const args of new Map(runs.map((run) => [run.join('\0'), run])).values()) {
      say(`unpatched: ${args.join(' ')}`);
      const { code, counts, output } = await runVitest(args, { output: 'keep' });
      if (wasInterrupted()) process.exit(130);
      if (code === 0 && counts !== undefined && counts.failed === 0 && counts.passed > 0) continue;
      say(output);
      return `unpatched, ${args.join(' ')} does not pass (${counts?.firstFailure || `exit ${code}`})`;
    }
  }
  return undefined;
}

/** @returns why it is not proved, undefined when it is */
async function prove({ path, tests }) {
  if (tests.length === 0) return 'it names no test in a line "# test: FILE"';
  const copy = mkdtempSync(join(tmpdir(), 'sluice-proof-'));
  const cleanUp = () => rmSync(copy, { recursive: true, force: true });
  process.once('exit', cleanUp);
  try {
    copyCheckout(copy);
    const applied = run('git', ['apply', '--whitespace=nowarn', path], copy);
    if (applied.status !== 0) return `the patch does not apply: ${firstLine(applied.stderr)}`;
    const built = run(process.execPath, [join(copy, 'scripts', 'build.mjs')], copy);
    if (built.status !== 0) return `patched, it does not build: ${firstLine(built.stderr.replace(/^building\n/, ''))}`;
    for (const test of tests) {
      const { code, counts } = await runVitest(argumentsOf(test), { cwd: copy, output: 'keep' });
      if (wasInterrupted()) process.exit(130);
      const name = argumentsOf(test).join(' ');
      if (counts === undefined) return `${name} did not come to its end (exit ${code})`;
      if (counts.failedTests > 0) continue;
      if (counts.failed > 0) return `${name} failed outside its tests: ${counts.firstFailure}`;
      return counts.passed > 0 ? `${name} still passes` : `${name} runs no test`;
    }
    return undefined;
  } finally {
    process.off('exit', cleanUp);
    cleanUp();
  }
}

/** What git knows and what it would add, in the state of the working tree; the packages by a link. */
function copyCheckout(copy) {
  const listed = run('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], root);
  if (listed.status !== 0) throw new Error(`git ls-files: ${listed.stderr}`);
  for (const file of new Set(listed.stdout.split('\0'))) {
    if (file === '' || !existsSync(join(root, file))) continue;
    mkdirSync(dirname(join(copy, file)), { recursive: true });
    copyFileSync(join(root, file), join(copy, file));
  }
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'), 'dir');
}

function chosenProofs(names) {
  const all = existsSync(folder)
    ? readdirSync(folder)
        .filter((file) => file.endsWith('.patch'))
        .map((file) => file.slice(0, -'.patch'.length))
        .sort()
    : [];
  const unknown = names.filter((name) => !all.includes(name));
  if (unknown.length > 0) {
    say(`no such proof: ${unknown.join(', ')}; there are: ${all.join(', ')}`);
    process.exit(2);
  }
  return (names.length > 0 ? names : all).map((name) => {
    const path = join(folder, `${name}.patch`);
    return { name, path, tests: testsNamed(readFileSync(path, 'utf8')) };
  });
}

function testsNamed(patch) {
  return [...patch.matchAll(/^# test: (\S+)(?: -t (.+))?$/gm)].map(([, file, pattern]) => ({
    file,
    pattern: pattern?.trim().replace(/^(["'])(.*)\1$/, '$2'),
  }));
}

function argumentsOf({ file, pattern }) {
  return pattern === undefined ? [file] : [file, '-t', pattern];
}

function run(command, args, cwd) {
  return spawnSync(command, args, { cwd, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 });
}

function firstLine(text) {
  return text.trim().split('\n')[0];
}
