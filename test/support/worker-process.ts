/**
 * A real worker process for tests that kill it: the product's own composition root, role `worker`, which ends itself by
 * SIGKILL at one moment of the landing. Its settings come in the environment, as in production.
 *
 * KILL_AT   step and side, as `insert:after`; nothing: it lives until it is stopped
 */
import { kill, pid } from 'node:process';
import { fileURLToPath } from 'node:url';
import { loadConfig } from '../../src/main/config.ts';
import { serve } from '../../src/main/serve.ts';
import { makeLog } from '../../src/platform/log.ts';

const killAt = process.env['KILL_AT'];
const dieAt = (moment: string): void => {
  if (moment !== killAt) return;
  kill(pid, 'SIGKILL');
  // the signal is on its way; nothing more may happen meanwhile
  for (;;);
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { config } = loadConfig({ environment: process.env });
  const serving = await serve(config, 'worker', makeLog(config.logLevel, 2), {
    async step(name, work) {
      dieAt(`${name}:before`);
      const result = await work();
      dieAt(`${name}:after`);
      return result;
    },
  });
  process.stdout.write('serving\n');
  process.once('SIGTERM', () => {
    void serving.stop().then(() => process.exit(0));
  });
}
