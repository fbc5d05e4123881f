/** `POST /api/v1/dev/login`: lets anybody be anybody. For trying out only; the settings refuse it in production. */
import Type from 'typebox';
import { ID_PATTERN } from '../../domain/ids.ts';
import { must } from '../../domain/fault.ts';
import type { Clock } from '../clock.ts';
import type { Route } from '../http/server.ts';
import { issueDevelopmentToken } from './development.ts';

const Body = Type.Object({ buyerId: Type.String({ pattern: ID_PATTERN }) }, { additionalProperties: false });

/** The call; tokens pass the same checks as any buyer's. */
export function developmentRoute(ports: {
  config: {
    readonly buyerSecrets: readonly string[];
    readonly buyerClaim: string | undefined;
    readonly buyerIssuer: string | undefined;
    readonly buyerAudience: string | undefined;
  };
  clock: Clock;
}): Route {
  const { config, clock } = ports;
  return {
    method: 'POST',
    path: '/api/v1/dev/login',
    summary: 'A buyer’s token for anybody who asks: for trying out only.',
    schema: { body: Body },
    handler(request, reply) {
      const { buyerId } = request.body as { buyerId: string };
      const token = issueDevelopmentToken(buyerId, {
        secret: must(config.buyerSecrets[0], 'development identity signs with the buyers’ secret'),
        clock,
        ...(config.buyerClaim === undefined ? {} : { claim: config.buyerClaim }),
        ...(config.buyerIssuer === undefined ? {} : { issuer: config.buyerIssuer }),
        ...(config.buyerAudience === undefined ? {} : { audience: config.buyerAudience }),
      });
      return reply.header('cache-control', 'no-store').send({ token });
    },
  };
}
