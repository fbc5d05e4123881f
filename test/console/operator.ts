/** Operators for tests: tokens of each role, one call of the operator API over HTTP, and an activity's audit. */
import { randomBytes } from 'node:crypto';
import { systemClock } from '../../src/platform/clock.ts';
import { makeOperatorIdentity, type OperatorRole } from '../../src/platform/identity/operators.ts';
import { TEST_OPERATOR_SECRET, type TestSluice, type Told } from '../support/sluice.ts';

const identity = makeOperatorIdentity({ secrets: [TEST_OPERATOR_SECRET], clock: systemClock });

/** An operator's bearer token; his name is his role unless it is given. */
export const operatorToken = (role: OperatorRole, name: string = role): string =>
  identity.issueOperatorToken({ name, role, hours: 1 });

/** Who asks, and how. */
export type Asking = {
  readonly role?: OperatorRole;
  readonly name?: string;
  readonly body?: unknown;
  readonly ifMatch?: string;
  readonly language?: string;
};

/** One call under `/api/v1/admin`, by an approver unless a role is named. */
export async function admin(url: string, method: string, path: string, asking: Asking = {}): Promise<Told> {
  const response = await fetch(`${url}/api/v1/admin${path}`, {
    method,
    headers: {
      authorization: `Bearer ${operatorToken(asking.role ?? 'approver', asking.name)}`,
      ...(asking.body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(asking.ifMatch === undefined ? {} : { 'if-match': asking.ifMatch }),
      ...(asking.language === undefined ? {} : { 'accept-language': asking.language }),
    },
    ...(asking.body === undefined ? {} : { body: JSON.stringify(asking.body) }),
  });
  const text = await response.text();
  const body = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>;
  return { status: response.status, code: String(body['code'] ?? ''), body, headers: response.headers };
}

/** The body of a new activity that opens in an hour, changed by `change`. */
export function newActivity(change: Record<string, unknown> = {}): Record<string, unknown> {
  const now = systemClock.now();
  return {
    id: `act${randomBytes(5).toString('hex')}`,
    item: { name: '测试商品', priceMinor: 9_900, currency: 'CNY' },
    total: 10,
    opensAt: new Date(now + 3_600_000).toISOString(),
    endsAt: new Date(now + 7_200_000).toISOString(),
    ...change,
  };
}

/** Audit of an activity, oldest first: `actor action from→to`. */
export async function auditOf({ database }: Pick<TestSluice, 'database'>, activityId: string): Promise<string[]> {
  const rows = await database.database.query<{
    actor: string;
    action: string;
    from_state: string | null;
    to_state: string | null;
  }>(`select actor, action, from_state, to_state from audit where activity_id = $1 order by id`, [activityId]);
  return rows.map((row) => `${row.actor} ${row.action} ${row.from_state ?? ''}→${row.to_state ?? ''}`);
}
