/** Reads order ids back into their parts, independently of the code that writes them. */

/** An id's parts. */
export function readOrderId(id: string): { instantMs: number; number: number; sequence: number } {
  const bits = BigInt(id);
  return {
    instantMs: Number(bits / 4_194_304n) + Date.UTC(2025, 0, 1),
    number: Number((bits / 4_096n) % 1_024n),
    sequence: Number(bits % 4_096n),
  };
}
