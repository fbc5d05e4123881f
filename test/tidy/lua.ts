/**
 * Guards of the Lua scripts: each opens with `#!lua` and its contract, uses the keys and arguments that it names, and
 * touches no key but those it was given. They read text, not Lua: what they cannot read they refuse.
 */
import { posix } from 'node:path';
import { finding, under, type Finding, type Guard, type TreeFile } from './tree.ts';

const SECTIONS = ['Cost', 'KEYS', 'ARGV', 'Returns', 'Keeps'] as const;

/** Commands that take no key. */
const KEYLESS = new Set(['INFO', 'TIME']);
/** Commands that read or do without bound, or are not a script's business. */
const BANNED = new Set(['KEYS', 'SMEMBERS', 'HGETALL', 'HKEYS', 'HVALS', 'SCAN', 'FLUSHALL', 'FLUSHDB', 'PUBLISH']);

type Header = { readonly end: number; readonly sections: ReadonlyMap<string, string>; readonly text: string };

/** The comment under `#!lua`, by sections; a section begins with its word, first on its line or behind two blanks. */
function headerOf(text: string): Header {
  const lines = text.split('\n');
  let end = 1;
  while (lines[end]?.startsWith('--')) end += 1;
  const header = lines
    .slice(1, end)
    .map((line) => line.slice(2))
    .join('\n');
  const marks = [...header.matchAll(/(?:^ |(?<= {2}))(Cost|KEYS|ARGV|Returns|Keeps)\b +/gm)];
  const sections = new Map(
    marks.map((mark, i) => [mark[1]!, header.slice(mark.index + mark[0].trimEnd().length, marks[i + 1]?.index)]),
  );
  return { end, sections, text: header };
}

/** The numbers that a section declares: `1 meta   2 stock   4… shards`; `open` where it goes on (`n…`, or `then`). */
function declaredIn(section: string): { numbers: number[]; open: boolean } {
  const [fixed = '', ...more] = section.split(/\bthen\b/);
  const items = [...fixed.matchAll(/(?:^|\n| {2,}) *(\d+)(…?) /g)];
  return {
    numbers: items.map((item) => Number(item[1])),
    open: more.length > 0 || items.some((item) => item[2] === '…'),
  };
}

/** Every script: `#!lua`, name, Cost, KEYS, ARGV, Returns, Keeps; and what it uses is what it declares. */
export const luaHeaders: Guard = (files) => {
  const findings: Finding[] = [];
  for (const file of under(files, 'src/', '.lua')) {
    const say = (offset: number, says: string): unknown => findings.push(finding(file, offset, says));
    if (!file.text.startsWith('#!lua\n'))
      say(0, 'the first line is #!lua, so that a read-only server refuses it (P18)');
    const name = posix.basename(file.path, '.lua');
    const header = headerOf(file.text);
    if (!header.text.startsWith(` ${name}: `)) say(6, `the second line says what it is: -- ${name}: …`);
    for (const section of SECTIONS) if (!header.sections.has(section)) say(6, `the header has no ${section}`);

    const lines = file.text.split('\n');
    const bodyAt = lines.slice(0, header.end).join('\n').length + 1;
    const body = blankComments(file.text.slice(bodyAt));
    for (const table of ['KEYS', 'ARGV'] as const) {
      const { numbers, open } = declaredIn(header.sections.get(table) ?? '');
      const declared = new Set(numbers);
      numbers.forEach((number, i) => {
        if (number !== i + 1) say(6, `${table} are numbered 1, 2, 3 …, not ${numbers.join(', ')}`);
      });
      const uses = [...body.matchAll(new RegExp(String.raw`\b${table}\[([^\]]*)\]`, 'g'))];
      const used = new Set<number>();
      let byVariable = new RegExp(`unpack\\(${table}\\b|#${table}\\b`).test(body);
      for (const use of uses) {
        const index = Number(use[1]);
        if (Number.isInteger(index)) {
          used.add(index);
          const last = numbers.at(-1) ?? 0;
          if (!declared.has(index) && !(open && index > last)) {
            say(bodyAt + use.index, `uses ${table}[${index}], which the header does not name`);
          }
        } else {
          byVariable = true;
          if (!open && table === 'ARGV') say(bodyAt + use.index, `uses ${use[0]}, but the header's ARGV end`);
          if (!open && table === 'KEYS') say(bodyAt + use.index, `uses ${use[0]}, but the header's KEYS end`);
        }
      }
      for (const number of numbers) {
        if (!used.has(number) && !byVariable) say(6, `the header names ${table} ${number}, which is not used`);
      }
    }
  }
  return findings;
};

/** Every key of a script is one of `KEYS`, and no command is unbounded: a key built inside fails in a cluster. */
export const luaKeys: Guard = (files) => {
  const findings: Finding[] = [];
  for (const file of under(files, 'src/', '.lua')) {
    const body = blankComments(file.text);
    for (const call of body.matchAll(/\bredis\.(call|pcall)\s*\(/g)) {
      const say = (says: string): unknown => findings.push(finding(file, call.index, says));
      const [command = '', key = ''] = argumentsAt(body, call.index + call[0].length);
      const name = /^'([A-Za-z]+)'$/.exec(command)?.[1]?.toUpperCase();
      if (name === undefined) say(`the command is written out, not ${command}`);
      else if (BANNED.has(name)) say(`${name} does not belong in a script`);
      else if (!KEYLESS.has(name)) {
        const why = whyNoKey(file, body, key);
        if (why !== undefined) say(`${name}: ${why}`);
      }
    }
    // `redis` under another name would hide its calls
    for (const use of body.matchAll(/\bredis\b(?!\.(call|pcall)\s*\()/g)) {
      findings.push(finding(file, use.index, 'redis is only ever redis.call(…) or redis.pcall(…)'));
    }
  }
  return findings;
};

/** Why an argument may not stand where the key stands. */
function whyNoKey(file: TreeFile, body: string, key: string): string | undefined {
  if (key.includes('..')) return `the key ${key} is built inside the script`;
  if (/^KEYS\[.+\]$/.test(key)) return undefined;
  if (!/^[A-Za-z_]\w*$/.test(key)) return `the key ${key || '(none)'} is not one of KEYS`;
  const bound = [...body.matchAll(new RegExp(String.raw`(?:local\s+)?\b${key}\s*=(?!=)\s*(.*)`, 'g'))];
  if (bound.length > 0) {
    const wrong = bound.find((binding) => !/^KEYS\[.+\]\s*$/.test(binding[1]!));
    return wrong === undefined ? undefined : `${key} is bound to ${wrong[1]}, not to one of KEYS`;
  }
  // a parameter: every call of its function hands one of KEYS over
  const taker = new RegExp(String.raw`local\s+function\s+(\w+)\s*\(\s*${key}\s*\)`).exec(body);
  if (taker === null) return `${key} is not bound to one of KEYS`;
  const calls = [...body.matchAll(new RegExp(String.raw`(?<!function\s)\b${taker[1]}\s*\(`, 'g'))];
  const bad = calls.map((call) => argumentsAt(body, call.index + call[0].length)[0] ?? '');
  const wrong = bad.find((argument) => !/^KEYS\[.+\]$/.test(argument));
  return wrong === undefined ? undefined : `${taker[1]}(${wrong}) in ${file.path} hands over no key of KEYS`;
}

/** The arguments of a call, from behind its opening bracket, split at commas outside brackets and quotes. */
function argumentsAt(body: string, from: number): string[] {
  const found: string[] = [];
  let depth = 0;
  let start = from;
  for (let i = from; i < body.length; i++) {
    const char = body[i]!;
    if (char === "'" || char === '"') {
      i = body.indexOf(char, i + 1);
      if (i === -1) break;
    } else if ('([{'.includes(char)) depth += 1;
    else if (')]}'.includes(char)) {
      if (depth === 0) return [...found, body.slice(start, i).trim()];
      depth -= 1;
    } else if (char === ',' && depth === 0) {
      found.push(body.slice(start, i).trim());
      start = i + 1;
    }
  }
  return found;
}

/** The same text with comments blanked, so that offsets stay. */
function blankComments(text: string): string {
  return text.replaceAll(/--[^\n]*/g, (comment) => ' '.repeat(comment.length));
}
