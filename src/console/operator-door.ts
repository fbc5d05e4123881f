/**
 * Who may call the operator API: a bearer token of an operator, whose role reaches. `viewer` reads, `operator` plans and
 * moves, `approver` approves, rejects and confirms too. Nothing here is cached by anybody on the way.
 */
import { OPERATOR_ROLES, type OperatorIdentity, type OperatorRole } from '../platform/identity/operators.ts';
import { sendProblem } from '../platform/http/problem.ts';
import type { HttpReply, HttpRequest } from '../platform/http/server.ts';

/** An operator whose token counts. */
export type Operator = { readonly name: string; readonly role: OperatorRole };

/** A handler that knows who asks. */
export type OperatorHandler = (request: HttpRequest, reply: HttpReply, operator: Operator) => unknown;

/** Lets a handler be reached by operators of at least a role: `door('viewer', handler)`. */
export type OperatorDoor = (
  least: OperatorRole,
  handler: OperatorHandler,
) => (request: HttpRequest, reply: HttpReply) => unknown;

/** Whether a role may do what `least` may. */
export const reaches = (role: OperatorRole, least: OperatorRole): boolean =>
  OPERATOR_ROLES.indexOf(role) >= OPERATOR_ROLES.indexOf(least);

/** Makes the door. */
export function operatorDoor(identity: Pick<OperatorIdentity, 'identifyOperator'>): OperatorDoor {
  return (least, handler) => (request, reply) => {
    reply.header('cache-control', 'no-store');
    const who = identity.identifyOperator(request.headers.authorization);
    if (who.kind === 'unauthenticated') {
      reply.header('www-authenticate', 'Bearer');
      return sendProblem(request, reply, { status: 401, code: 'unauthenticated', more: { reason: who.reason } });
    }
    if (!reaches(who.role, least)) {
      return sendProblem(request, reply, { status: 403, code: 'forbidden', more: { role: who.role, needs: least } });
    }
    return handler(request, reply, who);
  };
}
