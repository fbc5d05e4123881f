/** Structured JSON logs by pino, to standard output; secrets masked by path. The one home of pino. */
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

/** Makes the process's log. `destination` is a file descriptor (1 = standard output, 2 = standard error). */
export function makeLog(level: LogLevel, destination: 1 | 2 = 1): Log {
  return pino(
    {
      level,
      base: { pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      redact: {
        paths: ['authorization', '*.authorization', 'token', '*.token', 'secret', '*.secret', 'password', '*.password'],
        censor: '[masked]',
      },
    },
    pino.destination({ fd: destination, sync: false, minLength: 0 }),
  );
}
