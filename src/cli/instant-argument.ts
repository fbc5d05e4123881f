/**
 * Times on the command line: RFC 3339 with a zone, or a span from now by the server's clock (`+30s`, `+10m`).
 * A time without a zone is refused: whose eight o'clock would it be.
 */

/** A time as it was typed; `ms` is epoch milliseconds, or milliseconds from the server's now. */
export type InstantArgument = { readonly kind: 'instant' | 'from_now'; readonly ms: number };

const RFC_3339 = /^(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})$/;
const FROM_NOW = /^\+(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)$/;
/** No sale is planned further ahead; a slip of the finger is caught before anybody is asked. */
const FROM_NOW_MS_MAX = 3_660 * 86_400_000;
const MS_OF = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** What an argument of this kind must be, for messages. */
export const INSTANT_FORM = 'RFC 3339 with a zone (2026-11-11T20:00:00+08:00), or from now: +30s, +10m, +2h, +1d';

/** Reads a time; undefined where the text is none. */
export function parseInstant(text: string): InstantArgument | undefined {
  const fromNow = FROM_NOW.exec(text);
  if (fromNow !== null) {
    const ms = Math.round(Number(fromNow[1]) * MS_OF[fromNow[2] as keyof typeof MS_OF]);
    return ms > FROM_NOW_MS_MAX ? undefined : { kind: 'from_now', ms };
  }
  const parts = RFC_3339.exec(text);
  if (parts === null) return undefined;
  const [year, month, day, hour, minute, second] = parts.slice(1).map(Number) as [number, number, number, ...number[]];
  // Date.parse takes 30 February for 2 March, and 24:00 for the next day
  const daysInMonth = new Date(Date.UTC(year, month, 0)).getUTCDate();
  if (month < 1 || month > 12 || day < 1 || day > daysInMonth) return undefined;
  if (hour! > 23 || minute! > 59 || second! > 59) return undefined;
  const ms = Date.parse(text.toUpperCase());
  return Number.isNaN(ms) ? undefined : { kind: 'instant', ms };
}

/** Epoch milliseconds of a time, given the server's now. */
export const instantAt = (argument: InstantArgument, serverNow: number): number =>
  argument.kind === 'instant' ? argument.ms : serverNow + argument.ms;
