/** The event stream of receipts with time in the test's hands: its heartbeat, its slow readers, its bugs. */
import { systemTimers } from '../../../src/platform/clock.ts';
import { connect } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Standing } from '../../../src/domain/receipt.ts';
import type { Timers } from '../../../src/platform/clock.ts';
import { HEARTBEAT_MS } from '../../../src/platform/http/event-stream.ts';
import { makeHttpServer, type HttpServer } from '../../../src/platform/http/server.ts';
import { LandingWaits } from '../../../src/purchase/5-receipt/landing-waits.ts';
import { receiptRoutes } from '../../../src/purchase/5-receipt/receipt-routes.ts';
import type { Receipts } from '../../../src/purchase/5-receipt/receipts.ts';
import { openEvents } from '../../api/events.ts';
import { until } from '../../support/sluice.ts';

/** Sleeps end when the test says so, and the clock moves by what was slept. */
class SteppedTime implements Timers {
  nowMs = 0;
  readonly slept: number[] = [];
  #wake: (() => void) | undefined;
  after = (): never => {
    throw new Error('nothing here takes a timer');
  };
  sleep = (delayMs: number, signal?: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = undefined;
        this.nowMs += delayMs;
        this.slept.push(delayMs);
        resolve();
      };
      signal?.addEventListener('abort', () => resolve(), { once: true });
    });
  get isAsleep(): boolean {
    return this.#wake !== undefined;
  }
  async step(): Promise<void> {
    await until('the stream sleeps', () => this.isAsleep);
    this.#wake!();
  }
}

let server: HttpServer;
let url: string;
let time: SteppedTime;
let standing: () => Standing;
let order: object;
let bugs: unknown[];
let stop: AbortController;
beforeEach(async () => {
  time = new SteppedTime();
  standing = () => ({ state: 'queued' });
  order = {};
  bugs = [];
  stop = new AbortController();
  const facts = { activityId: 'a', run: 1, orderId: '7', buyerId: 'ann', quantity: 1 };
  const receipts = {
    facts: () => facts,
    read: async () => ({ receipt: 'r1.x.y', ...facts, standing: standing(), order }),
  } as unknown as Receipts;
  const random = { fraction: () => 0.5, uuid: () => '', token: () => '' };
  server = makeHttpServer({ bodyBytesMax: 1_024, timers: systemTimers, random, onBug: (error) => bugs.push(error) });
  server.route(
    receiptRoutes({
      buyer: async () => 'ann',
      receipts,
      waits: new LandingWaits(time),
      clock: { now: () => time.nowMs, monotonic: () => time.nowMs },
      random,
      showOrder: () => order,
      eventStreamsMax: 1,
      stopping: stop.signal,
      onBug: (error) => bugs.push(error),
    }),
  );
  url = await server.listen({ host: '127.0.0.1', port: 0 });
});
afterEach(async () => {
  stop.abort();
  await server.close(5_000);
});

test('a stream with nothing to tell beats every fifteen seconds, and looks by itself ever more rarely', async () => {
  const stream = await openEvents(url, 'r1.x.y', 'ann');
  expect(await stream.next()).toMatchObject({ id: 'queued' });
  const beats: number[] = [];
  const listening = (async () => {
    for (let event = await stream.next(); event?.comment !== undefined; event = await stream.next())
      beats.push(time.nowMs);
  })();
  while (time.nowMs < 10 * HEARTBEAT_MS) await time.step();
  await until('the beats have been heard', () => beats.length === Math.floor(time.nowMs / HEARTBEAT_MS));
  expect(beats.length).toBeGreaterThanOrEqual(10);
  expect(HEARTBEAT_MS).toBeLessThanOrEqual(30_000);
  expect(time.slept[0]).toBe(1_000);
  expect(Math.max(...time.slept)).toBeLessThanOrEqual(12_500);
  stream.close();
  await listening.catch(() => undefined);
});

test('whoever does not read is dropped, and his place is free', async () => {
  let turns = 0;
  standing = () => (turns++ % 2 === 0 ? { state: 'queued' } : { state: 'queued', delayed: true });
  order = { filling: 'x'.repeat(1_000_000) };
  const { port } = new URL(url);
  const socket = connect(Number(port), '127.0.0.1', () => {
    socket.write('GET /api/v1/receipts/r1.x.y/events HTTP/1.1\r\nhost: x\r\n\r\n');
  });
  socket.pause();
  socket.on('error', () => undefined);
  await until('it is dropped', async () => {
    if (time.isAsleep) await time.step();
    const response = await fetch(`${url}/api/v1/receipts/r1.x.y/events`);
    await response.body?.cancel();
    return response.status === 200;
  });
  expect(turns).toBeGreaterThan(1);
  socket.destroy();
});

test('a bug ends the stream, is reported, and frees its place', async () => {
  const stream = await openEvents(url, 'r1.x.y', 'ann');
  await stream.next();
  const bug = new Error('a bug');
  standing = () => {
    throw bug;
  };
  await time.step();
  expect(await stream.rest()).toEqual([]);
  expect(bugs).toEqual([bug]);
  standing = () => ({ state: 'failed', reason: 'lost' });
  expect(await (await openEvents(url, 'r1.x.y', 'ann')).rest()).toMatchObject([{ id: 'failed.lost' }]);
});

test('a process that stops takes no new stream', async () => {
  stop.abort();
  expect((await fetch(`${url}/api/v1/receipts/r1.x.y/events`)).status).toBe(503);
});
