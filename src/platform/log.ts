/**
 * Structured JSON logs by pino, one line an event. The one home of pino.
 *
 * Fields that join a hold, its landing and its end: `activityId`, `run`, `orderId` (or `orderIds`), `receipt`. Never a
 * token: every line is masked as a whole before it is written, whatever field, depth or sentence a secret stands in.
 * A line is masked by name of a field, by form (a bearer token, a JWT, the password of an address), and by value, where
 * the secret is known. Requests have no line of their own: refusing must stay cheaper than writing about it.
 */
import { pino } from 'pino';

/** A log line: fields first, sentence second. */
export interface Log {
  debug(fields: object, sentence: string): void;
  info(fields: object, sentence: string): void;
  warn(fields: object, sentence: string): void;
  error(fields: object, sentence: string): void;
  child(fields: object): Log;
}

/** Levels of the log, quiet to loud. */
export type LogLevel = 'silent' | 'error' | 'warn' | 'info' | 'debug';

/** What stands in a secret's place. */
export const MASK = '[masked]';
/** A shorter password may be a word of the log (`postgres`): it is masked where its form gives it away. */
const KNOWN_SECRET_LENGTH_MIN = 12;

const SECRET_NAME = String.raw`[\w.-]*(?:authorization|password|passwd|secret|token|cookie|apikey|api_key)s?`;
/** The forms that a secret has in a line of JSON; `$1` is what may stay. */
const FORMS: readonly (readonly [RegExp, string])[] = [
  // a field by its name: "token":"…", "secrets":["…"]
  [new RegExp(String.raw`("${SECRET_NAME}":)(?:"(?:[^"\\]|\\.)*"|\[[^\]]*\])`, 'gi'), `$1"${MASK}"`],
  // the same in JSON that stands in a text: \"token\":\"…\"
  [new RegExp(String.raw`(\\"${SECRET_NAME}\\"\s*:\s*)\\"[^"]*"`, 'gi'), String.raw`$1\"${MASK}\"`],
  // user:password@ of an address, up to the last @ of the word: a password may hold one
  [/(:\/\/[^\s"/:@]*:)[^\s"]+@/g, `$1${MASK}@`],
  [/([?&](?:[\w-]*token|password|secret|key)=)[^\s"&]+/gi, `$1${MASK}`],
  [/\b(Bearer\s+)[\w.~+/=-]+/gi, `$1${MASK}`],
  [/\beyJ[\w-]+\.[\w-]+\.[\w-]*/g, MASK],
];

/**
 * Masks a line of the log.
 * @param known secrets by value, as they are and as they stand in an address
 */
export function masked(line: string, known: readonly string[] = []): string {
  let text = line;
  for (const secret of known) {
    if (secret.length >= KNOWN_SECRET_LENGTH_MIN) text = text.replaceAll(secret, MASK);
  }
  for (const [form, instead] of FORMS) text = text.replace(form, instead);
  return text;
}

/**
 * Makes the process's log.
 * @param destination a file descriptor: 1 = standard output, 2 = standard error
 * @param known secrets of the settings, masked wherever they appear
 */
export function makeLog(level: LogLevel, destination: 1 | 2 = 1, known: readonly string[] = []): Log {
  const stream = pino.destination({ fd: destination, sync: false, minLength: 0 });
  return pino(
    { level, base: { pid: process.pid }, timestamp: pino.stdTimeFunctions.isoTime },
    { write: (line: string) => void stream.write(masked(line, known)) },
  );
}
