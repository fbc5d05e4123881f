/** SQL of the activities' rows: planning, what operators read, and what every process keeps in memory. */
import type { Activity, ActivityRecord, ActivityState, AnswerWhen, PreheatState } from '../../domain/activity.ts';
import type { Row, Sql } from '../../platform/postgres/database.ts';

type ActivityRow = Row & {
  id: string;
  state: ActivityState;
  paused: boolean;
  preheat: PreheatState;
  item_name: string;
  image_url: string | null;
  price_minor: string;
  currency: string;
  total: number;
  sold: number;
  surplus: number;
  per_buyer_limit: number;
  opens_at: Date;
  ends_at: Date;
  answer_when: 'held' | 'ordered';
  overshoot: string;
  segments: number;
  auto_confirm: boolean;
  run: string;
  version: string;
  shards: number | null;
  run_state: Activity['runState'] | null;
  created_by: string;
  edited_by: string | null;
  created_at: Date;
  read_at: Date;
};

const SELECT = `
  select a.*, r.shards, r.state as run_state, clock_timestamp() as read_at
    from activities a left join runs r on r.activity_id = a.id and r.run = a.run`;

const read = (row: ActivityRow): Activity => ({
  id: row.id,
  state: row.state,
  paused: row.paused,
  preheat: row.preheat,
  itemName: row.item_name,
  imageUrl: row.image_url ?? undefined,
  priceMinor: Number(row.price_minor),
  currency: row.currency,
  total: row.total,
  sold: row.sold,
  surplus: row.surplus,
  perBuyerLimit: row.per_buyer_limit,
  opensAt: row.opens_at.getTime(),
  endsAt: row.ends_at.getTime(),
  answerWhen: row.answer_when,
  overshoot: Number(row.overshoot),
  segments: row.segments,
  autoConfirm: row.auto_confirm,
  run: Number(row.run),
  shards: row.shards ?? 0,
  runState: row.run_state ?? undefined,
  version: Number(row.version),
});

const readRecord = (row: ActivityRow): ActivityRecord => ({
  ...read(row),
  createdBy: row.created_by,
  editedBy: row.edited_by ?? undefined,
  createdAt: row.created_at.getTime(),
  readAt: row.read_at.getTime(),
});

/** The activities that a buyer can see, newest first, at most 10,000. */
export async function shownActivities(sql: Sql): Promise<Activity[]> {
  const rows = await sql.query<ActivityRow>(
    `${SELECT} where a.state in ('scheduled', 'open', 'ended', 'settled') order by a.opens_at desc limit 10000`,
  );
  return rows.map(read);
}

/** One activity in any state, as operators see it. */
export async function findActivity(sql: Sql, id: string): Promise<ActivityRecord | undefined> {
  const rows = await sql.query<ActivityRow>(`${SELECT} where a.id = $1`, [id]);
  return rows[0] === undefined ? undefined : readRecord(rows[0]);
}

/** Activities in any state, newest first, behind `after` where given; undefined where there is no `after`. */
export async function listActivities(
  sql: Sql,
  page: { limit: number; after?: string },
): Promise<ActivityRecord[] | undefined> {
  if (page.after !== undefined && (await findActivity(sql, page.after)) === undefined) return undefined;
  const rows = await sql.query<ActivityRow>(
    `${SELECT}
      where $2::text is null
         or (a.created_at, a.id) < (select b.created_at, b.id from activities b where b.id = $2)
      order by a.created_at desc, a.id desc limit $1`,
    [page.limit, page.after ?? null],
  );
  return rows.map(readRecord);
}

/** A new activity, in review, with its audit row. False where the id is taken. */
export async function insertActivity(
  sql: Sql,
  activity: {
    id: string;
    itemName: string;
    imageUrl: string | undefined;
    priceMinor: number;
    currency: string;
    total: number;
    surplus: number;
    perBuyerLimit: number;
    opensAt: number;
    endsAt: number;
    answerWhen: AnswerWhen;
    overshoot: number;
    autoConfirm: boolean;
    createdBy: string;
  },
): Promise<boolean> {
  const rows = await sql.query(
    `with made as (
       insert into activities (id, state, item_name, image_url, price_minor, currency, total, surplus, per_buyer_limit,
                               opens_at, ends_at, answer_when, overshoot, auto_confirm, created_by)
       values ($1, 'in_review', $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
       on conflict (id) do nothing returning id, created_by)
     insert into audit (actor, action, activity_id, to_state)
     select created_by, 'create', id, 'in_review' from made returning 1 as made`,
    [
      activity.id,
      activity.itemName,
      activity.imageUrl ?? null,
      activity.priceMinor,
      activity.currency,
      activity.total,
      activity.surplus,
      activity.perBuyerLimit,
      new Date(activity.opensAt).toISOString(),
      new Date(activity.endsAt).toISOString(),
      activity.answerWhen,
      activity.overshoot,
      activity.autoConfirm,
      activity.createdBy,
    ],
  );
  return rows.length === 1;
}
