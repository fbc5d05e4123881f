/** All that a request can change, read whole: every key of a Sluice's prefix, and every row of its books. */
import { until, type TestSluice } from '../support/sluice.ts';

/** Not books: who is at work, which its processes renew by themselves. */
const OF_PROCESSES = ['leases', 'worker_numbers'];
const READ: Readonly<Record<string, (key: string) => [string, ...string[]]>> = {
  string: (key) => ['GET', key],
  hash: (key) => ['HGETALL', key],
  stream: (key) => ['XRANGE', key, '-', '+'],
};

/** Keys with type and value, and rows of every table but `OF_PROCESSES`; equal before and after where nothing has changed. */
export async function stateOf({ redis, config, database }: TestSluice): Promise<Record<string, unknown>> {
  const keys: string[] = [];
  let cursor = '0';
  do {
    const page = await redis.command('SCAN', cursor, 'MATCH', `${config.keyPrefix}:*`, 'COUNT', '1000');
    const [next, found] = page as [string, string[]];
    cursor = next;
    keys.push(...found);
  } while (cursor !== '0');
  const values = keys.toSorted().map(async (key): Promise<[string, unknown]> => {
    const type = String(await redis.command('TYPE', key));
    const [command, ...args] = (READ[type] ?? (() => ['TYPE', key] as [string, string]))(key);
    return [key, { type, value: await redis.command(command, ...args) }];
  });
  const tables = await database.database.query<{ table: string }>(
    `select table_name as table from information_schema.tables
      where table_schema = 'public' and table_type = 'BASE TABLE' and table_name <> all ($1)`,
    [OF_PROCESSES],
  );
  const rows = tables.map(async ({ table }): Promise<[string, unknown]> => {
    const all = `select coalesce(json_agg(row order by row::text), '[]'::json)::text as rows from ${table} row`;
    return [table, await database.database.query(all)];
  });
  return Object.fromEntries(await Promise.all([...values, ...rows]));
}

/** Waits until every hold of an activity has landed and its mark says so: from then on nothing changes by itself. */
export async function comeToRest({ redis, keys }: TestSluice, activityId: string): Promise<void> {
  await until(`${activityId} is at rest`, async () => {
    const meta = keys.meta({ activityId, segment: 0 });
    const [seq, landed] = (await redis.command('HMGET', meta, 'seq', 'landed')) as [string, string];
    return seq === landed;
  });
}
