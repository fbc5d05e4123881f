/**
 * An activity's walk as commands: create, copy, edit, approve, reject, preheat, confirm, open, pause, resume, end, settle.
 *
 * Each command goes by the one table of moves (`activity/lifecycle.ts`), is done once, and has told the gate before it
 * answers, where the gate can be reached; where it cannot, the change is carried later, and the answer says so.
 * It knows nothing of HTTP: routes, `npm start` and tests call it alike.
 */
import { findFault, planActivity, type ActivityPlan, type PlanFault, type Planned } from '../activity/1-plan/plan.ts';
import type { PreheatReport } from '../activity/2-preheat/preheat.ts';
import { settle, type EndedGate, type Settled } from '../activity/6-settle/settle.ts';
import {
  judgeMove,
  makeMove,
  moveActivity,
  readUpToClock,
  type LifecyclePorts,
  type Moved,
  type MoveRequest,
} from '../activity/lifecycle.ts';
import { surplusOf, type ActivityRecord } from '../domain/activity.ts';
import { Fault } from '../domain/fault.ts';
import type { Clock, Timers } from '../platform/clock.ts';
import type { Database } from '../platform/postgres/database.ts';
import type { PlanEdit } from './activity-forms.ts';

/** Who does something, and why. */
export type By = {
  readonly actor: string;
  readonly reason?: string | undefined;
  /** the version that he has seen, where he names one */
  readonly version?: number | undefined;
};

/** A move that was not made. */
export type NotMoved = Exclude<Moved, { kind: 'moved' }>;
/** A move that was made. `gateTold`: every segment of the gate has it; false: it is carried as soon as that is possible. */
export type Done = { readonly kind: 'moved'; readonly activity: ActivityRecord; readonly gateTold: boolean };

/** The report of a preheat that was made. */
export type MadeReport = Exclude<PreheatReport, { kind: 'refused' }>;

/** What the commands need. */
export type WalkPorts = {
  readonly database: Database;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly lifecycle: LifecyclePorts;
  readonly preheat: (activityId: string, by: { actor: string; reason?: string | undefined }) => Promise<PreheatReport>;
  /** confirms a verified preheat; false where there is none */
  readonly confirm: (activityId: string, by: By) => Promise<boolean>;
  /** carries changes to the gate; true where it has all of them */
  readonly carry: (activityId: string) => Promise<boolean>;
  /** has the keys of a settled activity removed soon */
  readonly cleanNow: (activityId: string) => Promise<void>;
  /** takes a preheat back, on the row as it was judged; false where it has changed */
  readonly withdraw: (activity: ActivityRecord, by: By) => Promise<boolean>;
  readonly gate: EndedGate;
  /** notes where the outboxes of an ended activity end */
  readonly noteEnds: (activityId: string) => Promise<void>;
  readonly verify: (
    activityId: string,
  ) => Promise<{ readonly findings: readonly object[]; readonly gate: string; readonly weighed: boolean } | undefined>;
  /** brings this process's memory of the activities up to date */
  readonly refresh: () => Promise<void>;
  readonly keyTtlAfterEndMs: number;
  /** a fault that does not undo what was decided */
  readonly report: (error: unknown) => void;
};

/** What can be edited of a running sale. */
const IN_SALE: ReadonlySet<string> = new Set(['endsAt', 'perBuyerLimit'] satisfies (keyof PlanEdit)[]);
/** A row that changes under an edit this often is not edited by people. */
const TRIES_MAX = 20;

/** Makes the commands. All throw faults of Redis and PostgreSQL. */
export function makeActivityWalk(ports: WalkPorts) {
  const { database, lifecycle } = ports;

  /** What every change ends with: gate and memory learn it. What was decided stands, whatever happens here. */
  async function announce(activityId: string): Promise<boolean> {
    try {
      const told = await ports.carry(activityId);
      await ports.noteEnds(activityId);
      await ports.refresh();
      return told;
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      ports.report(error);
      return false;
    }
  }

  async function done(moved: Moved): Promise<Done | NotMoved> {
    if (moved.kind !== 'moved') return moved;
    const gateTold = await announce(moved.activity.id);
    return { ...moved, gateTold };
  }

  /** What every command that made its move itself answers. */
  async function changed(id: string): Promise<Done | NotMoved> {
    const activity = await lifecycle.find(id);
    return activity === undefined ? { kind: 'unknown_activity' } : done({ kind: 'moved', activity });
  }

  /** Takes the preheat back, if the row still is as it was judged; what the caller has seen moves on with it. */
  async function withdraw(activity: ActivityRecord, by: By): Promise<By> {
    const isBack = await ports.withdraw(activity, by);
    return isBack && by.version !== undefined ? { ...by, version: activity.version + 1 } : by;
  }

  const move = async (id: string, name: MoveRequest['move'], by: By): Promise<Done | NotMoved> =>
    done(await moveActivity(lifecycle, { id, move: name, ...by }));

  return {
    /** Plans an activity; it waits in review. */
    create: (plan: ActivityPlan, actor: string): Promise<Planned> => planActivity(database, ports.clock, plan, actor),

    /**
     * Plans an activity as another one is planned, with what `edit` says otherwise. Nothing of the other one's sale comes
     * with it; whatever state that is in, it stays.
     */
    async copy(
      id: string,
      copyId: string,
      edit: PlanEdit,
      actor: string,
    ): Promise<Planned | { kind: 'unknown_activity' }> {
      const source = await lifecycle.find(id);
      if (source === undefined) return { kind: 'unknown_activity' };
      return planActivity(database, ports.clock, { ...planAfter(source, edit), id: copyId }, actor);
    },

    approve: (id: string, by: By) => move(id, 'approve', by),
    open: (id: string, by: By) => move(id, 'open', by),
    pause: (id: string, by: By) => move(id, 'pause', by),
    resume: (id: string, by: By) => move(id, 'resume', by),
    end: (id: string, by: By) => move(id, 'end', by),

    /** Rejects a plan, for good. One that waits has its preheat taken back first. */
    async reject(id: string, by: By): Promise<Done | NotMoved> {
      let seen = by;
      for (let tries = 0; tries < TRIES_MAX; tries++) {
        const judged = await judgeMove(lifecycle, { id, move: 'reject', ...seen });
        if (judged.kind !== 'allowed') return judged;
        if (isPreheated(judged.activity)) seen = await withdraw(judged.activity, seen);
        else if (await makeMove(database, judged, { move: 'reject', ...seen })) return changed(id);
      }
      throw new Fault('database_busy', `reject ${id}: its row does not stand still`, { retryable: true });
    },

    /**
     * Edits the plan of an activity in review, or of one that waits: that has its preheat taken back and goes back to review.
     * Of a running sale the end and the limit can be changed.
     * @param by.version the version that was read
     */
    async edit(
      id: string,
      edit: PlanEdit,
      by: By,
    ): Promise<Done | NotMoved | { readonly kind: 'invalid'; readonly fault: PlanFault }> {
      let seen = by;
      for (let tries = 0; tries < TRIES_MAX; tries++) {
        let name: 'edit' | 'edit_sale' = 'edit';
        let judged = await judgeMove(lifecycle, { id, move: name, ...seen });
        if (judged.kind === 'refused' && judged.reason === 'state') {
          name = 'edit_sale';
          const again = await judgeMove(lifecycle, { id, move: name, ...seen });
          if (again.kind === 'allowed' && Object.keys(edit).some((field) => !IN_SALE.has(field))) {
            return { kind: 'refused', reason: 'only_in_sale', activity: again.activity };
          }
          judged = again;
        }
        if (judged.kind !== 'allowed') return judged;
        const { activity, now } = judged;
        const fault = findFault(planAfter(activity, edit), now);
        if (fault !== undefined) return { kind: 'invalid', fault };
        if (name === 'edit' && isPreheated(activity)) {
          seen = await withdraw(activity, seen);
          continue;
        }
        const changes = { ...columnsOf(activity, edit), editedBy: by.actor };
        const keysExpireAt = Math.max(edit.endsAt ?? activity.endsAt, now) + ports.keyTtlAfterEndMs;
        const made = await makeMove(database, judged, {
          move: name,
          ...seen,
          changes: () => (name === 'edit' ? changes : { ...edit, keysExpireAt }),
        });
        if (made) return changed(id);
      }
      throw new Fault('database_busy', `edit ${id}: its row does not stand still`, { retryable: true });
    },

    /** Preheats, or compares once it is confirmed. */
    async preheat(id: string, by: By): Promise<{ kind: 'report'; report: MadeReport } | NotMoved> {
      const judged = await judgeMove(lifecycle, { id, move: 'preheat', ...by });
      if (judged.kind !== 'allowed') return judged;
      const report = await ports.preheat(id, by);
      if (report.kind !== 'refused') return { kind: 'report', report };
      // moved on between looking and preheating
      const activity = await lifecycle.find(id);
      return activity === undefined ? { kind: 'unknown_activity' } : { kind: 'refused', reason: 'state', activity };
    },

    /** Confirms a verified preheat: the gate opens at its instant, or now where that has passed. */
    async confirm(id: string, by: By): Promise<Done | NotMoved> {
      const judged = await judgeMove(lifecycle, { id, move: 'confirm', ...by });
      if (judged.kind !== 'allowed') return judged;
      const confirmed = await ports.confirm(id, by);
      // where its instant has passed the row opens with it
      const activity = await readUpToClock(lifecycle, id);
      if (activity === undefined) return { kind: 'unknown_activity' };
      // another one was first, or the activity is not what was preheated any more
      if (!confirmed) return { kind: 'refused', reason: 'not_verified', activity };
      return done({ kind: 'moved', activity });
    },

    /** Closes the books of an ended activity. `cleanNow`: its keys go at once, not in the quiet hours. */
    async settle(
      id: string,
      by: By,
      cleanNow = false,
    ): Promise<Done | NotMoved | Extract<Settled, { kind: 'unsettled' }>> {
      for (let tries = 0; tries < TRIES_MAX; tries++) {
        const judged = await judgeMove(lifecycle, { id, move: 'settle', ...by });
        if (judged.kind !== 'allowed') return judged;
        const settled = await settle({ ...ports, move: (tx) => makeMove(tx, judged, { move: 'settle', ...by }) }, id);
        if (settled.kind === 'unsettled') return settled;
        if (settled.kind === 'moved_on') continue; // judged again: another one has settled it
        if (cleanNow) await ports.cleanNow(id);
        return changed(id);
      }
      throw new Fault('database_busy', `settle ${id}: its row does not stand still`, { retryable: true });
    },

    /** Reads one activity, brought up to the clock. */
    read: (id: string): Promise<ActivityRecord | undefined> => lifecycle.find(id),
    announce,
  };
}

/** Whether a run of it stands at the gate. */
const isPreheated = (activity: ActivityRecord): boolean => activity.runState !== undefined;

/** The commands. */
export type ActivityWalk = ReturnType<typeof makeActivityWalk>;

/** The whole plan as it would be after an edit. */
function planAfter(activity: ActivityRecord, edit: PlanEdit): ActivityPlan {
  const { imageUrl, ...rest } = edit;
  const picture = imageUrl === undefined ? activity.imageUrl : imageUrl;
  return {
    id: activity.id,
    itemName: activity.itemName,
    priceMinor: activity.priceMinor,
    currency: activity.currency,
    total: activity.total,
    perBuyerLimit: activity.perBuyerLimit,
    opensAt: activity.opensAt,
    endsAt: activity.endsAt,
    answerWhen: activity.answerWhen,
    overshoot: activity.overshoot,
    autoConfirm: activity.autoConfirm,
    ...rest,
    ...(picture === undefined || picture === null ? {} : { imageUrl: picture }),
  };
}

/** The columns that an edit changes; tickets beyond the stock follow from total and overshoot. */
function columnsOf(activity: ActivityRecord, edit: PlanEdit): PlanEdit & { surplus?: number } {
  if (edit.total === undefined && edit.overshoot === undefined) return edit;
  return { ...edit, surplus: surplusOf(edit.total ?? activity.total, edit.overshoot ?? activity.overshoot) };
}
