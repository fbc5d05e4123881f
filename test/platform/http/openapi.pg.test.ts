/** `/openapi.json`: every call that is offered, in valid OpenAPI 3.1, and every path in it answers. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { STATUS } from '../../../src/purchase/5-receipt/answer.ts';
import { openApiDocument } from '../../../src/platform/http/openapi.ts';
import { ask, startSluice, type TestSluice } from '../../support/sluice.ts';
import { readTree } from '../../tidy/tree.ts';
import { callsOffered } from '../../tidy/docs.ts';
import { fileURLToPath } from 'node:url';

type Operation = {
  operationId: string;
  summary?: string;
  security: Record<string, string[]>[];
  parameters?: { name: string; in: string; required: boolean; schema: Record<string, unknown> }[];
  requestBody?: { required: boolean; content: Record<string, { schema: Record<string, unknown> }> };
  responses: Record<string, { description: string; content?: Record<string, unknown> }>;
};
type Document = {
  openapi: string;
  info: { title: string; version: string };
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, object>; securitySchemes: Record<string, object> };
};

describe('/openapi.json', () => {
  let sluice: TestSluice;
  let document: Document;
  let contentType: string | null;
  let operations: { path: string; method: string; operation: Operation }[];
  beforeAll(async () => {
    sluice = await startSluice();
    const reply = await fetch(`${sluice.url}/openapi.json`);
    contentType = reply.headers.get('content-type');
    document = (await reply.json()) as Document;
    operations = Object.entries(document.paths).flatMap(([path, item]) =>
      Object.entries(item).map(([method, operation]) => ({ path, method, operation })),
    );
  });
  afterAll(() => sluice?.stop());

  test('names every call that the sources offer, and no other', () => {
    const root = fileURLToPath(new URL('../../..', import.meta.url));
    // what the command line calls is not what is offered
    const inSource = callsOffered(readTree(root).filter(({ path }) => !path.startsWith('src/cli/')));
    const named = operations.map(({ path, method }) => `${method.toUpperCase()} ${path}`);
    expect(named.toSorted()).toEqual([...new Set(inSource)].toSorted());
    expect(named).toContain('POST /api/v1/activities/{id}/purchases');
  });

  test('is OpenAPI 3.1: templates and parameters agree, ids are unique, references lead somewhere', () => {
    expect(contentType).toBe('application/json; charset=utf-8');
    expect(document.openapi).toBe('3.1.0');
    expect(document.info.version).toMatch(/^\d+\.\d+\.\d+/);
    const ids = operations.map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { path, operation } of operations) {
      const inTemplate = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]!);
      const parameters = operation.parameters ?? [];
      expect(parameters.filter((one) => one.in === 'path').map((one) => one.name)).toEqual(inTemplate);
      for (const parameter of parameters) {
        expect(['path', 'query', 'header']).toContain(parameter.in);
        if (parameter.in === 'path') expect(parameter.required).toBe(true);
        expect(parameter.schema).toHaveProperty('type');
      }
      expect(new Set(parameters.map((one) => `${one.in} ${one.name}`)).size).toBe(parameters.length);
      expect(Object.keys(operation.responses)).toContain('default');
      for (const [status, response] of Object.entries(operation.responses)) {
        expect(status).toMatch(/^([1-5]\d\d|[1-5]XX|default)$/);
        expect(response.description).not.toBe('');
      }
      for (const scheme of operation.security.flatMap((one) => Object.keys(one))) {
        expect(document.components.securitySchemes).toHaveProperty(scheme);
      }
      expect(operation.summary, `${path} has a summary`).toMatch(/\.$/);
      if (path.startsWith('/api/v1/admin/')) expect(operation.security).toEqual([{ operator: [] }]);
    }
    const text = JSON.stringify(document);
    expect(text.match(/.{0,60}"nullable":.{0,20}/g) ?? []).toEqual([]); // a word of 3.0
    for (const reference of text.matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g)) {
      expect(document.components.schemas).toHaveProperty(reference[1]!);
    }
  });

  test('shows what the edge checks: the body, the key and the statuses of a purchase', () => {
    const { operation } = operations.find((one) => one.path.endsWith('/purchases'))!;
    expect(operation.security).toEqual([{ buyer: [] }]);
    expect(operation.parameters!.map((one) => [one.in, one.name])).toEqual([
      ['path', 'id'],
      ['header', 'idempotency-key'],
    ]);
    const body = operation.requestBody!;
    expect(body.required).toBe(true);
    expect(body.content['application/json']!.schema).toMatchObject({
      type: 'object',
      required: ['quantity'],
      additionalProperties: false,
    });
    const statuses = new Set(Object.values(STATUS).map(String));
    expect(new Set(Object.keys(operation.responses).filter((status) => status !== 'default'))).toEqual(statuses);
  });

  test('every path answers to its method: nothing in it is unknown to the edge', async () => {
    for (const { path, method, operation } of operations) {
      const filled = path.replaceAll(/\{\w+\}/g, 'x');
      const told = await ask(sluice.url, filled, undefined, {
        method: method.toUpperCase(),
        ...(operation.requestBody === undefined ? {} : { body: '{}', headers: { 'content-type': 'application/json' } }),
      }).catch((error: unknown) => {
        if (error instanceof SyntaxError) return { status: 200, code: '' }; // not JSON: /metrics
        throw error;
      });
      expect([path, told.code]).not.toEqual([path, 'not_found']);
      expect([path, told.status]).not.toEqual([path, 405]);
      expect(told.status).toBeLessThan(500);
    }
  });
});

test('a body that may be absent is one that may be null, in the words of 3.1', () => {
  const [path] = Object.values(
    openApiDocument([
      {
        method: 'POST',
        path: '/a/:b/c',
        schema: { body: { type: 'object', nullable: true, additionalProperties: false } },
      },
    ])['paths'] as Document['paths'],
  );
  expect(path!['post']!.operationId).toBe('postABC');
  expect(path!['post']!.requestBody).toEqual({
    required: false,
    content: { 'application/json': { schema: { type: ['object', 'null'], additionalProperties: false } } },
  });
});
