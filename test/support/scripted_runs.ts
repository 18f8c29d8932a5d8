import { CancelError, type CancelReason, cancelReason } from "../../lib/base/cancel.ts";
import type { Clock } from "../../lib/base/clock.ts";
import { refuse } from "../../lib/base/errors.ts";
import type { AgentEvent, AgentEventBody } from "../../lib/base/records/agent_event.ts";
import type { Run } from "../../lib/base/records/run.ts";
import { NO_USAGE, type Usage } from "../../lib/base/records/usage.ts";
import type { RunHandle, RunRequest, RunSupervisor } from "../../lib/runs/run_request.ts";
import type { Store } from "../../lib/storage/store.ts";

/** A step of a run: events of one read, a wait, an error thrown by `next()`, or a wait without end. */
export type ScriptStep =
  | readonly AgentEventBody[]
  | { readonly waitMs: number }
  | { readonly throws: Error }
  | "hang";

/** A run that was started, as the test sees it. */
export interface ScriptedRun {
  readonly id: string;
  readonly request: RunRequest;
  readonly conversationId: string | null;
  /** Reasons it was cancelled with, by its handle or by the controller it was given */
  readonly cancelled: CancelReason[];
  /** True when its reader left before the end */
  left: boolean;
  /** Arrays given to the reader */
  arraysRead: number;
  /** True when the iteration is over, in any way */
  over: boolean;
}

export interface ScriptedRuns extends RunSupervisor {
  readonly started: readonly ScriptedRun[];
}

export interface ScriptedRunsOptions {
  readonly clock: Clock;
  /** The steps of each run */
  readonly script: (request: RunRequest) => readonly ScriptStep[];
  /** Conversations that exist beside those created by `new` */
  readonly conversations?: readonly string[];
  /** Error that `start` throws instead of starting */
  readonly refuse?: () => Error | undefined;
  readonly hadEffect?: boolean;
  /** Where claims are made */
  readonly store?: Store;
}

/** `text` in deltas of one word each, then `done`. */
export function answer(
  text: string,
  usage: Usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
): readonly ScriptStep[] {
  const words = text.split(/(?<= )/).map((delta) => ({ type: "text_delta" as const, delta }));
  return [[{ type: "turn_start", turn: 1 }], words, [{ type: "done", finish_reason: "stop", usage }]];
}

/** A supervisor that plays events instead of asking a model. Runs go on only while they are read, durable ones excepted. */
export function createScriptedRuns(options: ScriptedRunsOptions): ScriptedRuns {
  const started: ScriptedRun[] = [];
  const records = new Map<string, Run>();
  const conversations = new Set(options.conversations);
  let active = 0;
  let starts = 0;
  const conversationOf = (request: RunRequest): string | null => {
    if (request.conversationId === undefined) return null;
    if (request.conversationId === "new") {
      const id = `conv_${conversations.size + 1}`;
      conversations.add(id);
      return id;
    }
    if (conversations.has(request.conversationId)) return request.conversationId;
    throw refuse("not_found", "Cannot find the conversation");
  };
  return {
    started,
    spend: (_input, _signal, work) => work(),
    async start(request) {
      const refusal = options.refuse?.();
      if (refusal !== undefined) throw refusal;
      const id = `run_${++starts}`;
      if (request.claim !== undefined && await options.store?.batch([request.claim(id)].flat()) === false) {
        throw refuse("conflict", "Claimed before");
      }
      const conversationId = conversationOf(request);
      const run: ScriptedRun = {
        id,
        request,
        conversationId,
        cancelled: [],
        left: false,
        arraysRead: 0,
        over: false,
      };
      started.push(run);
      records.set(run.id, toRecord(run));
      active++;
      const over = () => {
        run.over = true;
        active--;
      };
      return toHandle(run, { ...options, over, save: (record) => records.set(run.id, record) });
    },
    get: (id) => Promise.resolve(records.get(id)),
    startedBy: (id) => Promise.resolve(started.find((run) => run.id === id)?.request.by.caller),
    list: () => Promise.resolve({ runs: [...records.values()], hasMore: false }),
    cancel: () => Promise.resolve(false),
    follow: () => Promise.resolve(undefined),
    followHere: () => undefined,
    reach: () => Promise.resolve(undefined),
    ended: (id) => Promise.resolve(records.get(id)),
    stopHalted: () => {},
    active: () => active,
    worksIn: (id) => started.some((run) => run.conversationId === id && !run.over),
    resolve: () => Promise.reject(new TypeError("The script resolves nothing")),
    recover: () => Promise.resolve(),
    drain: () => Promise.resolve(),
  };
}

function toRecord(run: ScriptedRun): Run {
  return {
    id: run.id,
    object: "run",
    kind: run.request.kind,
    status: "running",
    created_at: "2026-01-01T00:00:00.000Z",
    started_at: null,
    ended_at: null,
    model: "test/model",
    conversation_id: run.conversationId,
    parent_id: null,
    result: null,
    error: null,
    usage: NO_USAGE,
  };
}

type HandleOptions = ScriptedRunsOptions & { readonly over: () => void; readonly save: (record: Run) => void };

function toHandle(run: ScriptedRun, options: HandleOptions): RunHandle {
  const { clock } = options;
  const controller = (run.request.durable ? undefined : run.request.reader?.controller) ?? new AbortController();
  const noteCancel = () => void run.cancelled.push(cancelReason(controller.signal));
  if (controller.signal.aborted) noteCancel();
  else controller.signal.addEventListener("abort", noteCancel, { once: true });
  let seq = 0;
  let text = "";
  const stamp = (body: AgentEventBody): AgentEvent => {
    if (body.type === "text_delta") text += body.delta;
    const ended = { ...toRecord(run), result: text, ended_at: "2026-01-01T00:00:01.000Z" };
    if (body.type === "done") options.save({ ...ended, status: "completed", usage: body.usage });
    if (body.type === "error") {
      options.save({ ...ended, status: "failed", result: null, error: { code: body.code, message: body.message } });
    }
    // The stamp completes the body of whatever member it is
    return { seq: ++seq, time: new Date(clock.now()).toISOString(), ...body } as AgentEvent;
  };
  async function* play(): AsyncGenerator<readonly AgentEvent[]> {
    let finished = false;
    try {
      for (const step of options.script(run.request)) {
        if (step === "hang") await untilAborted(controller.signal);
        else if ("waitMs" in step) await clock.sleep(step.waitMs, controller.signal);
        else if ("throws" in step) {
          finished = true;
          throw step.throws;
        } else {
          if (controller.signal.aborted) throw controller.signal.reason;
          run.arraysRead++;
          finished = step.some((event) => event.type === "done" || event.type === "error");
          yield step.map(stamp);
        }
      }
      finished = true;
    } catch (error) {
      if (!(error instanceof CancelError)) throw error;
      finished = true;
      yield [stamp({ type: "error", code: error.reason, message: error.message })];
    } finally {
      if (!finished) run.left = true;
      options.over();
    }
  }
  return {
    id: run.id,
    model: run.request.model ?? "test/model",
    conversationId: run.conversationId,
    events: play,
    cancel(reason) {
      controller.abort(new CancelError(reason));
    },
    hadEffect: () => options.hadEffect ?? false,
  };
}

function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
