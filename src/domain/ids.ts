/**
 * Ids are short strings of a fixed alphabet, compared as they are, never numbers.
 * Quantities are integers; an order id is a decimal string, since 64 bits do not fit a JSON number.
 */

/** Activities and buyers: `[A-Za-z0-9_-]{1,64}`. */
export const ID_PATTERN = '^[A-Za-z0-9_-]{1,64}$';
/** `Idempotency-Key`, the request id: `[A-Za-z0-9_.:-]{8,64}`. */
export const REQUEST_ID_PATTERN = '^[A-Za-z0-9_.:-]{8,64}$';
/** The form of order ids: a positive decimal without leading zero. The largest of this form are none: see `isOrderId`. */
export const ORDER_ID_PATTERN = '^[1-9][0-9]{0,18}$';
/** The largest order id: beyond 63 bits nothing is ever numbered, and PostgreSQL would not read it. */
const ORDER_ID_MAX = '9223372036854775807';

const ID = new RegExp(ID_PATTERN);
const REQUEST_ID = new RegExp(REQUEST_ID_PATTERN);
const ORDER_ID = new RegExp(ORDER_ID_PATTERN);

/** Whether `text` may name an activity or a buyer. */
export const isId = (text: unknown): text is string => typeof text === 'string' && ID.test(text);
/** Whether `text` may be a request id. */
export const isRequestId = (text: unknown): text is string => typeof text === 'string' && REQUEST_ID.test(text);
/** Whether `text` may be an order id: of the form, and within 63 bits. */
export const isOrderId = (text: unknown): text is string =>
  typeof text === 'string' && ORDER_ID.test(text) && (text.length < ORDER_ID_MAX.length || text <= ORDER_ID_MAX);

/** Units of one activity, at most (contract: bounds). */
export const TOTAL_MAX = 10_000_000;
/** Units one buyer may have, at most (contract: bounds). */
export const PER_BUYER_LIMIT_MAX = 1_000;
/** Price of a unit in minor units of its currency, at most (contract: bounds). */
export const PRICE_MINOR_MAX = 100_000_000_000;
