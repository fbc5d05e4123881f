/**
 * Keeps the processes of `serve --workers N` (article 5.1: several instances behind one address): starts one for each
 * seat, starts one again that ended by itself, replaces them one by one, and stops them in order. It serves nobody.
 *
 * Promises
 * - The seats are taken from the moment `start` returns until `stop`: one that ended is filled again after a wait that
 *   grows with each failure to `RESTART_MS.last` and no further, and shrinks back once a process has lasted.
 * - `replaceAll` takes an old process away only when its successor serves, one seat at a time. A successor that does not
 *   serve ends the replacing, and everything stays as it is.
 * - `stop` ends those that answer buyers first and those that land last, so that who waits for a landing gets it.
 *
 * It does not look into them: a process that hangs is up until somebody ends it (`/readyz`, event-loop lag).
 */
import { Fault } from '../domain/fault.ts';
import type { Clock, Random, Timer, Timers } from '../platform/clock.ts';
import type { Log } from '../platform/log.ts';
import { Alarms } from '../watch/alarms.ts';
import { Metrics, type MetricSnapshot } from '../watch/metrics.ts';
import type { Role } from './wire.ts';

/** A place for one process: its name in log and metrics, and what it does. */
export type Seat = { readonly name: string; readonly role: Role };

/** What a process is told. */
export type ToProcess =
  | { readonly kind: 'read metrics'; readonly id: number }
  | { readonly kind: 'all metrics'; readonly id: number; readonly snapshots: readonly (readonly MetricSnapshot[])[] };

/** What a process tells. */
export type FromProcess =
  | { readonly kind: 'serving'; readonly url: string }
  | { readonly kind: 'metrics'; readonly id: number; readonly metrics: readonly MetricSnapshot[] }
  | { readonly kind: 'gather metrics'; readonly id: number };

/** How a process ended. */
export type Ending = { readonly code: number | null; readonly signal: string | null };

/** A process, as `cluster.ts` starts it. */
export type Child = {
  readonly pid: number | undefined;
  /** drops the message where the process is gone */
  send(message: ToProcess): void;
  onMessage(hear: (message: FromProcess) => void): void;
  kill(signal: 'SIGTERM' | 'SIGKILL'): void;
  readonly ended: Promise<Ending>;
};

/** What supervising needs. */
export type SupervisorPorts = {
  readonly spawn: (seat: Seat) => Child;
  readonly log: Log;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  /** a process that has not ended this long after SIGTERM is killed */
  readonly stopMsMax: number;
};

/** Waits before a process that ended by itself is started again. */
export const RESTART_MS = { first: 200, last: 10_000 } as const;
/** A process that has served this long was well: its end counts as the first. */
const LASTED_MS = 60_000;
/** A successor that does not serve by then is given up. */
const SUCCESSOR_MS_MAX = 60_000;
/** A process that does not tell its metrics by then is left out. */
const READING_MS_MAX = 1_000;

/** What stands for a process that could not be started. */
const NOBODY: Child = {
  pid: undefined,
  send: () => undefined,
  onMessage: () => undefined,
  kill: () => undefined,
  ended: Promise.resolve({ code: null, signal: null }),
};

type Running = {
  readonly child: Child;
  /** its address; undefined where it ended before it served */
  readonly serving: Promise<string | undefined>;
  servingSince: number | undefined;
  readonly readings: Map<number, (metrics: readonly MetricSnapshot[]) => void>;
};
type Place = { readonly seat: Seat; running: Running | undefined; failures: number; restarts: number; timer?: Timer };

/** Supervises. */
export class Supervisor {
  readonly #ports: SupervisorPorts;
  readonly #places: readonly Place[];
  readonly #alarms: Alarms;
  readonly #metrics: Metrics;
  /** every process that has not ended, successors and retiring ones too */
  readonly #alive = new Map<Running, Seat>();
  readonly #stopping = new AbortController();
  #isUp = false;
  #asked = 0;
  #replacing: Promise<boolean> | undefined;
  #stopped: Promise<boolean> | undefined;

  constructor(seats: readonly Seat[], ports: SupervisorPorts) {
    this.#ports = ports;
    this.#places = seats.map((seat) => ({ seat, running: undefined, failures: 0, restarts: 0 }));
    this.#alarms = new Alarms(ports.log, ports.clock);
    const byName = (read: (place: Place) => number) => () =>
      new Map(this.#places.map((place) => [place.seat.name, read(place)]));
    this.#metrics = new Metrics(
      {
        processUp: byName(({ running }) => (running?.servingSince === undefined ? 0 : 1)),
        processRestarts: byName(({ restarts }) => restarts),
        alarms: () => this.#alarms.counts(),
      },
      { process: 'primary', withNode: true },
    );
  }

  /**
   * Starts all of them and waits until they serve.
   * @returns the address of the first seat
   * @throws Fault `not_ready` when one ends before it served; the others have been stopped then
   */
  async start(): Promise<string> {
    this.#metrics.start();
    const started = this.#places.map((place) => {
      place.running = this.#spawn(place);
      return place.running;
    });
    const addresses = await new Promise<(string | undefined)[]>((resolve) => {
      for (const { serving } of started) {
        void serving.then((address) => {
          if (address === undefined) resolve([undefined]);
        });
      }
      void Promise.all(started.map(({ serving }) => serving)).then(resolve);
    });
    const failed = this.#places.find(({ running }) => running !== undefined && !this.#alive.has(running));
    const [first] = addresses;
    if (first === undefined || failed !== undefined) {
      await this.stop();
      throw new Fault('not_ready', `start ${failed?.seat.name ?? 'the processes'}: it ended before it served`, {
        retryable: false,
      });
    }
    this.#isUp = true;
    return first;
  }

  /**
   * Replaces all processes, one by one. A second call joins the first.
   * @returns false where a successor did not serve, or all are being stopped
   */
  replaceAll(): Promise<boolean> {
    this.#replacing ??= this.#replaceEach().finally(() => {
      this.#replacing = undefined;
    });
    return this.#replacing;
  }

  /**
   * Stops all of them in order. Safe to repeat.
   * @returns whether each ended by itself and well
   */
  stop(): Promise<boolean> {
    this.#stopped ??= this.#stopEach();
    return this.#stopped;
  }

  #spawn(place: Place): Running {
    const { seat } = place;
    const child = this.#trySpawning(seat);
    let tellServing: (url: string | undefined) => void = () => undefined;
    const running: Running = {
      child,
      serving: new Promise((resolve) => {
        tellServing = resolve;
      }),
      servingSince: undefined,
      readings: new Map(),
    };
    this.#alive.set(running, seat);
    child.onMessage((message) => {
      switch (message.kind) {
        case 'serving':
          running.servingSince = this.#ports.clock.monotonic();
          return tellServing(message.url);
        case 'metrics':
          return running.readings.get(message.id)?.(message.metrics);
        case 'gather metrics':
          void this.#gather().then((snapshots) => child.send({ kind: 'all metrics', id: message.id, snapshots }));
      }
    });
    void child.ended.then((ending) => {
      this.#alive.delete(running);
      tellServing(undefined);
      if (place.running === running && this.#isUp) this.#restart(place, running, ending);
    });
    return running;
  }

  /** A machine that is out of memory or of processes must not end the parent: it tries again later. */
  #trySpawning(seat: Seat): Child {
    try {
      return this.#ports.spawn(seat);
    } catch (error) {
      this.#ports.log.error({ seat: seat.name, cause: String(error) }, 'a process could not be started');
      return NOBODY;
    }
  }

  #restart(place: Place, ended: Running, ending: Ending): void {
    if (this.#stopping.signal.aborted) return;
    const { log, clock, timers, random } = this.#ports;
    if (ended.servingSince !== undefined && clock.monotonic() - ended.servingSince >= LASTED_MS) place.failures = 0;
    const grown = Math.min(RESTART_MS.last, RESTART_MS.first * 2 ** place.failures);
    const waitMs = Math.round(grown * (0.5 + random.fraction() / 2));
    place.failures += 1;
    place.restarts += 1;
    place.running = undefined;
    const about = { seat: place.seat.name, childPid: ended.child.pid, ...ending, waitMs };
    log.warn(about, 'process ended by itself');
    this.#alarms.raise('process_ended', about, 'processes end by themselves and are started again');
    place.timer = timers.after(waitMs, () => {
      place.running = this.#spawn(place);
    });
  }

  async #replaceEach(): Promise<boolean> {
    const { timers, log } = this.#ports;
    for (const place of this.#places) {
      if (this.#stopping.signal.aborted) return false;
      const next = this.#spawn(place);
      const over = new AbortController();
      const stop = (): void => over.abort();
      this.#stopping.signal.addEventListener('abort', stop, { once: true });
      const address = await Promise.race([
        next.serving,
        timers.sleep(SUCCESSOR_MS_MAX, over.signal).then(() => undefined),
      ]);
      over.abort();
      this.#stopping.signal.removeEventListener('abort', stop);
      if (this.#stopping.signal.aborted) return false; // `stop` ends it with the others
      if (address === undefined) {
        next.child.kill('SIGKILL');
        this.#alarms.raise(
          'replacement_failed',
          { seat: place.seat.name },
          'a successor did not serve: the processes that are there stay',
        );
        return false;
      }
      const old = place.running;
      place.timer?.cancel();
      place.running = next;
      log.info({ seat: place.seat.name, from: old?.child.pid, to: next.child.pid }, 'process replaced');
      if (old !== undefined) await this.#end(old);
    }
    return true;
  }

  async #stopEach(): Promise<boolean> {
    this.#stopping.abort();
    for (const place of this.#places) place.timer?.cancel();
    let well = true;
    for (const landing of [false, true]) {
      const group = [...this.#alive].filter(([, seat]) => (seat.role === 'worker') === landing);
      const endings = await Promise.all(group.map(([running]) => this.#end(running)));
      well &&= endings.every((ending) => ending.code === 0);
    }
    return well;
  }

  /** Asks a process to end, and makes it where it does not. */
  async #end({ child }: Running): Promise<Ending> {
    const over = new AbortController();
    const late = this.#ports.timers.sleep(this.#ports.stopMsMax, over.signal).then(() => {
      if (!over.signal.aborted) child.kill('SIGKILL');
    });
    child.kill('SIGTERM');
    const ending = await child.ended;
    over.abort();
    await late;
    return ending;
  }

  /** What every process that serves tells now, and our own. */
  async #gather(): Promise<(readonly MetricSnapshot[])[]> {
    const serving = this.#places.flatMap(({ running }) => (running?.servingSince === undefined ? [] : [running]));
    const readings = await Promise.all(serving.map((running) => this.#read(running)));
    return [await this.#metrics.read(), ...readings.filter((reading) => reading !== undefined)];
  }

  async #read({ child, readings }: Running): Promise<readonly MetricSnapshot[] | undefined> {
    const id = ++this.#asked;
    const over = new AbortController();
    const told = new Promise<readonly MetricSnapshot[]>((resolve) => readings.set(id, resolve));
    child.send({ kind: 'read metrics', id });
    const late = this.#ports.timers.sleep(READING_MS_MAX, over.signal).then(() => undefined);
    const reading = await Promise.race([told, late]);
    over.abort();
    readings.delete(id);
    return reading;
  }
}
