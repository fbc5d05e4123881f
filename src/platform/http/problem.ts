/** Problem documents (RFC 9457) for everything but the answers to a purchase, which `answer.ts` builds. */
import { chooseLanguage, fieldFault, TITLES, type ProblemCode } from '../../domain/text.ts';
import type { Random } from '../clock.ts';

/** Media type of problem documents. */
export const PROBLEM_TYPE = 'application/problem+json; charset=utf-8';
/** Longest name of a field that is said back to a caller: an unknown one is his text, not ours. */
const FIELD_CHARACTERS_MAX = 100;

/** The parts of a request and a reply that a problem needs. */
type Asked = { readonly headers: { readonly 'accept-language'?: string | undefined } };
type Answered = {
  code(status: number): Answered;
  header(name: string, value: string): Answered;
  type(contentType: string): Answered;
  send(body: string): unknown;
};

/**
 * Sends a problem in the caller's language. `more` adds members, `retryAfterMs` says when to come back.
 * Never cached: it is in one caller's language, and what is unknown now may be there in a second.
 */
export function sendProblem(
  request: Asked,
  reply: Answered,
  problem: { status: number; code: ProblemCode; more?: Readonly<Record<string, unknown>>; retryAfterMs?: number },
): unknown {
  const title = TITLES[problem.code][chooseLanguage(request.headers['accept-language'])];
  const wait = problem.retryAfterMs;
  if (wait !== undefined) reply.header('retry-after', String(Math.max(1, Math.ceil(wait / 1000))));
  return reply
    .code(problem.status)
    .header('cache-control', 'no-store')
    .type(PROBLEM_TYPE)
    .send(
      JSON.stringify({
        code: problem.code,
        title,
        status: problem.status,
        ...problem.more,
        ...(wait === undefined ? {} : { retryAfterMs: wait }),
      }),
    );
}

/**
 * Sends 400 `invalid` about one field.
 * @param fault.kind keyword of FIELD_FAULTS, @param fault.field its name, @param fault.limit what it must keep to
 */
export function sendInvalid(
  request: Asked,
  reply: Answered,
  fault: { kind: string; field: string; limit?: unknown },
): unknown {
  const field = fault.field.slice(0, FIELD_CHARACTERS_MAX);
  const detail = fieldFault(fault.kind, chooseLanguage(request.headers['accept-language']), { ...fault, field });
  return sendProblem(request, reply, { status: 400, code: 'invalid', more: { field, detail } });
}

/** Sends 503 `busy`: nothing was done, and the waits of a crowd are spread so that it does not come back in step. */
export function sendBusy(request: Asked, reply: Answered, random: Pick<Random, 'fraction'>): unknown {
  const retryAfterMs = Math.round(1_000 + random.fraction() * 2_000);
  return sendProblem(request, reply, { status: 503, code: 'busy', retryAfterMs });
}
