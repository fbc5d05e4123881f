/**
 * `/metrics` for Prometheus: the one table of our metrics, and how plain counters become samples when somebody asks.
 *
 * The parts of the process count in plain numbers, maps and histograms of their own; nothing of prom-client runs on the
 * way of a purchase. Every metric has at most one label of its own, whose values come from the code (a code, a state, a
 * name) or are bounded where they are made; buyers, orders and paths are never labels. As a last wall a metric shows at
 * most `LABEL_VALUES_MAX` values.
 *
 * Several processes on one port are one target: every series carries `process`, and the process that is asked shows the
 * readings of all (`src/main/supervisor.ts`). Nothing is added up, so a process that starts anew is a counter that starts
 * at 0, which Prometheus knows how to read. The one home of prom-client.
 */
import { AggregatorRegistry, collectDefaultMetrics, Registry, type Metric as PromMetric } from 'prom-client';
import { Histogram } from './histogram.ts';

type Definition = {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  /** the one label of its own, with what its values are */
  readonly label?: string;
  readonly unit: string;
  readonly meaning: string;
};

/** Our metrics (docs/telemetry.md is tested against this table). */
export const METRICS = {
  build: {
    name: 'sluice_build_info',
    type: 'gauge',
    label: 'version',
    unit: '1',
    meaning: 'always 1; the version that runs',
  },
  ready: { name: 'sluice_ready', type: 'gauge', unit: '0 or 1', meaning: 'whether `/readyz` says ready' },
  purchases: {
    name: 'sluice_purchases_total',
    type: 'counter',
    label: 'code',
    unit: 'answers',
    meaning: 'answers to purchases; requests that fail the form check count in `sluice_http_replies_total` only',
  },
  gateCalls: {
    name: 'sluice_gate_calls_total',
    type: 'counter',
    label: 'outcome',
    unit: 'calls',
    meaning: 'script calls, one a batch: `decided`, `not_ready`, `refused` (nothing ran), `unknown` (no answer)',
  },
  gateBatch: {
    name: 'sluice_gate_batch_purchases',
    type: 'histogram',
    unit: 'purchases',
    meaning: 'purchases that shared one script call',
  },
  gateSeconds: {
    name: 'sluice_gate_seconds',
    type: 'histogram',
    unit: 'seconds',
    meaning: 'from sending a batch to its answer or its fault',
  },
  gatePending: {
    name: 'sluice_gate_pending_purchases',
    type: 'gauge',
    unit: 'purchases',
    meaning: 'purchases that wait for the gate now; `gatePendingMax` is the end',
  },
  landingSeconds: {
    name: 'sluice_landing_batch_seconds',
    type: 'histogram',
    unit: 'seconds',
    meaning: 'one batch of the landing, from the start of its transaction to its COMMIT',
  },
  landingHolds: {
    name: 'sluice_landing_batch_holds',
    type: 'histogram',
    unit: 'holds',
    meaning: 'holds in one batch of the landing',
  },
  landed: {
    name: 'sluice_landing_holds_total',
    type: 'counter',
    label: 'outcome',
    unit: 'holds',
    meaning: 'holds that have left the outbox: `ordered`, `refused`, `known` (landed before), `dead_letter`',
  },
  landingFaults: {
    name: 'sluice_landing_faults_total',
    type: 'counter',
    unit: 'faults',
    meaning: 'faults of Redis or PostgreSQL after which the landing tried again',
  },
  outboxes: {
    name: 'sluice_landing_outboxes',
    type: 'gauge',
    unit: 'outboxes',
    meaning: 'outboxes that this process lands',
  },
  backlogEntries: {
    name: 'sluice_landing_backlog_entries',
    type: 'gauge',
    unit: 'entries',
    meaning: 'batches of holds that the gate has written and PostgreSQL does not have; the same from every worker',
  },
  backlogAge: {
    name: 'sluice_landing_backlog_oldest_seconds',
    type: 'gauge',
    unit: 'seconds',
    meaning: 'age of the oldest of them; the same from every worker',
  },
  giveBacks: {
    name: 'sluice_give_backs_pending',
    type: 'gauge',
    unit: 'give-backs',
    meaning: 'ends of orders and dead letters whose units are not back at the gate yet; the same from every worker',
  },
  givenBack: {
    name: 'sluice_give_backs_total',
    type: 'counter',
    unit: 'give-backs',
    meaning: 'give-backs carried to the gate',
  },
  deadLetters: {
    name: 'sluice_dead_letters_open',
    type: 'gauge',
    unit: 'holds',
    meaning: 'dead letters that nobody has ended yet; the same from every worker',
  },
  unitsLeft: {
    name: 'sluice_activity_units_left',
    type: 'gauge',
    label: 'activity',
    unit: 'units',
    meaning: 'units (strict: tickets) left as the gate last said, else as PostgreSQL has it; the 50 newest on sale',
  },
  alarms: {
    name: 'sluice_alarms_total',
    type: 'counter',
    label: 'alarm',
    unit: 'alarms',
    meaning: 'alarms raised, those held back in the log too',
  },
  lag: {
    name: 'sluice_event_loop_lag_seconds',
    type: 'histogram',
    unit: 'seconds',
    meaning: 'one observation a second: the longest delay of the event loop in it',
  },
  httpRequests: {
    name: 'sluice_http_requests_in_flight',
    type: 'gauge',
    unit: 'requests',
    meaning: 'requests under way, open event streams too',
  },
  httpConnections: {
    name: 'sluice_http_connections',
    type: 'gauge',
    unit: 'connections',
    meaning: 'open connections of callers',
  },
  httpReplies: {
    name: 'sluice_http_replies_total',
    type: 'counter',
    label: 'status',
    unit: 'replies',
    meaning: 'replies by class of status; `none` where the caller had gone',
  },
  redisReady: {
    name: 'sluice_redis_ready',
    type: 'gauge',
    label: 'link',
    unit: '0 or 1',
    meaning: 'whether the connection can send now: `gate`, `landing`',
  },
  databaseOpen: {
    name: 'sluice_database_connections_open',
    type: 'gauge',
    unit: 'connections',
    meaning: 'connections of the pool, at rest or in use',
  },
  databaseIdle: {
    name: 'sluice_database_connections_idle',
    type: 'gauge',
    unit: 'connections',
    meaning: 'those at rest',
  },
  databaseWaiting: {
    name: 'sluice_database_callers_waiting',
    type: 'gauge',
    unit: 'callers',
    meaning: 'callers that wait for a connection',
  },
  processUp: {
    name: 'sluice_process_up',
    type: 'gauge',
    label: 'of',
    unit: '0 or 1',
    meaning: 'whether the process of this name serves; with `--workers` only',
  },
  processRestarts: {
    name: 'sluice_process_restarts_total',
    type: 'counter',
    label: 'of',
    unit: 'restarts',
    meaning: 'processes that ended by themselves and were started again; with `--workers` only',
  },
} as const satisfies Readonly<Record<string, Definition>>;

/** Name of a metric in the code. */
export type MetricId = keyof typeof METRICS;
/** What a metric reads as: a number, one a value of its label, or a histogram; undefined where it cannot be told now. */
export type Reading = number | ReadonlyMap<string, number> | Histogram | undefined;
/** How to read each metric that a process has. */
export type Readings = { readonly [Id in MetricId]?: () => Reading };

/** One metric as read, in the shape of prom-client, which also travels between processes. */
export type MetricSnapshot = {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly aggregator: string;
  readonly values: readonly Sample[];
};
type Sample = {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly metricName?: string;
};

/** Values of a label that are shown; more would be a leak. */
export const LABEL_VALUES_MAX = 64;
/** Media type of the text form. */
export const METRICS_TYPE = Registry.PROMETHEUS_CONTENT_TYPE;

/** The metrics of one process. */
export class Metrics {
  readonly #readings: Readings;
  readonly #process: string | undefined;
  readonly #withNode: boolean;
  #registry: Registry | undefined;

  /**
   * @param options.process its name among several processes, a label of every series
   * @param options.withNode the figures of Node and the operating system beside ours
   */
  constructor(readings: Readings, options: { process?: string | undefined; withNode: boolean }) {
    this.#readings = readings;
    this.#process = options.process;
    this.#withNode = options.withNode;
  }

  /** Begins to watch what Node only tells to who listens: collections of garbage, delays of the loop. Safe to repeat. */
  start(): void {
    this.#registry ??= this.#setUp();
  }

  /** Reads everything now. */
  async read(): Promise<MetricSnapshot[]> {
    this.#registry ??= this.#setUp();
    const metrics = (await this.#registry.getMetricsAsJSON()) as unknown as MetricSnapshot[];
    return metrics.map((metric) => ({
      ...metric,
      // nothing is added up across processes: labels keep their series apart
      aggregator: 'first',
      // a mean of nothing is no number; nor is it one in the JSON in which readings travel
      values: metric.values.filter(({ value }) => Number.isFinite(value)),
    }));
  }

  #setUp(): Registry {
    const registry = new Registry();
    if (this.#process !== undefined) registry.setDefaultLabels({ process: this.#process });
    for (const id of Object.keys(this.#readings) as MetricId[]) {
      const { name, meaning, type, label }: Definition = METRICS[id];
      const read = this.#readings[id]!;
      const metric = {
        name,
        get: () => ({ name, help: meaning, type, aggregator: 'first', values: samples(name, label, read()) }),
      };
      registry.registerMetric(metric as unknown as PromMetric);
    }
    if (this.#withNode) collectDefaultMetrics({ register: registry });
    return registry;
  }
}

function samples(name: string, label: string | undefined, reading: Reading): Sample[] {
  if (reading === undefined) return [];
  if (typeof reading === 'number') return [{ value: reading, labels: {} }];
  if (reading instanceof Histogram) {
    const { upTo, count, sum } = reading.read();
    return [
      ...upTo.map((value, i) => ({ metricName: `${name}_bucket`, labels: { le: reading.bounds[i]! }, value })),
      { metricName: `${name}_bucket`, labels: { le: '+Inf' }, value: count },
      { metricName: `${name}_sum`, labels: {}, value: sum },
      { metricName: `${name}_count`, labels: {}, value: count },
    ];
  }
  return [...reading]
    .slice(0, LABEL_VALUES_MAX)
    .map(([value, number]) => ({ labels: { [label ?? 'value']: value }, value: number }));
}

/** The readings of one or several processes in Prometheus' text form. */
export function metricsText(snapshots: readonly (readonly MetricSnapshot[])[]): Promise<string> {
  return AggregatorRegistry.aggregate(snapshots.map((metrics) => [...metrics])).metrics();
}
