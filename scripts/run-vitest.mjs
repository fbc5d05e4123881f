/** Runs vitest and counts what came out; shared by test, test-long and prove. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from './prepare.mjs';
import { runWatched } from './watched.mjs';

/** From the stop signal to SIGKILL: the servers' orderly end is in it. */
const GRACE_MS = 15_000;

/**
 * Runs `vitest run` in a checkout.
 * @param args further arguments: files, filters, options
 * @param options.cwd the checkout; @param options.env added to ours; @param options.output as in `runWatched`
 * @returns vitest's exit code, the counts of `test/support/closing-line.ts` (undefined when it did not get that far),
 *   and its output where it was kept
 */
export async function runVitest(args, { cwd = root, env = {}, output = 'inherit' } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-counts-'));
  const countsFile = join(folder, 'counts.json');
  const vitest = join(cwd, 'node_modules', 'vitest', 'vitest.mjs');
  const ended = await runWatched(process.execPath, [vitest, 'run', ...args], {
    cwd,
    env: { ...process.env, ...env, SLUICE_TEST_COUNTS: countsFile },
    output,
    graceMs: GRACE_MS,
    removeFolder: folder,
  });
  const counts = readCounts(countsFile);
  rmSync(folder, { recursive: true, force: true });
  return { ...ended, counts };
}

function readCounts(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  }
}
