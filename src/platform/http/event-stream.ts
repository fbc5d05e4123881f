/**
 * One server-sent event stream over a reply taken out of Fastify's hands. A client that does not read is dropped rather
 * than buffered; a comment every `HEARTBEAT_MS` keeps proxies from closing the stream, and they are told not to buffer.
 */
import type { HttpReply } from './server.ts';

/** A stream is kept alive this often, in ms. */
export const HEARTBEAT_MS = 15_000;
/** Bytes that may wait for a slow reader. */
const UNREAD_BYTES_MAX = 16_384;

/** An open stream. */
export type EventStream = {
  /** false once the client is gone or too slow */
  send(event: { id: string; data: unknown }): boolean;
  beat(): boolean;
  end(): void;
  /** aborts when the client is gone */
  readonly closed: AbortSignal;
};

/** Opens a stream. */
export function openEventStream(reply: HttpReply): EventStream {
  reply.hijack();
  const closed = new AbortController();
  const response = reply.raw;
  response.on('close', () => closed.abort());
  response.on('error', () => closed.abort());
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store, no-transform', // a proxy that compresses would gather events into lumps
    'x-accel-buffering': 'no',
  });
  response.flushHeaders(); // the first event may be long in coming, and the reader is to know that he is heard
  const write = (text: string): boolean => {
    if (closed.signal.aborted) return false;
    if (response.writableLength > UNREAD_BYTES_MAX) {
      response.destroy();
      return false;
    }
    response.write(text);
    return true;
  };
  return {
    send: (event) => write(`id: ${event.id}\ndata: ${JSON.stringify(event.data)}\n\n`),
    beat: () => write(': still here\n\n'),
    end: () => response.end(),
    closed: closed.signal,
  };
}
