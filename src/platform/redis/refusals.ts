/**
 * What a failed Redis call proves. One question decides what a buyer is told: can the command have run?
 *
 * Promises: `redis_refused` only where it cannot have run, on any server, by this call; all else is `redis_unknown`.
 * Wrong either way costs: "refused" for what ran makes a second hold, "unknown" for what did not makes every buyer of a
 * demoted server ask again. So the list is closed, and a text nobody thought of is unknown.
 *
 * Does not decide what to do next: a caller told "refused" may try again, one told "unknown" must look first.
 *
 * @source docs/guarantees.md, "outcome unknown"
 */
import { Fault } from '../../domain/fault.ts';

/**
 * First words of the replies by which a server says that it did not begin (Redis ≥ 7.0).
 * Read on 7.0.15: a script that opens with `#!lua` gets READONLY, NOREPLICAS, OOM and MISCONF before its first line. A
 * script without it gets them from its first write only, with " script: <sha>, on @user_script:<line>." behind: once a
 * script has written, the server lets all its further writes pass, so even that reply proves that nothing was written.
 */
const REFUSING_WORDS: ReadonlySet<string> = new Set([
  'NOSCRIPT', // EVALSHA of a script the server does not hold
  'MOVED', // the slot lives on another node
  'ASK', // the slot is on its way to another node
  'TRYAGAIN', // the keys of one call are on both sides of a slot on its way
  'CLUSTERDOWN', // the slot has no primary, or the node sees no majority
  'READONLY', // demoted to a replica
  'NOREPLICAS', // fewer replicas than `min-replicas-to-write`
  'MISCONF', // the last snapshot or the append-only file failed
  'OOM', // over `maxmemory`
  'LOADING', // still reading its files
  'MASTERDOWN', // a replica cut off from its primary that serves no stale data
  'BUSY', // another script runs too long. Not a prefix: BUSYGROUP and BUSYKEY are other errors
]);

/**
 * Texts of ioredis 6.0.0 for a command that it never gave to a socket. They are proof only together with the settings of
 * `link.ts`: with a retry inside the client, an earlier attempt could have been written before the last one was refused.
 * "Connection is closed." is not here: ioredis says it of commands it had written, too.
 */
const NEVER_WRITTEN: ReadonlySet<string> = new Set([
  "Stream isn't writeable and enableOfflineQueue options is false",
  "Cluster isn't ready and enableOfflineQueue options is false",
  'All keys in the pipeline should belong to the same slots allocation group',
]);

/** Thrown by our own check before ioredis sees the command. */
export class NotConnected extends Error {
  override readonly name = 'NotConnected';
}

/** Whether EVALSHA failed because the server does not hold the script; the one refusal that is answered by sending EVAL. */
export function isNoScript(error: unknown): boolean {
  return isReply(error) && firstWord(error.message) === 'NOSCRIPT';
}

/** Whether the error says that the client's picture of the cluster may be out of date. */
export function isStaleMap(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const word = firstWord(error.message);
  return word === 'MOVED' || word === 'ASK' || word === 'CLUSTERDOWN' || error.message === 'Connection is closed.';
}

/**
 * The fault that a failed call is.
 * @param error what ioredis rejected with, or `NotConnected`
 * @param attempted what was tried, in a few words, for the log
 * @returns `redis_refused` (retryable) where nothing ran; else `redis_unknown`, retryable unless the server itself
 *   answered with an error: the same call would get the same reply. `cause` is the error.
 */
export function faultOf(error: unknown, attempted: string): Fault {
  if (provesNothingRan(error)) return new Fault('redis_refused', attempted, { retryable: true, cause: error });
  return new Fault('redis_unknown', attempted, { retryable: !isReply(error), cause: error });
}

function provesNothingRan(error: unknown): boolean {
  if (error instanceof NotConnected) return true;
  if (isReply(error)) return REFUSING_WORDS.has(firstWord(error.message));
  return error instanceof Error && NEVER_WRITTEN.has(error.message);
}

/** Whether a server sent this error; a text made up by the client must not pass for a reply. */
function isReply(error: unknown): error is Error {
  return error instanceof Error && error.name === 'ReplyError';
}

function firstWord(text: string): string {
  const end = text.indexOf(' ');
  return end === -1 ? text : text.slice(0, end);
}
