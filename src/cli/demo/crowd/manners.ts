/**
 * Who is in the crowd and how each of them behaves. A crowd on sale day is not one request a person: some press twice,
 * some have a network that repeats, some come too early or too late, some have a token that is none.
 */

/** How a buyer behaves. */
export type Manner =
  | 'eager' // first at the door; presses again with a new key, and repeats the first
  | 'early' // presses before the opening, and again after it with the same key
  | 'single' // presses once
  | 'double_click' // two keys at the same moment
  | 'network_repeat' // one key twice at the same moment, and once more later
  | 'second_thought' // one key, then another
  | 'wrong_token' // a token that is none, then a good one
  | 'bad_body' // nonsense, then a good request
  | 'stranger' // an activity that there is not, then ours
  | 'late' // comes when the others have been served
  | 'after_end'; // comes when the sale is over

/** Shares of the crowd behind the eager ones; single is the rest. */
const SHARES: readonly (readonly [Manner, number])[] = [
  ['early', 0.05],
  ['double_click', 0.2],
  ['network_repeat', 0.15],
  ['second_thought', 0.15],
  ['wrong_token', 0.05],
  ['bad_body', 0.05],
  ['stranger', 0.01],
  ['late', 0.05],
  ['after_end', 0.04],
];

/** A crowd. */
export type CrowdSize = {
  readonly buyers: number;
  /** the first so many are eager */
  readonly eager: number;
  readonly seed: number;
};

/** Random numbers in [0, 1) from a seed (mulberry32): good enough to choose who misbehaves, and the same again. */
export function randomFrom(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** The manner of the buyer with this number, the same for one seed whoever asks. */
export function mannerOf(index: number, crowd: CrowdSize): Manner {
  if (index < crowd.eager) return 'eager';
  let mood = randomFrom(crowd.seed + Math.imul(index, 0x9e3779b1))();
  for (const [manner, share] of SHARES) {
    if (mood < share) return manner;
    mood -= share;
  }
  return 'single';
}

/** A buyer's id. */
export const buyerIdOf = (index: number): string => `buyer-${index}`;

/** Bodies that the door must refuse as `invalid`, whoever brings them; the limit of the demo's activity is 1. */
export const BAD_BODIES: readonly string[] = [
  '{"quantity":-3}',
  '{"quantity":0}',
  '{"quantity":1.5}',
  '{"quantity":"1"}',
  '{"quantity":1e9}',
  '{"quantity":2}',
  '{"quantity":null}',
  '{"quantity":1,"price":1}',
  '{}',
  '[]',
  '{"quantity":1',
];
