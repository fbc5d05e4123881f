/**
 * HTTP as exact bytes over a socket: what `fetch` would tidy up, refuse or merge, a test of the edge must be able to send.
 * One exchange a connection; it ends when the server ends it.
 */
import { connect } from 'node:net';
import { setTimeout, clearTimeout } from 'node:timers';

/** A request as it is written; nothing is added but what its sender names. */
export type RawRequest = {
  readonly method?: string;
  /** the request target, not encoded any further */
  readonly path: string;
  /** in this order, duplicates and all */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /** text is sent as UTF-8; `content-length` comes with it unless a header names a length or an encoding */
  readonly body?: string | Buffer | undefined;
};

/** A reply as it was read. */
export type RawReply = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
  /** the body as JSON, `{}` where there is none */
  readonly body: Readonly<Record<string, unknown>>;
};

const SILENCE_MS_MAX = 20_000;

/** The bytes of a request. `host` and `connection: close` are always there. */
export function bytesOf({ method = 'GET', path, headers = [], body }: RawRequest): Buffer {
  const bytes = Buffer.from(body ?? '');
  const framed = headers.some(([name]) => /^(content-length|transfer-encoding)$/i.test(name));
  const lines = [
    `${method} ${path} HTTP/1.1`,
    'host: test',
    'connection: close',
    ...headers.map(([name, value]) => `${name}: ${value}`),
    ...(body === undefined || framed ? [] : [`content-length: ${bytes.length}`]),
  ];
  // latin1, as HTTP has it: a header's text may hold any byte
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), bytes]);
}

/** What a sender does once all is written: waits for the answer, says that nothing more comes, or is gone. */
export type Ending = 'waits' | 'half-closes' | 'goes';

/** Writes bytes and reads all that comes back until the server ends the connection, by a farewell or by force. */
export function talk(url: string, bytes: Buffer | string, ending: Ending = 'waits'): Promise<Buffer> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const heard: Buffer[] = [];
    const socket = connect(Number(port), hostname, () => {
      if (ending === 'half-closes') socket.end(bytes);
      else socket.write(bytes, ending === 'goes' ? () => socket.destroy() : undefined);
    });
    const silence = setTimeout(() => {
      reject(new Error(`no end of the connection within ${SILENCE_MS_MAX} ms`));
      socket.destroy();
    }, SILENCE_MS_MAX);
    socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => heard.push(chunk));
    socket.on('error', () => undefined);
    socket.on('end', () => socket.end());
    socket.on('close', () => {
      clearTimeout(silence);
      resolve(Buffer.concat(heard));
    });
  });
}

const INTERIM = /^HTTP\/1\.1 1[0-9]{2} /;

/** Reads one reply, without the interim ones before it; undefined where none came. */
export function readReply(heard: Buffer): RawReply | undefined {
  let bytes = heard;
  while (INTERIM.test(bytes.toString('latin1', 0, 13))) bytes = bytes.subarray(bytes.indexOf('\r\n\r\n') + 4);
  const end = bytes.indexOf('\r\n\r\n');
  const [first = '', ...lines] = bytes.toString('latin1', 0, Math.max(end, 0)).split('\r\n');
  const status = /^HTTP\/1\.1 ([0-9]{3}) /.exec(first)?.[1];
  if (end === -1 || status === undefined) return undefined;
  const headers = Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()]),
  );
  const text = bytes.toString('utf8', end + 4);
  const isJson = /^application\/(problem\+)?json/.test(headers['content-type'] ?? '');
  return {
    status: Number(status),
    headers,
    text,
    body: isJson && text !== '' ? (JSON.parse(text) as Record<string, unknown>) : {},
  };
}

/** One request and its reply. */
export async function exchange(url: string, request: RawRequest): Promise<RawReply> {
  const reply = readReply(await talk(url, bytesOf(request)));
  if (reply === undefined) throw new Error(`no reply to ${request.method ?? 'GET'} ${request.path}`);
  return reply;
}
