/**
 * Says in the log when an activity has moved: another state, paused or not, another run. It looks at what this process
 * keeps in memory, so it says what the process acts by, whoever moved it; who did stands in the audit.
 */
import type { Activity } from '../domain/activity.ts';
import type { Log } from '../platform/log.ts';

type Seen = Pick<Activity, 'state' | 'paused' | 'run' | 'runState'>;

/**
 * Makes the look; call it after each reading of the activities, else a move between two looks is missed. The first says
 * nothing.
 */
export function stateMoves(activities: () => readonly Activity[], log: Log): () => void {
  let seen: Map<string, Seen> | undefined;
  return () => {
    const present = new Map<string, Seen>();
    for (const { id, state, paused, run, runState } of activities()) {
      const now = { state, paused, run, runState };
      const before = seen?.get(id);
      present.set(id, now);
      if (seen === undefined) continue;
      if (before === undefined) log.info({ activityId: id, ...now }, 'activity seen for the first time');
      else if (!isSame(before, now)) log.info({ activityId: id, from: before, ...now }, 'activity moved');
    }
    for (const [id, from] of seen ?? []) {
      if (!present.has(id)) log.info({ activityId: id, from }, 'activity is not shown any more');
    }
    seen = present;
  };
}

const isSame = (a: Seen, b: Seen): boolean =>
  a.state === b.state && a.paused === b.paused && a.run === b.run && a.runState === b.runState;
