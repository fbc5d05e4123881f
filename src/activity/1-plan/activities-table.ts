/** SQL of the activities' rows: planning, approval, and what every process keeps in memory. */
import type { Activity, ActivityState, PreheatState } from '../../domain/activity.ts';
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
};

const SELECT = `
  select a.*, r.shards, r.state as run_state
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

/** The activities that a buyer can see, newest first, at most 10,000. */
export async function shownActivities(sql: Sql): Promise<Activity[]> {
  const rows = await sql.query<ActivityRow>(
    `${SELECT} where a.state in ('scheduled', 'open', 'ended', 'settled') order by a.opens_at desc limit 10000`,
  );
  return rows.map(read);
}

/** One activity in any state. */
export async function findActivity(sql: Sql, id: string): Promise<Activity | undefined> {
  const rows = await sql.query<ActivityRow>(`${SELECT} where a.id = $1`, [id]);
  return rows[0] === undefined ? undefined : read(rows[0]);
}

/** A new activity, in review. False where the id is taken. */
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
    answerWhen: 'held' | 'ordered';
    overshoot: number;
    createdBy: string;
  },
): Promise<boolean> {
  const rows = await sql.query(
    `insert into activities (id, state, item_name, image_url, price_minor, currency, total, surplus, per_buyer_limit,
                             opens_at, ends_at, answer_when, overshoot, created_by)
     values ($1, 'in_review', $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
     on conflict (id) do nothing returning 1 as made`,
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
      activity.createdBy,
    ],
  );
  return rows.length === 1;
}

/** Moves an activity from one state to another, once, with its audit row; false where it was not in `from`. */
export async function moveActivity(
  sql: Sql,
  move: { id: string; from: ActivityState; to: ActivityState; actor: string; reason?: string },
): Promise<boolean> {
  const rows = await sql.query(
    `with moved as (
       update activities set state = $3, version = version + 1 where id = $1 and state = $2 returning id)
     insert into audit (actor, action, activity_id, from_state, to_state, reason)
     select $4, 'move', id, $2, $3, $5 from moved returning 1 as moved`,
    [move.id, move.from, move.to, move.actor, move.reason ?? null],
  );
  return rows.length === 1;
}
