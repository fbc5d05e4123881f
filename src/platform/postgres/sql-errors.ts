/**
 * What an error of PostgreSQL means to us: SQLSTATE → Fault code, in one table.
 *
 * Promises: pure; the same for both adapters; an error that does not carry a SQLSTATE of PostgreSQL's own is always
 * `database_unavailable`, since nobody then knows what has run. Does not decide how often to try again: callers do.
 *
 * The question behind it is the landing's (design §5): is this failure the world's, so that the whole batch waits and
 * tries again, or can the data of one row have caused it, so that the row must be found and set aside?
 *
 * @source PostgreSQL manual, appendix A (error codes)
 */
import { Fault } from '../../domain/fault.ts';
import type { FaultCode } from '../../domain/fault.ts';

type DatabaseFaultCode = Extract<FaultCode, `database_${string}`>;

/**
 * By five characters where a class is mixed, else by the class (two). First the longer key, then the class; what is in
 * neither is `database_refused`.
 */
const CODES: Readonly<Record<string, DatabaseFaultCode>> = {
  '08': 'database_unavailable', // connection exception
  '08P01': 'database_refused', // protocol violation: the server spoke and refused, e.g. a parameter too few
  '25006': 'database_unavailable', // read-only transaction: this server has become a standby, look for the other one
  '25P03': 'database_busy', // idle in transaction too long: rolled back, the server hangs up
  '25P04': 'database_busy', // transaction_timeout of newer servers: the same
  '40001': 'database_busy', // serialization failure
  '40003': 'database_unavailable', // statement completion unknown
  '40P01': 'database_busy', // deadlock
  '53': 'database_busy', // out of connections, memory, disk
  '55P03': 'database_busy', // lock_timeout
  '57014': 'database_busy', // statement_timeout
  '57P': 'database_unavailable', // 57P01–57P05: shutting down, crashed, cannot connect now, dropped, idle too long
};

/** Classes of the faults that the data of one row can cause: bad value, broken constraint, raised, too large. */
const ROW_CLASSES: ReadonlySet<string> = new Set(['22', '23', 'P0', '54']);

/** SQLSTATEs after which the server hangs up or this connection leads to the wrong server. */
const CONNECTION_ENDS = /^(08|57P|25006$|25P03$|25P04$|53300$)/;

/**
 * Reads the SQLSTATE of an error of pg or PGlite.
 * Both carry `severity` beside `code`; Node's own errors do not, and one of them, `EPIPE`, looks like a SQLSTATE.
 */
export function sqlstateOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined;
  const { code, severity } = error as { code?: unknown; severity?: unknown };
  if (typeof code !== 'string' || typeof severity !== 'string') return undefined;
  return /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}

/** Fault code of a SQLSTATE; `undefined` = the server said nothing that we can read. */
export function faultCodeOf(sqlstate: string | undefined): DatabaseFaultCode {
  if (sqlstate === undefined) return 'database_unavailable';
  return CODES[sqlstate] ?? CODES[sqlstate.slice(0, 3)] ?? CODES[sqlstate.slice(0, 2)] ?? ('database_refused' as const);
}

/** True when a connection that gave this error must not be used again. */
export function endsConnection(sqlstate: string | undefined): boolean {
  return sqlstate === undefined || CONNECTION_ENDS.test(sqlstate);
}

/**
 * Turns what a client threw into a Fault. A Fault passes unchanged.
 * @param attempted what was being done, a verb first; never parameters, which may be a buyer's
 */
export function faultOf(error: unknown, attempted: string): Fault {
  if (error instanceof Fault) return error;
  const sqlstate = sqlstateOf(error);
  const code = faultCodeOf(sqlstate);
  const said = error instanceof Error ? error.message : String((error as { message?: unknown }).message ?? error);
  const constraint = (error as { constraint?: unknown }).constraint;
  return new Fault(code, `${attempted}: ${said}`, {
    retryable: !(sqlstate !== undefined && ROW_CLASSES.has(sqlstate.slice(0, 2))),
    cause: error,
    sqlstate,
    constraint: typeof constraint === 'string' ? constraint : undefined,
  });
}

/**
 * True only for faults that the data of one row can cause (SQLSTATE classes 22, 23, P0, 54).
 * A missing permission, table or column (42) and everything else strikes every row alike: it is the world's and is tried
 * again, whatever its code. Else a wrong grant on sale day would send every hold to the dead letters.
 */
export function isHoldsOwnFault(fault: unknown): boolean {
  return fault instanceof Fault && fault.sqlstate !== undefined && ROW_CLASSES.has(fault.sqlstate.slice(0, 2));
}

/** The head of a statement for messages: one line, at most 80 characters. */
export function headOf(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length > 80 ? `${line.slice(0, 79)}…` : line;
}
