/** What every verb needs from outside: settings, clock, and where to speak. Built in `main`, and by tests. */
import type { Clock } from '../platform/clock.ts';

/** The settings that verbs read. */
export type VerbSettings = {
  readonly dataFolder: string;
  readonly operatorSecret: string | undefined;
  readonly databaseUrl: string | undefined;
  readonly redisUrl: string | undefined;
};

/** Ports of the verbs. */
export type VerbPorts = {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  /** read when a verb runs, so that a wrong setting stops only the verbs that need it. Throws Fault `settings_invalid` */
  readonly settings: () => VerbSettings;
  /** one line for standard output: results */
  readonly print: (line: string) => void;
  /** one line for standard error: progress */
  readonly tell: (line: string) => void;
  /** the exit code of a verb that has said all there is to say and yet does not hold */
  readonly endWith: (code: 1) => void;
};

/** Prints one JSON document. */
export const printJson = (ports: VerbPorts, document: unknown): void =>
  ports.print(JSON.stringify(document, undefined, 2));
