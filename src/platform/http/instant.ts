/** Instants in replies: each time `x` is epoch milliseconds and `xIso` is RFC 3339 in UTC (contract "Forms"). */

/** `{x, xIso}` for an instant, nothing where there is none. */
export function instant<N extends string>(name: N, at: number | undefined): Record<string, number | string> {
  return at === undefined ? {} : { [name]: at, [`${name}Iso`]: new Date(at).toISOString() };
}
