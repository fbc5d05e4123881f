import { expect, test } from 'vitest';
import type { Activity } from '../../src/domain/activity.ts';
import { stateMoves } from '../../src/watch/state-moves.ts';

const activity = (id: string, more: Partial<Activity> = {}): Activity =>
  ({ id, state: 'scheduled', paused: false, run: 1, runState: 'open', ...more }) as Activity;

test('says each move of an activity once, with its id, and nothing about those that stand', () => {
  const said: [string, Record<string, unknown>][] = [];
  const quiet = (): void => undefined;
  const log = {
    debug: quiet,
    warn: quiet,
    error: quiet,
    child: () => log,
    info: (fields: object, sentence: string) => void said.push([sentence, fields as Record<string, unknown>]),
  };
  let present: Activity[] = [activity('a'), activity('b')];
  const look = stateMoves(() => present, log);
  look(); // what is there at the start has not moved
  look();
  expect(said).toEqual([]);

  present = [activity('a', { state: 'open' }), activity('b'), activity('c')];
  look();
  look();
  expect(said.splice(0)).toEqual([
    [
      'activity moved',
      {
        activityId: 'a',
        from: { state: 'scheduled', paused: false, run: 1, runState: 'open' },
        state: 'open',
        paused: false,
        run: 1,
        runState: 'open',
      },
    ],
    [
      'activity seen for the first time',
      { activityId: 'c', state: 'scheduled', paused: false, run: 1, runState: 'open' },
    ],
  ]);

  present = [activity('a', { state: 'open', paused: true }), activity('c', { run: 2 })];
  look();
  expect(said.map(([sentence, fields]) => [sentence, fields['activityId']])).toEqual([
    ['activity moved', 'a'],
    ['activity moved', 'c'],
    ['activity is not shown any more', 'b'],
  ]);
});
