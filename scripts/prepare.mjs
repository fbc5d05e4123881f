/**
 * What `npm start`, `npm test` and `npm run build` need before their work: packages, and the build.
 * Each step is skipped when its stamp says that nothing it depends on has changed, so a second start costs
 * milliseconds. Imports nothing that npm installs, and nothing newer than the oldest Node that can tell the user so.
 *
 *     step      its stamp                      is a hash over
 *     packages  node_modules/.sluice-install   package.json, package-lock.json
 *     build     dist/.sluice-build             src/, migrations/, tsconfig*.json, package-lock.json, scripts/build.mjs
 */
import { createHash } from 'node:crypto';
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runWatched } from './watched.mjs';

/** The checkout's folder. */
export const root = join(dirname(fileURLToPath(import.meta.url)), '..');

const INSTALL_STAMP = join(root, 'node_modules', '.sluice-install');
const BUILD_STAMP = join(root, 'dist', '.sluice-build');
const LOCK = join(root, '.stamps', 'prepare.lock');
const OLDEST_NODE = [20, 19];

/** Tells the person who waits; standard output belongs to the command itself. */
export function say(sentence) {
  process.stderr.write(`${sentence}\n`);
}

/** Ends the process with one line when this Node is too old. */
export function requireNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1])) return;
  say(`Sluice needs Node.js ${OLDEST_NODE.join('.')} or newer; this is ${process.versions.node}`);
  process.exit(1);
}

/**
 * Installs the packages and builds, each only when needed. Another process that prepares the same checkout is waited for.
 * @throws StepFailed
 */
export async function prepare({ withBuild = true } = {}) {
  if (packagesAreReady() && (!withBuild || buildIsReady())) return;
  await withLock(async () => {
    if (!packagesAreReady()) await installPackages();
    if (withBuild && !buildIsReady()) {
      const { build } = await import('./build.mjs');
      await build();
    }
  });
}

/** A step of the preparation that did not succeed; its own output has been shown. */
export class StepFailed extends Error {
  constructor(step, code) {
    super(`${step} failed (exit ${code})`);
    this.code = code;
  }
}

/**
 * Runs a command to its end with its output on standard error.
 * @throws StepFailed when it does not succeed
 */
export async function runStep(name, command, args) {
  const { code } = await runWatched(command, args, { cwd: root, output: 'stderr' });
  if (code !== 0) throw new StepFailed(name, code);
}

/** Writes the stamp of a build that has just been made from what `buildHash` saw before it. */
export function stampBuild(hash, folder) {
  writeFileSync(join(folder, '.sluice-build'), `${hash}\n`);
}

/** The hash over everything that the build depends on. */
export function buildHash() {
  const files = readdirSync(root)
    .filter((name) => /^tsconfig.*\.json$/.test(name) || name === 'package-lock.json')
    .map((name) => join(root, name));
  files.push(join(root, 'scripts', 'build.mjs'));
  for (const folder of ['src', 'migrations']) files.push(...filesUnder(join(root, folder)));
  return hashOf(files);
}

/** Every file under a folder, sorted; none when the folder is missing. */
export function filesUnder(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true })
    .flatMap((entry) => {
      const path = join(folder, entry.name);
      return entry.isDirectory() ? filesUnder(path) : [path];
    })
    .sort();
}

/**
 * While npm waits for us and is killed by SIGKILL, it tells nobody, and we would run on without a parent: look now and
 * then, and when another process has become our parent, ask ourselves to end as the user would have.
 */
export function endWithNpm() {
  if (process.env.npm_lifecycle_event === undefined) return;
  const npm = process.ppid;
  setInterval(() => {
    if (process.ppid !== npm) process.kill(process.pid, 'SIGTERM');
  }, 500).unref();
}

function packagesAreReady() {
  // A link leads to another checkout's packages (a proof's copy has one): they are not ours to install.
  if (lstatSync(join(root, 'node_modules'), { throwIfNoEntry: false })?.isSymbolicLink() === true) return true;
  if (readStamp(INSTALL_STAMP) === installHash()) return true;
  if (!nodeModulesMatchLock()) return false;
  // Installed by hand, and just as we would have: take it.
  writeFileSync(INSTALL_STAMP, `${installHash()}\n`);
  return true;
}

function buildIsReady() {
  return readStamp(BUILD_STAMP) === buildHash();
}

async function installPackages() {
  say('installing packages by npm ci (the lockfile is new here, or has changed)');
  const hash = installHash();
  // --include=dev: the build needs them, whatever NODE_ENV says.
  const args = ['ci', '--include=dev', '--no-audit', '--no-fund'];
  const npm = process.env.npm_execpath;
  if (npm !== undefined && /npm-cli\.c?js$/.test(npm)) await runStep('npm ci', process.execPath, [npm, ...args]);
  else await runStep('npm ci', 'npm', args);
  writeFileSync(INSTALL_STAMP, `${hash}\n`);
}

function installHash() {
  return hashOf([join(root, 'package.json'), join(root, 'package-lock.json')]);
}

/** Compares the lockfile with the one that npm leaves in node_modules about what it has installed. */
function nodeModulesMatchLock() {
  const installed = readJson(join(root, 'node_modules', '.package-lock.json'))?.packages;
  const wanted = readJson(join(root, 'package-lock.json'))?.packages;
  if (installed === undefined || wanted === undefined) return false;
  for (const [path, want] of Object.entries(wanted)) {
    const have = installed[path];
    // The root package is not in it; optional packages are missing where they are for another platform.
    if (path === '' || (have === undefined && want.optional === true)) continue;
    if (have?.version !== want.version || have?.integrity !== want.integrity) return false;
  }
  return Object.keys(installed).every((path) => path in wanted);
}

/** One process at a time prepares a checkout; the rest wait, and then find the stamps. */
export async function withLock(work) {
  mkdirSync(dirname(LOCK), { recursive: true });
  for (let told = false; !takeLock(); told = true) {
    if (!told) say('waiting: another process prepares this checkout');
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const giveUp = () => rmSync(LOCK, { force: true });
  process.once('exit', giveUp);
  try {
    await work();
  } finally {
    process.off('exit', giveUp);
    giveUp();
  }
}

function takeLock() {
  try {
    writeFileSync(LOCK, String(process.pid), { flag: 'wx' });
    return true;
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
  }
  const owner = Number(readStamp(LOCK));
  if (owner > 0 && !isRunning(owner)) rmSync(LOCK, { force: true });
  return false;
}

function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

function hashOf(files) {
  const hash = createHash('sha256');
  for (const file of files) {
    // A missing file is a state too; names count, so that a renamed file is another build.
    const content = existsSync(file) ? readFileSync(file) : Buffer.alloc(0);
    hash.update(`${relative(root, file)}\0${content.length}\0`).update(content);
  }
  return hash.digest('hex');
}

function readStamp(path) {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return undefined;
  }
}

function readJson(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return undefined;
  }
}
