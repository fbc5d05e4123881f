/** Speaks for the fault proxy where other tests would only seem to pass: it loses what it says, and nothing else. */
import { connect } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startFaultProxy } from './fault-proxy.ts';
import type { FaultProxy } from './fault-proxy.ts';
import { startPrivateRedis } from './redis-server.ts';
import type { PrivateRedis } from './redis-server.ts';

let redis: PrivateRedis;
let proxy: FaultProxy;

beforeAll(async () => {
  redis = await startPrivateRedis();
  proxy = await startFaultProxy({ targetPort: redis.server.port });
});

afterAll(async () => {
  await proxy.stop();
  await redis.stop();
});

/** Sends texts one after another over a fresh connection and collects what comes back until it ends. */
function talk(...texts: string[]): Promise<string> {
  return new Promise((resolve) => {
    let heard = '';
    const write = async (): Promise<void> => {
      for (const text of texts) await new Promise((written) => socket.write(text, written));
    };
    const socket = connect(proxy.port, '127.0.0.1', () => void write());
    socket.setNoDelay(true);
    socket.on('data', (chunk) => (heard += String(chunk)));
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(heard));
  });
}

const incr = '*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n';
const get = '*2\r\n$3\r\nGET\r\n$1\r\nn\r\n';

test('the third reply of a pipeline of five is lost: two arrive, the connection ends, all five ran', async () => {
  await redis.admin.command('set', 'n', 0);
  proxy.loseReplies({ every: 3, of: ([command]) => command === 'INCR' });
  expect(await talk(get + incr.repeat(5))).toBe('$1\r\n0\r\n:1\r\n:2\r\n');
  proxy.keepReplies();
  expect(await redis.admin.command('get', 'n')).toBe('5');
  expect(proxy.count).toMatchObject({ lostReplies: 1, cut: 1 });
});

test('a request cut into single bytes and a nested reply are followed, too', async () => {
  proxy.loseReplies({ every: 1, of: ([command]) => command === 'ECHO' });
  const script = String.raw`return {1,{'a','b',{}},false,'x\r\n'}`;
  const evaluate = `*3\r\n$4\r\nEVAL\r\n$${script.length}\r\n${script}\r\n$1\r\n0\r\n`;
  const heard = await talk(...evaluate, ...'*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n');
  proxy.keepReplies();
  expect(heard).toBe('*4\r\n:1\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n*0\r\n$-1\r\n$3\r\nx\r\n\r\n');
});

test('bytes that are not RESP pass both ways; delay keeps their order and is at least what it says', async () => {
  proxy.delay(20);
  const before = performance.now();
  expect(await talk('PING one\r\n', 'PING two\r\n', 'QUIT\r\n')).toBe('$3\r\none\r\n$3\r\ntwo\r\n+OK\r\n');
  expect(performance.now() - before).toBeGreaterThan(35); // there and back
  proxy.delay(0);
});
