/** `sluice activity …`: an activity's walk by hand, one call of the operator API a verb. */
import { InvalidArgumentError, Option, type Command } from 'commander';
import { INSTANT_FORM, instantAt, parseInstant, type InstantArgument } from './instant-argument.ts';
import { callOperator, findOperator, serverNow, type Document, type OperatorAddress } from './operator-api.ts';
import { printJson, type VerbPorts } from './verb-ports.ts';

type Flags = { readonly url?: string; readonly token?: string; readonly json?: true };

/** Moves that need nothing but the activity's id, and what they do. */
const MOVES = {
  approve: 'let it go on sale: by somebody who did not create it',
  reject: 'it does not go on sale; final',
  preheat: 'put stock and rules at the gate and read them back; repeating it changes nothing',
  confirm: 'let the preheated gate open at its time',
  open: 'open it now',
  pause: 'take it down for the moment',
  resume: 'put it up again',
  end: 'end it now',
  settle: 'close the books of an ended activity: refused while anything is open',
} as const;

/** Adds the verbs to the command. */
export function addActivityVerbs(program: Command, ports: VerbPorts): void {
  const activity = program.command('activity').description('an activity’s walk, by the operator API');
  addCreate(activity, ports);
  addCopy(activity, ports);
  for (const [move, description] of Object.entries(MOVES)) {
    const verb = activity.command(move).description(description).argument('<id>', 'the activity');
    verb.option('--reason <text>', 'why: kept in the audit');
    if (move === 'settle') verb.option('--now', 'remove its keys from Redis at once, not in the quiet hours');
    withServer(verb).action(async (id: string, flags: Flags & { reason?: string; now?: true }) => {
      const body = defined({ reason: flags.reason, now: flags.now });
      const { document } = await callOperator(findOperator(flags, ports), {
        method: 'POST',
        path: `/activities/${encodeURIComponent(id)}/${move}`,
        ...(Object.keys(body).length === 0 ? {} : { body }),
      });
      show(ports, flags, document);
    });
  }
  withServer(activity.command('show').description('one activity').argument('<id>', 'the activity')).action(
    async (id: string, flags: Flags) => {
      const path = `/activities/${encodeURIComponent(id)}`;
      show(ports, flags, (await callOperator(findOperator(flags, ports), { method: 'GET', path })).document);
    },
  );
  withServer(activity.command('list').description('activities, newest first'))
    .option('--limit <n>', 'at most so many (1 to 200)', wholeNumber)
    .option('--after <id>', 'those behind this one')
    .action(async (flags: Flags & { limit?: number; after?: string }) => {
      const query = new URLSearchParams();
      if (flags.limit !== undefined) query.set('limit', String(flags.limit));
      if (flags.after !== undefined) query.set('after', flags.after);
      const path = query.size === 0 ? '/activities' : `/activities?${query.toString()}`;
      const { document } = await callOperator(findOperator(flags, ports), { method: 'GET', path });
      if (flags.json === true) return printJson(ports, document);
      const items = (document['items'] ?? []) as readonly Document[];
      for (const item of items) ports.print(oneLine(item));
      if (items.length === 0) ports.print('no activities');
      if (document['next'] !== undefined) ports.print(`more: --after ${text(document['next'])}`);
    });
}

type CreateFlags = Flags & {
  readonly id?: string;
  readonly name: string;
  readonly priceMinor: number;
  readonly currency: string;
  readonly imageUrl?: string;
  readonly total: number;
  readonly opens: InstantArgument;
  readonly ends: InstantArgument;
  readonly limit?: number;
  readonly answer?: string;
  readonly overshoot?: number;
  readonly segments?: number;
  readonly durability?: string;
  readonly requireTicket?: true;
  readonly confirm: boolean;
  readonly payWithin?: number;
  readonly activityRate?: number;
  readonly buyerRate?: number;
};

function addCreate(activity: Command, ports: VerbPorts): void {
  withServer(activity.command('create').description('plan an activity; it waits in review'))
    .requiredOption('--name <text>', 'what is sold')
    .requiredOption('--price-minor <n>', 'price of a unit in minor units (9900 is 99.00)', wholeNumber)
    .requiredOption('--total <n>', 'units for sale', wholeNumber)
    .requiredOption('--opens <time>', INSTANT_FORM, instantArgument)
    .requiredOption('--ends <time>', 'likewise', instantArgument)
    .option('--id <id>', 'its id; by default the server makes one')
    .option('--currency <code>', 'ISO 4217', 'CNY')
    .option('--image-url <url>', 'a picture of it')
    .option('--limit <n>', 'units a buyer may have', wholeNumber)
    .addOption(new Option('--answer <when>', 'when the buyer is answered').choices(['held', 'ordered']))
    .option('--overshoot <factor>', 'tickets at the gate for each unit, 1 to 2; needs --answer ordered', decimal)
    .option('--segments <n>', 'segments of the stock', wholeNumber)
    .addOption(new Option('--durability <what>', 'what a yes survives').choices(['memory', 'replicated', 'synced']))
    .option('--require-ticket', 'only who has a ticket may ask')
    .option('--no-confirm', 'a preheat that ran by itself waits for activity confirm')
    .option('--pay-within <seconds>', 'units come back when they are not paid by then', wholeNumber)
    .option('--activity-rate <n>', 'requests a second that the activity takes', wholeNumber)
    .option('--buyer-rate <n>', 'requests a second that one buyer may make', wholeNumber)
    .action(async (flags: CreateFlags) => {
      const at = findOperator(flags, ports);
      const body = await planOf(flags, at);
      const { document } = await callOperator(at, { method: 'POST', path: '/activities', body });
      show(ports, flags, document);
    });
}

type CopyFlags = Flags & {
  readonly id?: string;
  readonly name?: string;
  readonly priceMinor?: number;
  readonly total?: number;
  readonly opens: InstantArgument;
  readonly ends: InstantArgument;
  readonly limit?: number;
};

function addCopy(activity: Command, ports: VerbPorts): void {
  withServer(
    activity
      .command('copy')
      .description('plan another one like it, in whatever state it is; it waits in review')
      .argument('<id>', 'the activity that is copied'),
  )
    .requiredOption('--opens <time>', INSTANT_FORM, instantArgument)
    .requiredOption('--ends <time>', 'likewise', instantArgument)
    .option('--id <id>', 'id of the copy; by default the server makes one')
    .option('--name <text>', 'what is sold, if not the same')
    .option('--price-minor <n>', 'price, if not the same', wholeNumber)
    .option('--total <n>', 'units, if not as many', wholeNumber)
    .option('--limit <n>', 'units a buyer may have, if not as many', wholeNumber)
    .action(async (id: string, flags: CopyFlags) => {
      const at = findOperator(flags, ports);
      const item = defined({ name: flags.name, priceMinor: flags.priceMinor });
      const body = defined({
        id: flags.id,
        item: Object.keys(item).length === 0 ? undefined : item,
        total: flags.total,
        perBuyerLimit: flags.limit,
        ...(await windowOf(flags, at)),
      });
      const path = `/activities/${encodeURIComponent(id)}/copy`;
      show(ports, flags, (await callOperator(at, { method: 'POST', path, body })).document);
    });
}

/** The window as the API takes it; what is told from now is counted by the server's clock. */
async function windowOf(
  flags: { readonly opens: InstantArgument; readonly ends: InstantArgument },
  at: OperatorAddress,
): Promise<{ opensAt: string; endsAt: string }> {
  const isRelative = [flags.opens, flags.ends].some(({ kind }) => kind === 'from_now');
  const now = isRelative ? await serverNow(at) : 0;
  const iso = (argument: InstantArgument): string => new Date(instantAt(argument, now)).toISOString();
  return { opensAt: iso(flags.opens), endsAt: iso(flags.ends) };
}

/** The plan as the API takes it: what was not said is the server's to decide. */
async function planOf(flags: CreateFlags, at: OperatorAddress): Promise<object> {
  const limits = defined({ activityPerSecond: flags.activityRate, buyerPerSecond: flags.buyerRate });
  return defined({
    id: flags.id,
    item: defined({
      name: flags.name,
      priceMinor: flags.priceMinor,
      currency: flags.currency,
      imageUrl: flags.imageUrl,
    }),
    total: flags.total,
    perBuyerLimit: flags.limit,
    ...(await windowOf(flags, at)),
    answerWhen: flags.answer,
    overshoot: flags.overshoot,
    segments: flags.segments,
    durability: flags.durability,
    requireTicket: flags.requireTicket,
    autoConfirm: flags.confirm ? undefined : false,
    payWithinSeconds: flags.payWithin,
    limits: Object.keys(limits).length === 0 ? undefined : limits,
  });
}

const defined = (object: Readonly<Record<string, unknown>>): object =>
  Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));

/** What every verb of the operator API takes. */
function withServer(verb: Command): Command {
  return verb
    .option('--url <url>', 'the server; by default SLUICE_URL, or the one that runs here')
    .option('--token <token>', 'an operator’s token; by default SLUICE_TOKEN, or that of the server that runs here')
    .option('--json', 'one JSON document');
}

function wholeNumber(value: string): number {
  if (!/^\d{1,15}$/.test(value)) throw new InvalidArgumentError('It is a whole number.');
  return Number(value);
}

function decimal(value: string): number {
  if (!/^\d{1,9}(\.\d{1,9})?$/.test(value)) throw new InvalidArgumentError('It is a number.');
  return Number(value);
}

function instantArgument(value: string): InstantArgument {
  const argument = parseInstant(value);
  if (argument === undefined) throw new InvalidArgumentError(`It is ${INSTANT_FORM}.`);
  return argument;
}

function show(ports: VerbPorts, flags: Flags, document: Document): void {
  if (flags.json === true) return printJson(ports, document);
  for (const line of describe(document)) ports.print(line);
}

/** A document in words: the activity on one line, then everything else that it says. */
function describe(document: Document): string[] {
  const lines: string[] = [];
  const isActivity = typeof document['id'] === 'string' && document['item'] !== undefined;
  if (isActivity) lines.push(oneLine(document));
  const told = new Set(isActivity ? ['id', 'item', 'state', 'paused', 'total', 'sold'] : []);
  for (const [name, value] of Object.entries(document)) {
    // of the two spellings of an instant a person reads the second
    if (told.has(name) || `${name}Iso` in document) continue;
    if (Array.isArray(value) && value.some((one) => typeof one === 'object')) {
      lines.push(`  ${name}:`, ...value.map((one) => `    ${flat(one)}`));
    } else lines.push(`  ${name.replace(/Iso$/, '')}: ${flat(value)}`);
  }
  return lines;
}

/** An activity on one line. */
function oneLine(activity: Document): string {
  const item = (activity['item'] ?? {}) as Document;
  const paused = activity['paused'] === true ? ', paused' : '';
  const units =
    activity['total'] === undefined ? '' : `, ${text(activity['sold'] ?? 0)} of ${text(activity['total'])} sold`;
  const opens = activity['opensAtIso'] === undefined ? '' : `, opens ${text(activity['opensAtIso'])}`;
  return `${text(activity['id'])}: ${text(item['name'])}, ${text(activity['state'])}${paused}${units}${opens}`;
}

/** A value on one line. */
function flat(value: unknown): string {
  if (Array.isArray(value)) return value.map(flat).join(', ');
  if (typeof value !== 'object' || value === null) return text(value);
  return Object.entries(value)
    .map(([name, one]) => `${name} ${typeof one === 'object' ? JSON.stringify(one) : text(one)}`)
    .join(', ');
}

const text = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? 'nothing'));
