/** Guards of what code may say where: SQL, Redis commands and keys, clocks, docstrings, length, words. */
import ts from 'typescript';
import { eachNode, finding, literalText, syntaxOf, under, type Finding, type Guard } from './tree.ts';

const SQL = [
  /\bselect\b[\s\S]+\bfrom\b/i,
  /\binsert\s+into\b/i,
  /\bupdate\s+\w+(\s+\w+)?\s+set\b/i,
  /\bdelete\s+from\b/i,
  /\b(create|alter|drop)\s+(or\s+replace\s+)?(unique\s+)?(table|index|function|trigger|type|view|schema)\b/i,
  /\btruncate\s+(table\s+)?\w+/i,
];

/** SQL stands only in `*-table.ts` and in `migrations/`. */
export const sqlInTables: Guard = (files) => {
  const findings: Finding[] = [];
  for (const file of under(files, 'src/', '.ts', '.mjs')) {
    if (file.path.endsWith('-table.ts')) continue;
    eachNode(file, (node) => {
      const text = literalText(node);
      if (text !== undefined && SQL.some((pattern) => pattern.test(text))) {
        findings.push(finding(file, node.getStart(), 'SQL belongs in a *-table.ts'));
      }
    });
  }
  for (const file of files) {
    if (file.path.endsWith('.sql') && !file.path.startsWith('migrations/')) {
      findings.push(finding(file, 0, 'SQL files belong in migrations/'));
    }
  }
  return findings;
};

/** Redis commands that walk all there is, or end it. */
const UNBOUNDED = new Set(['KEYS', 'SMEMBERS', 'HKEYS', 'HVALS', 'FLUSHALL', 'FLUSHDB']);

/** Redis commands without a key. */
const KEYLESS = new Set(['CONFIG', 'SCAN', 'SLOWLOG']);
/** Who may ask about keys that he found by SCAN: the doctor, for their end. */
const OF_FOUND_KEYS: Readonly<Record<string, string>> = { 'src/watch/doctor/examine.ts': 'PTTL' };

/** Keys are built in `keys.ts` only, and nothing is read that grows: `HGETALL` on the item alone. */
export const redisCommands: Guard = (files) => {
  const findings: Finding[] = [];
  for (const file of under(files, 'src/', '.ts', '.mjs')) {
    const isKeys = file.path === 'src/platform/redis/keys.ts';
    eachNode(file, (node) => {
      const text = literalText(node);
      if (
        !isKeys &&
        text !== undefined &&
        /(^|[^\w])sk:|\}:|:(meta|stock|buyers|outbox|lent|item|hints)(:|$)/.test(text)
      ) {
        findings.push(finding(file, node.getStart(), 'a Redis key is built outside of platform/redis/keys.ts'));
      }
      if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) return;
      const method = node.expression.name.text;
      if (/^(smembers|hgetall|hkeys|hvals|flushall|flushdb)$/i.test(method)) {
        findings.push(finding(file, node.getStart(), `${method} reads or ends without bound`));
      }
      if (method !== 'command') return;
      const [nameNode, keyNode] = node.arguments;
      const name = nameNode === undefined ? undefined : literalText(nameNode)?.toUpperCase();
      if (name === undefined) return;
      if (UNBOUNDED.has(name)) findings.push(finding(file, node.getStart(), `${name} reads or ends without bound`));
      else if (
        keyNode !== undefined &&
        !ts.isObjectLiteralExpression(keyNode) &&
        !KEYLESS.has(name) &&
        OF_FOUND_KEYS[file.path] !== name
      ) {
        const builder = keyBuilder(keyNode);
        if (builder === undefined) {
          findings.push(finding(file, node.getStart(), `${name}: the key comes from keys.…(), and from nowhere else`));
        } else if (name === 'HGETALL' && builder !== 'item') {
          findings.push(finding(file, node.getStart(), `HGETALL is for the item only, not for ${builder}`));
        }
      }
    });
  }
  return findings;
};

/** `item` for `keys.item(…)`, also through `const key = keys.item(…)` in an enclosing block. */
function keyBuilder(node: ts.Expression | undefined): string | undefined {
  if (node === undefined) return undefined;
  if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
    return node.expression.expression.getText() === 'keys' ? node.expression.name.text : undefined;
  }
  if (!ts.isIdentifier(node)) return undefined;
  for (let block: ts.Node = node.parent; ; block = block.parent) {
    if (ts.isBlock(block)) {
      for (const statement of block.statements) {
        if (!ts.isVariableStatement(statement)) continue;
        for (const { name, initializer } of statement.declarationList.declarations) {
          if (ts.isIdentifier(name) && name.text === node.text) return keyBuilder(initializer);
        }
      }
    }
    if (ts.isSourceFile(block)) return undefined;
  }
}

/** The one file that may read the host's clock, wait and throw dice; and who else may, with the reason. */
const CLOCK_EXCEPTIONS: Readonly<Record<string, readonly string[]>> = {
  'src/platform/clock.ts': ['Date.now', 'performance.now', 'setTimeout', 'Math.random', 'randomUUID', 'randomBytes'],
  // the last resort of a process that is asked to end and does not: nothing is left that could be simulated
  'src/main/sluice.ts': ['setTimeout'],
  // runs as a file of its own, before and without the program
  'src/platform/servers/watcher.mjs': ['setTimeout'],
  // the gate's batches end with the turn of the loop; handed over as a port
  'src/main/wire.ts': ['setImmediate'],
};
const TIMING = new Set(['setTimeout', 'setInterval', 'setImmediate', 'randomUUID', 'randomBytes', 'randomInt']);

/** Time, timers and randomness come in as arguments, so that a simulator can stand in for them. */
export const clocks: Guard = (files) => {
  const findings: Finding[] = [];
  for (const file of under(files, 'src/', '.ts', '.mjs')) {
    eachNode(file, (node) => {
      const used = timeUse(node);
      if (used !== undefined && !CLOCK_EXCEPTIONS[file.path]?.includes(used)) {
        findings.push(
          finding(file, node.getStart(), `${used} belongs to platform/clock.ts: take a port as an argument`),
        );
      }
    });
  }
  return findings;
};

function timeUse(node: ts.Node): string | undefined {
  if (ts.isPropertyAccessExpression(node)) {
    const name = node.getText();
    return name === 'Date.now' || name === 'Math.random' || name === 'performance.now' ? name : undefined;
  }
  if (ts.isNewExpression(node) && node.expression.getText() === 'Date' && (node.arguments?.length ?? 0) === 0) {
    return 'new Date()';
  }
  if (!ts.isIdentifier(node) || !TIMING.has(node.text)) return undefined;
  // a use as a value; not a property's name, nor the import that brings it
  const parent = node.parent;
  const isName = (ts.isPropertyAccessExpression(parent) && parent.name === node) || ts.isPropertyAssignment(parent);
  if (ts.isImportSpecifier(parent) || (isName && !(ts.isPropertyAssignment(parent) && parent.initializer === node))) {
    return undefined;
  }
  return node.text;
}

/** Everything exported from src says what it is, and every file opens with what it is. */
export const docstrings: Guard = (files) => {
  const findings: Finding[] = [];
  for (const file of under(files, 'src/', '.ts', '.mjs')) {
    if (!/^(#!.*\n)?\/\*\*/.test(file.text))
      findings.push(finding(file, 0, 'opens with what it is, promises and does not'));
    for (const statement of syntaxOf(file).statements) {
      const exported =
        ts.canHaveModifiers(statement) &&
        ts.getModifiers(statement)?.some((modifier) => modifier.kind === ts.SyntaxKind.ExportKeyword) === true;
      if (!exported) continue;
      const comments = ts.getLeadingCommentRanges(file.text, statement.getFullStart()) ?? [];
      const own = comments.filter((comment, i) => !(i === 0 && comment.pos <= 2 && comments.length === 1));
      if (!own.some((comment) => file.text.startsWith('/**', comment.pos))) {
        findings.push(finding(file, statement.getStart(), 'an export without a docstring'));
      }
    }
  }
  return findings;
};

const LINES_MAX = 500;
/** Longer by what they are, with their own bound. */
const LONGER: Readonly<Record<string, number>> = {
  // the composition root names every part once; it grows with the house and decides nothing
  'src/main/wire.ts': 600,
  // a table: every setting with its unit, default, range and reason
  'src/main/config.ts': 700,
};

/** One idea a file: a long one holds two. */
export const lengths: Guard = (files) =>
  under(files, 'src/', '.ts', '.mjs', '.lua').flatMap((file) => {
    const lines = file.text.split('\n').length - 1;
    const most = LONGER[file.path] ?? LINES_MAX;
    return lines > most ? [finding(file, 0, `${lines} lines; ${most} at most: split it`)] : [];
  });

/** How the text came to be is nobody's business here; a clone stands alone. Brackets keep this file out of its own net. */
const FOREIGN = [
  /\bassi[s]tants?\b/i,
  /\bwork[p]lace\b/i,
  /(^|[^\w.])\/wor[k]\b/,
  /\.\.\/share[d]\b/,
  /\b(this|another|the next|other|previous) ses[s]ions?\b/i,
  /\b(language mode[l]|ll[m]|ai[-]generated|chat[b]ot)\b/i,
  /\b(cases|pro[t]ocol|pee[r]s|measu[r]ed|dependenc[i]es|house-st[y]le|anch[o]rs|des[i]gn|contr[a]ct)\.md\b/,
];

/** No word of how or where this was written, and no name of a file that a reader does not have. */
export const foreignWords: Guard = (files) =>
  files.flatMap((file) =>
    FOREIGN.flatMap((pattern) => {
      const match = pattern.exec(file.text);
      return match === null ? [] : [finding(file, match.index, `"${match[0].trim()}" means nothing to a reader`)];
    }),
  );
