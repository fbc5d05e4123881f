/** `/metrics`: every process that answers for this address, in Prometheus' text form. */
import type { Route } from '../platform/http/server.ts';
import { METRICS_TYPE, metricsText, type MetricSnapshot } from './metrics.ts';

/** The call. `gather` brings the readings of all processes behind this address. */
export function metricsRoute(gather: () => Promise<readonly (readonly MetricSnapshot[])[]>): Route {
  return {
    method: 'GET',
    path: '/metrics',
    summary: 'Metrics for Prometheus.',
    async handler(_request, reply) {
      const text = await metricsText(await gather());
      return reply.type(METRICS_TYPE).header('cache-control', 'no-store').send(text);
    },
  };
}
