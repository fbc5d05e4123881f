/**
 * Guards of the documents: tables against code in both directions, links, paths, commands and promises. Tables that follow
 * from the code are rendered from it, between `<!-- from the code: NAME -->` and `<!-- end -->`.
 */
import { posix } from 'node:path';
import ts from 'typescript';
import { eachNode, finding, under, type Finding, type Guard, type TreeFile } from './tree.ts';

// ------------------------------------------------------------------------------------------- tables from the code

/** Renders one block from the tree and the program's own tables. */
export type Blocks = ReadonlyMap<string, { readonly path: string; readonly content: string }>;

const blockPattern = (name: string): RegExp =>
  new RegExp(String.raw`(<!-- from the code: ${name} -->\n)([\s\S]*?)(<!-- end -->)`);

/** Every rendered block stands in its document as the code has it, and no document holds an unknown one. */
export function renderedBlocks(files: readonly TreeFile[], blocks: Blocks): Finding[] {
  const findings: Finding[] = [];
  for (const [name, { path, content }] of blocks) {
    const file = files.find((one) => one.path === path);
    const block = file === undefined ? null : blockPattern(name).exec(file.text);
    if (file === undefined || block === null) findings.push(`${path}:1: has no block "${name}"`);
    else if (block[2] !== `\n${content}\n\n`) {
      findings.push(finding(file, block.index, `"${name}" is not what the code says; see docs/testing.md to renew it`));
    }
  }
  for (const file of under(files, '', '.md')) {
    for (const mark of file.text.matchAll(/<!-- from the code: (.+) -->/g)) {
      if (blocks.get(mark[1]!)?.path !== file.path) {
        findings.push(finding(file, mark.index, `no code renders "${mark[1]}" here`));
      }
    }
  }
  return findings;
}

/** A document with its blocks as the code has them. */
export function renewBlocks(file: TreeFile, blocks: Blocks): string {
  let text = file.text;
  for (const [name, { path, content }] of blocks) {
    if (path === file.path)
      text = text.replace(blockPattern(name), (_, head, __, end) => `${head}\n${content}\n\n${end}`);
  }
  return text;
}

/** A table in Markdown. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

// ------------------------------------------------------------------------------------------ tables against the code

/** The first column of the table under a heading, without backticks; undefined where there is no such table. */
function firstColumn(file: TreeFile, heading: string): string[] | undefined {
  const at = file.text.search(new RegExp(`^#+ ${heading}$`, 'm'));
  if (at === -1) return undefined;
  const lines = file.text.slice(at).split('\n').slice(1);
  const from = lines.findIndex((line) => line.startsWith('|'));
  if (from === -1) return undefined;
  const end = lines.findIndex((line, i) => i > from && !line.startsWith('|'));
  return lines.slice(from + 2, end === -1 ? undefined : end).map((line) =>
    line
      .split(/(?<!\\)\|/)[1]!
      .trim()
      .replaceAll('`', ''),
  );
}

/** A table names exactly what the code has, in both directions. */
export function namesAgree(
  files: readonly TreeFile[],
  where: { path: string; heading: string },
  inCode: readonly string[],
): Finding[] {
  const file = files.find(({ path }) => path === where.path);
  const named = file === undefined ? undefined : firstColumn(file, where.heading);
  if (named === undefined) return [`${where.path}:1: no table under "${where.heading}"`];
  if (inCode.length === 0) return [`${where.path}:1: the code has nothing for "${where.heading}": the guard is blind`];
  return [
    ...inCode.filter((name) => !named.includes(name)).map((name) => `${where.path}:1: "${name}" is missing`),
    ...named.filter((name) => !inCode.includes(name)).map((name) => `${where.path}:1: "${name}" is not in the code`),
    ...named.filter((name, i) => named.indexOf(name) !== i).map((name) => `${where.path}:1: "${name}" stands twice`),
  ];
}

/** The members of a union of string literals, `export type NAME = 'a' | 'b'`. */
export function unionMembers(files: readonly TreeFile[], path: string, name: string): string[] {
  const members: string[] = [];
  const file = files.find((one) => one.path === path);
  if (file === undefined) return members;
  eachNode(file, (node) => {
    if (!ts.isTypeAliasDeclaration(node) || node.name.text !== name || !ts.isUnionTypeNode(node.type)) return;
    for (const type of node.type.types) {
      if (ts.isLiteralTypeNode(type) && ts.isStringLiteral(type.literal)) members.push(type.literal.text);
    }
  });
  return members;
}

/** Every table that migrations or the migrator make. */
export function tablesMade(files: readonly TreeFile[]): string[] {
  const made = [...under(files, 'migrations/', '.sql'), ...under(files, 'src/', '-table.ts')].flatMap(({ text }) =>
    [...text.matchAll(/^[^-*\n]*\bcreate table (?:if not exists )?(\w+)/gim)].map((match) => match[1]!),
  );
  return [...new Set(made)];
}

/** Every call of the HTTP API: `GET /api/v1/time`, parameters as `{id}`. */
export function callsOffered(files: readonly TreeFile[]): string[] {
  const calls: string[] = [];
  for (const file of under(files, 'src/', '.ts')) {
    eachNode(file, (node) => {
      if (!ts.isObjectLiteralExpression(node)) return;
      const method = textProperty(node, 'method');
      const path = textProperty(node, 'path');
      // a command that asks the API names its calls, too, without the prefix that every call has
      if (method === undefined || path?.startsWith('/') !== true || file.path.startsWith('src/cli/')) return;
      calls.push(`${method} ${path.replaceAll(/:(\w+)/g, '{$1}')}`);
    });
  }
  return calls;
}

function property(node: ts.ObjectLiteralExpression, name: string): ts.Expression | undefined {
  const found = node.properties.find((one) => ts.isPropertyAssignment(one) && one.name.getText() === name);
  return found !== undefined && ts.isPropertyAssignment(found) ? found.initializer : undefined;
}

function textProperty(node: ts.ObjectLiteralExpression, name: string): string | undefined {
  const value = property(node, name);
  return value !== undefined && ts.isStringLiteral(value) ? value.text : undefined;
}

/** Statuses that problem documents are sent with, by code: every object literal with a `status` and a text `code`. */
export function problemStatuses(files: readonly TreeFile[]): Map<string, Set<number>> {
  const statuses = new Map<string, Set<number>>();
  for (const file of under(files, 'src/', '.ts')) {
    eachNode(file, (node) => {
      if (!ts.isObjectLiteralExpression(node)) return;
      const code = textProperty(node, 'code');
      const status = property(node, 'status');
      if (code === undefined || status === undefined) return;
      // `404`, or a whole status line: `'408 Request Timeout'`
      const number = /^\d{3}\b/.exec(ts.isNumericLiteral(status) || ts.isStringLiteral(status) ? status.text : '')?.[0];
      if (number !== undefined) statuses.set(code, (statuses.get(code) ?? new Set()).add(Number(number)));
    });
  }
  return statuses;
}

// --------------------------------------------------------------------------------------------------------- references

/** The id that a heading gets where Markdown is shown. */
const slugOf = (heading: string): string =>
  heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(' ', '-');

const withoutCode = (text: string): string =>
  text
    .replaceAll(/^```[\s\S]*?^```/gm, (block) => block.replaceAll(/[^\n]/g, ' '))
    .replaceAll(/`[^`\n]*`/g, (code) => ' '.repeat(code.length));

/** Links between documents lead somewhere, to the heading too. */
export const links: Guard = (files) => {
  const findings: Finding[] = [];
  const byPath = new Map(files.map((file) => [file.path, file]));
  const folders = new Set(files.flatMap(({ path }) => parents(path)));
  for (const file of under(files, '', '.md')) {
    for (const link of withoutCode(file.text).matchAll(/\]\(([^)\s]+)\)/g)) {
      const [target = '', anchor] = link[1]!.split('#');
      if (/^[a-z]+:/.test(target)) continue;
      const path = target === '' ? file.path : posix.join(posix.dirname(file.path), target).replace(/\/$/, '');
      const aimed = byPath.get(path);
      if (aimed === undefined && !folders.has(path)) findings.push(finding(file, link.index, `${path} is not there`));
      if (anchor !== undefined && aimed !== undefined) {
        const slugs = [...withoutFences(aimed.text).matchAll(/^#+ (.+)$/gm)].map((heading) => slugOf(heading[1]!));
        if (!slugs.includes(anchor)) findings.push(finding(file, link.index, `${path} has no heading #${anchor}`));
      }
    }
  }
  return findings;
};

const withoutFences = (text: string): string => text.replaceAll(/^```[\s\S]*?^```/gm, '');

function parents(path: string): string[] {
  const parts = path.split('/').slice(0, -1);
  return parts.map((_, i) => parts.slice(0, i + 1).join('/'));
}

/** A path of the checkout that a document or a comment names is there. */
export const pathsNamed: Guard = (files) => {
  const findings: Finding[] = [];
  const there = new Set([...files.map(({ path }) => path), ...files.flatMap(({ path }) => parents(path))]);
  for (const file of files) {
    if (file.path.startsWith('test/tidy') || file.path.endsWith('.patch')) continue;
    for (const named of file.text.matchAll(/(?<![\w./-])(docs|src|test|migrations|scripts)\/[\w./-]*\w/g)) {
      // what a pattern or a brace goes on with is no path, and neither is a placeholder
      if (/\/[A-Z]+\b(?!\.md)/.test(named[0])) continue;
      if (/[*{<…$]/.test(file.text.slice(named.index, named.index + named[0].length + 2))) continue;
      const path = named[0].replace(/^(migrations\/\d{4})$/, '$1');
      const isThere =
        there.has(path) || [...there].some((one) => one.startsWith(`${path}_`) || one.startsWith(`${path}-`));
      if (!isThere) findings.push(finding(file, named.index, `${path} is not there`));
    }
  }
  return findings;
};

/** `npm run NAME` exists, and so does every `SLUICE_…` that a document names. */
export const commandsNamed: Guard = (files) => {
  const findings: Finding[] = [];
  const manifest = files.find(({ path }) => path === 'package.json');
  const scripts = Object.keys((JSON.parse(manifest?.text ?? '{}') as { scripts?: object }).scripts ?? {});
  const code = files.filter(
    ({ path }) => /^(src|scripts|test)\/.*\.(ts|mjs)$/.test(path) && !path.startsWith('test/tidy'),
  );
  const known = new Set(code.flatMap(({ text }) => text.match(/\bSLUICE_[A-Z_]+\b/g) ?? []));
  known.add('SLUICE_WRITE_DOCS');
  for (const file of under(files, '', '.md')) {
    for (const use of file.text.matchAll(/\bnpm run ([\w:-]+)/g)) {
      if (!scripts.includes(use[1]!)) findings.push(finding(file, use.index, `there is no npm run ${use[1]}`));
    }
    for (const use of file.text.matchAll(/\bSLUICE_[A-Z_]+\b/g)) {
      if (!known.has(use[0])) findings.push(finding(file, use.index, `nothing reads ${use[0]}`));
    }
  }
  return findings;
};

/** Every counterexample that code or a test cites is explained, and every one explained is numbered once. */
export const counterexamples: Guard = (files) => {
  const path = 'docs/counterexamples.md';
  const page = files.find((file) => file.path === path);
  const explained = [...(page?.text ?? '').matchAll(/^\| (P\d+) \|/gm)].map((row) => row[1]!);
  const findings = explained
    .filter((name, i) => explained.indexOf(name) !== i)
    .map((name) => `${path}:1: ${name} stands twice`);
  for (const file of files) {
    if (file.path.startsWith('test/tidy')) continue;
    for (const cited of file.text.matchAll(/(?<![\w.-])P\d{1,2}\b(?!\w)/g)) {
      if (cited[0] !== 'P0' && !explained.includes(cited[0])) {
        findings.push(finding(file, cited.index, `${cited[0]} is not explained in ${path}`));
      }
    }
  }
  return findings;
};

/** Every section of the design that a comment cites is found by the table of docs/README.md. */
export const sectionsCited: Guard = (files) => {
  const page = files.find(({ path }) => path === 'docs/README.md');
  return files.flatMap((file) =>
    file.path.startsWith('test/tidy')
      ? []
      : [...file.text.matchAll(/\bdesign §§?(\d+)(?:[,–-] ?(\d+))?/g)].flatMap((cited) =>
          [cited[1], cited[2]]
            .filter((section) => section !== undefined && page?.text.includes(`| §${section} `) !== true)
            .map((section) => finding(file, cited.index, `design §${section} leads nowhere: docs/README.md`)),
        ),
  );
};

/** Decisions are numbered without a gap and have their four parts. */
export const decisions: Guard = (files) =>
  under(files, 'docs/decisions/', '.md').flatMap((file, i) => {
    const number = String(i + 1).padStart(4, '0');
    const parts = ['Context.', 'Decision.', 'Consequences.', 'What would change our mind.'];
    return [
      ...(file.path.startsWith(`docs/decisions/${number}-`) && file.text.startsWith(`# ${number} `)
        ? []
        : [finding(file, 0, `this is decision ${number}, by name and heading`)]),
      ...parts.filter((part) => !file.text.includes(`**${part}**`)).map((part) => finding(file, 0, `has no ${part}`)),
    ];
  });

// ----------------------------------------------------------------------------------------------------------- promises

/**
 * Every promise names its limit, its mechanism, a test that exists and, where there is one, the patch that must break it;
 * every patch is named, and names a test that exists.
 */
export const promises: Guard = (files) => {
  const findings: Finding[] = [];
  const paths = new Set(files.map(({ path }) => path));
  const page = files.find(({ path }) => path === 'docs/guarantees.md');
  if (page === undefined) return ['docs/guarantees.md:1: is not there'];

  const sections = page.text.split(/^(?=## )/m).slice(1);
  const numbered = sections.filter((section) => /^## G\d+ /.test(section));
  if (numbered.length === 0) findings.push(finding(page, 0, 'makes no promise: the guard is blind'));
  for (const section of numbered) {
    const name = /^## (G\d+)/.exec(section)![1]!;
    const say = (says: string): unknown => findings.push(finding(page, page.text.indexOf(section), `${name}: ${says}`));
    for (const part of ['Limit', 'Mechanism', 'Tests']) {
      if (!section.includes(`**${part}.**`)) say(`says nothing under ${part}`);
    }
    if (!/`test\/[\w./-]+\.test\.ts`/.test(section)) say('names no test');
  }
  const testing = files.find(({ path }) => path === 'docs/testing.md');
  const both = [page, ...(testing === undefined ? [] : [testing])];
  for (const file of both) {
    for (const named of file.text.matchAll(/`(test\/(?![\w./-]*\b[A-Z]+\.)[\w./-]+\.(?:test\.ts|patch))`/g)) {
      if (!paths.has(named[1]!)) findings.push(finding(file, named.index, `${named[1]} is not there`));
    }
  }
  for (const patch of under(files, 'test/proofs/', '.patch')) {
    if (!both.some(({ text }) => text.includes(`\`${patch.path}\``))) {
      findings.push(finding(patch, 0, 'no promise names this proof (docs/guarantees.md or docs/testing.md)'));
    }
    const tests = [...patch.text.matchAll(/^# test: (\S+)/gm)].map((line) => line[1]!);
    if (tests.length === 0) findings.push(finding(patch, 0, 'names no test: "# test: test/… [-t …]"'));
    for (const test of tests) if (!paths.has(test)) findings.push(finding(patch, 0, `${test} is not there`));
  }
  return findings;
};
