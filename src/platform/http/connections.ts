/**
 * The connections of the edge, so that a process that stops can let go of them: those at rest at once, the others as soon
 * as the answer under way is out.
 *
 * Node's `closeIdleConnections`, asked once, is not enough: it passes over connections that have not asked for anything
 * yet (browsers and pools open some in advance) and over those that come to rest a moment later, and then a stop waits
 * for the keep-alive of a stranger.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** The answer that Node has under way on a socket; its own handler of broken requests looks there, too. */
type ServerSocket = Socket & { readonly _httpMessage?: ServerResponse<IncomingMessage> | null };

/** The answer under way on a connection; undefined where it is at rest. */
export function answerUnderWay(socket: Socket): ServerResponse<IncomingMessage> | undefined {
  return (socket as ServerSocket)._httpMessage ?? undefined;
}

/** Keeps the connections of a server. */
export function keepConnections(server: Server): { retire(): void } {
  const sockets = new Set<Socket>();
  let retiring = false;
  const retire = (socket: Socket): void => {
    const answer = answerUnderWay(socket);
    if (answer === undefined) {
      socket.destroySoon();
      return;
    }
    if (!answer.headersSent) answer.shouldKeepAlive = false;
    answer.once('close', () => socket.destroySoon());
  };
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    if (retiring) retire(socket);
  });
  return {
    /** from now on every connection ends when it has nothing under way */
    retire() {
      retiring = true;
      for (const socket of sockets) retire(socket);
    },
  };
}
