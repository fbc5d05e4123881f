/** Activities over the operator API: making, reviewing, preheating, running, settling and verifying them. */
import Type from 'typebox';
import type { PlanFault, Planned } from '../activity/1-plan/plan.ts';
import type { Verified } from '../activity/4-verify/verify.ts';
import type { Settled } from '../activity/6-settle/settle.ts';
import { stateAt, type ActivityRecord } from '../domain/activity.ts';
import { unreachable } from '../domain/fault.ts';
import { ID_PATTERN } from '../domain/ids.ts';
import { chooseLanguage, fieldFault, MOVE_REFUSALS } from '../domain/text.ts';
import { sendInvalid, sendProblem } from '../platform/http/problem.ts';
import type { HttpReply, HttpRequest, Route } from '../platform/http/server.ts';
import {
  ActivityCopy,
  ActivityEdit,
  NewActivity,
  notOffered,
  OneActivity,
  readEdit,
  readPlan,
  readReason,
  SettleBody,
  showActivity,
  WhyBody,
  type ActivityEditBody,
  type NewActivityBody,
} from './activity-forms.ts';
import type { ActivityWalk, By, Done, MadeReport, NotMoved } from './activity-walk.ts';
import type { Operator, OperatorDoor } from './operator-door.ts';

/** What these calls need. */
export type ActivityConsolePorts = {
  readonly door: OperatorDoor;
  readonly walk: ActivityWalk;
  readonly find: (id: string) => Promise<ActivityRecord | undefined>;
  /** newest first; undefined where there is no `after` */
  readonly list: (page: { limit: number; after?: string }) => Promise<ActivityRecord[] | undefined>;
  readonly verify: (id: string) => Promise<Verified | undefined>;
  /** numbers of the sale as it runs; undefined where there is no such activity */
  readonly live: (activity: ActivityRecord) => Promise<object>;
  /** the instant by which an activity's state is told, epoch ms */
  readonly now: (activity: ActivityRecord) => number;
  /** an id for an activity that names none */
  readonly newId: () => string;
};

const Page = Type.Object(
  {
    limit: Type.Optional(Type.String({ pattern: '^([1-9][0-9]?|1[0-9]{2}|200)$' })),
    after: Type.Optional(Type.String({ pattern: ID_PATTERN })),
  },
  { additionalProperties: false },
);

/** Items of a page where nobody names a number. */
const PAGE_DEFAULT = 50;
const ETAG = /^"(0|[1-9][0-9]{0,14})"$/;

/** The calls. */
export function activityConsoleRoutes(ports: ActivityConsolePorts): Route[] {
  const { door, walk } = ports;
  const idOf = (request: HttpRequest): string => (request.params as { id: string }).id;
  const unknown = (request: HttpRequest, reply: HttpReply): unknown =>
    sendProblem(request, reply, { status: 404, code: 'unknown_activity' });
  const etag = (activity: ActivityRecord): string => `"${activity.version}"`;
  const show = (activity: ActivityRecord): object => showActivity(activity, ports.now(activity));

  function refuseFault(request: HttpRequest, reply: HttpReply, fault: PlanFault): unknown {
    return sendInvalid(request, reply, { kind: fault.fault, field: fault.field, limit: fault.limit });
  }

  function refuseOption(request: HttpRequest, reply: HttpReply, field: string): unknown {
    const detail = fieldFault('not_offered', chooseLanguage(request.headers['accept-language']), { field });
    return sendProblem(request, reply, { status: 400, code: 'not_offered', more: { field, detail } });
  }

  function refuseMove(request: HttpRequest, reply: HttpReply, outcome: NotMoved): unknown {
    switch (outcome.kind) {
      case 'unknown_activity':
        return unknown(request, reply);
      case 'old_version':
        reply.header('etag', etag(outcome.activity));
        return sendProblem(request, reply, {
          status: 412,
          code: 'old_version',
          more: { activity: show(outcome.activity) },
        });
      case 'refused': {
        const { reason, activity } = outcome;
        const detail = MOVE_REFUSALS[reason][chooseLanguage(request.headers['accept-language'])];
        if (reason === 'own') {
          return sendProblem(request, reply, { status: 403, code: 'forbidden', more: { reason, detail } });
        }
        const { paused, preheat, version } = activity;
        const state = stateAt(activity, ports.now(activity));
        return sendProblem(request, reply, {
          status: 409,
          code: 'wrong_state',
          more: { reason, detail, state, paused, preheat, version },
        });
      }
      default:
        return unreachable(outcome);
    }
  }

  function sendMoved(request: HttpRequest, reply: HttpReply, outcome: Done | NotMoved): unknown {
    if (outcome.kind !== 'moved') return refuseMove(request, reply, outcome);
    const { activity, gateTold } = outcome;
    return reply.header('etag', etag(activity)).send({ ...show(activity), gateTold });
  }

  function sendPlanned(
    request: HttpRequest,
    reply: HttpReply,
    planned: Planned | { kind: 'unknown_activity' },
  ): unknown {
    if (planned.kind === 'unknown_activity') return unknown(request, reply);
    if (planned.kind === 'invalid') return refuseFault(request, reply, planned);
    if (planned.kind === 'exists') return sendProblem(request, reply, { status: 409, code: 'activity_exists' });
    const { activity } = planned;
    return reply
      .code(201)
      .header('location', `/api/v1/admin/activities/${activity.id}`)
      .header('etag', etag(activity))
      .send(show(activity));
  }

  /** The version that `If-Match` names; undefined where it names none; a fault where it is none. */
  function versionOf(request: HttpRequest): { readonly version: number | undefined } | PlanFault {
    const named = request.headers['if-match'];
    if (named === undefined) return { version: undefined };
    const [, version] = ETAG.exec(named) ?? [];
    return version === undefined ? { field: 'if-match', fault: 'version' } : { version: Number(version) };
  }

  /** A move without any more to it than who and why. */
  const moving = (work: (id: string, by: By, request: HttpRequest, reply: HttpReply) => Promise<unknown>) =>
    async function handle(request: HttpRequest, reply: HttpReply, operator: Operator): Promise<unknown> {
      const why = readReason(request.body);
      if ('fault' in why) return refuseFault(request, reply, why);
      const seen = versionOf(request);
      if ('fault' in seen) return refuseFault(request, reply, seen);
      return work(idOf(request), { actor: operator.name, ...why, ...seen }, request, reply);
    };
  const simply = (work: (id: string, by: By) => Promise<Done | NotMoved>) =>
    moving(async (id, by, request, reply) => sendMoved(request, reply, await work(id, by)));

  const moveSchema = { params: OneActivity, body: WhyBody };
  const caller = 'operator' as const;

  return [
    {
      method: 'POST',
      path: '/api/v1/admin/activities',
      summary: 'Plans an activity; it waits in review.',
      caller,
      schema: { body: NewActivity },
      replies: { 201: 'the activity' },
      handler: door('operator', async (request, reply, operator) => {
        const body = request.body as NewActivityBody;
        const option = notOffered(body);
        if (option !== undefined) return refuseOption(request, reply, option);
        const plan = readPlan(body, ports.newId());
        if ('fault' in plan) return refuseFault(request, reply, plan);
        return sendPlanned(request, reply, await walk.create(plan, operator.name));
      }),
    },
    {
      method: 'GET',
      path: '/api/v1/admin/activities',
      summary: 'Activities in any state, newest first.',
      caller,
      schema: { querystring: Page },
      handler: door('viewer', async (request, reply) => {
        const query = request.query as { limit?: string; after?: string };
        const limit = Number(query.limit ?? PAGE_DEFAULT);
        const after = query.after === undefined ? {} : { after: query.after };
        const found = await ports.list({ limit: limit + 1, ...after });
        // never the first page again: who follows `next` would go round for ever
        if (found === undefined) return sendInvalid(request, reply, { kind: 'other', field: 'after' });
        const items = found.slice(0, limit);
        const next = found.length > limit ? { next: items.at(-1)!.id } : {};
        return reply.send({ items: items.map(show), ...next });
      }),
    },
    {
      method: 'GET',
      path: '/api/v1/admin/activities/:id',
      summary: 'One activity, with the moves that are allowed now.',
      caller,
      schema: { params: OneActivity },
      handler: door('viewer', async (request, reply) => {
        const activity = await ports.find(idOf(request));
        if (activity === undefined) return unknown(request, reply);
        return reply.header('etag', etag(activity)).send(show(activity));
      }),
    },
    {
      method: 'PATCH',
      path: '/api/v1/admin/activities/:id',
      summary: 'Edits a plan, which goes back to review, or the end and the limit of a running sale.',
      caller,
      schema: { params: OneActivity, body: ActivityEdit },
      handler: door('operator', async (request, reply, operator) => {
        const body = request.body as ActivityEditBody;
        const seen = versionOf(request);
        if ('fault' in seen) return refuseFault(request, reply, seen);
        if (seen.version === undefined) return sendProblem(request, reply, { status: 428, code: 'version_required' });
        const option = notOffered(body);
        if (option !== undefined) return refuseOption(request, reply, option);
        const edit = readEdit(body);
        if ('fault' in edit) return refuseFault(request, reply, edit);
        const outcome = await walk.edit(idOf(request), edit, { actor: operator.name, ...seen });
        if (outcome.kind === 'invalid') return refuseFault(request, reply, outcome.fault);
        return sendMoved(request, reply, outcome);
      }),
    },
    {
      method: 'POST',
      path: '/api/v1/admin/activities/:id/copy',
      summary: 'Plans an activity as another one is planned, with what the body says otherwise; it waits in review.',
      caller,
      schema: { params: OneActivity, body: ActivityCopy },
      replies: { 201: 'the new activity' },
      handler: door('operator', async (request, reply, operator) => {
        const { id, ...body } = request.body as ActivityEditBody & { readonly id?: string };
        const option = notOffered(body);
        if (option !== undefined) return refuseOption(request, reply, option);
        const edit = readEdit(body);
        if ('fault' in edit) return refuseFault(request, reply, edit);
        return sendPlanned(request, reply, await walk.copy(idOf(request), id ?? ports.newId(), edit, operator.name));
      }),
    },
    {
      method: 'POST',
      path: '/api/v1/admin/activities/:id/approve',
      summary: 'In review → scheduled; not by who made or changed the plan.',
      caller,
      schema: moveSchema,
      handler: door('approver', simply(walk.approve)),
    },
    {
      method: 'POST',
      path: '/api/v1/admin/activities/:id/reject',
      summary: 'In review or scheduled → rejected, for good.',
      caller,
      schema: moveSchema,
      handler: door('approver', simply(walk.reject)),
    },
    {
      method: 'POST',
      path: '/api/v1/admin/activities/:id/preheat',
      summary: 'Writes stock and rules to the gate if they are not there, reads them back and compares.',
      caller,
      schema: moveSchema,
      replies: { 200: 'the report: every value, expected and found', 409: 'not scheduled, or the comparison failed' },
      handler: door(
        'operator',
        moving(async (id, by, request, reply) => {
          const outcome = await walk.preheat(id, by);
          if (outcome.kind !== 'report') return refuseMove(request, reply, outcome);
          const report = showReport(id, outcome.report);
          const failed = report.checks.some((check) => !check.holds);
          if (failed) return sendProblem(request, reply, { status: 409, code: 'preheat_failed', more: report });
          return reply.send(report);
        }),
      ),
    },
    {
      method: 'POST',
      path: '/api/v1/admin/activities/:id/confirm',
      summary: 'Confirms a verified preheat: the gate opens at its instant.',
      caller,
      schema: moveSchema,
      handler: door('approver', simply(walk.confirm)),
    },
    {
      method: 'POST',
      path: '/api/v1/admin/activities/:id/open',
      summary: 'Opens a confirmed activity now.',
      caller,
      schema: moveSchema,
      handler: door('operator', simply(walk.open)),
    },
    {
      method: 'POST',
      path: '/api/v1/admin/activities/:id/pause',
      summary: 'Takes an activity off sale for a while.',
      caller,
      schema: moveSchema,
      handler: door('operator', simply(walk.pause)),
    },
    {
      method: 'POST',
      path: '/api/v1/admin/activities/:id/resume',
      summary: 'Puts a paused activity back on sale.',
      caller,
      schema: moveSchema,
      handler: door('operator', simply(walk.resume)),
    },
    {
      method: 'POST',
      path: '/api/v1/admin/activities/:id/end',
      summary: 'Ends an activity now, for good.',
      caller,
      schema: moveSchema,
      handler: door('operator', simply(walk.end)),
    },
    {
      method: 'POST',
      path: '/api/v1/admin/activities/:id/settle',
      summary: 'Closes the books of an ended activity; with `now` its keys go at once, not in the quiet hours.',
      caller,
      schema: { params: OneActivity, body: SettleBody },
      replies: { 200: 'the settled activity', 409: 'not ended, or something is still open' },
      handler: door(
        'operator',
        moving(async (id, by, request, reply) => {
          const outcome: Done | NotMoved | Extract<Settled, { kind: 'unsettled' }> = await walk.settle(
            id,
            by,
            (request.body as { now?: boolean } | null | undefined)?.now === true,
          );
          if (outcome.kind !== 'unsettled') return sendMoved(request, reply, outcome);
          const { open, findings } = outcome;
          return sendProblem(request, reply, { status: 409, code: 'unsettled', more: { open, findings } });
        }),
      ),
    },
    {
      method: 'GET',
      path: '/api/v1/admin/activities/:id/verify',
      summary: 'Whether all units are where the books say, by ids; in mid-sale too.',
      caller,
      schema: { params: OneActivity },
      handler: door('viewer', async (request, reply) => {
        const verified = await ports.verify(idOf(request));
        return verified === undefined ? unknown(request, reply) : reply.send(verified);
      }),
    },
    {
      method: 'GET',
      path: '/api/v1/admin/activities/:id/live',
      summary: 'Numbers of the sale as it runs.',
      caller,
      schema: { params: OneActivity },
      handler: door('viewer', async (request, reply) => {
        const activity = await ports.find(idOf(request));
        return activity === undefined ? unknown(request, reply) : reply.send(await ports.live(activity));
      }),
    },
  ];
}

/** The report of a preheat; `outcome` is `verified`, `compared` (it was confirmed before) or `failed`. */
function showReport(activityId: string, report: MadeReport) {
  const { kind, run, wrote, checks } = report;
  return { activityId, run, outcome: kind, wrote, checks };
}
