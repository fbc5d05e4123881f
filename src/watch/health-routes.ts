/** `/livez` (the process turns) and `/readyz` (it can sell or land now, naming the part that cannot). */
import type { Route } from '../platform/http/server.ts';

/** One part that must work, by name. */
export type Part = { readonly name: string; readonly isReady: () => boolean };

/** Names of the parts that are not ready; none: it can sell or land now. */
export const waitingFor = (parts: readonly Part[]): string[] =>
  parts.filter((part) => !part.isReady()).map((part) => part.name);

/** The two calls. */
export function healthRoutes(parts: readonly Part[]): Route[] {
  return [
    {
      method: 'GET',
      path: '/livez',
      summary: 'The process turns.',
      handler: (_request, reply) => reply.header('cache-control', 'no-store').send({ alive: true }),
    },
    {
      method: 'GET',
      path: '/readyz',
      summary: 'It can sell or land now.',
      replies: { 200: 'ready', 503: 'not ready: `waitingFor` names the parts' },
      handler(_request, reply) {
        const waiting = waitingFor(parts);
        const ready = waiting.length === 0;
        return reply
          .code(ready ? 200 : 503)
          .header('cache-control', 'no-store')
          .send({ ready, waitingFor: waiting });
      },
    },
  ];
}
