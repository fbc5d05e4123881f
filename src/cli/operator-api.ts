/**
 * The operator API as the command line calls it: where it is, with which token, and one line for every refusal.
 *
 * Promises: a token from `run.json` goes only to the server that wrote it, never to an address from elsewhere.
 * Does not: repeat a call. An operator sees what happened and decides.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Refused, WrongUse } from './endings.ts';
import type { VerbPorts } from './verb-ports.ts';

/** Where the operator API is, and who asks. */
export type OperatorAddress = {
  readonly url: string;
  readonly token: string;
  /** `Accept-Language`: the language of the server's refusals */
  readonly language: 'zh-CN' | 'en';
};

/** One call; `path` is below `/api/v1/admin`, or absolute where it starts with `/api/`. */
export type OperatorCall = {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly body?: object;
  readonly ifMatch?: string;
};

/** A JSON document. */
export type Document = Readonly<Record<string, unknown>>;

/** A reply: its document, and the version for `If-Match` where it has one. */
export type OperatorReply = { readonly document: Document; readonly etag: string | undefined };

/** A preheat of many keys takes a while; a call that takes longer than this is stuck. */
const CALL_TIMEOUT_MS = 60_000;

/**
 * Finds the server and the token: flags, then `SLUICE_URL` and `SLUICE_TOKEN`, then `run.json` of the data folder.
 * @throws WrongUse where one is missing or the address is none
 */
export function findOperator(flags: { url?: string; token?: string }, ports: VerbPorts): OperatorAddress {
  const setting = (name: string): string | undefined => ports.environment[name] || undefined;
  const named = flags.url ?? setting('SLUICE_URL');
  const run = readRunFile(ports);
  const url = named ?? run?.url;
  if (url === undefined) {
    throw new WrongUse('no server: give --url or SLUICE_URL, or start one here with npm start');
  }
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new WrongUse('--url or SLUICE_URL must be an http or https address');
  }
  const ours = run !== undefined && new URL(run.url).origin === new URL(url).origin;
  const token = flags.token ?? setting('SLUICE_TOKEN') ?? (ours ? run.token : undefined);
  if (token === undefined) throw new WrongUse('no operator token: give --token or SLUICE_TOKEN (sluice admin token)');
  return { url: new URL(url).origin, token, language: languageOf(ports.environment) };
}

/** The language of the terminal. */
export function languageOf(environment: Readonly<Record<string, string | undefined>>): 'zh-CN' | 'en' {
  const locale = environment['LC_ALL'] || environment['LC_MESSAGES'] || environment['LANG'] || '';
  return locale.startsWith('zh') ? 'zh-CN' : 'en';
}

function readRunFile(ports: VerbPorts): { url: string; token: string } | undefined {
  let text: string;
  try {
    text = readFileSync(join(ports.settings().dataFolder, 'run.json'), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  const run = JSON.parse(text) as { url?: unknown; token?: unknown };
  return typeof run.url === 'string' && typeof run.token === 'string' && URL.canParse(run.url)
    ? { url: run.url, token: run.token }
    : undefined;
}

/**
 * Makes one call.
 * @throws Refused with the server's title, code and field, or why it cannot be reached
 */
export async function callOperator(at: OperatorAddress, call: OperatorCall): Promise<OperatorReply> {
  const path = call.path.startsWith('/api/') ? call.path : `/api/v1/admin${call.path}`;
  let response: Response;
  let text: string;
  try {
    response = await fetch(`${at.url}${path}`, {
      method: call.method,
      headers: {
        authorization: `Bearer ${at.token}`,
        'accept-language': at.language,
        ...(call.body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(call.ifMatch === undefined ? {} : { 'if-match': call.ifMatch }),
      },
      body: call.body === undefined ? null : JSON.stringify(call.body),
      redirect: 'error', // the token goes to this server and no other
      signal: AbortSignal.timeout(CALL_TIMEOUT_MS),
    });
    text = await response.text();
  } catch (error) {
    throw new Refused(`cannot reach ${at.url}: ${reasonOf(error)}`);
  }
  const document = parseDocument(text);
  if (response.ok && document !== undefined) {
    return { document, etag: response.headers.get('etag') ?? undefined };
  }
  if (response.ok && text === '') return { document: {}, etag: response.headers.get('etag') ?? undefined };
  const { status } = response;
  throw new Refused(refusalLine(status, document), { document: document ?? { status }, status });
}

/** The server's present time, epoch ms. */
export async function serverNow(at: OperatorAddress): Promise<number> {
  const { document } = await callOperator(at, { method: 'GET', path: '/api/v1/time' });
  const { now } = document;
  if (typeof now !== 'number') throw new Refused(`${at.url} does not tell the time: is it a Sluice?`);
  return now;
}

/** Title, code, field and what is wrong with it, on one line. */
function refusalLine(status: number, document: Document | undefined): string {
  if (document === undefined || typeof document['title'] !== 'string') return `refused with status ${status}`;
  const { title, code, field, detail, state, reason, open, findings } = document;
  const about = [
    text(code),
    text(field) === undefined ? undefined : `field ${text(field)}`,
    text(detail),
    text(state) === undefined ? undefined : `state ${text(state)}`,
    text(reason),
    countsOf(open),
    Array.isArray(findings) && findings.length > 0 ? `${findings.length} findings` : undefined,
  ].filter((part) => part !== undefined);
  return oneLine(`${title} (${about.join('; ')})`);
}

/** What is above zero among counts: `outboxEntries 3`. */
function countsOf(counts: unknown): string | undefined {
  if (typeof counts !== 'object' || counts === null) return undefined;
  const open = Object.entries(counts).filter(([, count]) => typeof count === 'number' && count > 0);
  return open.length === 0 ? undefined : open.map(([name, count]) => `${name} ${count}`).join(', ');
}

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
const oneLine = (sentence: string): string => sentence.replaceAll(/\s+/g, ' ');

function parseDocument(body: string): Document | undefined {
  try {
    const document: unknown = JSON.parse(body);
    return typeof document === 'object' && document !== null ? (document as Document) : undefined;
  } catch {
    return undefined;
  }
}

/** `fetch` says only "fetch failed"; the reason is its cause. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  if (!(cause instanceof Error)) return String(cause);
  // an address with several families fails with an error for each, and no message of its own
  if (cause instanceof AggregateError) return reasonOf(cause.errors[0]);
  return oneLine(cause.message);
}
