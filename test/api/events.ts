/** An event stream as its reader sees it: `fetch` streaming, one event at a time. */
import { tokenOf } from '../support/sluice.ts';

/** One event, or a comment without data. */
export type StreamEvent = { readonly id?: string; readonly data?: Record<string, unknown>; readonly comment?: string };

/** An open stream. */
export type ReadStream = {
  readonly status: number;
  readonly headers: Headers;
  /** the next event; undefined at the end */
  next(): Promise<StreamEvent | undefined>;
  /** all that are left, until the server ends the stream */
  rest(): Promise<StreamEvent[]>;
  close(): void;
};

/** Opens the stream of a receipt. Resolves with the headers. */
export async function openEvents(
  url: string,
  receipt: string,
  buyerId: string,
  lastEventId?: string,
): Promise<ReadStream> {
  const stop = new AbortController();
  const response = await fetch(`${url}/api/v1/receipts/${receipt}/events`, {
    headers: {
      authorization: `Bearer ${tokenOf(buyerId)}`,
      ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }),
    },
    signal: stop.signal,
  });
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let text = '';
  async function next(): Promise<StreamEvent | undefined> {
    for (;;) {
      const end = text.indexOf('\n\n');
      if (end !== -1) {
        const event = parseEvent(text.slice(0, end));
        text = text.slice(end + 2);
        return event;
      }
      const { value, done } = await reader.read();
      if (done) return undefined;
      text += decoder.decode(value, { stream: true });
    }
  }
  return {
    status: response.status,
    headers: response.headers,
    next,
    async rest() {
      const events: StreamEvent[] = [];
      for (let event = await next(); event !== undefined; event = await next()) events.push(event);
      return events;
    },
    close: () => stop.abort(),
  };
}

function parseEvent(block: string): StreamEvent {
  const event: { id?: string; data?: Record<string, unknown>; comment?: string } = {};
  for (const line of block.split('\n')) {
    const [name, value] = [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()];
    if (name === 'id') event.id = value;
    else if (name === 'data') event.data = JSON.parse(value) as Record<string, unknown>;
    else if (name === '') event.comment = value;
    else throw new Error(`no line of an event stream: ${line}`);
  }
  return event;
}
