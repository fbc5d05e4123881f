/**
 * Secrets of a development installation: made once, kept in the data folder with mode 0600, so that tokens and receipts
 * outlive a restart. Production brings its own by the settings.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Random } from '../platform/clock.ts';

/** Secrets that `npm start` makes for itself where the settings bring none. */
export type DevelopmentSecrets = {
  readonly buyerSecret: string;
  readonly receiptSecret: string;
  readonly operatorSecret: string;
};

/** Reads the folder's secrets, or makes them. */
export function developmentSecrets(folder: string, random: Random): DevelopmentSecrets {
  const file = join(folder, 'secrets.json');
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as DevelopmentSecrets;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const made: DevelopmentSecrets = {
    buyerSecret: random.token(32),
    receiptSecret: random.token(32),
    operatorSecret: random.token(32),
  };
  writeFileSync(`${file}.new`, JSON.stringify(made), { mode: 0o600 });
  renameSync(`${file}.new`, file);
  return made;
}
