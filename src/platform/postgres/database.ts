/**
 * What the tables see of PostgreSQL: text in, rows out, one transaction at a time per connection.
 * Two adapters stand behind it, `pool.ts` (PostgreSQL by pg) and `embedded.ts` (PGlite in a worker thread);
 * both pass `test/conformance/database.ts`.
 *
 * Types on the way out are the same in both: int8 and numeric come as text (ids stay text),
 * int4 as number, timestamptz as `Date`, arrays as arrays of the same.
 */

/** One row, by column name. */
export type Row = Record<string, unknown>;

/** Runs statements. */
export interface Sql {
  /**
   * Runs one statement with `$1`-style parameters.
   * @throws Fault `database_unavailable` | `database_busy` | `database_refused`, with `sqlstate` where there is one
   */
  query<R extends Row = Row>(text: string, values?: readonly unknown[]): Promise<R[]>;
}

/** A pool of connections, or the one connection of PGlite. */
export interface Database extends Sql {
  readonly kind: 'postgres' | 'pglite';
  /**
   * Runs `work` in one transaction at READ COMMITTED, commits when it returns, rolls back when it throws.
   * A fault of COMMIT itself is `database_unavailable`: the outcome is unknown, and the caller must look.
   */
  transaction<T>(work: (tx: Sql) => Promise<T>): Promise<T>;
  /** Runs a script of many statements without parameters (migrations, test set-up). */
  script(text: string): Promise<void>;
  /** present use, for metrics and the leak gauge */
  stats(): { open: number; idle: number; waiting: number };
  close(): Promise<void>;
}
