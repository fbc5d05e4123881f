import { createServer } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { systemRandom } from '../../../src/platform/clock.ts';
import { firstFreePort, freePrivatePort } from '../../../src/platform/servers/free-port.ts';

const listening: Server[] = [];
afterEach(async () => {
  await Promise.all(listening.splice(0).map((server) => new Promise((resolve) => server.close(resolve))));
});

async function listen(port: number, host: string): Promise<number> {
  const server = createServer();
  listening.push(server);
  await new Promise<void>((resolve) => server.listen({ port, host }, resolve));
  return (server.address() as AddressInfo).port;
}

it('gives the preferred port when it is free', async () => {
  const port = await freePrivatePort(systemRandom);
  expect(await firstFreePort(port)).toBe(port);
});

it.each(['127.0.0.1', '0.0.0.0'])('gives the next free one when the preferred is taken on %s', async (host) => {
  const taken = await listen(await freePrivatePort(systemRandom), host);
  const given = await firstFreePort(taken);
  expect(given).toBeGreaterThan(taken);
  await listen(given, '127.0.0.1');
});

it('says so when there is none left above', async () => {
  // 65,535 is the last: whoever holds it leaves nothing.
  await listen(65_535, '127.0.0.1').catch(() => {});
  await expect(firstFreePort(65_535)).rejects.toMatchObject({ code: 'not_ready' });
});

it('keeps private servers below the ports that kernels give to outgoing connections', async () => {
  for (const fraction of [0, 0.5, 0.999_999]) {
    const port = await freePrivatePort({ ...systemRandom, fraction: () => fraction });
    expect(port).toBeGreaterThanOrEqual(20_000);
    expect(port).toBeLessThan(32_768);
  }
});
