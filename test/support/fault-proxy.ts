/**
 * A TCP proxy on loopback that does to a connection what networks and dying servers do. For Redis and PostgreSQL alike:
 * bytes are passed on untouched. Where a client speaks RESP (its first byte is `*`) the proxy also follows requests and
 * replies, to lose one whole reply, and to tell a test that a request has passed.
 *
 * It stays within what TCP can do: no byte in the middle of a stream is skipped. A reply is lost by cutting the
 * connection before it, or by a connection that stays silent from then on.
 */
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

/** One request of a RESP client, command first, as text. */
export type Request = readonly string[];

/** Which requests are meant; all when left out. */
export type Of = (request: Request) => boolean;

export type FaultProxy = {
  readonly port: number;
  /** `redis://127.0.0.1:<port>` */
  readonly url: string;
  /** `cut` counts connections that the proxy ended by force; bytes: from clients (up) and to clients (down) */
  readonly count: { connections: number; requests: number; lostReplies: number; cut: number; up: number; down: number };
  /** The present connections get no more bytes from the server, though theirs still reach it. New ones are healthy. */
  dropReplies(): void;
  /** Ends all connections by force, on both sides. */
  cut(): void;
  /** Half-open: present and new connections stay open and nothing passes, until `resume`. */
  hang(): void;
  /** Passes on what `hang` held back. */
  resume(): void;
  /** Half-open for good: nothing passes on the present connections any more, new ones are healthy. */
  abandon(): void;
  /** From now on bytes in both directions arrive this many milliseconds later. */
  delay(ms: number): void;
  /**
   * The server runs every `every`-th request of those meant by `of`, but its reply is lost: what came before it is
   * delivered, then the connection is cut. `keepReplies` ends it.
   */
  loseReplies(options: { every: number; of?: Of }): void;
  keepReplies(): void;
  /** New connections are refused while true: the port is closed. */
  refuseNew(refuse: boolean): Promise<void>;
  /** Resolves when the next such request has been passed on to the server. */
  passed(of: Of): Promise<Request>;
  /** Counts such requests from now on. */
  tally(of: Of): { count: number };
  stop(): Promise<void>;
};

type Pair = { cut(): void; setFrozen(frozen: boolean): void; dropReplies(): void; abandon(): void };

/** Starts a proxy in front of a port of this machine. */
export async function startFaultProxy(options: { targetPort: number; port?: number }): Promise<FaultProxy> {
  const pairs = new Set<Pair>();
  const watchers = new Set<(request: Request) => void>();
  const count = { connections: 0, requests: 0, lostReplies: 0, cut: 0, up: 0, down: 0 };
  let hung = false;
  let delayMs = 0;
  let losing: { every: number; of: Of } | undefined;
  let matched = 0;

  const server = createServer((client) => {
    count.connections += 1;
    const upstream = connect(options.targetPort, '127.0.0.1');
    // One entry a request whose reply is still to come: is it to be lost?
    const replyIsLost: boolean[] = [];
    let resp: boolean | undefined;
    let silent = false;
    let lost = false;
    let abandoned = false;

    const requests = makeFrames((frame) => {
      const request = readRequest(frame);
      count.requests += 1;
      // A replica: what follows is a stream of its own, not replies.
      if (request[0] === 'PSYNC') resp = false;
      const lose = losing?.of(request) === true && ++matched % losing.every === 0;
      replyIsLost.push(lose);
      for (const watch of watchers) watch(request);
    });
    const replies = makeFrames((frame) => {
      if (lost || frame[0] === PUSH || !replyIsLost.shift()) return deliver(frame);
      lost = true;
      count.lostReplies += 1;
      if (pairs.delete(pair)) count.cut += 1;
      // A farewell, unlike in `cut`: what was delivered before must arrive.
      client.destroySoon();
      upstream.destroy();
    });
    const deliver = (bytes: Buffer): void => {
      if (lost || silent || client.destroyed) return;
      count.down += bytes.length;
      client.write(bytes);
    };

    forward(client, upstream, (chunk) => {
      resp ??= chunk[0] === ARRAY;
      count.up += chunk.length;
      upstream.write(chunk);
      if (resp) requests(chunk);
    });
    forward(upstream, client, (chunk) => (resp ? replies(chunk) : deliver(chunk)));

    const pair: Pair = {
      cut() {
        if (pairs.delete(pair)) count.cut += 1;
        // A reset, not a farewell: what the client had not read yet is gone, as when a host dies.
        client.resetAndDestroy();
        upstream.destroy();
      },
      setFrozen(frozen) {
        for (const socket of [client, upstream]) {
          if (frozen || abandoned) socket.pause();
          else socket.resume();
        }
      },
      dropReplies() {
        silent = true;
      },
      abandon() {
        abandoned = true;
        pair.setFrozen(true);
      },
    };
    pairs.add(pair);
    client.once('close', () => pairs.delete(pair));
    if (hung) pair.setFrozen(true);
  });

  /** Passes on chunks in order, later by the delay; an end or error of one side ends the other. */
  function forward(from: Socket, to: Socket, pass: (chunk: Buffer) => void): void {
    let queue = Promise.resolve();
    let queued = 0;
    const later = (work: () => void): void => {
      if (delayMs === 0 && queued === 0) return work();
      queued += 1;
      const due = new Promise<void>((resolve) => setTimeout(resolve, delayMs));
      queue = queue
        .then(() => due)
        .then(() => {
          queued -= 1;
          work();
        });
    };
    from.setNoDelay(true);
    from.on('data', (chunk: Buffer) => later(() => pass(chunk)));
    from.on('end', () => later(() => to.end()));
    from.on('error', () => to.destroy());
    from.on('close', () => later(() => to.destroy()));
  }

  const listen = (port: number): Promise<void> =>
    new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, '127.0.0.1', () => {
        server.removeListener('error', reject);
        resolve();
      });
    });
  await listen(options.port ?? 0);
  const { port } = server.address() as AddressInfo;

  const proxy: FaultProxy = {
    port,
    url: `redis://127.0.0.1:${port}`,
    count,
    dropReplies: () => pairs.forEach((pair) => pair.dropReplies()),
    cut: () => pairs.forEach((pair) => pair.cut()),
    hang() {
      hung = true;
      for (const pair of pairs) pair.setFrozen(true);
    },
    resume() {
      hung = false;
      for (const pair of pairs) pair.setFrozen(false);
    },
    abandon: () => pairs.forEach((pair) => pair.abandon()),
    delay(ms) {
      delayMs = ms;
    },
    loseReplies({ every, of = () => true }) {
      matched = 0;
      losing = { every, of };
    },
    keepReplies() {
      losing = undefined;
    },
    async refuseNew(refuse) {
      // Closing a server waits for its connections; the port itself is closed at once.
      if (refuse) server.close();
      else if (!server.listening) await listen(port);
    },
    passed(of) {
      return new Promise((resolve) => {
        const watch = (request: Request): void => {
          if (!of(request)) return;
          watchers.delete(watch);
          resolve(request);
        };
        watchers.add(watch);
      });
    },
    tally(of) {
      const tally = { count: 0 };
      watchers.add((request) => {
        if (of(request)) tally.count += 1;
      });
      return tally;
    },
    async stop() {
      proxy.cut();
      if (server.listening) await new Promise((resolve) => server.close(resolve));
    },
  };
  return proxy;
}

const ARRAY = 0x2a; // *
const PUSH = 0x3e; // >
const CR = 0x0d;

/** Cuts a RESP stream into whole frames. */
function makeFrames(take: (frame: Buffer) => void): (chunk: Buffer) => void {
  let rest: Buffer = Buffer.alloc(0);
  return (chunk) => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    let start = 0;
    for (let end = frameEnd(rest, 0); end !== -1; end = frameEnd(rest, start)) {
      take(rest.subarray(start, end));
      start = end;
    }
    rest = rest.subarray(start);
  };
}

/** Where the RESP2 or RESP3 frame that starts at `at` ends; -1 while it is not complete. */
function frameEnd(bytes: Buffer, at: number): number {
  const line = bytes.indexOf(CR, at);
  if (line === -1 || line + 2 > bytes.length) return -1;
  const next = line + 2;
  const size = Number(bytes.toString('latin1', at + 1, line));
  switch (String.fromCharCode(bytes[at] as number)) {
    case '$':
    case '=':
    case '!':
      if (size < 0) return next;
      return next + size + 2 <= bytes.length ? next + size + 2 : -1;
    case '*':
    case '~':
    case '>':
      return framesEnd(bytes, next, size);
    case '%':
      return framesEnd(bytes, next, size * 2);
    case '|': // attributes belong to the frame that follows
      return framesEnd(bytes, next, size * 2 + 1);
    default:
      return next;
  }
}

function framesEnd(bytes: Buffer, at: number, frames: number): number {
  let end = at;
  for (let i = 0; i < frames && end !== -1; i += 1) end = frameEnd(bytes, end);
  return end;
}

/** The words of one request: an array of bulk strings. */
function readRequest(frame: Buffer): Request {
  const words: string[] = [];
  let at = frame.indexOf(CR) + 2;
  while (at < frame.length) {
    const line = frame.indexOf(CR, at);
    const size = Number(frame.toString('latin1', at + 1, line));
    words.push(frame.toString('utf8', line + 2, line + 2 + size));
    at = line + 2 + size + 2;
  }
  return words;
}
