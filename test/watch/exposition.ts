/** Reads Prometheus' text form, strictly: a line that is neither a comment nor a sample fails the test. */

/** One sample. */
export type Series = {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
  /** name and labels, as written */
  readonly key: string;
};

const SAMPLE = /^([a-zA-Z_:][\w:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\]|\\.)*",?)*\})? (-?[\d.e+-]+|NaN|[+-]Inf)$/;

/** Parses a whole scrape. */
export function parseExposition(text: string): Series[] {
  const series: Series[] = [];
  const seen = new Set<string>();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('# ')) continue;
    const match = SAMPLE.exec(line);
    if (match === null) throw new Error(`not a sample: ${line}`);
    const labels = Object.fromEntries(
      [...(match[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((label) => [label[1]!, label[2]!]),
    );
    const key = `${match[1]}${match[2] ?? ''}`;
    if (seen.has(key)) throw new Error(`a series twice: ${key}`);
    seen.add(key);
    series.push({ name: match[1]!, labels, value: Number(match[3]!.replace('Inf', 'Infinity')), key });
  }
  return series;
}

/** Scrapes a process. */
export async function scrape(url: string): Promise<Series[]> {
  const reply = await fetch(`${url}/metrics`);
  if (reply.status !== 200) throw new Error(`/metrics answered ${reply.status}`);
  return parseExposition(await reply.text());
}

/** The value of the one series with this name and exactly these labels. */
export function valueOf(
  series: readonly Series[],
  name: string,
  labels: Readonly<Record<string, string>>,
): number | undefined {
  return series.find(
    (one) =>
      one.name === name &&
      Object.keys(one.labels).length === Object.keys(labels).length &&
      Object.entries(labels).every(([label, value]) => one.labels[label] === value),
  )?.value;
}
