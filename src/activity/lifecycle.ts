/**
 * The one table of an activity's moves (design §9), and the one way to make them.
 *
 * ```
 *              approve          open, by hand or by the clock
 *  in_review ──────────► scheduled ─────────────────────────► open
 *   │  ▲ │                 │  │ │                              │ │
 *   │  └─┼──── edit ───────┘  │ └──────────── end ─────────────┼─┴─► ended ── settle ──► settled
 *   └────┴──── reject ────────┘          pause, resume in scheduled and open
 *              ▼
 *           rejected
 * ```
 *
 * Promises: a move is one conditional update, on the row exactly as it was judged, together with its audit row, the next
 * version and, where the gate must learn of it, the change to be carried there. Of two moves that exclude each other one
 * wins, and the other is told the state it met. States are read by the clock: an activity that is due to open or to end is
 * brought up to it first, so no move starts from a row that the gate has left behind (P20).
 *
 * Does not talk to the gate: `3-announce/` carries changes. Does not make keys, or retire them before `edit` and `reject`
 * leave `scheduled`: `2-preheat/` does.
 */
import { stateAt, type ActivityRecord, type ActivityState } from '../domain/activity.ts';
import { Fault } from '../domain/fault.ts';
import type { MOVE_REFUSALS } from '../domain/text.ts';
import type { Sql } from '../platform/postgres/database.ts';
import { applyMove, type PlanChanges } from './lifecycle-table.ts';

/** Why a move is refused; the sentences are `MOVE_REFUSALS`. */
export type Refusal = keyof typeof MOVE_REFUSALS;

/** Names of the moves. `open_due` and `end_due` are the clock's; `edit_sale` is an edit of a running sale. */
export type MoveName =
  | 'approve'
  | 'reject'
  | 'edit'
  | 'edit_sale'
  | 'preheat'
  | 'confirm'
  | 'open'
  | 'pause'
  | 'resume'
  | 'end'
  | 'settle'
  | 'open_due'
  | 'end_due';

/** One row of the table. */
export type MoveRule = {
  /** states by the clock in which it is allowed */
  readonly from: readonly ActivityState[];
  /** the state afterwards; undefined where it stays */
  readonly to?: ActivityState;
  /** what forbids it there, first match told */
  readonly unless: readonly Exclude<Refusal, 'state'>[];
  /** whether the gate must learn it */
  readonly tellsGate: boolean;
  /** who may do it at least */
  readonly by: 'operator' | 'approver' | 'clock';
  /** the word in the audit, where it is not the name */
  readonly audited?: string;
};

/** The table. `preheat`, `confirm` and `settle` do more than change the row; who does it is named beside them. */
export const MOVES: Readonly<Record<MoveName, MoveRule>> = {
  approve: { from: ['in_review'], to: 'scheduled', unless: ['own', 'over'], tellsGate: false, by: 'approver' },
  reject: {
    from: ['in_review', 'scheduled'],
    to: 'rejected',
    unless: ['last_minute'],
    tellsGate: false,
    by: 'approver',
  },
  edit: {
    from: ['in_review', 'scheduled'],
    to: 'in_review',
    unless: ['last_minute'],
    tellsGate: false,
    by: 'operator',
  },
  edit_sale: { from: ['open'], unless: [], tellsGate: true, by: 'operator', audited: 'edit' },
  // 2-preheat/preheat.ts; once confirmed it only compares
  preheat: { from: ['scheduled'], unless: [], tellsGate: false, by: 'operator' },
  // 2-preheat/runs-table.ts, with the run
  confirm: { from: ['scheduled'], unless: ['not_verified'], tellsGate: true, by: 'approver' },
  open: { from: ['scheduled'], to: 'open', unless: ['not_confirmed'], tellsGate: true, by: 'operator' },
  pause: { from: ['scheduled', 'open'], unless: ['paused'], tellsGate: true, by: 'operator' },
  resume: { from: ['scheduled', 'open'], unless: ['not_paused'], tellsGate: true, by: 'operator' },
  end: { from: ['scheduled', 'open'], to: 'ended', unless: [], tellsGate: true, by: 'operator' },
  // 6-settle/settle.ts, with the outboxes
  settle: { from: ['ended'], to: 'settled', unless: [], tellsGate: false, by: 'operator' },
  // the gate knows its window; that it has ended is told all the same, so that nothing is sold however its clock steps
  open_due: { from: ['open'], to: 'open', unless: ['not_due'], tellsGate: false, by: 'clock', audited: 'open' },
  end_due: { from: ['ended'], to: 'ended', unless: ['not_due'], tellsGate: true, by: 'clock', audited: 'end' },
};

/**
 * Before the opening nothing leaves `scheduled` for this long: the gate could open on what is being taken back. What is past
 * its opening and still `scheduled` was never confirmed: its gate is shut.
 */
const LAST_MINUTE_MS = 60_000;

/** What is known of one attempt, beside the activity. */
type Circumstances = { readonly now: number; readonly actor: string; readonly selfApproval: boolean };

const FORBIDS: Readonly<
  Record<Exclude<Refusal, 'state'>, (activity: ActivityRecord, about: Circumstances) => boolean>
> = {
  own: (activity, { actor, selfApproval }) =>
    !selfApproval && (actor === activity.createdBy || actor === activity.editedBy),
  over: (activity, { now }) => now >= activity.endsAt,
  last_minute: ({ state, opensAt }, { now }) =>
    state === 'scheduled' && now >= opensAt - LAST_MINUTE_MS && now < opensAt,
  not_verified: (activity) => activity.preheat !== 'verified',
  not_confirmed: (activity) => activity.preheat !== 'confirmed',
  paused: (activity) => activity.paused,
  not_paused: (activity) => !activity.paused,
  only_in_sale: () => false, // told where the fields are known
  // the row says otherwise than the clock
  not_due: (activity, { now }) => activity.state === stateAt(activity, now),
};

/** Why a move is refused now; undefined where it is allowed. */
export function refusalOf(name: MoveName, activity: ActivityRecord, about: Circumstances): Refusal | undefined {
  const rule = MOVES[name];
  if (!rule.from.includes(stateAt(activity, about.now))) return 'state';
  return rule.unless.find((reason) => FORBIDS[reason](activity, about));
}

/** What is needed around a move. */
export type LifecyclePorts = {
  readonly database: Sql;
  readonly find: (id: string) => Promise<ActivityRecord | undefined>;
  /** the present instant for an activity that has just been read, epoch ms; never ahead of the gate's clock */
  readonly now: (activity: ActivityRecord) => number;
  /** whether who made a plan may approve it */
  readonly selfApproval: boolean;
};

/** A move that is asked for. */
export type MoveRequest = {
  readonly id: string;
  readonly move: MoveName;
  /** who, for the audit */
  readonly actor: string;
  /** why, for the audit */
  readonly reason?: string | undefined;
  /** the version that the caller has seen; undefined: whatever it is */
  readonly version?: number | undefined;
  /** what else changes with it, decided on the row as it is read */
  readonly changes?: (activity: ActivityRecord, now: number) => PlanChanges;
};

/** What became of it. */
export type Moved =
  | { readonly kind: 'moved'; readonly activity: ActivityRecord }
  | { readonly kind: 'unknown_activity' }
  | { readonly kind: 'refused'; readonly reason: Refusal; readonly activity: ActivityRecord }
  | { readonly kind: 'old_version'; readonly activity: ActivityRecord };

/** Who the audit names for the clock's moves. */
export const SCHEDULER = 'scheduler';
/** An activity that changes this often while one move is made is not moved by people. */
const TRIES_MAX = 20;

/** Makes a move. Throws faults of the database; `database_busy` where the row never stood still. */
export async function moveActivity(ports: LifecyclePorts, request: MoveRequest): Promise<Moved> {
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const judged = await judgeMove(ports, request);
    if (judged.kind !== 'allowed') return judged;
    if (await makeMove(ports.database, judged, request)) {
      const activity = await ports.find(request.id);
      return activity === undefined ? { kind: 'unknown_activity' } : { kind: 'moved', activity };
    }
    // changed between reading and moving: it is judged again, as it is now
  }
  throw new Fault('database_busy', `${request.move} ${request.id}: its row does not stand still`, { retryable: true });
}

/** A move that is allowed on the row as it was read. */
export type Allowed = { readonly kind: 'allowed'; readonly activity: ActivityRecord; readonly now: number };

/** Reads an activity, brings it up to the clock, and says whether a move is allowed. */
export async function judgeMove(
  ports: LifecyclePorts,
  request: MoveRequest,
): Promise<Allowed | Exclude<Moved, { kind: 'moved' }>> {
  const activity = await readUpToClock(ports, request.id);
  if (activity === undefined) return { kind: 'unknown_activity' };
  const now = ports.now(activity);
  if (request.version !== undefined && request.version !== activity.version) return { kind: 'old_version', activity };
  const about = { now, actor: request.actor, selfApproval: ports.selfApproval };
  const reason = refusalOf(request.move, activity, about);
  return reason === undefined ? { kind: 'allowed', activity, now } : { kind: 'refused', reason, activity };
}

/** Changes the row of an allowed move, if it still is as it was judged; false: it is not, judge again. */
export function makeMove(
  sql: Sql,
  { activity, now }: Pick<Allowed, 'activity' | 'now'>,
  request: Omit<MoveRequest, 'id' | 'version'>,
): Promise<boolean> {
  const rule = MOVES[request.move];
  const changes = request.changes?.(activity, now);
  return applyMove(sql, {
    before: activity,
    to: rule.to ?? activity.state,
    paused: request.move === 'pause' ? true : request.move === 'resume' ? false : activity.paused,
    changes: request.move === 'open' ? { opensAt: now } : (changes ?? {}),
    // without a run there is no gate to tell: a preheat writes the rules as they are then
    tellsGate: rule.tellsGate && activity.runState !== undefined,
    actor: request.actor,
    action: rule.audited ?? request.move,
    reason: request.reason,
  });
}

/** An activity with the clock's moves made; undefined where there is none. Safe to repeat and to run twice at once. */
export async function readUpToClock(ports: LifecyclePorts, id: string): Promise<ActivityRecord | undefined> {
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const activity = await ports.find(id);
    if (activity === undefined) return undefined;
    const due = dueMove(activity, ports.now(activity));
    if (due === undefined) return activity;
    await makeMove(ports.database, { activity, now: ports.now(activity) }, { move: due, actor: SCHEDULER });
  }
  throw new Fault('database_busy', `read ${id}: its row does not stand still`, { retryable: true });
}

/** The clock's move that an activity is behind with, the opening before the end; undefined where it is up to the clock. */
export function dueMove(activity: ActivityRecord, now: number): 'open_due' | 'end_due' | undefined {
  // a sale that passed while nobody looked is opened and then ended: the audit tells both
  if (activity.state === 'scheduled' && activity.preheat === 'confirmed' && now >= activity.opensAt) return 'open_due';
  if (activity.state !== 'ended' && stateAt(activity, now) === 'ended') return 'end_due';
  return undefined;
}

/** The moves that are allowed now, whoever asks, for somebody who decides what to do next. */
export function movesAllowed(activity: ActivityRecord, now: number): MoveName[] {
  return (Object.keys(MOVES) as MoveName[]).filter(
    (name) =>
      MOVES[name].by !== 'clock' && refusalOf(name, activity, { now, actor: '', selfApproval: true }) === undefined,
  );
}
