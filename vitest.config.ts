/** How the tests run: real servers once per run, two workers, a closing line that can be read by a script. */
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/test-servers.ts'],
    reporters: ['default', './test/support/closing-line.ts'],
    watch: false,
    // In CI a failed test is run once more, and its line says so: a noisy neighbour must not hide what a change broke.
    pool: 'forks',
    // Each worker brings servers and clients of its own to life; more than two starve one another on a small machine.
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    teardownTimeout: 30_000,
  },
});
