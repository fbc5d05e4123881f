/**
 * The HTTP edge: Fastify with the defaults that would break the contract turned round. The one home of Fastify.
 *
 * Strict at every edge: no coercion, unknown fields refused (in the query too, where a call names none), JSON in UTF-8
 * only, a known path with another method is 405 with `Allow`. First match wins: 405, 413, 415, then what is `invalid`.
 * Errors leave as problem documents in the caller's language; a bug of ours is a plain 500, logged.
 *
 * The way down: `leave` (each reply closes its connection), then `close` (no new connections; what is under way finishes).
 */
import { isUtf8 } from 'node:buffer';
import { lookup } from 'node:dns/promises';
import { METHODS as NODE_METHODS, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { fastify, type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { Fault } from '../../domain/fault.ts';
import type { Random, Timers } from '../clock.ts';
import { answerBrokenRequest } from './broken-request.ts';
import { keepConnections } from './connections.ts';
import { openApiDocument, type DescribedCall } from './openapi.ts';
import { sendBusy, sendInvalid, sendProblem } from './problem.ts';

/** A request as handlers see it. */
export type HttpRequest = FastifyRequest;
/** A reply as handlers see it. */
export type HttpReply = FastifyReply;

/** Methods that a path may be asked with; those it does not have are answered 405. CONNECT never gets this far. */
const METHODS = NODE_METHODS.filter((method) => method !== 'CONNECT');

/** Schema of the body of a POST that has none: nothing, `null` or `{}`. */
export const NO_BODY = { type: 'object', nullable: true, additionalProperties: false };
/** Schema of the query of a call that takes none. */
const NO_QUERY = { type: 'object', additionalProperties: false };

/** One call of the API: what `/openapi.json` says of it, and what answers it. */
export type Route = DescribedCall & {
  readonly handler: (request: HttpRequest, reply: HttpReply) => unknown;
};

/** A running edge. */
export type HttpServer = {
  /** adds calls; all calls of one path must come in one call of this */
  route(routes: readonly Route[]): void;
  /** listens; returns the address, `http://host:port` */
  listen(options: { host: string; port: number }): Promise<string>;
  /**
   * Asks callers to move on: from here each reply closes its connection, and new connections are still served. A load
   * balancer, or another process on the same port, takes them over before the door closes. Safe to repeat.
   */
  leave(): void;
  /**
   * Stops taking connections, lets the requests under way finish, and closes each connection as it comes to rest. What is
   * not finished after `finishMs` is cut: its caller does not know the outcome, and asks again with the same key.
   */
  close(finishMs: number): Promise<void>;
  /** present use, for metrics */
  stats(): HttpStats;
};

/** Requests under way (event streams too), open connections, and replies by class of status since the start. */
export type HttpStats = {
  readonly requests: number;
  readonly connections: number;
  readonly replies: ReadonlyMap<ReplyClass, number>;
};
/** Class of a reply's status; `none` where the caller was gone before there was one. */
export type ReplyClass = '2xx' | '3xx' | '4xx' | '5xx' | 'none';

/** Longest path parameter: a receipt. Fastify's 100 would make receipts 414. */
const PARAM_LENGTH_MAX = 420;
/**
 * A connection that has been accepted but has not sent its request yet looks like one that never will. While the door
 * closes it gets this long before it is let go.
 */
const LINGER_MS = 200;

/** Makes the edge. `onBug` hears of everything that is our fault. */
export function makeHttpServer(options: {
  bodyBytesMax: number;
  onBug: (error: unknown) => void;
  /** spreads the waits of a crowd */
  random: Random;
  timers: Timers;
}): HttpServer {
  const app: FastifyInstance = fastify({
    logger: false,
    bodyLimit: options.bodyBytesMax,
    ajv: { customOptions: { coerceTypes: false, removeAdditional: false, allErrors: false } },
    routerOptions: { maxParamLength: PARAM_LENGTH_MAX },
    requestTimeout: 15_000,
    connectionTimeout: 0,
    keepAliveTimeout: 72_000, // longer than a load balancer's, so that it is never us who close first
    forceCloseConnections: 'idle',
    return503OnClosing: false, // who still has a connection is served; a 503 of Fastify's own is no problem document
    http: { requireHostHeader: false }, // Node's own 400 is no problem document; the hook below answers instead
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (error, request, reply) => {
      // a URL that cannot be decoded, a parameter that is too long
      answerFault(error, request, reply, options);
    },
  });
  const connections = keepConnections(app.server);
  app.addHook('onRequest', (request, reply, done) => {
    if (request.headers.host !== undefined || request.raw.httpVersion === '1.0') done();
    else {
      // RFC 9112 §3.2; what such a caller sends next is not to be trusted either
      reply.header('connection', 'close');
      sendInvalid(request, reply, { kind: 'required', field: 'host' });
    }
  });
  app.server.on('checkExpectation', app.routing); // an expectation that we do not know is let pass, not answered by Node
  for (const method of METHODS) if (!app.supportedMethods.includes(method)) app.addHttpMethod(method);
  app.removeContentTypeParser(['application/json', 'text/plain']);
  const parseJson = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    if (request.is404) done(null);
    // decoding would turn broken bytes into U+FFFD, and the caller's text into another one
    else if (isUtf8(body)) void parseJson(request, body.toString(), done);
    else done(new BrokenUtf8());
  });
  // Any other type: read up to the limit all the same, since 413 comes before 415.
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (request, _body: Buffer, done) => {
    done(request.is404 ? null : new NotJson());
  });
  app.setErrorHandler((error: FastifyError, request, reply) => {
    answerFault(error, request, reply, options);
  });
  app.setNotFoundHandler((request, reply) => sendProblem(request, reply, { status: 404, code: 'not_found' }));

  const use = watchUse(app.server);
  const offered: Route[] = [];
  let document: string | undefined;

  const edge: HttpServer = {
    route(routes) {
      offered.push(...routes);
      const byPath = new Map<string, Route[]>();
      for (const route of routes) byPath.set(route.path, [...(byPath.get(route.path) ?? []), route]);
      for (const [path, calls] of byPath) {
        for (const call of calls) {
          const schema = { querystring: NO_QUERY, ...call.schema };
          app.route({ method: call.method, url: path, schema, handler: call.handler });
        }
        const allowed = new Set<string>(calls.map((call) => call.method));
        if (allowed.has('GET')) allowed.add('HEAD'); // Fastify answers HEAD for every GET
        const allow = [...allowed].join(', ');
        app.route({
          method: METHODS.filter((method) => !allowed.has(method)),
          url: path,
          // the body of a refused method is never read
          onRequest: async (request, reply) => {
            reply.header('allow', allow);
            await sendProblem(request, reply, { status: 405, code: 'method_not_allowed' });
          },
          handler: () => undefined,
        });
      }
    },
    async listen({ host, port }) {
      // Given a name, Fastify opens more servers behind its back, one an address, and does not wait for them when it closes.
      const address = host === 'localhost' ? (await lookup(host)).address : host;
      return app.listen({ host: address, port });
    },
    leave: use.leave,
    async close(finishMs) {
      use.leave();
      const closed = new AbortController();
      const closing = app.close().finally(() => closed.abort());
      await options.timers.sleep(LINGER_MS, closed.signal);
      connections.retire();
      await options.timers.sleep(finishMs, closed.signal);
      if (!closed.signal.aborted) app.server.closeAllConnections();
      await closing;
    },
    stats: use.stats,
  };

  edge.route([
    {
      method: 'GET',
      path: '/openapi.json',
      summary: 'This document.',
      handler: (_request, reply) =>
        reply
          .header('cache-control', 'public, max-age=60')
          .type('application/json; charset=utf-8')
          .send((document ??= JSON.stringify(openApiDocument(offered)))),
    },
  ]);
  return edge;
}

const REPLY_CLASSES: readonly ReplyClass[] = ['none', 'none', '2xx', '3xx', '4xx', '5xx'];

/** Counts what a server is doing, beside the framework: two counters and one shared listener a request. */
function watchUse(server: Server) {
  const replies = new Map<ReplyClass, number>(REPLY_CLASSES.map((name) => [name, 0]));
  let requests = 0;
  let connections = 0;
  let leaving = false;

  function ended(this: ServerResponse): void {
    requests -= 1;
    const name = this.headersSent ? (REPLY_CLASSES[Math.floor(this.statusCode / 100)] ?? 'none') : 'none';
    replies.set(name, replies.get(name)! + 1);
  }
  function disconnected(): void {
    connections -= 1;
  }
  // before the framework's own listener, which may answer at once
  server.prependListener('request', (_request: IncomingMessage, response: ServerResponse) => {
    requests += 1;
    if (leaving) response.shouldKeepAlive = false;
    response.once('close', ended);
  });
  server.on('connection', (socket: Socket) => {
    connections += 1;
    socket.once('close', disconnected);
  });
  return {
    leave(): void {
      leaving = true;
    },
    stats: (): HttpStats => ({ requests, connections, replies }),
  };
}

/** A body of another type than JSON. */
class NotJson extends Error {
  readonly code = 'FST_ERR_CTP_INVALID_MEDIA_TYPE';
}
/** A body that is not UTF-8. */
class BrokenUtf8 extends Error {
  readonly code = 'FST_ERR_CTP_INVALID_JSON_BODY';
}

function answerFault(
  error: FastifyError,
  request: HttpRequest,
  reply: HttpReply,
  ports: { onBug: (error: unknown) => void; random: Random },
): unknown {
  if (error.validation !== undefined) {
    const [first] = error.validation;
    const parameters: Record<string, unknown> = first?.params ?? {};
    const inside = (first?.instancePath ?? '')
      .slice(1)
      .replaceAll('/', '.')
      .replaceAll('~1', '/')
      .replaceAll('~0', '~');
    const named = parameters['missingProperty'] ?? parameters['additionalProperty'];
    const field = [inside, named].filter((part) => typeof part === 'string' && part !== '').join('.');
    return sendInvalid(request, reply, {
      kind: first?.keyword ?? 'other',
      field: field === '' ? (error.validationContext ?? 'body') : field,
      limit: parameters['type'] ?? parameters['limit'],
    });
  }
  switch (error.code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return sendProblem(request, reply, { status: 413, code: 'body_too_large' });
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return sendProblem(request, reply, { status: 415, code: 'not_json' });
    case 'FST_ERR_BAD_URL':
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return sendProblem(request, reply, { status: 404, code: 'not_found' });
    case 'FST_ERR_CTP_EMPTY_JSON_BODY':
    case 'FST_ERR_CTP_INVALID_JSON_BODY':
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return sendInvalid(request, reply, { kind: 'syntax', field: 'body' });
  }
  // JSON that does not parse, a body that was cut off
  if (error.statusCode === 400) return sendInvalid(request, reply, { kind: 'syntax', field: 'body' });
  if (error instanceof Fault && error.retryable) {
    // a part of the world is away: a friendly wait, never another path
    return sendBusy(request, reply, ports.random);
  }
  ports.onBug(error);
  return sendProblem(request, reply, { status: 500, code: 'internal' });
}
