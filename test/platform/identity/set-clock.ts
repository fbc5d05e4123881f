/** A clock that stands where it is set, for tests of identity. */
import type { Clock } from '../../../src/platform/clock.ts';

/** 2026-12-01T12:00:00Z, epoch seconds */
export const NOON_SECONDS = 1_796_126_400;

/** A clock to be set by hand; both of its readings move together. */
export class SetClock implements Clock {
  seconds = NOON_SECONDS;
  now = (): number => this.seconds * 1_000;
  monotonic = (): number => this.seconds * 1_000;
}

/** Text as base64url, for tokens made by hand. */
export const base64url = (text: string): string => Buffer.from(text).toString('base64url');
