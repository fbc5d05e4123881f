import { expect, test } from 'vitest';
import { fieldFault, FIELD_FAULTS, TITLES } from '../../src/domain/text.ts';

test('every sentence is there in both languages, and they differ', () => {
  for (const words of [...Object.values(TITLES), ...Object.values(FIELD_FAULTS)]) {
    expect(words['zh-CN'].trim()).not.toBe('');
    expect(words.en.trim()).not.toBe('');
    expect(words['zh-CN']).not.toBe(words.en);
  }
});

test('a field’s name is said as it is, whatever is in it', () => {
  expect(fieldFault('additionalProperties', 'en', { field: '$&' })).toBe('$& is not known here');
  expect(fieldFault('minimum', 'en', { field: '{limit}', limit: 1 })).toBe('{limit} must not be less than 1');
  expect(fieldFault('toString', 'en', { field: 'x' })).toBe('x is not valid');
  expect(fieldFault('required', 'zh-CN', { field: 'quantity' })).toBe('缺少 quantity');
});
