import { CancelError, cancelError } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import type { AgentEvent, AgentEventBody } from "../base/records/agent_event.ts";
import type { Caller } from "../base/records/caller.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { ToolExecutor } from "../tools/runtime/tool_executor.ts";
import type { Approver } from "../tools/runtime/tool_call.ts";
import type { PreparedCall } from "../tools/runtime/tool.ts";
import type { AgentApprover, AgentJournal, AgentRun, RecordedResult, TurnCall } from "./agent_run.ts";

/** The calls of one turn, and the bounds they run under. */
export interface ToolWorkOptions {
  readonly calls: readonly TurnCall[];
  /** Calls that may still run under `max_tool_calls` */
  readonly left: number;
  readonly allowed: readonly string[];
  readonly known: ReadonlyMap<string, RecordedResult> | undefined;
  /** Stamps and records what the tools emit */
  readonly note: (bodies: readonly AgentEventBody[]) => readonly AgentEvent[];
}

/**
 * Runs the calls of one turn, and hands on what they emit as it comes. Leaving the iteration aborts the run and waits for what has
 * been started.
 * @returns as callTools
 * @throws {CancelError} once every started call has ended
 */
export async function* toolWork(
  run: AgentRun,
  { calls, left, allowed, known, note }: ToolWorkOptions,
): AsyncGenerator<readonly AgentEvent[], readonly CallResult[], undefined> {
  const { journal, limits } = run;
  const queue = createEventQueue();
  let ended = false;
  const working = callTools({
    ...run,
    runId: run.id,
    calls,
    left,
    maxToolCalls: limits.maxToolCalls,
    allowed,
    parallel: limits.parallelTools,
    known,
    gone: run.resume?.gone,
    beforeEffect: (callId, options) => journal.beforeEffect(callId, options),
    afterCall: (callId, options) => journal.afterCall(callId, options),
    emit(body) {
      if (body.type !== "tool_progress" || queue.hasRoom()) queue.push(note([body]));
    },
  }).finally(() => {
    ended = true;
    queue.close();
  });
  working.catch(() => {});
  try {
    for (let events = await queue.take(); events.length > 0; events = await queue.take()) yield events;
    return await working;
  } finally {
    if (!ended) {
      run.abort(new CancelError("client_gone"));
      await working.catch(() => {});
    }
  }
}

/** The calls of one turn, and everything they run with. */
export interface CallToolsOptions {
  readonly tools: ToolExecutor;
  readonly calls: readonly TurnCall[];
  /** Calls that may still run under `max_tool_calls`; the rest are answered with an error */
  readonly left: number;
  readonly maxToolCalls: number;
  /** Rights and limits that started runs inherit, as in AgentRun */
  readonly passesOn: AgentRun["passesOn"];
  /** Names of the tools this run was told of */
  readonly allowed: readonly string[];
  readonly parallel: boolean;
  /** True for a single call without a model, as in AgentRun */
  readonly isCall: boolean;
  readonly survivesShutdown: boolean;
  /** Results of calls that ended before the run was interrupted: these are not made again */
  readonly known: ReadonlyMap<string, RecordedResult> | undefined;
  /** Tools the run was offered that are gone now: name to reason */
  readonly gone: ReadonlyMap<string, string> | undefined;
  readonly runId: string;
  readonly requestId: string | undefined;
  readonly conversationId: string | null;
  readonly caller: Caller;
  readonly depth: number;
  readonly signal: AbortSignal;
  readonly approve: AgentApprover;
  readonly emit: (body: AgentEventBody) => void;
  /** Called before a call runs that is not a plain read: resolves when its start is durable */
  readonly beforeEffect: AgentJournal["beforeEffect"];
  /** Called when the tool_end of a call was emitted */
  readonly afterCall: AgentJournal["afterCall"];
  readonly clock: Pick<Clock, "monotonic">;
  readonly random: Random;
  readonly log: Logger;
}

/** The result of a call. `content` is for the model's messages: `output`, in the untrusted envelope when it came from outside. */
export interface CallResult {
  readonly call: TurnCall;
  readonly output: string;
  readonly content: string;
  readonly isError: boolean;
}

/** At most this many read calls run at once. */
const MAX_PARALLEL = 8;

/**
 * Runs the agent's calls of one turn through the executor: together where all of them only read, else one after the other.
 * @returns the results in the order of the calls
 * @throws {CancelError} once every started call has ended
 */
export async function callTools(options: CallToolsOptions): Promise<readonly CallResult[]> {
  const { calls, tools } = options;
  const onlyReads = () => calls.every((call) => (tools.accessOf(call.name, inputOf(call)) ?? "read") === "read");
  const width = options.parallel && calls.length > 1 && onlyReads() ? MAX_PARALLEL : 1;
  const results = new Array<CallResult>(calls.length);
  let next = 0;
  const work = async () => {
    while (next < calls.length) {
      const i = next++;
      const call = calls[i] as TurnCall; // i is below calls.length
      const known = options.known?.get(call.id);
      results[i] = known === undefined
        ? await callTool(call, i < options.left, options)
        : toResult(call, known, options.random);
    }
  };
  const workers = await Promise.allSettled(Array.from({ length: Math.min(width, calls.length) }, work));
  for (const worker of workers) if (worker.status === "rejected") throw worker.reason;
  return results;
}

async function callTool(call: TurnCall, mayRun: boolean, options: CallToolsOptions): Promise<CallResult> {
  const { emit, signal, tools } = options;
  const begun = options.clock.monotonic();
  let shown = false;
  const start = (input: unknown) => {
    shown = true;
    emit({ type: "tool_start", call_id: call.id, tool: call.name, input: tools.shown(input) });
  };
  const end = (
    output: string,
    isError: boolean,
    { outside = false, data }: { outside?: boolean; data?: unknown } = {},
  ) => {
    const duration = Math.round(options.clock.monotonic() - begun);
    emit({
      type: "tool_end",
      call_id: call.id,
      tool: call.name,
      output,
      is_error: isError,
      duration_ms: duration,
      ...(data === undefined ? {} : { data }),
    });
    options.afterCall(call.id, { outside });
    return toResult(call, { output, isError, outside }, options.random);
  };

  const parsed = options.isCall ? { input: call.arguments } : parseInput(call);
  const problem = options.gone?.get(call.name) ?? parsed.problem;
  const withdraw = () => options.approve.withdraw?.(call.id, emit);
  if (signal.aborted) throw cancelError(signal);
  if (!mayRun || problem !== undefined) {
    await withdraw();
    start(parsed.input);
    return end(
      problem ??
        `Cannot call "${call.name}": the limit of ${options.maxToolCalls} tool calls for one run is reached`,
      true,
    );
  }
  const approver: Approver = (request, waiting) => options.approve(request, waiting, emit);
  let journalFailure: { readonly error: unknown } | undefined;
  const onStart = async (prepared: PreparedCall) => {
    await withdraw();
    start(prepared.input ?? null);
    if (prepared.access === "read") return;
    try {
      await options.beforeEffect(call.id, { repeatable: prepared.repeatable === true });
    } catch (error) {
      journalFailure = { error };
      throw error;
    }
  };
  try {
    const outcome = await options.tools.call({
      name: call.name,
      input: inputOf(call),
      runId: options.runId,
      callId: call.id,
      requestId: options.requestId,
      conversationId: options.conversationId,
      caller: options.caller,
      depth: options.depth,
      signal,
      approver,
      ...(options.passesOn === undefined ? {} : { inherited: { ...options.passesOn, approver } }),
      allowed: options.allowed,
      onStart,
      onProgress: (message) => emit({ type: "tool_progress", call_id: call.id, message }),
    });
    if (journalFailure !== undefined) throw journalFailure.error;
    if (!shown) {
      await withdraw();
      start(parsed.input);
    }
    const { output, isError } = outcome.result;
    if (options.isCall) return end(output, isError, { data: outcome.result.data });
    return end(output, isError, { outside: outcome.outside === true || (outcome.ran && outcome.access === "network") });
  } catch (error) {
    // The next start makes the call again, or asks a person what became of it
    if (options.survivesShutdown && error instanceof CancelError && error.reason === "shutdown") throw error;
    if (!shown) start(parsed.input);
    if (error instanceof CancelError) {
      end(`The call was stopped: ${error.message}`, true);
      throw error;
    }
    const result = end(`Cannot call "${call.name}": it failed inside the gateway, whose log names the cause`, true);
    if (journalFailure !== undefined) throw journalFailure.error;
    options.log.error("Tool call failed inside", { run_id: options.runId, call_id: call.id, tool: call.name, error });
    return result;
  }
}

function toResult(call: TurnCall, { output, isError, outside }: RecordedResult, random: Random): CallResult {
  return { call, output, isError, content: outside ? wrapUntrusted(call.name, output, random) : output };
}

/** Models leave the arguments empty for a tool without parameters. */
function inputOf(call: TurnCall): string {
  return call.arguments.trim() === "" ? "{}" : call.arguments;
}

/** A model's arguments are a JSON object; the plain-text form of some tools is for people, and broken JSON must not pass as one. */
function parseInput(call: TurnCall): { readonly input: unknown; readonly problem?: string } {
  try {
    const input: unknown = JSON.parse(inputOf(call));
    if (typeof input === "object" && input !== null && !Array.isArray(input)) return { input };
    return { input, problem: `Cannot call "${call.name}": its arguments are valid JSON but not an object` };
  } catch (error) {
    // JSON.parse throws nothing but SyntaxError
    const reason = (error as SyntaxError).message;
    return {
      input: call.arguments,
      problem: `Cannot call "${call.name}": its arguments are not valid JSON (${reason})`,
    };
  }
}

/** Progress messages that a reader has not taken yet; more are dropped, so that a slow reader cannot fill the memory. */
const MAX_PROGRESS = 1000;

/** Events of work that goes on beside the generator which hands them on. */
export interface EventQueue {
  push(events: readonly AgentEvent[]): void;
  /** Returns true when the queue has room for a progress message */
  hasRoom(): boolean;
  close(): void;
  /** Waits for events; an empty array once the queue is closed and was emptied */
  take(): Promise<readonly AgentEvent[]>;
}

/** Creates an empty queue. */
export function createEventQueue(): EventQueue {
  let pending: AgentEvent[] = [];
  let closed = false;
  let wake = () => {};
  return {
    push(events) {
      pending.push(...events);
      wake();
    },
    hasRoom: () => pending.length < MAX_PROGRESS,
    close() {
      closed = true;
      wake();
    },
    async take() {
      while (pending.length === 0 && !closed) await new Promise<void>((resolve) => (wake = resolve));
      const taken = pending;
      pending = [];
      return taken;
    },
  };
}

/**
 * Wraps what came from outside for the model's messages, so that it can tell data from instructions.
 *
 * The closing line carries a random mark: content cannot end its own envelope. Events and records keep the plain output.
 * Source: docs/design/network.md "Text from outside"
 */
export function wrapUntrusted(source: string, content: string, random: Random): string {
  const mark = random.id("");
  return `<untrusted source=${JSON.stringify(source)} mark="${mark}">\n${content}\n</untrusted mark="${mark}">`;
}
