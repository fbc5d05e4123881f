/** The demo's words: progress on standard error, and a summary that a merchant understands. */
import type { Verdict } from './verdict.ts';

/** What the demo reports: the verdict, and what it ran on. */
export type DemoReport = Verdict & {
  readonly activityId: string;
  readonly answer: 'held' | 'ordered';
  readonly overshoot: number;
  readonly workers: number;
  readonly seed: number;
  readonly database: string;
  readonly redis: string;
  /** whether the activity could be settled */
  readonly settled: boolean;
  /** alarms that the servers raised, by name */
  readonly alarms: Readonly<Record<string, number>>;
};

/** 12345 as 12,345: the same on every machine. */
export const grouped = (count: number): string => String(count).replaceAll(/\B(?=(\d{3})+(?!\d))/g, ',');

const BROKEN: Readonly<Record<string, string>> = {
  oversell: 'oversold: more was sold than there was',
  lose: 'lost: somebody was told yes and has nothing',
  duplicate: 'duplicate: somebody has it twice',
  'wrong-answer': 'wrong answer: somebody was told what is not so',
  drift: 'drift: the gate and the books disagree',
};

/** The summary, line by line. */
export function summary(report: DemoReport): string[] {
  const { equation, witnesses } = report;
  const sellOut = report.secondsToSellOut === null ? '' : ` in ${report.secondsToSellOut} s`;
  const codes = Object.entries(report.refusedByCode)
    .toSorted(([, a], [, b]) => b - a)
    .map(([code, times]) => `${code} ${grouped(times)}`);
  const lines = [
    `${grouped(equation.live)} of ${grouped(report.stock)} units sold${sellOut}, to ${grouped(report.ordersStored)} of ` +
      `${grouped(report.buyers)} buyers, who asked ${grouped(report.requests)} times.`,
    `Last order stored ${report.secondsToLand} s after the last yes.`,
    '',
    `  told yes        ${grouped(report.accepted)} buyers`,
    `  the same again  ${grouped(report.replayed)} times`,
    `  refused         ${grouped(report.refused)} times${codes.length === 0 ? '' : `: ${codes.join(', ')}`}`,
    '',
    `  oversold ${report.oversold}   lost ${report.lost}   twice ${report.duplicates}   wrong answers ${report.wrongAnswers}`,
    `  three witnesses, by order id: buyers were told of ${grouped(witnesses.clients)}, ` +
      `PostgreSQL has ${grouped(witnesses.postgresql)}, Redis has ${grouped(witnesses.redis)}`,
    `  the books: ${equation.total} units + ${equation.surplus} surplus = ${equation.left} left + ${equation.inFlight} ` +
      `under way + ${equation.live} sold: ${report.equationHolds ? 'they balance' : 'THEY DO NOT BALANCE'}`,
    `  run on ${report.database} and ${report.redis}, ${report.workers} API ` +
      `${report.workers === 1 ? 'process' : 'processes'}; activity ${report.activityId}, seed ${report.seed}` +
      (report.settled ? ', settled' : ', NOT settled'),
  ];
  if (report.refusedAtLanding > 0) {
    lines.push(`  PostgreSQL refused ${report.refusedAtLanding} holds; everybody concerned was told`);
  }
  for (const [alarm, times] of Object.entries(report.alarms)) lines.push(`  alarm ${alarm}, ${times} times`);
  if (report.holds) lines.push('', 'It holds.');
  else {
    lines.push('');
    for (const kind of report.broken) lines.push(BROKEN[kind] ?? kind);
    for (const finding of report.findings) lines.push(`  ${finding.kind}: ${finding.says}`);
    lines.push('', `It does not hold: ${report.broken.join(', ')}`);
  }
  return lines;
}
