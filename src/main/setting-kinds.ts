/**
 * The kinds of settings and the forms that a text may be asked to have; the table of settings is `config.ts`.
 */
import { parseHours } from '../activity/6-settle/cleanup.ts';
import { parseRedisUrl } from '../platform/redis/connection.ts';

/** How a setting is read. */
export type Kind = 'text' | 'secret' | 'integer' | 'boolean' | 'choice' | 'secrets';

/** One setting; `T` is what it is once it is read. */
export type SettingOf<K extends Kind, T> = {
  readonly kind: K;
  readonly env: string;
  readonly unit?: string;
  readonly default: T;
  readonly min?: number;
  readonly max?: number;
  readonly choices?: readonly string[];
  /** a text must be one of these */
  readonly form?: { readonly is: (text: string) => boolean; readonly words: string };
  readonly why: string;
};
/** What a text must look like, and how that is said. */
export type Form = NonNullable<SettingOf<'text', unknown>['form']>;

/** A text. */
export const text = <T extends string | undefined>(
  env: string,
  fallback: T,
  why: string,
  form?: Form,
): SettingOf<'text', T extends string ? string : string | undefined> => ({
  kind: 'text',
  env,
  default: fallback as T extends string ? string : string | undefined,
  ...(form === undefined ? {} : { form }),
  why,
});
/** A text that is masked wherever it is shown. */
export const secret = (env: string, why: string, form?: Form): SettingOf<'secret', string | undefined> => ({
  kind: 'secret',
  env,
  default: undefined,
  ...(form === undefined ? {} : { form }),
  why,
});
/** Several secrets, newest first, so that they can be rotated. */
export const secrets = (env: string, why: string): SettingOf<'secrets', readonly string[]> => ({
  kind: 'secrets',
  env,
  default: [],
  why,
});
/** A whole number with a unit and bounds. */
export const integer = (
  env: string,
  unit: string,
  fallback: number,
  min: number,
  max: number,
  why: string,
): SettingOf<'integer', number> => ({ kind: 'integer', env, unit, default: fallback, min, max, why });
/** true or false. */
export const flag = (env: string, fallback: boolean, why: string): SettingOf<'boolean', boolean> => ({
  kind: 'boolean',
  env,
  default: fallback,
  why,
});
/** One of a few words. */
export const choice = <C extends string>(
  env: string,
  fallback: C,
  choices: readonly C[],
  why: string,
): SettingOf<'choice', C> => ({ kind: 'choice', env, default: fallback, choices, why });

/** http or https. */
export const WEB_ADDRESS: Form = {
  is: (address) => URL.canParse(address) && /^https?:$/.test(new URL(address).protocol),
  words: 'an http or https address',
};
/** An address of PostgreSQL. */
export const POSTGRES_ADDRESS: Form = {
  is: (address) => URL.canParse(address) && /^postgres(ql)?:$/.test(new URL(address).protocol),
  words: 'postgres://user:password@host:port/database',
};
/** An address of Redis, alone, behind Sentinel or as a cluster. */
export const REDIS_ADDRESS: Form = {
  is(address) {
    try {
      parseRedisUrl(address);
      return true;
    } catch {
      return false;
    }
  },
  words: 'redis://, rediss://, redis+sentinel:// or redis+cluster:// with hosts and without a query',
};
/** Long enough for a key of HMAC-SHA256. */
export const LONG_ENOUGH: Form = { is: (text) => Buffer.byteLength(text) >= 32, words: 'at least 32 bytes long' };
/** Hours of a day. */
export const HOURS: Form = {
  is: (hours) => parseHours(hours) !== undefined,
  words: 'two hours of a day, such as 02-06 or 22-04',
};
/** A time zone that this Node knows. */
export const ZONE: Form = {
  is(zone) {
    try {
      return new Intl.DateTimeFormat('en', { timeZone: zone }).resolvedOptions().timeZone !== '';
    } catch {
      return false;
    }
  },
  words: 'a time zone, such as Asia/Shanghai',
};
/** A prefix of keys. Braces in it would be the hash tag of every key, and one slot would hold them all. */
export const PREFIX: Form = {
  is: (prefix) => /^[A-Za-z0-9_-]{1,32}$/.test(prefix),
  words: '1 to 32 of A-Z a-z 0-9 _ -',
};
