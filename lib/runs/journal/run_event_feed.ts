import { neverAborted } from "../../base/cancel.ts";
import { type Clock, withTimeout } from "../../base/clock.ts";
import type { AgentEvent } from "../../base/records/agent_event.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { nextTick, Yielder } from "../../base/tick.ts";
import { type PackedEvents, unpackEvents } from "./pack_events.ts";
import type { OnRecorded } from "./run_store.ts";

/** Function of the program around the gateway that is told of events. What it gives is awaited, and not looked at. */
export type TellProgram = (event: AgentEvent, run: { readonly runId: string }) => unknown;

/** Options of `RunEventFeed`. */
export interface RunEventFeedOptions {
  readonly tell: TellProgram;
  /** Resolves when the program has its gateway. It is told nothing before */
  readonly ready: Promise<void>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Milliseconds that the program may take for one event. */
const EVENT_MS = 5_000;
/** UTF-16 units of JSON that wait for the program. */
const MAX_WAITING_UNITS = 32 * 1024 * 1024;
/** Milliseconds between two lines of the log about failures. */
const LOG_EACH_MS = 10_000;

/**
 * Tells the program of run events: each once, in the order of the records, one after the other.
 *
 * Runs never wait for it. A program that is slow has 32 MiB of events waiting; beyond that they are left out, which shows as a gap in the
 * `seq`. One that hangs is left behind after 5 s for each event. Errors go to the log, once in 10 s with their number.
 */
export class RunEventFeed {
  readonly #options: RunEventFeedOptions;
  readonly #waiting: { readonly runId: string; readonly events: PackedEvents; readonly units: number }[] = [];
  #units = 0;
  #isClosed = false;
  /** The work on what waits; undefined while nothing does */
  #working: Promise<void> | undefined = undefined;
  readonly #failures: Failures;
  readonly #losses: Failures;

  constructor(options: RunEventFeedOptions) {
    this.#options = options;
    this.#failures = new Failures("onRunEvent failed", options);
    this.#losses = new Failures("Run events were left out: onRunEvent is too slow", options);
  }

  /** Takes events. Cheap, and never throws. Bound, so that the journal calls it directly. */
  readonly take: OnRecorded = (runId, events) => {
    if (this.#isClosed || events.count === 0) return;
    const units = JSON.stringify(events).length;
    if (this.#units + units > MAX_WAITING_UNITS) return this.#losses.add({ run_id: runId, events: events.count });
    this.#units += units;
    this.#waiting.push({ runId, events, units });
    this.#work();
  };

  /** Tells what waits, for `ms` milliseconds at most, and leaves out the rest. */
  async close(ms: number): Promise<void> {
    const { clock } = this.#options;
    if (this.#working !== undefined) await withTimeout(this.#working, { ms, clock });
    this.#isClosed = true;
    const events = this.#waiting.reduce((sum, { events: { count } }) => sum + count, 0);
    if (events > 0) this.#losses.add({ events });
    this.#waiting.length = 0;
  }

  #work(): void {
    if (this.#waiting.length === 0) return;
    this.#working ??= this.#tellAll().finally(() => {
      this.#working = undefined;
      this.#work();
    });
  }

  async #tellAll(): Promise<void> {
    await this.#options.ready;
    // Never within the write that recorded the events
    await nextTick();
    const yielder = new Yielder({ clock: this.#options.clock, signal: neverAborted() });
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      const { runId, events, units } = next;
      for (const event of this.#unpack(runId, events)) {
        if (this.#isClosed) return;
        await this.#tell(event, runId);
        if (yielder.isDue()) await yielder.yield();
      }
      this.#units -= units;
    }
  }

  /** Returns the events of a record. None where it cannot be read back, which must not end the telling. */
  #unpack(runId: string, events: PackedEvents): readonly AgentEvent[] {
    try {
      return unpackEvents(events);
    } catch (error) {
      this.#losses.add({ run_id: runId, events: events.count, error });
      return [];
    }
  }

  async #tell(event: AgentEvent, runId: string): Promise<void> {
    const { tell, clock } = this.#options;
    const { seq, type } = event;
    try {
      // A copy: the journal's readers have the event too
      const telling = tell(structuredClone(event), { runId });
      if (!isPromise(telling)) return;
      const isDone = await withTimeout(Promise.resolve(telling).then(() => true), { ms: EVENT_MS, clock });
      if (isDone !== true) this.#failures.add({ run_id: runId, seq, type, error: new Error(TOO_SLOW) });
    } catch (error) {
      this.#failures.add({ run_id: runId, seq, type, error });
    }
  }
}

const TOO_SLOW = `It took longer than ${EVENT_MS / 1000} s for one event: the next one follows`;

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && "then" in value;
}

/** Log of failures that may come with each event: a line for the first, and one in 10 s with the number of the others. */
class Failures {
  readonly #message: string;
  readonly #options: Pick<RunEventFeedOptions, "clock" | "log">;
  #count = 0;
  #nextAt = Number.NEGATIVE_INFINITY;

  constructor(message: string, options: Pick<RunEventFeedOptions, "clock" | "log">) {
    this.#message = message;
    this.#options = options;
  }

  add(fields: Readonly<Record<string, unknown>>): void {
    const { clock, log } = this.#options;
    this.#count++;
    const now = clock.monotonic();
    if (now < this.#nextAt) return;
    log.error(this.#message, { ...fields, failures: this.#count });
    this.#count = 0;
    this.#nextAt = now + LOG_EACH_MS;
  }
}
