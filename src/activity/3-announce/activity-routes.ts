/** Activities as buyers see them, from memory: no call of the database, cacheable for a second. */
import Type from 'typebox';
import type { Activity } from '../../domain/activity.ts';
import { ID_PATTERN } from '../../domain/ids.ts';
import { instant } from '../../platform/http/instant.ts';
import { sendInvalid, sendProblem } from '../../platform/http/problem.ts';
import type { Route } from '../../platform/http/server.ts';

/** What these calls need. */
export type ActivityRoutePorts = {
  readonly find: (id: string) => Activity | undefined;
  readonly all: () => Activity[];
  /** units left as last heard from the gate or PostgreSQL; undefined while unknown */
  readonly left: (activity: Activity) => number | undefined;
  /** epoch ms by Redis' clock where known, else the host's */
  readonly now: () => number;
};

const Params = Type.Object({ id: Type.String({ pattern: ID_PATTERN }) });
const Page = Type.Object(
  {
    limit: Type.Optional(Type.String({ pattern: '^([1-9][0-9]?|1[0-9]{2}|200)$' })),
    after: Type.Optional(Type.String({ pattern: ID_PATTERN })),
  },
  { additionalProperties: false },
);

/** The state by the clock: past `opensAt` an activity is open to every check, whatever its row still says (P20). */
export function stateAt(activity: Activity, now: number): 'scheduled' | 'open' | 'ended' | 'settled' {
  if (activity.state === 'settled' || activity.state === 'ended') return activity.state;
  if (now >= activity.endsAt) return 'ended';
  const opened = now >= activity.opensAt && activity.preheat === 'confirmed';
  return activity.state === 'open' || opened ? 'open' : 'scheduled';
}

/** The public calls about activities. */
export function activityRoutes(ports: ActivityRoutePorts): Route[] {
  const show = (activity: Activity): object => {
    const now = ports.now(); // one reading: what is told of the state agrees with the time beside it
    const left = ports.left(activity);
    const availability =
      left === undefined ? 'unknown' : left <= 0 ? 'sold_out' : left < activity.total / 10 ? 'low' : 'available';
    return {
      id: activity.id,
      item: {
        name: activity.itemName,
        priceMinor: activity.priceMinor,
        currency: activity.currency,
        ...(activity.imageUrl === undefined ? {} : { imageUrl: activity.imageUrl }),
      },
      state: stateAt(activity, now),
      paused: activity.paused,
      ...instant('opensAt', activity.opensAt),
      ...instant('endsAt', activity.endsAt),
      perBuyerLimit: activity.perBuyerLimit,
      availability,
      ...instant('now', Math.floor(now)),
    };
  };
  return [
    {
      method: 'GET',
      path: '/api/v1/time',
      handler: (_request, reply) =>
        reply.header('cache-control', 'no-store').send(instant('now', Math.floor(ports.now()))),
    },
    {
      method: 'GET',
      path: '/api/v1/activities',
      schema: { querystring: Page },
      handler(request, reply) {
        const { limit, after } = request.query as { limit?: string; after?: string };
        const now = ports.now();
        const byOpening = (a: Activity, b: Activity): number => a.opensAt - b.opensAt || (a.id < b.id ? -1 : 1);
        const isOpen = (activity: Activity): boolean => stateAt(activity, now) === 'open';
        const all = ports.all();
        const rest = all.filter((activity) => !isOpen(activity));
        const sorted = [...all.filter(isOpen).toSorted(byOpening), ...rest.toSorted(byOpening)];
        const from = after === undefined ? 0 : sorted.findIndex((activity) => activity.id === after) + 1;
        // never the first page again: who follows `next` would go round for ever
        if (after !== undefined && from === 0) return sendInvalid(request, reply, { kind: 'other', field: 'after' });
        const items = sorted.slice(from, from + Number(limit ?? 50));
        const next = from + items.length < sorted.length ? { next: items.at(-1)!.id } : {};
        return reply.header('cache-control', 'public, max-age=1').send({ items: items.map(show), ...next });
      },
    },
    {
      method: 'GET',
      path: '/api/v1/activities/:id',
      schema: { params: Params },
      handler(request, reply) {
        const activity = ports.find((request.params as { id: string }).id);
        if (activity === undefined) return sendProblem(request, reply, { status: 404, code: 'unknown_activity' });
        return reply.header('cache-control', 'public, max-age=1').send(show(activity));
      },
    },
  ];
}
