/**
 * The closed list of answers to a purchase: one meaning each, tested in a fixed order (contract "Purchase
 * answers"; docs/results.md is tested against this table both ways).
 */
import type { Mark } from './mark.ts';

/** What the gate decides inside `hold.lua`, with the number the script returns (article 2.1, design §4). */
export const GATE_CODES = {
  not_ready: -1,
  key_reused: -6,
  replayed: 2,
  already_bought: -2,
  not_open: -3,
  paused: -4,
  ended: -5,
  sold_out: 0,
  held: 1,
  invalid: -7,
} as const;

/** Name of an answer of the gate. */
export type GateCode = keyof typeof GATE_CODES;

/** One purchase as it reaches the gate. */
export type HoldRequest = {
  readonly buyerId: string;
  readonly requestId: string;
  /** units, 1 to the activity's per-buyer limit */
  readonly quantity: number;
};

/** The gate's answer to one purchase. `busy`: nothing ran. `in_doubt`: the hold may exist, ask again with the same key. */
export type HoldResult =
  | { readonly code: 'held'; readonly mark: Mark }
  | { readonly code: 'replayed'; readonly mark: Mark }
  | { readonly code: 'already_bought'; readonly mark: Mark }
  | { readonly code: 'not_open'; readonly opensAt: number }
  | {
      readonly code: 'key_reused' | 'paused' | 'ended' | 'sold_out' | 'not_ready' | 'busy' | 'in_doubt' | 'invalid';
    };

/** Every code a purchase can be answered with, in the contract's order of answers. */
export const PURCHASE_CODES = [
  'busy',
  'invalid',
  'blocked',
  'unauthenticated',
  'unknown_activity',
  'limited',
  'ticket_required',
  'ticket_invalid',
  'not_ready',
  'key_reused',
  'replayed',
  'already_bought',
  'not_open',
  'paused',
  'ended',
  'sold_out',
  'held',
  'ordered',
  'in_doubt',
] as const;
/** Code of an answer to a purchase. */
export type PurchaseCode = (typeof PURCHASE_CODES)[number];
