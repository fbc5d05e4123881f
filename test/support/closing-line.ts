/**
 * The closing line of a test run: `N passed, N failed, N skipped`, alone on the last line.
 *
 * Everything that went wrong counts as failed: a test, a file that failed without a failed test (it did not load, or
 * a hook threw), an error that no test caught, a test that never ended. What was not run on purpose is skipped.
 *
 * With SLUICE_TEST_COUNTS set to a path the same figures go there as JSON, and no line is printed: the caller adds up.
 */
import { writeFileSync, writeSync } from 'node:fs';
import type { Reporter, TestModule } from 'vitest/node';

/** What is written to the file named by SLUICE_TEST_COUNTS; read by `scripts/run-vitest.mjs`. */
export interface TestCounts {
  passed: number;
  failed: number;
  skipped: number;
  /** failed tests alone, without what else counts as failed */
  failedTests: number;
  /** the first failure in one line, empty when there is none */
  firstFailure: string;
}

/** Counts a finished run. */
export function countRun(
  modules: readonly TestModule[],
  unhandledErrors: readonly { readonly message?: string }[],
): TestCounts {
  const counts: TestCounts = { passed: 0, failed: 0, skipped: 0, failedTests: 0, firstFailure: '' };
  const fail = (what: string, why: string | undefined): void => {
    counts.failed += 1;
    if (counts.firstFailure === '') counts.firstFailure = `${what}: ${(why ?? 'no reason given').split('\n')[0]}`;
  };
  for (const module of modules) {
    const failedBefore = counts.failed;
    for (const test of module.children.allTests()) {
      const result = test.result();
      if (result.state === 'passed') counts.passed += 1;
      else if (result.state === 'skipped') counts.skipped += 1;
      else {
        counts.failedTests += 1;
        fail(test.fullName, result.state === 'failed' ? result.errors[0]?.message : 'it never ended');
      }
    }
    // A hook that throws fails no test, it only skips them.
    for (const suite of module.children.allSuites())
      for (const error of suite.errors()) fail(suite.fullName, error.message);
    for (const error of module.errors()) fail(module.relativeModuleId, error.message);
    if (!module.ok() && counts.failed === failedBefore) fail(module.relativeModuleId, 'it failed without a reason');
    if (module.state() === 'pending' || module.state() === 'queued') fail(module.relativeModuleId, 'it never ended');
  }
  for (const error of unhandledErrors) fail('outside the tests', error.message);
  return counts;
}

/** The line itself. */
export function closingLine({ passed, failed, skipped }: TestCounts): string {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}

/** The reporter that vitest makes; its default export, since vitest loads reporters by path. */
export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly { readonly message?: string }[]): void {
    const counts = countRun(modules, unhandledErrors);
    const path = process.env.SLUICE_TEST_COUNTS;
    if (path !== undefined && path !== '') {
      writeFileSync(path, JSON.stringify(counts));
      return;
    }
    // At the very end: vitest's own summary and the servers' teardown come after this moment.
    process.once('exit', () => writeSync(1, `${closingLine(counts)}\n`));
  }
}
