/** The version of this package, from its own package.json: the same path from sources and from the build. */
import { readFileSync } from 'node:fs';

/** `1.2.3`. */
export const VERSION = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
