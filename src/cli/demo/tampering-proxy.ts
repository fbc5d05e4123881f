/**
 * A liar between the crowd and a server: in the first answer `replayed` that passes, one digit of the order id becomes
 * another one. For `--sabotage wrong-answer` only.
 */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

/** A running proxy. */
export type TamperingProxy = {
  readonly url: string;
  /** whether it has lied yet */
  readonly hasLied: () => boolean;
  close(): Promise<void>;
};

const REPLAYED = /("code":"replayed"[^}]*"orderId":"\d*)(\d)(")/;

/** Starts it in front of a server's address. */
export async function startTamperingProxy(target: string): Promise<TamperingProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let lied = false;
  const proxy = createServer((client) => {
    const server = connect(Number(port), hostname);
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.once('close', () => {
        sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
    client.pipe(server);
    server.on('data', (bytes: Buffer) => {
      // same length, so the rest of the stream stays as it is
      const text = lied ? '' : bytes.toString('latin1');
      if (REPLAYED.test(text)) {
        lied = true;
        const other = text.replace(
          REPLAYED,
          (_, before: string, digit: string, after: string) => `${before}${(Number(digit) + 1) % 10}${after}`,
        );
        client.write(Buffer.from(other, 'latin1'));
      } else client.write(bytes);
    });
  });
  proxy.listen(0, hostname);
  await once(proxy, 'listening');
  return {
    url: `http://${hostname}:${(proxy.address() as AddressInfo).port}`,
    hasLied: () => lied,
    async close() {
      for (const socket of sockets) socket.destroy();
      proxy.close();
      await once(proxy, 'close');
    },
  };
}
