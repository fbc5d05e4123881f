/**
 * One generator's share of the crowd: sends its buyers to the door by their manners and keeps every answer.
 *
 * Promises: bounded requests in flight; nobody is left with an answer that only says "not now" while patience lasts; every
 * press is kept as it was answered, before anybody judges it.
 * Does not: know how the servers work. It has addresses and tokens, as buyers have, and imports nothing that could get it
 * past the door.
 */
import type { BuyerCalls } from './buyer-calls.ts';
import { RECEIPT_END_LENGTH, type BuyerEvidence, type Heard, type PressKind, type ToldEnd } from './evidence.ts';
import { BAD_BODIES, buyerIdOf, mannerOf, randomFrom, type CrowdSize, type Manner } from './manners.ts';

/** What a share of the crowd needs. */
export type CrowdPorts = {
  readonly calls: BuyerCalls;
  /** epoch ms by the host's clock, never stepping back */
  readonly now: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  /** a good token */
  readonly tokenOf: (buyerId: string) => string;
  /** an `Authorization` that is none, of one kind or another; undefined: none at all */
  readonly wrongAuthorization: (buyerId: string, kind: number) => string | undefined;
};

/** Which share of which crowd. */
export type CrowdShare = CrowdSize & {
  readonly activityId: string;
  /** this generator's number, and how many there are: it takes every so-manieth buyer */
  readonly generator: number;
  readonly generators: number;
  /** requests in flight at once, at most */
  readonly inFlight: number;
};

/** Counts so far, for the progress line. */
export type CrowdProgress = {
  readonly requests: number;
  readonly accepted: number;
  /** answers by code; '' where none came */
  readonly codes: Readonly<Record<string, number>>;
};

type Buyer = {
  readonly id: string;
  readonly manner: Manner;
  readonly heard: Heard[];
  readonly ends: ToldEnd[];
  /** the first order that he was told is his */
  won?: { key: string; orderId: string; receipt: string };
  /** his first press, where the eager ones were let in before the rest */
  first?: Promise<void>;
};

/** Answers that only say "not now": asked again with the same key. */
const NOT_NOW = new Set(['', 'busy', 'in_doubt', 'not_ready', 'limited']);
/** How long a buyer asks again before he gives up. */
const PATIENCE_MS = 60_000;
const WAIT_MS_MAX = 2_000;
/** Winners that come back, and that look into their list of orders, in each phase. */
const RETURNING_MAX = 300;
const LISTING_MAX = 100;

/** A share of the crowd. Its phases are called in order. */
export class Crowd {
  readonly #share: CrowdShare;
  readonly #ports: CrowdPorts;
  readonly #buyers: Buyer[] = [];
  readonly #random: () => number;
  readonly #codes: Record<string, number> = {};
  #requests = 0;
  #accepted = 0;

  constructor(share: CrowdShare, ports: CrowdPorts) {
    this.#share = share;
    this.#ports = ports;
    this.#random = randomFrom(share.seed ^ (0x5eed + share.generator));
    for (let index = share.generator; index < share.buyers; index += share.generators) {
      this.#buyers.push({ id: buyerIdOf(index), manner: mannerOf(index, share), heard: [], ends: [] });
    }
  }

  progress(): CrowdProgress {
    return { requests: this.#requests, accepted: this.#accepted, codes: this.#codes };
  }

  /** Early birds press before the opening. */
  async early(): Promise<void> {
    await this.#each(this.#of('early'), async (buyer) => {
      await this.#press(buyer, 1);
    });
  }

  /** The eager ones alone press for the first time: a sale that has begun and is not over, for who wants to break it. */
  async eager(): Promise<void> {
    await this.#each(this.#of('eager'), (buyer) => (buyer.first = this.#insist(buyer, 1)));
  }

  /** Everybody presses but those who come late. Eager ones who were let in alone come back before the rest is let in. */
  async flood(): Promise<void> {
    const now = this.#buyers.filter(({ manner }) => manner !== 'late' && manner !== 'after_end');
    const back = now.filter(({ first }) => first !== undefined);
    await this.#each(back, (buyer) => this.#behave(buyer));
    const rest = now.filter(({ first }) => first === undefined);
    await this.#each(rest, (buyer) => this.#behave(buyer));
  }

  /** Late comers, and winners who cannot believe it. */
  async late(): Promise<void> {
    await this.#each(this.#of('late'), (buyer) => this.#insist(buyer, 1));
    await this.#each(this.#returning(), (buyer) => this.#comeBack(buyer, 8));
  }

  /** Those who come when the sale is over, and winners once more. */
  async afterEnd(): Promise<void> {
    await this.#each(this.#of('after_end'), (buyer) => this.#insist(buyer, 1));
    await this.#each(this.#returning(), (buyer) => this.#comeBack(buyer, 9));
  }

  /** Everybody who was told of an order asks how it ended, until it has or patience ends. */
  async collect(): Promise<void> {
    const winners = this.#buyers.filter((buyer) => buyer.won !== undefined);
    let lists = LISTING_MAX;
    await this.#each(winners, async (buyer) => {
      buyer.ends.push(await this.#askForEnd(buyer, lists-- > 0));
    });
  }

  /** What everybody heard. */
  *evidence(): Generator<BuyerEvidence> {
    for (const { id, heard, ends } of this.#buyers) yield { buyerId: id, heard, ends };
  }

  async #behave(buyer: Buyer): Promise<void> {
    switch (buyer.manner) {
      case 'eager':
        await (buyer.first ?? this.#insist(buyer, 1));
        await this.#insist(buyer, 2);
        return this.#insist(buyer, 1);
      case 'double_click':
        await Promise.all([this.#insist(buyer, 1), this.#insist(buyer, 2)]);
        return;
      case 'network_repeat':
        await Promise.all([this.#insist(buyer, 1), this.#insist(buyer, 1)]);
        return this.#insist(buyer, 1);
      case 'second_thought':
        await this.#insist(buyer, 1);
        return this.#insist(buyer, 2);
      case 'wrong_token':
        await this.#press(buyer, 1, 'wrong_token');
        return this.#insist(buyer, 1);
      case 'bad_body':
        await this.#press(buyer, 1, 'bad_body');
        return this.#insist(buyer, 1);
      case 'stranger':
        await this.#press(buyer, 1, 'unknown_activity');
        return this.#insist(buyer, 1);
      case 'early':
      case 'single':
      case 'late':
      case 'after_end':
        return this.#insist(buyer, 1);
    }
  }

  /** A winner asks for the same again, and for one more. */
  async #comeBack(buyer: Buyer, newKey: number): Promise<void> {
    const { won } = buyer;
    if (won === undefined) return;
    await this.#insist(buyer, won.key);
    await this.#insist(buyer, newKey);
  }

  /** Presses until the answer is one to live with: the same key after "not now". */
  async #insist(buyer: Buyer, key: number | string): Promise<void> {
    const until = this.#ports.now() + PATIENCE_MS;
    for (let tries = 0; ; tries++) {
      const { code, waitMs } = await this.#press(buyer, key);
      if (!NOT_NOW.has(code) || this.#ports.now() > until) return;
      // as told, but no longer than a person would; spread, so that a crowd that was told the same does not march
      const told = waitMs ?? 50 * 2 ** Math.min(tries, 5);
      await this.#ports.sleep(Math.min(WAIT_MS_MAX, told) * (0.5 + this.#random() / 2));
    }
  }

  async #press(
    buyer: Buyer,
    keyNumber: number | string,
    kind: PressKind = 'good',
  ): Promise<{ code: string; waitMs: number | undefined }> {
    const key = typeof keyNumber === 'string' ? keyNumber : `${buyer.id}-key-${keyNumber}`;
    const { activityId } = this.#share;
    const which = Math.floor(this.#random() * 1_000);
    const authorization =
      kind === 'wrong_token'
        ? this.#ports.wrongAuthorization(buyer.id, which)
        : `Bearer ${this.#ports.tokenOf(buyer.id)}`;
    const sentAt = this.#ports.now();
    const reply = await this.#ports.calls.call({
      server: Math.floor(this.#random() * this.#ports.calls.servers),
      method: 'POST',
      path: `/api/v1/activities/${kind === 'unknown_activity' ? `${activityId}-no` : activityId}/purchases`,
      headers: {
        ...(authorization === undefined ? {} : { authorization }),
        'idempotency-key': key,
        'content-type': 'application/json',
      },
      body: kind === 'bad_body' ? BAD_BODIES[which % BAD_BODIES.length]! : '{"quantity":1}',
    });
    const gotAt = this.#ports.now();
    const told = reply.status === 0 ? {} : readAnswer(reply.body);
    const code = told.code ?? '';
    this.#requests += 1;
    this.#codes[code] = (this.#codes[code] ?? 0) + 1;
    if (code === 'held' || code === 'ordered') this.#accepted += 1;
    buyer.heard.push({
      kind,
      key,
      quantity: 1,
      sentAt: tenths(sentAt),
      gotAt: tenths(gotAt),
      status: reply.status,
      code,
      orderId: told.orderId,
      receiptEnd: told.receipt?.slice(-RECEIPT_END_LENGTH),
      toldQuantity: told.quantity,
      state: told.state,
      saysWhen: told.retryAfterMs !== undefined && reply.retryAfter,
      saysReplayed: reply.replayed,
    });
    if (kind === 'good' && told.orderId !== undefined && told.receipt !== undefined && buyer.won === undefined) {
      // a winner who hears of it only by `already_bought` does not know which of his keys it was: the other one
      const winningKey = code === 'already_bought' ? otherKey(buyer, key) : key;
      buyer.won = { key: winningKey, orderId: told.orderId, receipt: told.receipt };
    }
    return { code, waitMs: told.retryAfterMs };
  }

  async #askForEnd(buyer: Buyer, looksIntoList: boolean): Promise<ToldEnd> {
    const { orderId, receipt } = buyer.won!;
    const until = this.#ports.now() + PATIENCE_MS;
    let end: ToldEnd = { orderId, state: '', reason: undefined, delayed: false, listed: undefined };
    for (let waitMs = 50; ; waitMs = Math.min(1_000, waitMs * 2)) {
      const reply = await this.#get(buyer, `/api/v1/receipts/${receipt}`);
      if (reply.status === 200) {
        const told = readAnswer(reply.body);
        end = { ...end, state: told.state ?? '', reason: told.reason, delayed: told.delayed === true };
        if (end.state !== 'queued') break;
      }
      if (this.#ports.now() > until) return end;
      await this.#ports.sleep(waitMs);
    }
    if (end.state !== 'ordered' || !looksIntoList) return end;
    const list = await this.#get(buyer, '/api/v1/orders');
    if (list.status !== 200) return end; // read at a bounded rate: `busy` says nothing
    const { items } = JSON.parse(list.body) as { items: readonly { orderId: string }[] };
    return { ...end, listed: items.some((order) => order.orderId === orderId) };
  }

  #get(buyer: Buyer, path: string) {
    return this.#ports.calls.call({
      server: Math.floor(this.#random() * this.#ports.calls.servers),
      method: 'GET',
      path,
      headers: { authorization: `Bearer ${this.#ports.tokenOf(buyer.id)}` },
    });
  }

  #of(manner: Manner): Buyer[] {
    return this.#buyers.filter((buyer) => buyer.manner === manner);
  }

  #returning(): Buyer[] {
    return this.#buyers.filter((buyer) => buyer.won !== undefined).slice(0, RETURNING_MAX);
  }

  /** Runs work for each buyer, at most `inFlight` at once. */
  async #each(buyers: readonly Buyer[], work: (buyer: Buyer) => Promise<void>): Promise<void> {
    let next = 0;
    const runner = async (): Promise<void> => {
      for (let buyer = buyers[next++]; buyer !== undefined; buyer = buyers[next++]) await work(buyer);
    };
    await Promise.all(Array.from({ length: Math.min(this.#share.inFlight, buyers.length) }, runner));
  }
}

type Answer = {
  code?: string;
  orderId?: string;
  receipt?: string;
  quantity?: number;
  state?: string;
  reason?: string;
  delayed?: boolean;
  retryAfterMs?: number;
};

/** What is not JSON, or has no code, is kept as what it is not: the auditor finds no such answer in the contract. */
function readAnswer(body: string): Answer {
  try {
    const answer: unknown = JSON.parse(body);
    if (typeof answer === 'object' && answer !== null) return { code: 'no code', ...answer };
  } catch {
    // falls through
  }
  return { code: 'not JSON' };
}

const otherKey = (buyer: Buyer, key: string): string => buyer.heard.find((one) => one.key !== key)?.key ?? key;
/** A tenth of a millisecond is more than the clocks of two processes agree on. */
const tenths = (ms: number): number => Math.round(ms * 10) / 10;
