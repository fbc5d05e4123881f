/**
 * `/openapi.json` (OpenAPI 3.1) from the routes themselves: what the edge checks is what the document says. JSON Schema is
 * OpenAPI's own language since 3.1, so schemas go in as they are.
 *
 * It names every call, its parameters, body and caller. Bodies of replies are described in words only, but for the
 * problem document that every call may answer with.
 */
import { VERSION } from '../version.ts';
import { PROBLEM_TYPE } from './problem.ts';

/** A call of the API as it is described. */
export type DescribedCall = {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  readonly path: string;
  /** JSON schemas of the parts; what is not named is not checked, but for the query, which must then be empty */
  readonly schema?: {
    readonly params?: object;
    readonly querystring?: object;
    readonly headers?: object;
    readonly body?: object;
  };
  /** one sentence */
  readonly summary?: string;
  /** whose bearer token the call asks for; nobody's where it is absent */
  readonly caller?: 'buyer' | 'operator';
  /** what each status means; every call may answer other problem documents besides */
  readonly replies?: Readonly<Record<number, string>>;
};

type Json = { [member: string]: unknown };
/** The parts of an object schema that matter here. */
type ObjectSchema = { readonly properties?: Readonly<Record<string, object>>; readonly required?: readonly string[] };

/** RFC 9457 with the members of ours that every problem document may carry. */
const PROBLEM = {
  type: 'object',
  required: ['code'],
  properties: {
    code: { type: 'string', description: 'stable: programs go by it' },
    title: { type: 'string', description: 'in the language of Accept-Language: zh-CN (default) or en' },
    status: { type: 'integer' },
    field: { type: 'string', description: 'of an invalid request: the field at fault' },
    detail: { type: 'string' },
    retryAfterMs: { type: 'integer', description: 'when it is worth while to come back' },
  },
};

/** Builds the document. Operation ids are made of method and path and are unique as these are. */
export function openApiDocument(routes: readonly DescribedCall[]): Json {
  const paths: Record<string, Json> = {};
  for (const route of routes) {
    const path = route.path.replaceAll(/:(\w+)/g, '{$1}');
    (paths[path] ??= {})[route.method.toLowerCase()] = operation(route);
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Sluice',
      version: VERSION,
      description: 'A flash-sale engine: refuses the many cheaply and serves the few exactly.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    paths,
    components: {
      schemas: { Problem: PROBLEM },
      securitySchemes: {
        buyer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT', description: 'a token of the shop' },
        operator: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT', description: 'a token of an operator' },
      },
    },
  };
}

function operation({ method, path, schema = {}, summary, caller, replies }: DescribedCall): Json {
  const parameters = [
    ...parametersOf(
      'path',
      schema.params,
      [...path.matchAll(/:(\w+)/g)].map((match) => match[1]!),
    ),
    ...parametersOf('query', schema.querystring),
    ...parametersOf('header', schema.headers),
  ];
  const told = Object.entries(replies ?? { '2XX': 'done' }).map(([status, description]) => [status, { description }]);
  return {
    operationId: `${method.toLowerCase()}${path.replaceAll(/[^A-Za-z0-9]+(\w?)/g, (_, next: string) => next.toUpperCase())}`,
    ...(summary === undefined ? {} : { summary }),
    security: caller === undefined ? [] : [{ [caller]: [] }],
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(schema.body === undefined ? {} : { requestBody: bodyOf(schema.body) }),
    responses: {
      ...Object.fromEntries(told),
      default: {
        description: 'a problem document',
        content: { [PROBLEM_TYPE.split(';')[0]!]: { schema: { $ref: '#/components/schemas/Problem' } } },
      },
    },
  };
}

/** One parameter a property; `names` are those of the path, which are there whether a schema names them or not. */
function parametersOf(place: 'path' | 'query' | 'header', schema: object | undefined, names: string[] = []): Json[] {
  const { properties = {}, required = [] } = (schema ?? {}) as ObjectSchema;
  return [...new Set([...names, ...Object.keys(properties)])].map((name) => ({
    name,
    in: place,
    required: place === 'path' || required.includes(name),
    schema: properties[name] ?? { type: 'string' },
  }));
}

function bodyOf(schema: object): Json {
  const isOptional = (schema as { nullable?: boolean }).nullable === true;
  return { required: !isOptional, content: { 'application/json': { schema: inPlainWords(schema) } } };
}

/** `nullable` is a word of Ajv and of OpenAPI 3.0; in JSON Schema null is a type like others. */
function inPlainWords(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(inPlainWords);
  if (typeof schema !== 'object' || schema === null) return schema;
  const { nullable, ...words } = schema as Json;
  const plain = Object.fromEntries(Object.entries(words).map(([word, value]) => [word, inPlainWords(value)]));
  return nullable === true ? { ...plain, type: [words['type'], 'null'] } : plain;
}
