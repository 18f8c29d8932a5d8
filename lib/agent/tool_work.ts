import { CancelError } from "../base/cancel.ts";
import type { AgentEvent } from "../base/records/agent_event.ts";
import type { ReadSkill } from "../tools/runtime/tool_call.ts";
import type { AgentRun, RecordedResult, TurnCall } from "./agent_run.ts";
import type { EventRecorder } from "./event_recorder.ts";
import { type CallResult, callTools } from "./tool_calls.ts";

/** The calls of one turn, and the bounds they run under. */
export interface ToolWorkOptions {
  readonly calls: readonly TurnCall[];
  /** Calls that may still run under `max_tool_calls` */
  readonly left: number;
  readonly allowed: readonly string[];
  /** Skills that the run has read, which may take tools from it: those of this turn are added */
  readonly skills: ReadSkill[];
  readonly known: ReadonlyMap<string, RecordedResult> | undefined;
  /** Takes each result as it comes: those that are there when the run is stopped belong to its history */
  readonly ended: CallResult[];
  /** Stamps and records what the tools emit */
  readonly events: Pick<EventRecorder, "note">;
}

/**
 * Runs the calls of one turn, and hands on what they emit as it comes. Leaving the iteration aborts the run and waits for what has
 * been started.
 * @returns as callTools
 * @throws {CancelError} once every started call has ended
 */
export async function* toolWork(
  run: AgentRun,
  { calls, left, allowed, skills, known, ended: results, events }: ToolWorkOptions,
): AsyncGenerator<readonly AgentEvent[], readonly CallResult[], undefined> {
  const { provider, id } = run.model;
  const queue = new EventQueue();
  let ended = false;
  const working = callTools({
    run,
    calls,
    left,
    allowed,
    skills,
    known,
    ended: results,
    model: {
      sees: provider.sees?.(id) === true,
      // A run that is one call has no model
      sample: run.facts.call !== undefined ? undefined : async (request, signal) => {
        const { sampleModel } = await import("./sample_model.ts");
        return await sampleModel(run, request, signal);
      },
    },
    emit(body) {
      if (body.type !== "tool_progress" || queue.hasRoom()) queue.push(events.note([body]));
    },
  }).finally(() => {
    ended = true;
    queue.close();
  });
  working.catch(() => {});
  try {
    for (let taken = await queue.take(); taken.length > 0; taken = await queue.take()) yield taken;
    return await working;
  } finally {
    if (!ended) {
      run.abort(new CancelError("client_gone"));
      await working.catch(() => {});
    }
  }
}

/** Progress messages that a reader has not taken yet; more are dropped, so that a slow reader cannot fill the memory. */
const MAX_PROGRESS = 1000;

/** Events of work that goes on beside the generator which hands them on. */
class EventQueue {
  #pending: AgentEvent[] = [];
  #isClosed = false;
  #wake = () => {};

  push(events: readonly AgentEvent[]): void {
    this.#pending.push(...events);
    this.#wake();
  }

  /** Returns true when the queue has room for a progress message */
  hasRoom(): boolean {
    return this.#pending.length < MAX_PROGRESS;
  }

  close(): void {
    this.#isClosed = true;
    this.#wake();
  }

  /** Waits for events; an empty array once the queue is closed and was emptied */
  async take(): Promise<readonly AgentEvent[]> {
    while (this.#pending.length === 0 && !this.#isClosed) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    const taken = this.#pending;
    this.#pending = [];
    return taken;
  }
}
