/**
 * Ids are short strings of a fixed alphabet, compared as they are, never numbers.
 * Quantities are integers; an order id is a decimal string, since 64 bits do not fit a JSON number.
 */

/** Activities and buyers: `[A-Za-z0-9_-]{1,64}`. */
export const ID_PATTERN = '^[A-Za-z0-9_-]{1,64}$';
/** `Idempotency-Key`, the request id: `[A-Za-z0-9_.:-]{8,64}`. */
export const REQUEST_ID_PATTERN = '^[A-Za-z0-9_.:-]{8,64}$';
/** Order ids: a positive 63-bit decimal without leading zero. */
export const ORDER_ID_PATTERN = '^[1-9][0-9]{0,18}$';

const ID = new RegExp(ID_PATTERN);
const REQUEST_ID = new RegExp(REQUEST_ID_PATTERN);
const ORDER_ID = new RegExp(ORDER_ID_PATTERN);

/** Whether `text` may name an activity or a buyer. */
export const isId = (text: unknown): text is string => typeof text === 'string' && ID.test(text);
/** Whether `text` may be a request id. */
export const isRequestId = (text: unknown): text is string => typeof text === 'string' && REQUEST_ID.test(text);
/** Whether `text` may be an order id. */
export const isOrderId = (text: unknown): text is string => typeof text === 'string' && ORDER_ID.test(text);

/** Units of one activity, at most (contract: bounds). */
export const TOTAL_MAX = 10_000_000;
/** Units one buyer may have, at most (contract: bounds). */
export const PER_BUYER_LIMIT_MAX = 1_000;
/** Price of a unit in minor units of its currency, at most (contract: bounds). */
export const PRICE_MINOR_MAX = 100_000_000_000;
