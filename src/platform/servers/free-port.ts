/**
 * Free ports on the loopback address.
 * A free port is free when asked, not when used: whoever binds it later must be ready to lose it and ask again.
 */
import { createServer } from 'node:net';
import { Fault } from '../../domain/fault.ts';
import type { Random } from '../clock.ts';

const LOOPBACK = '127.0.0.1';
const PORT_MAX = 65_535;

/**
 * Private servers get a port below the range from which kernels take the local ports of outgoing connections (Linux
 * 32768–60999, macOS 49152–65535): a server that restarts on its own port under load must find it free. A cluster
 * node's bus port, 10,000 above, is a valid one too.
 */
const PRIVATE_PORT_MIN = 20_000;
const PRIVATE_PORT_COUNT = 10_000;

/**
 * The preferred port when nobody listens on it at 127.0.0.1, else the next free one above.
 * @param preferred 1 to 65,535; 0 leaves the choice to the kernel
 * @throws Fault `not_ready` when none is free up to 65,535, or the port may not be used (below 1024, not root)
 */
export async function firstFreePort(preferred: number): Promise<number> {
  for (let port = preferred; port <= PORT_MAX; port += 1) {
    const bound = await tryPort(port);
    if (bound !== undefined) return bound;
  }
  throw new Fault('not_ready', `finding a free port from ${preferred} up`, { retryable: true });
}

/** A free port for a private server: random, so that servers started side by side rarely meet. */
export function freePrivatePort(random: Random): Promise<number> {
  return firstFreePort(PRIVATE_PORT_MIN + Math.floor(random.fraction() * PRIVATE_PORT_COUNT));
}

function tryPort(port: number): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', (cause: NodeJS.ErrnoException) => {
      if (cause.code === 'EADDRINUSE') resolve(undefined);
      else
        reject(
          new Fault('not_ready', `listening on ${LOOPBACK}:${port}: ${cause.message}`, { retryable: false, cause }),
        );
    });
    probe.listen({ host: LOOPBACK, port, exclusive: true }, () => {
      const address = probe.address();
      const bound = typeof address === 'object' && address !== null ? address.port : port;
      probe.close(() => resolve(bound));
    });
  });
}
