/** What one process does. */

/** What a process does: answer buyers, land orders, or both. */
export type Role = 'api' | 'worker' | 'all';
