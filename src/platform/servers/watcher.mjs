/**
 * The small process between us and a child that must not outlive us (a private Redis or PostgreSQL, a test run).
 *
 *     we ──stdin pipe──▶ watcher ──spawns──▶ the child
 *        ◀──fd 3, one JSON fact a line──┘
 *
 * A parent killed by SIGKILL tells nobody, but the kernel closes its end of the pipe. The watcher sees that end, sends
 * the child its stop signal, and after a grace SIGKILL. So the child goes whichever way the parent goes. It does not
 * help when the watcher itself is killed by SIGKILL: the data folder's lock names the child for that case.
 *
 * Called as `node watcher.mjs OPTIONS COMMAND [ARGUMENT…]`; OPTIONS is JSON:
 *   stopSignal    the signal that asks the child to end
 *   graceMs       milliseconds from that signal to SIGKILL
 *   removeFolder  a temporary folder to delete when the watcher has ended the child (optional)
 *   cwd, uid, gid as in node:child_process (optional)
 * Facts: {"pid"} once the child runs, {"error"} when it could not be started, {"code","signal"} when it has ended.
 * The watcher's exit status is the child's, or 1.
 *
 * Plain JavaScript with node: imports only: it is run as a file, by the sources, by the build and by scripts/.
 */
import { spawn } from 'node:child_process';
import { rmSync, writeSync } from 'node:fs';

const [optionsText, command, ...commandArguments] = process.argv.slice(2);
const options = JSON.parse(optionsText);

function report(fact) {
  try {
    writeSync(3, `${JSON.stringify(fact)}\n`);
  } catch {
    // Nobody reads any more: the parent is gone, and what is left to do does not depend on it.
  }
}

// A group of its own: a terminal's Ctrl-C, or a signal to our group, must reach the child through the parent's
// orderly end, never directly; and SIGKILL to that group reaches what the child has forked.
const child = spawn(command, commandArguments, {
  stdio: ['ignore', 'inherit', 'inherit'],
  detached: true,
  cwd: options.cwd,
  uid: options.uid,
  gid: options.gid,
});

function killGroup() {
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // The group is empty.
  }
}

let ending = false;
function endChild() {
  if (ending || child.pid === undefined) return;
  ending = true;
  child.kill(options.stopSignal);
  // A stopped process would sleep through its stop signal.
  child.kill('SIGCONT');
  setTimeout(killGroup, options.graceMs);
}

child.on('spawn', () => report({ pid: child.pid }));
child.on('error', (error) => {
  report({ error: error.message });
  process.exit(1);
});
child.on('exit', (code, signal) => {
  killGroup();
  if (ending && options.removeFolder !== undefined) {
    try {
      rmSync(options.removeFolder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
    } catch {
      // Litter in the temporary folder is no reason to fail.
    }
  }
  report({ code, signal });
  process.exit(code ?? 1);
});

process.stdin.on('end', endChild);
process.stdin.on('close', endChild);
process.stdin.on('error', endChild);
process.stdin.resume();
process.on('SIGTERM', endChild);
process.on('SIGINT', () => {});
process.on('SIGHUP', () => {});
