/** The way down of the edge: callers are asked to move on, what is under way finishes, and nobody can hold it up. */
import { once } from 'node:events';
import { Agent, get, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemRandom, systemTimers } from '../../../src/platform/clock.ts';
import { until } from '../../support/sluice.ts';
import { makeHttpServer, type HttpServer } from '../../../src/platform/http/server.ts';

/** Something that is waited for, and given once. */
function signal(): { given: Promise<void>; give: () => void } {
  let give = (): void => undefined;
  const given = new Promise<void>((resolve) => {
    give = resolve;
  });
  return { given, give };
}

describe('the edge', () => {
  let server: HttpServer;
  let url: string;
  let agent: Agent;
  let sockets: Socket[];
  /** answers the request that waits at /slow */
  let answer: () => void;
  let arrived: Promise<void>;

  beforeEach(async () => {
    server = makeHttpServer({
      bodyBytesMax: 1_024,
      onBug: () => undefined,
      random: systemRandom,
      timers: systemTimers,
    });
    const arrival = signal();
    const release = signal();
    arrived = arrival.given;
    answer = release.give;
    server.route([
      { method: 'GET', path: '/fast', handler: (_request, reply) => reply.send({ fast: true }) },
      {
        method: 'GET',
        path: '/slow',
        async handler(_request, reply) {
          arrival.give();
          await release.given;
          return reply.send({ slow: true });
        },
      },
      {
        method: 'POST',
        path: '/body',
        schema: { body: { type: 'object' } },
        handler: (_request, reply) => reply.send({ read: true }),
      },
    ]);
    url = await server.listen({ host: '127.0.0.1', port: 0 });
    agent = new Agent({ keepAlive: true });
    sockets = [];
  });
  afterEach(async () => {
    answer();
    agent.destroy();
    for (const socket of sockets) socket.destroy();
    await server.close(0);
  });

  const ask = async (path: string): Promise<IncomingMessage & { text: string }> => {
    const [response] = (await once(get(`${url}${path}`, { agent }), 'response')) as [IncomingMessage];
    let text = '';
    for await (const data of response) text += String(data);
    return Object.assign(response, { text });
  };
  const open = async (): Promise<Socket> => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.on('error', () => undefined);
    sockets.push(socket);
    await once(socket, 'connect');
    return socket;
  };
  /** When a connection is over, by whom it may be. */
  const over = (socket: Socket): Promise<unknown> =>
    socket.destroyed ? Promise.resolve() : Promise.race([once(socket, 'end'), once(socket, 'close')]);

  test('keeps connections until it leaves; from then on each reply closes its own, and new ones are served', async () => {
    const before = await ask('/fast');
    expect(before.headers.connection).toBe('keep-alive');
    server.leave();
    server.leave();
    const onOld = await ask('/fast');
    const onNew = await ask('/fast');
    expect([onOld.statusCode, onNew.statusCode]).toEqual([200, 200]);
    expect([onOld.headers.connection, onNew.headers.connection]).toEqual(['close', 'close']);
  });

  test('close waits for the request under way, and for nothing else', async () => {
    const slow = ask('/slow');
    await arrived;
    const idle = await open();
    await ask('/fast');
    let closed = false;
    const closing = server.close(60_000).then(() => (closed = true));
    await expect(once(get(`${url}/fast`, { agent: false }), 'response')).rejects.toThrow('ECONNREFUSED');
    expect(closed).toBe(false);
    answer();
    expect((await slow).text).toBe('{"slow":true}');
    await closing;
    await over(idle);
  });

  test('a connection that sends nothing does not hold it up', async () => {
    const silent = await open();
    await server.close(60_000);
    await over(silent);
  });

  test('half a request holds it up no longer than it may, and is cut', async () => {
    const half = await open();
    half.write('POST /body HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{');
    const slow = ask('/slow').catch((error: unknown) => error);
    await arrived;
    await server.close(50);
    await over(half);
    expect(await slow).toMatchObject({ code: 'ECONNRESET' });
  });

  test('a request that comes while it lingers is answered', async () => {
    const late = await open();
    const closing = server.close(60_000);
    late.write('GET /fast HTTP/1.1\r\nhost: x\r\n\r\n');
    const [data] = (await once(late, 'data')) as [Buffer];
    expect(data.toString()).toMatch(/^HTTP\/1\.1 200 OK[\s\S]*connection: close/i);
    await closing;
  });

  test('counts connections, requests under way, and replies by class', async () => {
    expect(server.stats()).toMatchObject({ requests: 0, connections: 0 });
    const slow = ask('/slow');
    await arrived;
    expect(server.stats()).toMatchObject({ requests: 1, connections: 1 });
    await ask('/fast');
    await ask('/nowhere');
    answer();
    await slow;
    await server.close(60_000);
    await until('the last connection is told', () => server.stats().connections === 0);
    const { requests, replies } = server.stats();
    expect(requests).toBe(0);
    expect(replies.get('2xx')).toBe(2);
    expect(replies.get('4xx')).toBe(1);
    expect(replies.get('5xx')).toBe(0);
  });

  test('listens on one address, also by name: a second one would not be waited for', async () => {
    const named = makeHttpServer({
      bodyBytesMax: 1_024,
      onBug: () => undefined,
      random: systemRandom,
      timers: systemTimers,
    });
    const address = await named.listen({ host: 'localhost', port: 0 });
    expect(address).toMatch(/^http:\/\/(127\.0\.0\.1|\[::1\]):\d+$/);
    expect((await fetch(`${address}/openapi.json`)).status).toBe(200);
    await named.close(0);
  });
});
