/** `/livez` (the process turns) and `/readyz` (it can sell or land now, naming the part that cannot). */
import type { Route } from '../platform/http/server.ts';

/** One part that must work, by name. */
export type Part = { readonly name: string; readonly isReady: () => boolean };

/** The two calls. */
export function healthRoutes(parts: readonly Part[], isStopping: () => boolean): Route[] {
  return [
    { method: 'GET', path: '/livez', handler: (_request, reply) => reply.send({ alive: true }) },
    {
      method: 'GET',
      path: '/readyz',
      handler(_request, reply) {
        const waiting = parts.filter((part) => !part.isReady()).map((part) => part.name);
        if (isStopping()) waiting.push('stopping');
        const ready = waiting.length === 0;
        return reply
          .code(ready ? 200 : 503)
          .header('cache-control', 'no-store')
          .send({ ready, waitingFor: waiting });
      },
    },
  ];
}
