import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDataFolder } from '../../../src/platform/servers/data-folder.ts';
import { identityOf, startTimeOf } from '../../../src/platform/servers/process-identity.ts';
import { endChildren, endLater, gone, holdingProcess } from './child-of-test.ts';
import type { SpeakingChild } from './child-of-test.ts';
import { temporaryFolder } from './fake-programs.ts';

let base: string;
let path: string;
beforeEach(() => {
  base = temporaryFolder();
  path = join(base, 'data');
});
afterEach(() => {
  endChildren();
  rmSync(base, { recursive: true, force: true });
});

/** A lock as a process leaves it that was killed: no process has this pid and this start time. */
function leaveDeadLock(folder: string, id: string, servers: object[] = [], name = 'lock'): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, name), JSON.stringify({ id, pid: process.pid, startTime: 'long ago', servers }));
}

/** Another process that has the folder, with a private server that nobody watches. */
async function ownerWithServer(): Promise<{ owner: SpeakingChild; server: number }> {
  const owner = holdingProcess('folder', path);
  const { server } = JSON.parse(await owner.nextLine()) as { server: number };
  endLater(server);
  return { owner, server };
}

it('is made for its owner alone, and holds nothing of ours once it is closed', async () => {
  const folder = await openDataFolder(path);
  folder.writeRunFile({ url: 'http://127.0.0.1:8080', token: 'a secret' });
  expect(statSync(path).mode & 0o777).toBe(0o700);
  expect(statSync(join(path, 'run.json')).mode & 0o777).toBe(0o600);
  expect(JSON.parse(readFileSync(join(path, 'run.json'), 'utf8'))).toEqual({
    url: 'http://127.0.0.1:8080',
    token: 'a secret',
  });
  folder.close();
  expect(readdirSync(path)).toEqual([]);
});

describe('a second start on the same folder', () => {
  it('is refused in one line while the first lives, and served after it has closed', async () => {
    const first = await openDataFolder(path);
    const refusal = (await openDataFolder(path).catch((error: unknown) => error)) as Error;
    expect(refusal).toMatchObject({ code: 'data_folder_locked' });
    expect(refusal.message).toContain(`process ${process.pid}`);
    expect(refusal.message.split('\n')).toHaveLength(1);
    first.close();
    const second = await openDataFolder(path);
    first.close();
    await expect(openDataFolder(path), 'a late close of the first leaves the second its lock').rejects.toThrow();
    second.close();
  });

  it('is refused while another process lives', async () => {
    await ownerWithServer();
    await expect(openDataFolder(path)).rejects.toMatchObject({ code: 'data_folder_locked' });
  });
});

describe("a dead owner's folder", () => {
  it('is taken over, the server that it left behind ended first, by SIGKILL if need be', async () => {
    const { owner, server } = await ownerWithServer();
    owner.process.kill('SIGKILL');
    await gone(owner.process.pid ?? 0);
    expect(startTimeOf(server), 'nobody watches this server').toBeDefined();
    // Its grace would be ten seconds: a clock that runs away ends it at the first look.
    let nowMs = 0;
    const folder = await openDataFolder(path, { clock: { now: () => 0, monotonic: () => (nowMs += 4_000) } });
    expect(startTimeOf(server)).toBeUndefined();
    expect(existsSync(join(path, 'run.json')), 'its address leads nowhere').toBe(false);
    folder.close();
  });

  it('does not cost an innocent process its life that has the pid of a server today', async () => {
    const innocent = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
    const pid = innocent.pid ?? 0;
    endLater(pid);
    leaveDeadLock(path, 'dead', [{ name: 'redis', pid, startTime: 'long ago' }]);
    const before = identityOf(pid);
    const folder = await openDataFolder(path);
    expect(identityOf(pid)).toEqual(before);
    folder.close();
  });

  it('has one heir, also when the first heirs died on the way', async () => {
    leaveDeadLock(path, 'dead');
    leaveDeadLock(path, 'first-heir', [], 'lock.heir-dead');
    leaveDeadLock(path, 'second-heir', [], 'lock.heir-first-heir');
    const folder = await openDataFolder(path);
    expect(readdirSync(path)).toEqual(['lock']);
    await expect(openDataFolder(path)).rejects.toMatchObject({ code: 'data_folder_locked' });
    folder.close();
  });

  it('is not taken while another heir lives', async () => {
    leaveDeadLock(path, 'dead');
    writeFileSync(
      join(path, 'lock.heir-dead'),
      JSON.stringify({ id: 'heir', ...identityOf(process.pid), servers: [] }),
    );
    await expect(openDataFolder(path)).rejects.toMatchObject({ code: 'data_folder_locked' });
  });

  it('goes to exactly one of several that come at once', async () => {
    const contestants = Array.from({ length: 4 }, () => holdingProcess('contest'));
    for (let round = 1; round <= 25; round += 1) {
      const folder = join(base, `round-${round}`);
      leaveDeadLock(folder, 'dead');
      for (const { process: child } of contestants) child.stdin?.write(`${folder}\n`);
      const answers = await Promise.all(contestants.map((contestant) => contestant.nextLine()));
      expect(answers.toSorted()).toEqual(['data_folder_locked', 'data_folder_locked', 'data_folder_locked', 'won']);
    }
  });
});

it('that cannot be read is nobody’s to take: the line says what to do', async () => {
  mkdirSync(path);
  writeFileSync(join(path, 'lock'), 'not ours');
  await expect(openDataFolder(path)).rejects.toThrow(/delete it if no Sluice runs here/);
});
