import { afterAll } from 'vitest';
import { databaseConforms } from '../../conformance/database.ts';
import { createEmptyDatabase } from '../../support/test-database.ts';
import type { TestDatabase } from '../../support/test-database.ts';

const made: TestDatabase[] = [];

databaseConforms('postgres', async () => {
  const test = await createEmptyDatabase({ poolMax: 4 });
  made.push(test);
  return test.database;
});

afterAll(async () => {
  for (const test of made) await test.drop();
});
