/**
 * HTTP as the crowd speaks it: undici pools to the servers' doors, a bounded number of connections, no retry of its own.
 * A request whose answer does not come is reported as such: what it did is for the servers' books to say.
 */
import { Pool } from 'undici';

/** One request. */
export type BuyerCall = {
  /** which server, by number */
  readonly server: number;
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
};

/** An answer. `status` 0: none came. */
export type BuyerReply = {
  readonly status: number;
  readonly body: string;
  readonly retryAfter: boolean;
  readonly replayed: boolean;
};

/** How the crowd asks. */
export type BuyerCalls = {
  readonly servers: number;
  call(request: BuyerCall): Promise<BuyerReply>;
  close(): Promise<void>;
};

/** Longest wait for an answer: far above the servers' own deadlines, so that it strikes only where one is dead. */
const ANSWER_TIMEOUT_MS = 30_000;

/** Opens the pools; `connections` in all, shared evenly. */
export function openBuyerCalls(urls: readonly string[], connections: number): BuyerCalls {
  const pools = urls.map(
    (url) =>
      new Pool(url, {
        connections: Math.max(1, Math.ceil(connections / urls.length)),
        pipelining: 1,
        headersTimeout: ANSWER_TIMEOUT_MS,
        bodyTimeout: ANSWER_TIMEOUT_MS,
        connect: { timeout: ANSWER_TIMEOUT_MS },
      }),
  );
  return {
    servers: pools.length,
    async call({ server, method, path, headers, body }) {
      try {
        const reply = await pools[server]!.request({ method, path, headers, body: body ?? null });
        return {
          status: reply.statusCode,
          body: await reply.body.text(),
          retryAfter: reply.headers['retry-after'] !== undefined,
          replayed: reply.headers['idempotent-replayed'] === 'true',
        };
      } catch {
        return { status: 0, body: '', retryAfter: false, replayed: false };
      }
    },
    async close() {
      await Promise.all(pools.map((pool) => pool.destroy()));
    },
  };
}
