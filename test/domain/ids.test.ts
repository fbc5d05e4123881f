/** Ids: what may name an order. */
import { expect, test } from 'vitest';
import { isOrderId } from '../../src/domain/ids.ts';

test.each<[text: unknown, is: boolean]>([
  ['1', true],
  ['9223372036854775807', true],
  ['9223372036854775808', false],
  ['9999999999999999999', false],
  ['999999999999999999', true],
  ['10000000000000000000', false],
  ['0', false],
  ['01', false],
  ['-1', false],
  ['+1', false],
  ['1e3', false],
  ['1.0', false],
  [' 1', false],
  ['1\n', false],
  ['', false],
  ['١', false],
  [1, false],
  [1n, false],
  [undefined, false],
])('%s may be an order id: %s', (text, is) => {
  expect(isOrderId(text)).toBe(is);
});
