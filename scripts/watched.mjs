/**
 * Runs a child of the scripts under the product's own watcher (`src/platform/servers/watcher.mjs`): when we are
 * interrupted, or killed by SIGKILL, the child and whatever it has started end too.
 */
import { spawn } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const WATCHER = join(dirname(fileURLToPath(import.meta.url)), '..', 'src', 'platform', 'servers', 'watcher.mjs');
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];

let interrupted = false;

/** Whether a signal has asked us to end while a child ran: start nothing more. */
export function wasInterrupted() {
  return interrupted;
}

/**
 * Runs a command to its end.
 * @param options.cwd its folder; @param options.env its whole environment (default: ours)
 * @param options.output `inherit`; `stderr` (all of it goes to our standard error); `keep` (returned)
 * @param options.graceMs milliseconds from SIGTERM to SIGKILL when we are interrupted or gone
 * @param options.removeFolder goes when we are interrupted or gone
 * @returns its exit code (130 when we were interrupted), and its output where it was kept
 */
export async function runWatched(
  command,
  args,
  { cwd, env = process.env, output = 'inherit', graceMs = 2_000, removeFolder },
) {
  const to = { inherit: ['inherit', 'inherit'], stderr: [2, 2], keep: ['pipe', 'pipe'] }[output];
  const options = JSON.stringify({ stopSignal: 'SIGTERM', graceMs, cwd, removeFolder });
  const watcher = spawn(process.execPath, [WATCHER, options, command, ...args], {
    stdio: ['pipe', ...to, 'ignore'],
    // Out of the reach of the terminal's Ctrl-C: the end comes through the pipe, in order.
    detached: true,
    env,
  });
  watcher.stdin.on('error', () => {});
  let kept = '';
  for (const stream of [watcher.stdout, watcher.stderr]) {
    stream?.setEncoding('utf8');
    stream?.on('data', (chunk) => (kept += chunk));
  }
  const end = () => {
    interrupted = true;
    watcher.stdin.end();
  };
  for (const signal of SIGNALS) process.on(signal, end);
  const code = await new Promise((resolve) => watcher.once('close', (status) => resolve(status ?? 1)));
  for (const signal of SIGNALS) process.off(signal, end);
  return { code: interrupted ? 130 : code, output: kept };
}
