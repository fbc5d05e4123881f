/**
 * Values on their way into and out of PostgreSQL, as text, once for both adapters.
 *
 * pg and PGlite each have ideas of their own (int8 as number, as BigInt or as text; timestamps in the host's zone), so
 * neither is asked: both hand over the server's text, and this table reads it. The server must speak DateStyle ISO and
 * bytea_output hex; `pool.ts` asks for both, they are PGlite's defaults.
 *
 * Does not know domains, enums, ranges or composite types: they stay text.
 */
import pg from 'pg';
import { assert } from '../../domain/fault.ts';

type Read = (text: string) => unknown;

/** pg's reader of array literals, nested or not, NULLs as null; elements stay text. */
const readTextArray = (pg.types.getTypeParser as (oid: number, format: 'text') => (text: string) => unknown[])(
  1009,
  'text',
);

const asIs: Read = (text) => text;
const asNumber: Read = Number;
const asBoolean: Read = (text) => text === 't';
const asJson: Read = (text) => JSON.parse(text) as unknown;
const asBytes: Read = (text) => Buffer.from(text.slice(2), 'hex');

/** Farthest instants that a Date can hold; they stand for ±infinity. */
const FOREVER_MS = 8.64e15;

/** `2026-12-01 14:10:00.123456+05:30` → Date. Microseconds are cut, not rounded. */
const asInstant: Read = (text) => {
  if (text === 'infinity') return new Date(FOREVER_MS);
  if (text === '-infinity') return new Date(-FOREVER_MS);
  const parts = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)([+-]\d\d)(?::(\d\d))?$/.exec(text);
  return parts ? new Date(`${parts[1]}T${parts[2]}${parts[3]}:${parts[4] ?? '00'}`) : new Date(text);
};

function asArrayOf(read: Read): Read {
  const deep = (item: unknown): unknown =>
    Array.isArray(item) ? item.map(deep) : typeof item === 'string' ? read(item) : item;
  return (text) => deep(readTextArray(text));
}

/** type oid, oid of its array, reader; anything else is text. */
const SCALARS: readonly (readonly [oid: number, arrayOid: number, read: Read])[] = [
  [16, 1000, asBoolean], // bool
  [17, 1001, asBytes], // bytea
  [19, 1003, asIs], // name
  [20, 1016, asIs], // int8: ids stay text
  [21, 1005, asNumber], // int2
  [23, 1007, asNumber], // int4
  [25, 1009, asIs], // text
  [26, 1028, asNumber], // oid
  [114, 199, asJson], // json
  [700, 1021, asNumber], // float4
  [701, 1022, asNumber], // float8
  [1042, 1014, asIs], // char(n)
  [1043, 1015, asIs], // varchar
  [1082, 1182, asIs], // date
  [1114, 1115, asIs], // timestamp: names no instant, so no Date
  [1184, 1185, asInstant], // timestamptz
  [1700, 1231, asIs], // numeric
  [2950, 2951, asIs], // uuid
  [3802, 3807, asJson], // jsonb
];

const READERS: ReadonlyMap<number, Read> = new Map(
  SCALARS.flatMap(([oid, arrayOid, read]) => [
    [oid, read],
    [arrayOid, asArrayOf(read)],
  ]),
);

/** Reader of a column by the oid of its type. */
export function readerOf(oid: number): Read {
  return READERS.get(oid) ?? asIs;
}

/**
 * A parameter as PostgreSQL's text format; the server infers its type.
 * Arrays become array literals, so a JSON array must be passed as `JSON.stringify(…)`; other objects become JSON.
 */
export function writeParameter(value: unknown): string | null {
  if (value === null || value === undefined) return null;
  switch (typeof value) {
    case 'string':
      return value;
    case 'number':
    case 'bigint':
    case 'boolean':
      return String(value);
    case 'object':
      if (Array.isArray(value)) return `{${value.map(writeElement).join(',')}}`;
      if (value instanceof Uint8Array) return `\\x${Buffer.from(value).toString('hex')}`;
      if (value instanceof Date) {
        assert(!Number.isNaN(value.getTime()), 'a date that goes to the database is an instant');
        return value.toISOString();
      }
      return JSON.stringify(value);
    default:
      assert(false, `a ${typeof value} is no database value`);
  }
}

function writeElement(item: unknown): string {
  const text = writeParameter(item);
  if (text === null) return 'NULL';
  return Array.isArray(item) ? text : `"${text.replace(/[\\"]/g, '\\$&')}"`;
}
