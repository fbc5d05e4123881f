/** What a call of the API is: its path, its schemas, what is said of it, and the handler behind it. */
import type { FastifyReply, FastifyRequest } from 'fastify';

/** A request as handlers see it. */
export type HttpRequest = FastifyRequest;
/** A reply as handlers see it. */
export type HttpReply = FastifyReply;

/** One call of the API. */
export type Route = {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  readonly path: string;
  /** JSON schemas of the parts; what is not named is not checked, but for the query, which must then be empty */
  readonly schema?: {
    readonly params?: object;
    readonly querystring?: object;
    readonly headers?: object;
    readonly body?: object;
  };
  /** one sentence for /openapi.json */
  readonly summary?: string;
  /** whose bearer token the call asks for; nobody's where it is absent */
  readonly caller?: 'buyer' | 'operator';
  /** what each status means, for /openapi.json; every call may answer other problem documents besides */
  readonly replies?: Readonly<Record<number, string>>;
  readonly handler: (request: HttpRequest, reply: HttpReply) => unknown;
};
