import { NOON_MS, NumbersInMemory } from './stepped-world.ts';
import { workerNumbersKeepTheirPromises } from './worker-numbers-promises.ts';

let numbers = new NumbersInMemory(() => NOON_MS);

workerNumbersKeepTheirPromises('in memory', () => ({
  numbers: {
    take: (request) => numbers.take(request),
    renew: (request) => numbers.renew(request),
    giveUp: (request) => numbers.giveUp(request),
  },
  async lapse(...lapsed) {
    for (const [number, row] of numbers.rows) if (lapsed.includes(number)) row.expiresAtMs = NOON_MS;
  },
  async holdAll() {
    for (const row of numbers.rows.values()) row.expiresAtMs = NOON_MS + 86_400_000;
  },
  async clear() {
    numbers = new NumbersInMemory(() => NOON_MS);
  },
}));
