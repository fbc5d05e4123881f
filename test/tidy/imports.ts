/** Guards of the walls between the rooms: who may import whom, where npm packages live, no cycles. */
import { posix } from 'node:path';
import ts from 'typescript';
import { eachNode, finding, under, type Finding, type Guard, type TreeFile } from './tree.ts';

/** One import as written: `import`, `export … from`, `import()` of a literal, `import('…')` in a type. */
type Import = { readonly target: string; readonly offset: number; readonly typeOnly: boolean };

function importsOf(file: TreeFile): Import[] {
  const found: Import[] = [];
  const add = (target: ts.Node | undefined, node: ts.Node, typeOnly: boolean): void => {
    if (target !== undefined && ts.isStringLiteral(target)) {
      found.push({ target: target.text, offset: node.getStart(), typeOnly });
    }
  };
  eachNode(file, (node) => {
    if (ts.isImportDeclaration(node)) add(node.moduleSpecifier, node, isTypeOnly(node.importClause));
    else if (ts.isExportDeclaration(node)) add(node.moduleSpecifier, node, node.isTypeOnly);
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal, node, true);
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      add(node.arguments[0], node, false);
    }
  });
  return found;
}

function isTypeOnly(clause: ts.ImportClause | undefined): boolean {
  if (clause === undefined) return false;
  if (clause.phaseModifier === ts.SyntaxKind.TypeKeyword) return true;
  const names = clause.namedBindings;
  return clause.name === undefined && names !== undefined && ts.isNamedImports(names)
    ? names.elements.length > 0 && names.elements.every((element) => element.isTypeOnly)
    : false;
}

/** `./x.ts` of a file as a path from the root; undefined for packages. */
function resolveImport(file: TreeFile, target: string): string | undefined {
  return target.startsWith('.') ? posix.join(posix.dirname(file.path), target) : undefined;
}

const WALKS = new Set(['purchase', 'order', 'activity']);

/**
 * The room of a file: `domain`, `platform`, a stage (`purchase/4-gate`), a walk's own files (`order`), `purchase.ts`, or
 * the first folder.
 */
export function roomOf(path: string): string {
  const [, first = '', second = ''] = path.split('/');
  if (path === 'src/purchase/purchase.ts') return 'purchase.ts';
  return WALKS.has(first) && /^\d-/.test(second) ? `${first}/${second}` : first;
}

/** Whether a file of room `from` may import one of room `to`. */
function mayImport(from: string, to: string, typeOnly: boolean): boolean {
  if (from === 'main') return true;
  if (to === 'main') return false;
  if (from === to) return true;
  switch (from) {
    case 'domain':
      return false;
    case 'platform':
      return to === 'domain';
    case 'purchase.ts':
      return to === 'domain' || (typeOnly && (to === 'platform' || to.startsWith('purchase/')));
    case 'console':
    case 'cli':
      return ['domain', 'platform', 'watch'].includes(to) || /^(activity|order)(\/|$)/.test(to);
    default:
      // a stage, a walk's own files, recovery, watch
      return to === 'domain' || to === 'platform';
  }
}

/** Who may import whom (docs/style.md): the walls that a workspace would give. */
export const walls: Guard = (files) => {
  const findings: Finding[] = [];
  const paths = new Set(files.map(({ path }) => path));
  for (const file of under(files, 'src/', '.ts', '.mjs')) {
    for (const { target, offset, typeOnly } of importsOf(file)) {
      const path = resolveImport(file, target);
      if (path === undefined) continue;
      if (!path.startsWith('src/')) findings.push(finding(file, offset, `imports ${path}, outside of src`));
      else if (!paths.has(path)) findings.push(finding(file, offset, `imports ${path}, which is not there`));
      else if (!mayImport(roomOf(file.path), roomOf(path), typeOnly)) {
        findings.push(finding(file, offset, `${roomOf(file.path)} may not import ${roomOf(path)} (${path})`));
      }
    }
  }
  return findings;
};

/** The one place of each npm package; typebox lives wherever a schema is declared. */
const HOMES: Readonly<Record<string, readonly string[]>> = {
  fastify: ['src/platform/http/'],
  ioredis: ['src/platform/redis/'],
  pg: ['src/platform/postgres/'],
  '@electric-sql/pglite': ['src/platform/postgres/'],
  jose: ['src/platform/identity/'],
  'lru-cache': ['src/platform/identity/'],
  pino: ['src/platform/log.ts'],
  commander: ['src/main/', 'src/cli/'],
  yaml: ['src/main/'],
  'prom-client': ['src/watch/'],
  undici: ['src/cli/'],
  typebox: ['src/'],
};

/** Homes of npm packages: a swap costs one folder. */
export const homes: Guard = (files) => {
  const findings: Finding[] = [];
  for (const file of under(files, 'src/', '.ts', '.mjs')) {
    for (const { target, offset } of importsOf(file)) {
      if (target.startsWith('.') || target.startsWith('node:')) continue;
      const name = target.startsWith('@') ? target.split('/').slice(0, 2).join('/') : target.split('/')[0]!;
      const allowed = HOMES[name];
      if (allowed === undefined)
        findings.push(finding(file, offset, `${name} has no home; give it one, or go without`));
      else if (!allowed.some((home) => file.path.startsWith(home))) {
        findings.push(finding(file, offset, `${name} lives in ${allowed.join(', ')}`));
      }
    }
  }
  return findings;
};

/** `scripts/`, and what they run as a file, work before anything is installed: node: and each other only. */
export const bareScripts: Guard = (files) => {
  const findings: Finding[] = [];
  const bare = [...under(files, 'scripts/', '.mjs', '.js', '.ts'), ...under(files, 'src/', 'watcher.mjs')];
  for (const file of bare) {
    for (const { target, offset } of importsOf(file)) {
      const path = resolveImport(file, target);
      const good = path === undefined ? target.startsWith('node:') : path.startsWith('scripts/');
      if (!good) findings.push(finding(file, offset, `imports ${target}: before npm ci there is only node:`));
    }
  }
  return findings;
};

/** How many edges the graph of src has: a guard that sees none proves nothing. */
export function edgeCount(files: readonly TreeFile[]): number {
  return [...graphOf(files).values()].reduce((sum, targets) => sum + targets.length, 0);
}

function graphOf(files: readonly TreeFile[]): Map<string, string[]> {
  return new Map(
    under(files, 'src/', '.ts', '.mjs').map((file) => [
      file.path,
      importsOf(file).flatMap(({ target }) => resolveImport(file, target) ?? []),
    ]),
  );
}

/** No file imports itself by way of others, not even for types. */
export const cycles: Guard = (files) => {
  const graph = graphOf(files);
  const done = new Set<string>();
  const way: string[] = [];
  const findings: Finding[] = [];
  const visit = (path: string): void => {
    const at = way.indexOf(path);
    if (at !== -1) {
      findings.push(`${path}:1: imports itself: ${[...way.slice(at), path].join(' → ')}`);
      return;
    }
    if (done.has(path)) return;
    way.push(path);
    for (const target of graph.get(path) ?? []) visit(target);
    way.pop();
    done.add(path);
  };
  for (const path of graph.keys()) visit(path);
  return findings;
};
