/**
 * The three kinds of error, in one place (docs/style.md):
 * an *answer* is a typed union and never thrown; a *fault* of the world is thrown as `Fault`; a *bug* is an assertion.
 */

/** Stable codes of the faults of the world. */
export type FaultCode =
  | 'redis_refused' // Redis proved that nothing ran
  | 'redis_unknown' // Redis gave no answer: the command may have run
  | 'database_unavailable' // no connection, connection lost, shutting down: outcome of a statement under way is unknown
  | 'database_busy' // no connection within the deadline, deadlock, serialization, lock or statement timeout: nothing happened
  | 'database_refused' // the database refused this statement for a reason of its own (see `sqlstate`)
  | 'settings_invalid'
  | 'not_ready'
  | 'ids_unavailable'
  | 'data_folder_locked';

/** A fault of the world: names what was attempted and whether trying again can help. */
export class Fault extends Error {
  readonly code: FaultCode;
  readonly retryable: boolean;
  /** five-character SQLSTATE where PostgreSQL spoke */
  readonly sqlstate: string | undefined;
  /** name of the violated constraint where PostgreSQL named one */
  readonly constraint: string | undefined;

  constructor(
    code: FaultCode,
    attempted: string,
    options: { retryable: boolean; cause?: unknown; sqlstate?: string | undefined; constraint?: string | undefined },
  ) {
    super(attempted, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'Fault';
    this.code = code;
    this.retryable = options.retryable;
    this.sqlstate = options.sqlstate;
    this.constraint = options.constraint;
  }
}

/** A broken invariant: a bug of ours. Stays on in production; fails one request or one message. */
export class Bug extends Error {
  override readonly name = 'Bug';
}

/** Asserts an invariant; on in production. */
export function assert(condition: unknown, invariant: string): asserts condition {
  if (!condition) throw new Bug(invariant);
}

/** Returns a value that must be there. */
export function must<T>(value: T | undefined | null, invariant: string): T {
  if (value === undefined || value === null) throw new Bug(invariant);
  return value;
}

/** The end of an exhaustive switch. */
export function unreachable(value: never): never {
  throw new Bug(`unreachable: ${String(value)}`);
}
