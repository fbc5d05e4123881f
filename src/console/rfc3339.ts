/**
 * Times in requests: RFC 3339 with a zone. A time without a zone is refused (whose eight o'clock would it be?), and so is a
 * date that no calendar has: `Date.parse` takes 30 February for 2 March.
 */

const FORM = /^(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d{2}):(\d{2}))$/;

/** Epoch milliseconds of an RFC 3339 time, cut to whole ms; undefined where it is none. Leap seconds are not known. */
export function parseInstant(text: string): number | undefined {
  const parts = FORM.exec(text);
  if (parts === null) return undefined;
  const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const [, , , , , , , fraction = '', sign, zoneHours = '0', zoneMinutes = '0'] = parts;
  if (hour > 23 || minute > 59 || second > 59 || Number(zoneHours) > 23 || Number(zoneMinutes) > 59) return undefined;
  const ms = Number(fraction.padEnd(3, '0').slice(0, 3));
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day); // Date.UTC would take year 26 for 1926
  if (date.getUTCFullYear() !== year || date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined;
  const zoneMs = (Number(zoneHours) * 60 + Number(zoneMinutes)) * 60_000 * (sign === '-' ? -1 : 1);
  return date.setUTCHours(hour, minute, second, ms) - zoneMs;
}
