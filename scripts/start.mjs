/**
 * `npm start`: everything from a fresh clone to a running Sluice, in one process.
 * Prepares (`prepare.mjs`), then becomes `sluice start`, so that signals reach the program itself and nothing stands
 * between it and its servers.
 */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { endWithNpm, prepare, requireNode, root, say, StepFailed } from './prepare.mjs';

requireNode();
endWithNpm();
try {
  await prepare();
} catch (error) {
  if (!(error instanceof StepFailed)) throw error;
  say(error.message);
  process.exit(1);
}
const program = join(root, 'dist', 'main', 'sluice.js');
process.argv = [process.argv[0], 'sluice', 'start', ...process.argv.slice(2)];
await import(pathToFileURL(program).href);
