/** The secrets among the settings, by value, so that the log can mask them wherever they turn up. */
import type { Config } from './config.ts';

/** Every secret, and passwords of addresses both as they stand there and as they are. */
export function hiddenValues(config: Config): string[] {
  return [
    ...config.buyerSecrets,
    ...config.receiptSecrets,
    ...(config.operatorSecret === undefined ? [] : [config.operatorSecret]),
    ...passwordsOf(config.databaseUrl),
    ...passwordsOf(config.redisUrl),
  ];
}

function passwordsOf(address: string | undefined): string[] {
  const password = address === undefined ? undefined : /:\/\/[^/@\s]*?:(.+)@/.exec(address)?.[1];
  if (password === undefined) return [];
  try {
    return [password, decodeURIComponent(password)];
  } catch {
    return [password];
  }
}
