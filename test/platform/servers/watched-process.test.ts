import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startTimeOf } from '../../../src/platform/servers/process-identity.ts';
import { startWatched } from '../../../src/platform/servers/watched-process.ts';
import type { WatchedProcess } from '../../../src/platform/servers/watched-process.ts';
import { endChildren, endLater, gone } from './child-of-test.ts';
import { temporaryFolder } from './fake-programs.ts';

let folder: string;
let logFd: number;
const running: WatchedProcess[] = [];
beforeEach(() => {
  folder = temporaryFolder();
  logFd = openSync(join(folder, 'log'), 'a');
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((child) => child.stop()));
  endChildren();
  closeSync(logFd);
  rmSync(folder, { recursive: true, force: true });
});

/** Starts a shell script under the watcher; it has said "ready" when this resolves, so its traps are set. */
async function start(
  script: string,
  options: { graceMs?: number; removeFolder?: string } = {},
): Promise<WatchedProcess> {
  const child = await startWatched({
    command: '/bin/sh',
    args: ['-c', script],
    env: { PATH: process.env.PATH },
    logFd,
    stopSignal: 'SIGTERM',
    graceMs: 10_000,
    ...options,
  });
  running.push(child);
  endLater(child.pid);
  await expect.poll(() => log(), { timeout: 10_000, interval: 10 }).toContain('ready');
  return child;
}

const log = (): string => readFileSync(join(folder, 'log'), 'utf8');

describe('stop', () => {
  it('asks first: the child ends in its own way', async () => {
    const child = await start(`trap 'echo farewell; exit 3' TERM; echo ready; sleep 60 & wait`);
    await child.stop();
    expect(await child.exited).toEqual({ code: 3, signal: null });
    expect(log()).toContain('farewell');
    await child.stop();
  });

  it('does not wait for ever: SIGKILL after the grace, also for what the child has started', async () => {
    const child = await start(`trap '' TERM; sleep 60 & echo "helper $!"; echo ready; while :; do wait; done`, {
      graceMs: 100,
    });
    const helper = Number(/helper (\d+)/.exec(log())?.[1]);
    await child.stop();
    expect(await child.exited).toEqual({ code: null, signal: 'SIGKILL' });
    await gone(helper);
  });

  it('reaches a child that has been stopped', async () => {
    const child = await start(`trap 'exit 4' TERM; echo ready; sleep 60 & wait`);
    child.kill('SIGSTOP');
    await child.stop();
    expect(await child.exited).toEqual({ code: 4, signal: null });
  });

  it('takes its temporary folder along, a death of its own does not', async () => {
    const litter = join(folder, 'litter');
    mkdirSync(join(litter, 'deep'), { recursive: true });
    const first = await start('echo ready; sleep 60 & wait', { removeFolder: litter });
    first.kill('SIGKILL');
    expect(await first.exited).toEqual({ code: null, signal: 'SIGKILL' });
    expect(existsSync(litter)).toBe(true);
    const second = await start('echo ready; sleep 60 & wait', { removeFolder: litter });
    await second.stop();
    expect(existsSync(litter)).toBe(false);
  });
});

it('tells when the child ends by itself', async () => {
  const child = await start('echo ready; exit 7');
  expect(await child.exited).toEqual({ code: 7, signal: null });
  expect(child.end).toEqual({ code: 7, signal: null });
  child.kill('SIGTERM');
});

it('leaves no child behind when the watcher itself is killed', async () => {
  const child = await start(`trap '' TERM; sleep 60 & echo "helper $!"; echo ready; while :; do wait; done`);
  const helper = Number(/helper (\d+)/.exec(log())?.[1]);
  process.kill(child.watcherPid, 'SIGKILL');
  expect(await child.exited).toEqual({ code: null, signal: null });
  await gone(child.pid);
  await gone(helper);
});

it('gives the child a process group of its own, out of reach of signals to ours', async () => {
  const child = await start('echo ready; sleep 60 & wait');
  const groupOf = (pid: number): string | undefined =>
    /\) \S \d+ (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, 'latin1'))?.[1];
  if (process.platform === 'linux') {
    expect(groupOf(child.pid)).toBe(String(child.pid));
    expect(groupOf(child.watcherPid)).toBe(String(child.watcherPid));
  }
  expect(startTimeOf(child.pid)).toBeDefined();
});

it('refuses what cannot be started, with the reason', async () => {
  const starting = startWatched({
    command: join(folder, 'absent'),
    args: [],
    env: {},
    logFd,
    stopSignal: 'SIGTERM',
    graceMs: 100,
  });
  await expect(starting).rejects.toMatchObject({ code: 'not_ready', message: expect.stringContaining('ENOENT') });
});
