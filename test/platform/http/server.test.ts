/** The edge by itself, over sockets: what becomes of faults and bugs, and how it lets go of connections when it closes. */
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { Fault } from '../../../src/domain/fault.ts';
import { systemRandom, systemTimers } from '../../../src/platform/clock.ts';
import { answerBrokenRequest } from '../../../src/platform/http/broken-request.ts';
import { makeHttpServer, type HttpServer, type Route } from '../../../src/platform/http/server.ts';
import { exchange, readReply, talk } from '../../api/raw-http.ts';

let server: HttpServer | undefined;
let bugs: unknown[];
async function serving(...routes: Route[]): Promise<string> {
  bugs = [];
  server = makeHttpServer({
    bodyBytesMax: 1_024,
    timers: systemTimers,
    random: systemRandom,
    onBug: (error) => bugs.push(error),
  });
  server.route(routes);
  return server.listen({ host: '127.0.0.1', port: 0 });
}
afterEach(() => server?.close(5_000));

const get = (path: string, handler: Route['handler']): Route => ({ method: 'GET', path, handler });

test('a bug is a plain 500 that tells nothing, and is reported', async () => {
  const bug = new Error('select * from secrets where host = 10.0.0.7');
  const url = await serving(
    get('/thrown', () => {
      throw bug;
    }),
    get('/rejected', () => Promise.reject(bug)),
  );
  for (const path of ['/thrown', '/rejected']) {
    const reply = await exchange(url, { path, headers: [['accept-language', 'en']] });
    expect(reply.status).toBe(500);
    expect(reply.body).toEqual({
      code: 'internal',
      title: 'Something went wrong on our side, please try again',
      status: 500,
    });
  }
  expect(bugs).toEqual([bug, bug]);
});

test('a fault of the world is a friendly wait; one that waiting cannot mend is a bug', async () => {
  const refused = new Fault('database_refused', 'run "select 1": no such table', { retryable: false });
  const url = await serving(
    get('/away', () => {
      throw new Fault('database_unavailable', 'connect to 10.0.0.7', { retryable: true });
    }),
    get('/refused', () => {
      throw refused;
    }),
  );
  const away = await exchange(url, { path: '/away' });
  expect(away.body).toMatchObject({ code: 'busy', status: 503, retryAfterMs: expect.any(Number) });
  expect(away.headers['retry-after']).toMatch(/^[1-3]$/);
  expect(away.text).not.toContain('10.0.0.7');
  expect(bugs).toEqual([]);
  expect((await exchange(url, { path: '/refused' })).status).toBe(500);
  expect(bugs).toEqual([refused]);
});

test('a close waits for the answer under way, and for no connection at rest', async () => {
  let release = (): void => undefined;
  let asked = (): void => undefined;
  const isAsked = new Promise<void>((resolve) => (asked = resolve));
  const url = await serving(
    get('/slow', () => {
      asked();
      return new Promise((resolve) => (release = () => resolve({ done: true })));
    }),
    get('/quick', () => ({ done: true })),
  );
  const { port } = new URL(url);
  const ends: Promise<void>[] = [];
  const open = (bytes: string): Promise<{ socket: Socket; heard: () => string }> =>
    new Promise((resolve) => {
      let heard = '';
      const socket = connect(Number(port), '127.0.0.1', () => {
        socket.write(bytes);
        resolve({ socket, heard: () => heard });
      });
      socket.on('data', (chunk) => (heard += String(chunk)));
      ends.push(new Promise((ended) => socket.once('close', () => ended())));
    });
  const request = (path: string): string => `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`;
  const rested = await open(request('/quick'));
  await new Promise((resolve) => rested.socket.once('data', resolve));
  await open(''); // connected, and has not asked for anything
  const slow = await open(request('/slow'));
  await isAsked;

  let isClosed = false;
  const closed = server!.close(5_000).then(() => (isClosed = true));
  await Promise.all(ends.slice(0, 2));
  expect(isClosed).toBe(false);
  release();
  await Promise.all([closed, ...ends]);
  expect(slow.heard()).toContain('HTTP/1.1 200 OK');
  expect(slow.heard().toLowerCase()).toContain('connection: close');
  expect(slow.heard()).toContain('{"done":true}');
});

test('a request that never got whole is 408', async () => {
  const late = createServer((socket) => {
    answerBrokenRequest(Object.assign(new Error('late'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), socket);
  });
  await new Promise<void>((resolve) => late.listen(0, '127.0.0.1', resolve));
  const reply = readReply(await talk(`http://127.0.0.1:${(late.address() as AddressInfo).port}`, 'GET / HT'));
  expect(reply).toMatchObject({
    status: 408,
    body: { code: 'request_timeout', status: 408, title: expect.any(String) },
  });
  late.close();
});

test('a body that comes in pieces is read as one, in UTF-8 across their borders', async () => {
  const url = await serving({
    method: 'POST',
    path: '/echo',
    schema: { body: { type: 'object', properties: { name: { type: 'string' } }, additionalProperties: false } },
    handler: (request) => request.body,
  });
  const bytes = Buffer.from('{"name":"闸🍜"}');
  const chunks = Array.from(bytes, (byte) =>
    Buffer.concat([Buffer.from('1\r\n'), Buffer.of(byte), Buffer.from('\r\n')]),
  );
  const head = 'POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n';
  const reply = readReply(
    await talk(
      url,
      Buffer.concat([Buffer.from(`${head}transfer-encoding: chunked\r\n\r\n`), ...chunks, Buffer.from('0\r\n\r\n')]),
    ),
  );
  expect(reply).toMatchObject({ status: 200, body: { name: '闸🍜' } });
});

test('HTTP/1.1 without Host is answered as everything else, and HTTP/1.0 needs none', async () => {
  const url = await serving(get('/time', () => ({ done: true })));
  for (const path of ['/time', '/nowhere']) {
    const heard = await talk(url, `GET ${path} HTTP/1.1\r\naccept-language: en\r\n\r\n`);
    expect(readReply(heard)).toMatchObject({
      status: 400,
      headers: { 'content-type': 'application/problem+json; charset=utf-8', connection: 'close' },
      body: { code: 'invalid', status: 400, field: 'host', detail: 'host is missing' },
    });
  }
  expect(readReply(await talk(url, 'GET /time HTTP/1.0\r\n\r\n'))).toMatchObject({ status: 200 });
  // an empty one names no host, and is one
  expect(readReply(await talk(url, 'GET /time HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n'))).toMatchObject({
    status: 200,
  });
});
