/** Numbers of a sale as it runs, from gate and books as they stand, for people to look at; `verify` is what proves. */
import { stateAt, type ActivityRecord } from '../domain/activity.ts';
import { instant } from '../platform/http/instant.ts';

/** What the numbers are made of. */
export type LivePorts = {
  readonly readSegment: (at: { activityId: string; segment: number; run: number }) => Promise<
    | { readonly kind: 'missing' | 'restless' }
    | {
        readonly kind: 'read';
        readonly state: string;
        readonly version: number;
        readonly seq: number;
        readonly left: number | undefined;
      }
  >;
  readonly books: (activityId: string) => Promise<{
    readonly deadLetters: number;
    readonly giveBacks: number;
    readonly gateChanges: number;
    readonly entry: number | undefined;
  }>;
  readonly now: (activity: ActivityRecord) => number;
};

/** Reads them; what the gate does not tell is null. */
export async function liveNumbers(ports: LivePorts, activity: ActivityRecord): Promise<object> {
  const books = await ports.books(activity.id);
  const readings = await Promise.all(
    Array.from({ length: activity.run === 0 ? 0 : activity.segments }, (_, segment) =>
      ports.readSegment({ activityId: activity.id, segment, run: activity.run }),
    ),
  );
  const perSegment = readings.map((one) => (one.kind === 'read' ? (one.left ?? null) : null));
  const all = readings.every((one) => one.kind === 'read') && readings.length > 0;
  const sumOf = (values: readonly (number | null | undefined)[]): number | null =>
    all && values.every((value) => typeof value === 'number') ? values.reduce<number>((sum, v) => sum + v, 0) : null;
  const seq = sumOf(readings.map((one) => (one.kind === 'read' ? one.seq : undefined)));
  const [first] = readings;
  const now = ports.now(activity);
  return {
    activityId: activity.id,
    state: stateAt(activity, now),
    paused: activity.paused,
    preheat: activity.preheat,
    ...instant('opensAt', activity.opensAt),
    ...instant('endsAt', activity.endsAt),
    total: activity.total,
    surplus: activity.surplus,
    sold: activity.sold,
    left: sumOf(perSegment),
    leftPerSegment: perSegment,
    // entries, each a batch of holds, that the gate has written and that are no orders yet
    backlogEntries: seq === null || books.entry === undefined ? null : Math.max(0, seq - books.entry),
    deadLetters: books.deadLetters,
    giveBacks: books.giveBacks,
    gate:
      first?.kind === 'read'
        ? { state: first.state, version: first.version, changesPending: books.gateChanges }
        : { state: null, version: null, changesPending: books.gateChanges },
    ...instant('now', Math.floor(now)),
  };
}
