/** Shell scripts that stand in for binaries, in a folder that serves as a whole PATH. */
import { chmodSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/** A new temporary folder; under `/tmp` where another user must reach it, since TMPDIR may be closed to others. */
export function temporaryFolder(parent: string = tmpdir()): string {
  return mkdtempSync(join(parent, 'sluice-test-'));
}

/** Writes a program. @returns its path */
export function program(folder: string, name: string, body: string): string {
  const path = join(folder, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `#!/bin/sh\n${body}\n`);
  chmodSync(path, 0o755);
  return path;
}

/** A program that only says one line. */
export function saying(folder: string, name: string, line: string): string {
  return program(folder, name, `echo '${line}'`);
}

/** initdb and postgres of one version. @returns their folder */
export function fakePostgres(folder: string, version: string): string {
  saying(folder, 'initdb', `initdb (PostgreSQL) ${version}`);
  saying(folder, 'postgres', `postgres (PostgreSQL) ${version}`);
  return folder;
}
