/**
 * The HTTP edge: Fastify with the defaults that would break the contract turned round. The one home of Fastify.
 *
 * Strict at every edge: no coercion, unknown fields refused (in the query too, where a call names none), JSON in UTF-8
 * only, a known path with another method is 405 with `Allow`. First match wins: 405, 413, 415, then what is `invalid`.
 * Errors leave as problem documents in the caller's language; a bug of ours is a plain 500, logged.
 */
import { isUtf8 } from 'node:buffer';
import { METHODS as NODE_METHODS } from 'node:http';
import { fastify, type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { Fault } from '../../domain/fault.ts';
import type { Random } from '../clock.ts';
import { answerBrokenRequest } from './broken-request.ts';
import { keepConnections } from './connections.ts';
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
  readonly handler: (request: HttpRequest, reply: HttpReply) => unknown;
};

/** A running edge. */
export type HttpServer = {
  /** adds calls; all calls of one path must come in one call of this */
  route(routes: readonly Route[]): void;
  /** listens; returns the address, `http://host:port` */
  listen(options: { host: string; port: number }): Promise<string>;
  /** stops taking connections, lets the requests under way finish, and closes each connection as it comes to rest */
  close(): Promise<void>;
};

/** Longest path parameter: a receipt. Fastify's 100 would make receipts 414. */
const PARAM_LENGTH_MAX = 420;

/** Makes the edge. `onBug` hears of everything that is our fault. */
export function makeHttpServer(options: {
  bodyBytesMax: number;
  onBug: (error: unknown) => void;
  /** spreads the waits of a crowd */
  random: Random;
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
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (error, request, reply) => {
      // a URL that cannot be decoded, a parameter that is too long
      answerFault(error, request, reply, options);
    },
  });
  const connections = keepConnections(app.server);
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

  return {
    route(routes) {
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
    listen: (where) => app.listen(where),
    close() {
      const closed = app.close();
      connections.retire();
      return closed;
    },
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
