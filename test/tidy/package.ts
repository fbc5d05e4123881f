/** Guards of package.json, its lockfile and .npmrc. */
import { finding, type Finding, type Guard } from './tree.ts';

type Manifest = {
  readonly scripts?: Readonly<Record<string, string>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: unknown;
  readonly allowScripts?: Readonly<Record<string, boolean>>;
};

/** npm runs these by itself, also when somebody only installs. */
const INSTALL_SCRIPTS = /^(pre|post)?install$|^(pre|post)?prepare$|^prepublish$|^dependencies$/;

/**
 * Scripts start with `exec` (without it a signal to npm ends the shell and leaves the servers), versions are exact, nothing
 * runs on installation, no `optionalDependencies` (npm drops them silently), no `engine-strict` (leaves of Fastify declare
 * Node ≥ 22 and run on 20).
 */
export const manifest: Guard = (files) => {
  const findings: Finding[] = [];
  for (const file of files.filter(({ path }) => path === 'package.json')) {
    const say = (what: string, says: string): unknown =>
      findings.push(finding(file, Math.max(0, file.text.indexOf(`"${what}"`)), `${what}: ${says}`));
    const content = JSON.parse(file.text) as Manifest;
    for (const [name, command] of Object.entries(content.scripts ?? {})) {
      if (!command.startsWith('exec ')) say(name, 'a script starts with exec');
      if (INSTALL_SCRIPTS.test(name)) say(name, 'nothing runs on installation');
    }
    for (const [name, version] of Object.entries({ ...content.dependencies, ...content.devDependencies })) {
      if (!/^\d+\.\d+\.\d+$/.test(version)) say(name, `versions are exact, not ${version}`);
    }
    if (content.optionalDependencies !== undefined) say('optionalDependencies', 'npm drops them silently');
    for (const [name, allowed] of Object.entries(content.allowScripts ?? {})) {
      if (allowed) say(name, 'no package needs to run anything on installation');
    }
  }
  for (const file of files.filter(({ path }) => path === '.npmrc')) {
    const at = file.text.search(/^\s*engine-strict\s*=\s*true/m);
    if (at !== -1) findings.push(finding(file, at, 'engine-strict refuses packages that work'));
  }
  return findings;
};
