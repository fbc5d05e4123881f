/**
 * What the guards look at: every file of the checkout as path and text, and the TypeScript in it as a syntax tree.
 * A guard is a pure function from such a list to findings, so that it runs on the tree and on a planted violation alike.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';

/** A file: path from the checkout's root with slashes, and its text. */
export type TreeFile = { readonly path: string; readonly text: string };

/** What is wrong and where, `path:line: says`. */
export type Finding = string;

/** A guard. */
export type Guard = (files: readonly TreeFile[]) => Finding[];

const NOT_OURS = new Set(['.git', 'node_modules', 'dist', 'dist.new', '.sluice', '.stamps', 'package-lock.json']);

/** Every text file of a checkout but what is installed, built or kept by running it. */
export function readTree(root: string): TreeFile[] {
  const files: TreeFile[] = [];
  const walk = (folder: string): void => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      if (NOT_OURS.has(entry.name) || entry.name.endsWith('.log')) continue;
      const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
      if (entry.isDirectory()) walk(path);
      else if (entry.isFile()) files.push({ path, text: readFileSync(join(root, path), 'utf8') });
    }
  };
  walk('');
  return files.toSorted((a, b) => (a.path < b.path ? -1 : 1));
}

/** A finding about one line of a file. */
export function finding(file: TreeFile, offset: number, says: string): Finding {
  return `${file.path}:${file.text.slice(0, Math.max(0, offset)).split('\n').length}: ${says}`;
}

/** The files under a folder (`src/`), with one of these endings. */
export function under(files: readonly TreeFile[], folder: string, ...endings: string[]): TreeFile[] {
  return files.filter(({ path }) => path.startsWith(folder) && endings.some((ending) => path.endsWith(ending)));
}

const parsed = new WeakMap<TreeFile, ts.SourceFile>();

/** The syntax tree of a TypeScript or JavaScript file. */
export function syntaxOf(file: TreeFile): ts.SourceFile {
  let source = parsed.get(file);
  if (source === undefined) {
    source = ts.createSourceFile(file.path, file.text, ts.ScriptTarget.ESNext, true);
    parsed.set(file, source);
  }
  return source;
}

/** Calls `look` with every node of a file. */
export function eachNode(file: TreeFile, look: (node: ts.Node) => void): void {
  const visit = (node: ts.Node): void => {
    look(node);
    ts.forEachChild(node, visit);
  };
  visit(syntaxOf(file));
}

/** A text in the source, with `\0` where a template fills something in; undefined for other nodes. */
export function literalText(node: ts.Node): string | undefined {
  if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) return node.text;
  if (!ts.isTemplateExpression(node)) return undefined;
  return node.head.text + node.templateSpans.map((span) => `\0${span.literal.text}`).join('');
}
