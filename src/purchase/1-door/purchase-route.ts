/**
 * The door: `POST /activities/{id}/purchases` becomes a `HoldRequest` (contract "Buyer API").
 *
 * Form is checked by schema before anything else, the activity's limit with it; then who is asking. Identity and limit
 * never come from the caller. The order of answers is the contract's: form, identity, activity, window, gate.
 */
import Type from 'typebox';
import type { Activity } from '../../domain/activity.ts';
import { ID_PATTERN, PER_BUYER_LIMIT_MAX, REQUEST_ID_PATTERN } from '../../domain/ids.ts';
import type { HoldRequest, PurchaseCode } from '../../domain/results.ts';
import { chooseLanguage, fieldFault } from '../../domain/text.ts';
import type { HttpReply, HttpRequest, Route } from '../../platform/http/server.ts';

/** Who is asking, by the bearer token. */
export type Identify = (
  authorization: string | undefined,
) => Answered<{ kind: 'buyer'; buyerId: string } | { kind: 'unauthenticated'; reason: string }>;
type Answered<T> = T | Promise<T>;

/** What the door needs: the walk behind it, and the answers. */
export type DoorPorts<Answer extends { readonly code: PurchaseCode }> = {
  readonly identify: Identify;
  readonly activity: (id: string) => Activity | undefined;
  readonly purchase: (activityId: string, request: HoldRequest) => Promise<Answer>;
  readonly replyTo: (
    answer:
      | Answer
      | { code: 'unauthenticated'; reason: string }
      | { code: 'invalid'; field: string; detail: string }
      | { code: 'busy' },
    acceptLanguage: string | undefined,
  ) => {
    readonly status: number;
    readonly contentType: string;
    readonly body: Buffer | string;
    readonly headers: Readonly<Record<string, string>>;
  };
  readonly counted: (code: PurchaseCode) => void;
};

const Params = Type.Object({ id: Type.String({ pattern: ID_PATTERN }) });
const Headers = Type.Object({ 'idempotency-key': Type.String({ pattern: REQUEST_ID_PATTERN }) });
const Body = Type.Object(
  {
    quantity: Type.Integer({ minimum: 1, maximum: PER_BUYER_LIMIT_MAX }),
    // a ticket where none is required is ignored
    ticket: Type.Optional(Type.String({ maxLength: 1_024 })),
  },
  { additionalProperties: false },
);

/** What each status means (docs/results.md has all codes). */
const REPLIES = {
  200: 'replayed: the first answer to this key, with the present state',
  201: 'ordered: the order is stored; only where the activity answers when ordered',
  202: 'held: the units are the buyer’s, and the receipt tells what becomes of them',
  400: 'invalid',
  401: 'unauthenticated',
  404: 'unknown_activity',
  409: 'already_bought, sold_out, not_open or paused',
  410: 'ended',
  422: 'key_reused: this key has bought another quantity',
  503: 'busy, not_ready or in_doubt: ask again with the same key after Retry-After',
};

/** The purchase call. */
export function purchaseRoute<Answer extends { readonly code: PurchaseCode }>(ports: DoorPorts<Answer>): Route {
  const send = (
    request: HttpRequest,
    reply: HttpReply,
    answer: Parameters<DoorPorts<Answer>['replyTo']>[0],
  ): HttpReply => {
    ports.counted(answer.code);
    const answered = ports.replyTo(answer, request.headers['accept-language']);
    reply.code(answered.status).header('content-type', answered.contentType).header('cache-control', 'no-store');
    for (const name in answered.headers) reply.header(name, answered.headers[name]);
    return reply.send(answered.body);
  };

  return {
    method: 'POST',
    path: '/api/v1/activities/:id/purchases',
    summary: 'Buys. Repeat with the same Idempotency-Key until the answer is not busy, not_ready or in_doubt.',
    caller: 'buyer',
    replies: REPLIES,
    schema: { params: Params, headers: Headers, body: Body },
    async handler(request, reply) {
      const { id } = request.params as { id: string };
      const { quantity } = request.body as { quantity: number };
      const limit = ports.activity(id)?.perBuyerLimit;
      if (limit !== undefined && quantity > limit) {
        const field = 'quantity';
        const detail = fieldFault('limit', chooseLanguage(request.headers['accept-language']), { field, limit });
        return send(request, reply, { code: 'invalid', field, detail });
      }
      const identified = ports.identify(request.headers.authorization);
      const who = identified instanceof Promise ? await identified : identified;
      if (who.kind === 'unauthenticated') {
        // keys that cannot be had now say nothing about the buyer: he must not be sent to sign in again
        if (who.reason === 'unavailable') return send(request, reply, { code: 'busy' });
        return send(request, reply, { code: 'unauthenticated', reason: who.reason });
      }
      const answer = await ports.purchase(id, {
        buyerId: who.buyerId,
        requestId: request.headers['idempotency-key'] as string,
        quantity,
      });
      return send(request, reply, answer);
    },
  };
}
