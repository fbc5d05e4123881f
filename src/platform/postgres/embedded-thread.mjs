/**
 * The thread of `embedded.ts`: opens PGlite and runs what it is told, in the order in which it is told.
 * Knows nothing of transactions, types or faults: text in, text out, errors as PostgreSQL told them.
 * Plain JavaScript, so that it starts the same from src/ and from dist/.
 */
import { mkdirSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { PGlite } from '@electric-sql/pglite';

const opening = open(workerData.folder);
opening.catch(() => undefined); // told to everyone who asks

async function open(folder) {
  if (folder !== 'memory') mkdirSync(folder, { recursive: true, mode: 0o700 });
  const database = await PGlite.create(folder === 'memory' ? 'memory://' : folder);
  const asText = (value) => value;
  return {
    database,
    options: {
      rowMode: 'array',
      // By oid, since PGlite copies this object: its own readers are named, so that each of them is replaced.
      parsers: Object.fromEntries(Object.keys(database.parsers).map((oid) => [oid, asText])),
      serializers: new Proxy({}, { get: () => asText }),
    },
  };
}

async function run({ id, kind, text, values }) {
  const { database, options } = await opening;
  if (kind === 'script') {
    await database.exec(text);
    return { id, rows: [], fields: [], command: '' };
  }
  const { rows, fields, command } = await database.query(text, values, options);
  return { id, rows, fields, command: command ?? '' };
}

async function close() {
  const { database } = await opening;
  await database.close();
}

let last = Promise.resolve();

parentPort.on('message', (request) => {
  last = last.then(async () => {
    if (request.kind === 'close') {
      await close().catch(() => undefined);
      parentPort.close();
      return;
    }
    try {
      parentPort.postMessage(await run(request));
    } catch (error) {
      const { message, code, severity, constraint } = error;
      parentPort.postMessage({
        id: request.id,
        error: { message: message ?? String(error), code, severity, constraint },
      });
    }
  });
});
