/**
 * `npm test`: prepares, checks, runs every test, and ends with one line `N passed, N failed, N skipped`.
 * With arguments (`npm test -- test/platform`) they go to vitest, and the checks are left out.
 * What fails outside a test counts as one failure: a check, the preparation, a run that did not come to its end.
 */
import { check } from './check.mjs';
import { endWithNpm, prepare, requireNode, say, StepFailed } from './prepare.mjs';
import { runVitest } from './run-vitest.mjs';
import { wasInterrupted } from './watched.mjs';

requireNode();
endWithNpm();
const args = process.argv.slice(2);
const total = { passed: 0, failed: 0, skipped: 0 };

try {
  await prepare();
  if (args.length === 0) {
    const failed = await check();
    total.failed += failed.length;
  }
  if (wasInterrupted()) throw new StepFailed('npm test', 130);
  const { code, counts } = await runVitest(args);
  if (counts !== undefined) for (const part of Object.keys(total)) total[part] += counts[part];
  // vitest's own verdict stands beside the counts: it fails, for one, when no test file was found.
  if (counts === undefined || (code !== 0 && counts.failed === 0)) total.failed += 1;
} catch (error) {
  say(error instanceof StepFailed ? error.message : error.stack);
  total.failed += 1;
}
process.stdout.write(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`);
process.exitCode = total.failed === 0 ? 0 : 1;
