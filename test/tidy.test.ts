/**
 * The house's guards: what must hold of the text of this repository and no compiler, linter or formatter says.
 *
 * Each guard is a pure function from files to findings. It runs on the tree, where it must find nothing, and on planted
 * violations, each of which it must find: a guard that cannot bite is worse than none.
 *
 * `SLUICE_WRITE_DOCS=1 npx vitest run test/tidy.test.ts` renews the tables that follow from the code.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { GATE_CODES, PURCHASE_CODES } from '../src/domain/results.ts';
import { TITLES } from '../src/domain/text.ts';
import { SETTINGS } from '../src/main/config.ts';
import { makeKeys } from '../src/platform/redis/keys.ts';
import { RETRY_AFTER, STATUS } from '../src/purchase/5-receipt/answer.ts';
import { clocks, docstrings, foreignWords, lengths, redisCommands, sqlInTables } from './tidy/code.ts';
import {
  callsOffered,
  commandsNamed,
  counterexamples,
  decisions,
  links,
  namesAgree,
  pathsNamed,
  problemStatuses,
  promises,
  renderedBlocks,
  renewBlocks,
  sectionsCited,
  table,
  tablesMade,
  unionMembers,
  type Blocks,
} from './tidy/docs.ts';
import { bareScripts, cycles, edgeCount, homes, walls } from './tidy/imports.ts';
import { luaHeaders, luaKeys } from './tidy/lua.ts';
import { manifest } from './tidy/package.ts';
import { readTree, type Guard, type TreeFile } from './tidy/tree.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const tree = process.env['SLUICE_WRITE_DOCS'] === '1' ? renewed() : readTree(ROOT);

/** Writes the tables that follow from the code, and reads everything again. */
function renewed(): TreeFile[] {
  const before = readTree(ROOT);
  const blocks = blocksOf(before);
  for (const file of before) {
    const text = renewBlocks(file, blocks);
    if (text !== file.text) writeFileSync(join(ROOT, file.path), text);
  }
  return readTree(ROOT);
}

/** A file that is not there, to be looked at alone. */
const planted = (path: string, text: string): TreeFile[] => [{ path, text }];

/** The tree with one file changed; the change must be one. */
function changed(path: string, change: (text: string) => string): TreeFile[] {
  return tree.map((file) => {
    if (file.path !== path) return file;
    const text = change(file.text);
    expect(text, `the planted change of ${path}`).not.toBe(file.text);
    return { path, text };
  });
}

/** The tree with one more file. */
const withFile = (path: string, text: string): TreeFile[] => [...tree, { path, text }];

/** A guard holds on the tree, and finds what is planted: [what, files, part of the finding]. */
function guard(
  name: string,
  look: Guard,
  violations: readonly (readonly [string, () => readonly TreeFile[], string])[],
) {
  describe(name, () => {
    test('holds', () => {
      expect(look(tree)).toEqual([]);
    });
    test.each(violations)('bites: %s', (_, files, says) => {
      expect(look(files())).toContainEqual(expect.stringContaining(says));
    });
  });
}

// ------------------------------------------------------------------------------------------------------------ the rooms

const importing = (path: string, target: string, line = `import { x } from '${target}';`) =>
  withFile(path, `/** Planted. */\n${line}\n`);

guard('who may import whom', walls, [
  [
    'domain imports platform',
    () => importing('src/domain/x.ts', '../platform/clock.ts'),
    'domain may not import platform',
  ],
  [
    'platform imports a stage',
    () => importing('src/platform/x.ts', '../purchase/4-gate/gate.ts'),
    'platform may not import purchase/4-gate',
  ],
  [
    'a stage imports another',
    () => importing('src/purchase/1-door/x.ts', '../4-gate/gate.ts'),
    'purchase/1-door may not import purchase/4-gate',
  ],
  [
    'a stage imports another, types only',
    () => importing('src/purchase/1-door/x.ts', '', `import type { Gate } from '../4-gate/gate.ts';`),
    'purchase/1-door may not import purchase/4-gate',
  ],
  [
    'a stage imports another, within a type',
    () => importing('src/order/3-give-back/x.ts', '', `export type X = import('../../purchase/4-gate/gate.ts').Gate;`),
    'order/3-give-back may not import purchase/4-gate',
  ],
  [
    'a stage re-exports another',
    () => importing('src/activity/1-plan/x.ts', '', `export { preheat } from '../2-preheat/preheat.ts';`),
    'activity/1-plan may not import activity/2-preheat',
  ],
  [
    'a stage imports another at run time',
    () => importing('src/activity/1-plan/x.ts', '', `await import('../2-preheat/preheat.ts');`),
    'activity/1-plan may not import activity/2-preheat',
  ],
  [
    "a stage imports its walk's own files",
    () => importing('src/order/3-give-back/x.ts', '../orders-table.ts'),
    'order/3-give-back may not import order ',
  ],
  [
    "a walk's own file imports a stage",
    () => importing('src/order/x.ts', './3-give-back/give-back.ts'),
    'order may not import order/3-give-back',
  ],
  [
    'the walk of a purchase imports more than types of a stage',
    () => importing('src/purchase/purchase.ts', './4-gate/gate.ts'),
    'purchase.ts may not import purchase/4-gate',
  ],
  [
    'watch imports a stage',
    () => importing('src/watch/x.ts', '../order/orders-table.ts'),
    'watch may not import order',
  ],
  ['somebody imports main', () => importing('src/watch/x.ts', '../main/wire.ts'), 'watch may not import main'],
  ['a file that is not there', () => importing('src/watch/x.ts', './nothing.ts'), 'which is not there'],
  ['out of the house', () => importing('src/main/x.ts', '../../test/support/sluice.ts'), 'outside of src'],
]);

guard('homes of npm packages', homes, [
  ['fastify outside its home', () => importing('src/watch/x.ts', 'fastify'), 'fastify lives in'],
  ['ioredis in a stage', () => importing('src/purchase/4-gate/x.ts', 'ioredis'), 'ioredis lives in'],
  ['a sub-path', () => importing('src/domain/x.ts', 'pg/lib/client.js'), 'pg lives in'],
  ['a scoped package', () => importing('src/main/x.ts', '@electric-sql/pglite'), '@electric-sql/pglite lives in'],
  ['pino beside its file', () => importing('src/platform/http/x.ts', 'pino'), 'pino lives in'],
  ['commander in platform', () => importing('src/platform/x.ts', 'commander'), 'commander lives in'],
  ['a package without a home', () => importing('src/main/x.ts', 'left-pad'), 'left-pad has no home'],
]);

guard('no import cycles', cycles, [
  [
    'two files',
    () => [
      ...planted('src/domain/a.ts', `import { b } from './b.ts';`),
      ...planted('src/domain/b.ts', `import type { a } from './a.ts';`),
    ],
    'src/domain/a.ts → src/domain/b.ts → src/domain/a.ts',
  ],
  ['a file and itself', () => planted('src/domain/a.ts', `import { b } from './a.ts';`), 'imports itself'],
]);

test('the graph of imports is seen: a guard that reads nothing finds nothing', () => {
  expect(edgeCount(tree)).toBeGreaterThan(150);
});

guard('scripts need nothing that is installed', bareScripts, [
  ['a package', () => importing('scripts/x.mjs', 'commander'), 'before npm ci there is only node:'],
  ['the program', () => importing('scripts/x.mjs', '../src/main/serve.ts'), 'before npm ci there is only node:'],
  [
    'the watcher, which scripts run',
    () => changed('src/platform/servers/watcher.mjs', (text) => `import 'pino';\n${text}`),
    'before npm ci there is only node:',
  ],
]);

// -------------------------------------------------------------------------------------------------------------- the gate

const SCRIPT = `#!lua
-- x: does a thing.
--
-- Cost    O(1)
-- KEYS    1 meta   2… shards
-- ARGV    1 run   2 quantity
-- Returns 1
-- Keeps   nothing.

local function kind(key) return redis.call('TYPE', key).ok end
local first = KEYS[1]
for k = 2, #KEYS do redis.call('HSET', KEYS[k], 'a', ARGV[1]) end
redis.call('HGET', first, kind(KEYS[2]))
return redis.call('DECRBY', KEYS[1], ARGV[2])
`;
const lua = (change: (text: string) => string) => () => {
  const text = change(SCRIPT);
  expect(text).not.toBe(SCRIPT);
  return planted('src/purchase/4-gate/lua/x.lua', text);
};

guard('Lua headers', luaHeaders, [
  ['no #!lua', lua((text) => text.slice(6)), 'the first line is #!lua'],
  ['another name', lua((text) => text.replace('-- x:', '-- y:')), 'the second line says what it is'],
  ['no Cost', lua((text) => text.replace('Cost', 'Price')), 'the header has no Cost'],
  ['no KEYS', lua((text) => text.replace('KEYS   ', 'Keys   ')), 'the header has no KEYS'],
  ['no ARGV', lua((text) => text.replace('ARGV   ', 'Args   ')), 'the header has no ARGV'],
  ['no Returns', lua((text) => text.replace('-- Returns 1\n', '')), 'the header has no Returns'],
  ['no Keeps', lua((text) => text.replace('Keeps', 'Holds')), 'the header has no Keeps'],
  ['an argument that is not named', lua((text) => text.replace('ARGV[2]', 'ARGV[3]')), 'uses ARGV[3]'],
  ['an argument by a variable', lua((text) => text.replace('ARGV[2]', 'ARGV[i]')), "the header's ARGV end"],
  ['a key by a variable', lua((text) => text.replace('2… shards', '2 shard')), "the header's KEYS end"],
  [
    'a key that is not named',
    lua((text) => text.replace('   2… shards', '').replace('kind(KEYS[2])', 'kind(KEYS[7])')),
    'uses KEYS[7]',
  ],
  ['an argument that is not used', lua((text) => text.replace('2 quantity', '2 quantity   3 more')), 'names ARGV 3'],
  ['numbers out of order', lua((text) => text.replace('2 quantity', '3 quantity')), 'are numbered 1, 2, 3'],
]);

guard('keys of Lua scripts', luaKeys, [
  ['a key is built', lua((text) => text.replace('KEYS[1], ARGV[2]', "KEYS[1] .. ':stock', 1")), 'is built inside'],
  ['a key is written out', lua((text) => text.replace('KEYS[1], ARGV[2]', "'sk:x', 1")), 'is not one of KEYS'],
  [
    'a key is an argument',
    lua((text) => text.replace('local first = KEYS[1]', 'local first = ARGV[1]')),
    'first is bound to',
  ],
  [
    'a key is bound again',
    lua((text) => text.replace("redis.call('HGET'", "first = 'x'\nredis.call('HGET'")),
    'first is bound to',
  ],
  ['a function is handed no key', lua((text) => text.replace('kind(KEYS[2])', 'kind(ARGV[1])')), 'hands over no key'],
  ['a name from nowhere', lua((text) => text.replace("'HGET', first", "'HGET', whence")), 'whence is not bound'],
  ['a command that walks', lua((text) => text.replace("'HGET', first", "'HGETALL', first")), 'HGETALL does not belong'],
  ['a command that is computed', lua((text) => text.replace("'HGET', first", 'ARGV[1], first')), 'written out'],
  [
    'redis under another name',
    lua((text) => text.replace('local first', 'local r = redis\nlocal first')),
    'only ever redis.call',
  ],
]);

test('a script that keeps the rules is found no fault with', () => {
  const good = planted('src/purchase/4-gate/lua/x.lua', SCRIPT);
  expect([...luaHeaders(good), ...luaKeys(good)]).toEqual([]);
});

const inStage = (line: string) => () => planted('src/purchase/6-landing/x.ts', `/** Planted. */\n${line}\n`);

guard('Redis commands and keys', redisCommands, [
  ['KEYS', inStage(`await redis.command('KEYS', 'sk:*');`), 'KEYS reads or ends without bound'],
  ['smembers, in small letters', inStage(`await redis.command('smembers', keys.meta(at));`), 'SMEMBERS reads'],
  [
    'HGETALL on what grows',
    inStage(`await redis.command('HGETALL', keys.buyers(at, 0));`),
    'HGETALL is for the item only',
  ],
  ['a method', inStage(`await client.hgetall('x');`), 'hgetall reads'],
  ['a key in a template', inStage('const key = `${prefix}:{${id}.0}:stock:${run}`;'), 'a Redis key is built'],
  ['a key in a text', inStage(`const key = 'sk:' + id;`), 'a Redis key is built'],
  ['a key from elsewhere', inStage(`await redis.command('GET', name + run);`), 'the key comes from keys'],
  [
    'a key in a variable from elsewhere',
    inStage(`{ const key = f(); await redis.command('GET', key); }`),
    'the key comes from keys',
  ],
]);

// -------------------------------------------------------------------------------------------------------------- the code

guard('SQL only in tables and migrations', sqlInTables, [
  ['select', inStage('await sql.query(`select a\n from orders`);'), 'SQL belongs in'],
  ['insert', inStage(`await sql.query('INSERT INTO orders values (1)');`), 'SQL belongs in'],
  ['update', inStage('await sql.query(`update orders o set state = ${state}`);'), 'SQL belongs in'],
  ['delete', inStage(`await sql.query("delete from orders");`), 'SQL belongs in'],
  ['a table made', inStage(`await sql.query('create unique index x on y (z)');`), 'SQL belongs in'],
  ['a file', () => planted('src/order/x.sql', 'select 1;'), 'SQL files belong in'],
]);

guard('clocks, timers and dice are ports', clocks, [
  ['Date.now', inStage('const now = Date.now();'), 'Date.now belongs to'],
  ['Date.now handed over', inStage('const clock = { now: Date.now };'), 'Date.now belongs to'],
  ['the date of today', inStage('const now = new Date();'), 'new Date() belongs to'],
  ['setTimeout', inStage('setTimeout(work, 10);'), 'setTimeout belongs to'],
  ['setTimeout of globalThis, renamed', inStage('const later = { after: setTimeout };'), 'setTimeout belongs to'],
  ['setInterval', inStage('setInterval(work, 10);'), 'setInterval belongs to'],
  ['Math.random', inStage('const wait = Math.random() * 2;'), 'Math.random belongs to'],
  ['a uuid', inStage(`import { randomUUID } from 'node:crypto'; const id = randomUUID();`), 'randomUUID belongs to'],
]);

test('a date of a known instant is no clock', () => {
  expect(clocks(inStage('const iso = new Date(at).toISOString();')())).toEqual([]);
});

guard('docstrings', docstrings, [
  [
    'a function',
    () => planted('src/domain/x.ts', '/** Head. */\n\nexport function f(): void {}\n'),
    'without a docstring',
  ],
  [
    'a constant',
    () => planted('src/domain/x.ts', '/** Head. */\nimport "./y.ts";\nexport const a = 1;\n'),
    'without a docstring',
  ],
  [
    'a comment of another kind',
    () => planted('src/domain/x.ts', '/** Head. */\nimport "./y.ts";\n// so\nexport type A = 1;\n'),
    'without a docstring',
  ],
  ['a file', () => planted('src/domain/x.ts', "import './y.ts';\n"), 'opens with what it is'],
]);

guard('length of files', lengths, [
  ['501 lines', () => planted('src/domain/x.ts', '\n'.repeat(501)), '501 lines; 500 at most'],
  ['more than its own bound', () => planted('src/main/wire.ts', '\n'.repeat(601)), '601 lines; 600 at most'],
]);

guard('no word of how this was written', foreignWords, [
  ['who', () => planted('docs/x.md', ['Written by an assis', 'tant.'].join('')), 'means nothing to a reader'],
  ['where', () => planted('src/x.ts', ['// see /wo', 'rk/main'].join('')), 'means nothing to a reader'],
  [
    'a folder that a clone lacks',
    () => planted('README.md', ['../sha', 'red/notes'].join('')),
    'means nothing to a reader',
  ],
  [
    'a file that a clone lacks',
    () => planted('src/x.ts', ['// rule 11 of ca', 'ses.md'].join('')),
    'means nothing to a reader',
  ],
]);

const asManifest = (change: object) => () =>
  planted(
    'package.json',
    JSON.stringify({ scripts: { start: 'exec node x' }, dependencies: { a: '1.2.3' }, ...change }),
  );

guard('package.json', manifest, [
  ['a script without exec', asManifest({ scripts: { start: 'node x' } }), 'starts with exec'],
  ['an install script', asManifest({ scripts: { postinstall: 'exec node x' } }), 'nothing runs on installation'],
  ['a range', asManifest({ dependencies: { a: '^1.2.3' } }), 'versions are exact'],
  ['a range for development', asManifest({ devDependencies: { a: 'latest' } }), 'versions are exact'],
  ['optional dependencies', asManifest({ optionalDependencies: {} }), 'drops them silently'],
  ['an allowed install script', asManifest({ allowScripts: { esbuild: true } }), 'no package needs'],
  ['engine-strict', () => planted('.npmrc', 'fund=false\nengine-strict=true\n'), 'engine-strict refuses'],
]);

// --------------------------------------------------------------------------------------------------------- the documents

type Setting = {
  env: string;
  unit?: string;
  default: unknown;
  min?: number;
  max?: number;
  choices?: readonly string[];
  why: string;
};

/** What follows from the code, by block. */
function blocksOf(files: readonly TreeFile[], settings: Readonly<Record<string, Setting>> = SETTINGS): Blocks {
  const code = (text: string | number): string => `\`${text}\``;
  const shown = (value: unknown): string =>
    value === undefined || (Array.isArray(value) && value.length === 0) ? 'none' : code(String(value));
  const sent = problemStatuses(files);
  for (const [name, status] of Object.entries(STATUS)) sent.set(name, (sent.get(name) ?? new Set()).add(status));
  const wait = (name: string): string => {
    const spread = name in RETRY_AFTER ? RETRY_AFTER[name as keyof typeof RETRY_AFTER] : undefined;
    return spread === undefined ? '' : `${spread.leastMs} to ${spread.leastMs + spread.spreadMs} ms`;
  };
  const statusOf = (name: string): string =>
    name in STATUS ? String(STATUS[name as keyof typeof STATUS]) : 'not offered yet';
  return new Map([
    [
      'settings',
      {
        path: 'docs/configuration.md',
        content: table(
          ['setting', 'environment', 'unit', 'default', 'range', 'why'],
          Object.entries(settings).map(([name, one]) => [
            code(name),
            code(one.env),
            one.unit ?? '',
            shown(one.default),
            one.choices?.map(code).join(', ') ?? (one.min === undefined ? '' : `${one.min} to ${one.max}`),
            one.why,
          ]),
        ),
      },
    ],
    [
      'gate codes',
      {
        path: 'docs/results.md',
        content: table(
          ['answer of the gate', 'code in Lua'],
          Object.entries(GATE_CODES).map(([name, number]) => [code(name), String(number)]),
        ),
      },
    ],
    [
      'purchase codes',
      {
        path: 'docs/results.md',
        content: table(
          ['#', 'code', 'status', 'come back after'],
          PURCHASE_CODES.map((name, i) => [String(i + 1), code(name), statusOf(name), wait(name)]),
        ),
      },
    ],
    [
      'problem codes',
      {
        path: 'docs/results.md',
        content: table(
          ['code', 'status', 'en', 'zh-CN'],
          Object.entries(TITLES).map(([name, titles]) => [
            code(name),
            [...(sent.get(name) ?? [])].toSorted((a, b) => a - b).join(', '),
            titles.en,
            titles['zh-CN'],
          ]),
        ),
      },
    ],
  ]);
}

describe('tables that follow from the code', () => {
  test('hold', () => {
    expect(renderedBlocks(tree, blocksOf(tree))).toEqual([]);
  });
  test('bite: a setting whose default has moved', () => {
    const settings = { ...SETTINGS, port: { ...SETTINGS.port, default: 9090 } };
    expect(renderedBlocks(tree, blocksOf(tree, settings))).toEqual([expect.stringContaining('"settings" is not')]);
  });
  test.each([
    ['docs/configuration.md', '`SLUICE_PORT`', 'settings'],
    ['docs/results.md', '| `sold_out` | 0 |', 'gate codes'],
    ['docs/results.md', '| `in_doubt` | 503 |', 'purchase codes'],
    ['docs/results.md', '| `order_closed` | 409 |', 'problem codes'],
  ])('bite: %s without %s', (path, cell, block) => {
    const files = changed(path, (text) => text.replace(cell, ''));
    expect(renderedBlocks(files, blocksOf(tree))).toEqual([expect.stringContaining(`"${block}" is not`)]);
  });
  test('bite: a block that nothing renders', () => {
    const files = changed('docs/data.md', (text) => `${text}\n<!-- from the code: moon -->\n<!-- end -->\n`);
    expect(renderedBlocks(files, blocksOf(tree))).toEqual([expect.stringContaining('no code renders "moon"')]);
  });
});

/** A table of a document against what the code has. */
function agree(
  name: string,
  where: { path: string; heading: string },
  inCode: (files: readonly TreeFile[]) => string[],
  one: string,
  more: { path: string; change: (text: string) => string; says: string },
) {
  guard(name, (files) => namesAgree(files, where, inCode(files)), [
    ['a row is missing', () => changed(where.path, (text) => dropRow(text, one)), `"${one}" is missing`],
    ['a row says too much', () => changed(where.path, (text) => doubleRow(text, one)), '"invented" is not in the code'],
    ['the code has one more', () => changed(more.path, more.change), more.says],
  ]);
}
const rowOf = (one: string): RegExp =>
  new RegExp(`^\\| \`?${one.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}\`? \\|.*\\n`, 'm');
const dropRow = (text: string, one: string): string => text.replace(rowOf(one), '');
const doubleRow = (text: string, one: string): string =>
  text.replace(rowOf(one), (row) => row + row.replace(one, 'invented'));

agree(
  'docs/telemetry.md names every alarm',
  { path: 'docs/telemetry.md', heading: 'Alarms' },
  (files) => unionMembers(files, 'src/watch/alarms.ts', 'AlarmName'),
  'dead_letter',
  {
    path: 'src/watch/alarms.ts',
    change: (text) => text.replace("'bug'", "'full_moon' | 'bug'"),
    says: '"full_moon" is missing',
  },
);

agree('docs/data.md names every table', { path: 'docs/data.md', heading: 'Tables' }, tablesMade, 'give_backs', {
  path: 'migrations/0001_leases.sql',
  change: (text) => `${text}\ncreate table moons (id int);\n`,
  says: '"moons" is missing',
});

const segment = { activityId: 'act1001', segment: 0, run: 3 };
const keysMade = (keys: ReturnType<typeof makeKeys>): string[] =>
  (Object.keys(keys) as (keyof typeof keys)[]).map((name) =>
    name === 'buyers' ? keys.buyers(segment, 7) : name === 'item' ? keys.item('act1001') : keys[name](segment),
  );
describe('docs/data.md names every key', () => {
  const where = { path: 'docs/data.md', heading: 'Keys' };
  test('holds', () => {
    expect(namesAgree(tree, where, keysMade(makeKeys('sk')))).toEqual([]);
  });
  test('bites: the code has one more', () => {
    const more = [...keysMade(makeKeys('sk')), 'sk:moon'];
    expect(namesAgree(tree, where, more)).toEqual([expect.stringContaining('"sk:moon" is missing')]);
  });
  test('bites: a key that the code has no more', () => {
    const fewer = keysMade(makeKeys('sk')).filter((key) => !key.endsWith(':meta'));
    expect(namesAgree(tree, where, fewer)).toEqual([expect.stringContaining(':meta" is not in the code')]);
  });
});

agree('docs/api.md names every call', { path: 'docs/api.md', heading: 'Calls' }, callsOffered, 'GET /livez', {
  path: 'src/watch/health-routes.ts',
  change: (text) => text.replace("path: '/livez'", "path: '/moonz'"),
  says: '"GET /moonz" is missing',
});

guard('links lead somewhere', links, [
  ['a file that is not there', () => withFile('docs/x.md', 'see [this](nothing.md)'), 'docs/nothing.md is not there'],
  ['a heading that is not there', () => withFile('docs/x.md', 'see [this](data.md#moon)'), 'has no heading #moon'],
]);

guard('paths that are named are there', pathsNamed, [
  ['in a document', () => withFile('docs/x.md', 'see `src/nothing.ts`'), 'src/nothing.ts is not there'],
  ['in a comment', () => withFile('src/x.ts', '// see docs/nothing.md.'), 'docs/nothing.md is not there'],
]);

guard('commands and variables that are named exist', commandsNamed, [
  ['a script', () => withFile('docs/x.md', 'type `npm run moon`'), 'there is no npm run moon'],
  ['a variable', () => withFile('docs/x.md', 'set `SLUICE_MOON`'), 'nothing reads SLUICE_MOON'],
]);

guard('counterexamples are explained', counterexamples, [
  ['one that is not', () => withFile('src/x.ts', '// (P77)'), 'P77 is not explained'],
]);

guard('sections of the design are found', sectionsCited, [
  ['one that is not', () => withFile('src/x.ts', '// (design §77)'), 'design §77 leads nowhere'],
]);

guard('decisions are numbered and whole', decisions, [
  ['a gap', () => withFile('docs/decisions/9999-moon.md', '# 9999 Moon'), 'by name and heading'],
  ['no consequences', () => withFile('docs/decisions/9999-moon.md', '**Context.** x'), 'has no Consequences.'],
]);

const G1_TEST = /^\*\*Tests\.\*\*[\s\S]*?(?=\n\n)/m;
guard('promises name their tests and proofs', promises, [
  ['no test', () => changed('docs/guarantees.md', (text) => text.replace(G1_TEST, '**Tests.** none')), 'names no test'],
  [
    'no limit',
    () => changed('docs/guarantees.md', (text) => text.replace('**Limit.**', '')),
    'says nothing under Limit',
  ],
  [
    'a test that is not there',
    () => changed('docs/guarantees.md', (text) => text.replace(G1_TEST, '**Tests.** `test/nothing.test.ts`')),
    'test/nothing.test.ts is not there',
  ],
  [
    'a proof that is not there',
    () => changed('docs/guarantees.md', (text) => `${text}\n\`test/proofs/nothing.patch\`\n`),
    'test/proofs/nothing.patch is not there',
  ],
  [
    'a proof that nobody names',
    () => withFile('test/proofs/moon.patch', '# test: test/tidy.test.ts\n'),
    'no promise names this proof',
  ],
  [
    'a proof of a test that is not there',
    () => withFile('test/proofs/moon.patch', '# test: test/moon.test.ts\n'),
    'test/moon.test.ts is not there',
  ],
  ['a proof without a test', () => withFile('test/proofs/moon.patch', '--- a\n'), 'names no test'],
]);
