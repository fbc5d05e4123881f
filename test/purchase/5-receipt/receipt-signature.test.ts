import { expect, test } from 'vitest';
import { RECEIPT_LENGTH_MAX, ReceiptSigner } from '../../../src/purchase/5-receipt/receipt-signature.ts';

const [OLD, NEW] = ['an-old-secret-an-old-secret-an-old-secret', 'a-new-secret-a-new-secret-a-new-secret-1'];
const facts = { activityId: 'act-1', run: 3, orderId: '7310591234567890', buyerId: 'ann', quantity: 2 };

test('what was signed is read back, the same text each time', () => {
  const signer = new ReceiptSigner([NEW]);
  const receipt = signer.sign(facts);
  expect(receipt).toMatch(/^r1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}$/);
  expect(new ReceiptSigner([NEW]).sign({ ...facts })).toBe(receipt);
  expect(signer.read(receipt)).toEqual(facts);
});

test('while secrets rotate the newest signs and all of them read', () => {
  const [before, during, after] = [new ReceiptSigner([OLD]), new ReceiptSigner([NEW, OLD]), new ReceiptSigner([NEW])];
  expect(during.read(before.sign(facts))).toEqual(facts);
  expect(during.sign(facts)).toBe(after.sign(facts));
  expect(after.read(before.sign(facts))).toBeUndefined();
});

test('the longest is within its bound', () => {
  const longest = {
    activityId: 'a'.repeat(64),
    run: Number.MAX_SAFE_INTEGER,
    orderId: '9223372036854775807',
    buyerId: 'b'.repeat(64),
    quantity: 1_000,
  };
  const signer = new ReceiptSigner([NEW]);
  expect(signer.sign(longest).length).toBeLessThanOrEqual(RECEIPT_LENGTH_MAX);
  expect(signer.read(signer.sign(longest))).toEqual(longest);
});

test('every character of it matters', () => {
  const signer = new ReceiptSigner([NEW]);
  const receipt = signer.sign(facts);
  for (let at = 0; at < receipt.length; at++) {
    const other = receipt[at] === 'A' ? 'B' : 'A';
    expect(signer.read(receipt.slice(0, at) + other + receipt.slice(at + 1))).toBeUndefined();
    expect(signer.read(receipt.slice(0, at))).toBeUndefined();
    expect(signer.read(receipt.slice(0, at) + receipt.slice(at + 1))).toBeUndefined();
  }
  for (const odd of ['', '.', '..', 'r1', 'r1..', `${receipt}.`, ` ${receipt}`, `${receipt}\n`, 'r1.e30.e30']) {
    expect(signer.read(odd)).toBeUndefined();
  }
});
