/**
 * The window, from memory: what can be told without asking the gate (article 1.5; design §4 "Refusing from memory").
 *
 * Only `not_open` is said here, and only outside the error bound of what we know of Redis' clock: any other no could be
 * told to somebody who has won (P10), so the gate says it. It decides nothing on the host's clock.
 */
import type { Activity } from '../../domain/activity.ts';

/** Redis' time as two bounds. */
export type TimeBounds = {
  /** Redis' time is not after this epoch ms; undefined while unknown */
  latest(): number | undefined;
};

/** `not_open` where it is certain, undefined where the gate must be asked. */
export function refuseByWindow(activity: Activity, time: TimeBounds): 'not_open' | undefined {
  const latest = time.latest();
  return latest !== undefined && latest < activity.opensAt ? 'not_open' : undefined;
}
