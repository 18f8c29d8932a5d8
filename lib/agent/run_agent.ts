import { CancelError, cancelError } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { ProviderError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { AgentEvent, AgentEventBody, FinishReason } from "../base/records/agent_event.ts";
import type { Caller } from "../base/records/caller.ts";
import type { Message } from "../base/records/message.ts";
import type { RunKind } from "../base/records/run.ts";
import { addUsage, NO_USAGE, type Usage } from "../base/records/usage.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { ModelParameters, Provider, ProviderRequest, ToolChoice, ToolDeclaration } from "../providers/provider.ts";
import type { Tool } from "../tools/runtime/tool.ts";
import type { ToolDoor } from "../tools/runtime/tool_door.ts";
import { type AgentApprover, type CallResult, callTools } from "./call_tools.ts";
import { inputBytes, toTokens } from "./estimate_tokens.ts";
import { createEventStamp } from "./event_stamp.ts";
import { fitContext } from "./fit_context.ts";
import { createLoopGuard } from "./loop_guard.ts";
import { createModelTurn, type ModelTurn } from "./model_turn.ts";
import { SHARED_CALL_PREFIX, type SuspendedTurns } from "./suspended_turns.ts";
import { createTokenBudget } from "./token_budget.ts";

/** Bounds of one run; the values of `[agent]` and `[budget]`. */
export interface AgentLimits {
  /** Turns in which the model may call tools; one more without tools follows */
  readonly maxIterations: number;
  readonly maxToolCalls: number;
  readonly parallelTools: boolean;
  /** 0: unlimited */
  readonly contextWindowTokens: number;
  /** 0: unlimited */
  readonly tokensPerRun: number;
}

/** How a run ended. */
export interface AgentOutcome {
  readonly terminal: Extract<AgentEvent, { type: "done" | "error" }>;
  /** What the run adds to its conversation: assistant messages and tool results, in order, every call answered or the client's */
  readonly added: readonly Message[];
  /** A ProviderError before the first delta: the reader gets it thrown instead of the terminal event */
  readonly refused: ProviderError | undefined;
}

/** Where a run is written down. */
export interface AgentJournal {
  /** Takes every event in order, before the reader gets it; must be cheap. Absent: nothing is kept */
  record?(events: readonly AgentEvent[]): void;
  /** The call's tool_start was recorded and its effect is next: resolves when that is durable */
  beforeEffect(callId: string): Promise<void>;
  /** Called once, after the terminal event was recorded. What waits for the reply to be durable waits here */
  end(outcome: AgentOutcome): Promise<void>;
}

/** Everything one run of the agent needs. */
export interface AgentRun {
  readonly id: string;
  readonly kind: RunKind;
  /** As shown; `providerModel` is what the provider is asked for */
  readonly model: string;
  readonly provider: Provider;
  readonly providerModel: string;
  readonly conversationId: string | null;
  readonly parentId: string | null;
  readonly caller: Caller;
  readonly depth: number;
  readonly requestId: string | undefined;
  /** Waits for the run's turn, then gives the model's messages: system prompt, history, the client's. @throws {CancelError} */
  readonly begin: () => readonly Message[] | Promise<readonly Message[]>;
  /** The agent's own tools the model is told of; empty for a plain model gateway */
  readonly agentTools: readonly Tool[];
  readonly clientTools: readonly ToolDeclaration[];
  readonly toolChoice: ToolChoice | undefined;
  readonly parallelToolCalls: boolean | undefined;
  readonly parameters: ModelParameters;
  readonly limits: AgentLimits;
  readonly signal: AbortSignal;
  /** Stops the work when the reader leaves */
  readonly abort: (error: CancelError) => void;
  readonly tools: ToolDoor;
  readonly approve: AgentApprover;
  readonly suspended: SuspendedTurns;
  readonly journal: AgentJournal;
  readonly clock: Clock;
  /** ISO 8601 of now; see createIsoTime */
  readonly time: () => string;
  readonly random: Random;
  readonly log: Logger;
}

/** Progress messages that a reader has not taken yet; more are dropped. */
const MAX_PENDING_PROGRESS = 1000;

/**
 * The loop: model turn, tool calls, results, next turn, until a turn calls no tool of the agent, a limit or cancellation.
 *
 * Yields one array of events per provider read, the terminal event last. The first array comes with the first delta, so that a
 * provider's refusal before it can still be answered with a status. Leaving the iteration aborts the run.
 * @throws {ProviderError} before the first delta only; every other failure is an `error` event
 * Source: DESIGN.md section 7
 */
export async function* runAgent(run: AgentRun): AsyncGenerator<readonly AgentEvent[], void, undefined> {
  const { journal, limits, signal } = run;
  const stamp = createEventStamp(run.time);
  const added: Message[] = [];
  let turn: ModelTurn | undefined;
  let toolWork: Promise<unknown> | undefined;
  let spoken = false;
  let ended = false;
  let usage: Usage = NO_USAGE;
  // Events that wait for the turn's first array, to be yielded together with it
  let head: AgentEvent[] = [];

  const note = (bodies: readonly AgentEventBody[]) => {
    const events = stamp.stamp(bodies);
    journal.record?.(events);
    return events;
  };
  const finish = async (body: TerminalBody, refused?: ProviderError): Promise<readonly AgentEvent[]> => {
    ended = true;
    const partial = turn?.finish === undefined && turn !== undefined && turn.text !== "";
    if (partial && turn !== undefined) added.push(turn.message({ provider: run.provider.name, calls: false }));
    const events = note([body]);
    try {
      await journal.end({ terminal: events[0] as AgentOutcome["terminal"], added, refused }); // the body was a terminal one
      return events;
    } catch (error) {
      run.log.error("Run could not be recorded", { run_id: run.id, error });
      return [{ seq: stamp.seq, time: run.time(), type: "error", ...INTERNAL }];
    }
  };

  try {
    const begun = run.begin();
    const messages = [...(begun instanceof Promise ? await begun : begun)];
    const budget = limits.tokensPerRun > 0 ? createTokenBudget(limits.tokensPerRun) : undefined;
    const guard = createLoopGuard();
    const offer = createOffer(run);
    let callsLeft = limits.maxToolCalls;
    let separator = "";
    head = note([{
      type: "run_start",
      kind: run.kind,
      model: run.model,
      conversation_id: run.conversationId,
      parent_id: run.parentId,
    }]);

    for (let number = 1;; number++) {
      const last = number > limits.maxIterations || callsLeft <= 0;
      const request = buildRequest(run, offer, { messages, first: number === 1, last });
      const fitted = fitRequest(request, limits.contextWindowTokens);
      const parameters = budget?.reserve(inputBytes(fitted.messages, fitted.tools), run.parameters) ?? run.parameters;
      head.push(...note([{ type: "turn_start", turn: number }, ...trimNotice(fitted)]));
      turn = createModelTurn({
        stamp,
        ownerOf: offer.ownerOf,
        newCallId: () => run.random.id(offer.callPrefix),
        separator,
      });

      const reply = run.provider.stream(
        { ...request, messages: fitted.messages, parameters },
        { signal, requestId: run.requestId },
      );
      for await (const batch of reply) {
        const events: AgentEvent[] = [];
        const delta = turn.take(batch, events);
        if (events.length > 0) journal.record?.(events);
        spoken ||= delta;
        if (head.length > 0) {
          head.push(...events);
          if (!spoken) continue;
          yield head;
          head = [];
        } else if (events.length > 0) yield events;
      }
      if (turn.finish === undefined) throw brokenReply(run.provider.name);

      const turnUsage = turn.finish.usage ?? estimateUsage(fitted.messages, fitted.tools, turn);
      budget?.settle(turnUsage);
      usage = addUsage(usage, turnUsage);
      const agentCalls = turn.calls.filter((call) => call.owner === "agent");
      const clientCalls = turn.calls.filter((call) => call.owner === "client");
      const useless = last || turn.finish.reason === "content_filter";
      const closing: AgentEventBody[] = [{ type: "turn_end", turn: number, usage: turnUsage }];
      if (useless && turn.calls.length > 0) closing.push(IGNORED_CALLS);
      const ending = note(closing);
      if (turn.text !== "") separator = turn.text.endsWith("\n") ? "" : "\n\n";

      const finalReason = useless || turn.calls.length === 0 ? plainReason(turn.finish.reason) : undefined;
      added.push(turn.message({ provider: run.provider.name, calls: finalReason === undefined }));
      if (finalReason !== undefined || agentCalls.length === 0) {
        if (finalReason === undefined) suspend(run, clientCalls, added);
        const done = await finish({ type: "done", finish_reason: finalReason ?? "tool_calls", usage });
        yield [...head, ...ending, ...done];
        return;
      }
      messages.push(...added.slice(-1));
      yield [...head, ...ending];
      head = [];

      // The tools run beside this generator, which hands on what they emit as it comes
      const queue = createEventQueue();
      const working = callTools({
        ...run,
        runId: run.id,
        calls: agentCalls,
        left: callsLeft,
        maxToolCalls: limits.maxToolCalls,
        allowed: offer.agentNames,
        parallel: limits.parallelTools,
        beforeEffect: journal.beforeEffect,
        emit(body) {
          if (body.type === "tool_progress" && queue.length() >= MAX_PENDING_PROGRESS) return;
          queue.push(note([body]));
        },
      });
      toolWork = working.finally(queue.close);
      toolWork.catch(() => {});
      for (let events = await queue.take(); events.length > 0; events = await queue.take()) yield events;
      const results = await working;
      toolWork = undefined;

      callsLeft -= agentCalls.length;
      const verdict = guard.observe(results.map(toGuarded));
      const advice: string[] = [];
      if (verdict.kind === "warn") {
        advice.push(`You repeated yourself: ${verdict.what}. Do something else, or answer with what you have.`);
        head.push(
          ...note([{ type: "notice", code: "loop_warning", message: `The model repeats itself: ${verdict.what}` }]),
        );
      }
      const goesOn = clientCalls.length === 0 && verdict.kind !== "stop";
      if (goesOn && (number >= limits.maxIterations || callsLeft <= 0)) {
        const limit = callsLeft <= 0 ? `${limits.maxToolCalls} tool calls` : `${limits.maxIterations} turns`;
        advice.push(
          `The limit of ${limit} for one run is reached. Answer now with what you have; no tool can be called any more.`,
        );
        const code = callsLeft <= 0 ? "max_tool_calls" : "max_iterations";
        head.push(
          ...note([{
            type: "notice",
            code,
            message: `The limit of ${limit} is reached: one last turn without tools follows`,
          }]),
        );
      }
      const answers = toMessages(results, advice);
      messages.push(...answers);
      added.push(...answers);
      if (verdict.kind === "stop") {
        const message = `The run was ended: the model was warned and still repeats itself (${verdict.what})`;
        yield [...head, ...(await finish({ type: "error", code: "loop_detected", message }))];
        return;
      }
      if (!goesOn) {
        suspend(run, clientCalls, added);
        yield [...head, ...(await finish({ type: "done", finish_reason: "tool_calls", usage }))];
        return;
      }
      if (signal.aborted) throw cancelError(signal);
    }
  } catch (error) {
    if (ended) throw error;
    const refused = error instanceof ProviderError && !spoken ? error : undefined;
    const events = await finish(toTerminal(error, run), refused);
    if (refused !== undefined) throw refused;
    yield [...head, ...events];
  } finally {
    if (!ended) {
      // The reader left at a yield
      run.abort(new CancelError("client_gone"));
      await toolWork?.catch(() => {});
      await finish(toTerminal(cancelError(signal), run));
    }
  }
}

type TerminalBody = Extract<AgentEventBody, { type: "done" | "error" }>;

const INTERNAL = {
  code: "internal_error",
  message: "The gateway failed inside; its log names the cause under the run's id",
};

const IGNORED_CALLS: AgentEventBody = {
  type: "notice",
  code: "tool_calls_ignored",
  message: "The model called tools where none could be called any more: the calls were not run",
};

/** Which tools the model is told of and whose a call is. A tool of the client hides one of the agent with the same name. */
function createOffer(run: AgentRun) {
  const clientNames = new Set(run.clientTools.map((tool) => tool.name));
  const own = run.agentTools.filter((tool) => !clientNames.has(tool.name));
  const declarations: readonly ToolDeclaration[] = own.length === 0
    ? run.clientTools
    : [...own.map(toDeclaration), ...run.clientTools];
  return {
    declarations,
    agentNames: own.map((tool) => tool.name),
    // Without tools of the agent every call is the client's, known name or not
    ownerOf: (name: string) => (own.length === 0 || clientNames.has(name) ? "client" as const : "agent" as const),
    callPrefix: own.length === 0 ? "call_" : SHARED_CALL_PREFIX,
  };
}

function toDeclaration(tool: Tool): ToolDeclaration {
  return { name: tool.name, description: tool.description, parameters: tool.inputSchema };
}

function buildRequest(
  run: AgentRun,
  offer: ReturnType<typeof createOffer>,
  at: { readonly messages: readonly Message[]; readonly first: boolean; readonly last: boolean },
): ProviderRequest {
  // A forced tool is forced once, or the loop could not end; "none" holds throughout
  const choice = at.first || run.toolChoice === "none" ? run.toolChoice : undefined;
  return {
    model: run.providerModel,
    messages: at.messages,
    tools: at.last ? [] : offer.declarations,
    toolChoice: at.last ? undefined : choice,
    parallelToolCalls: at.last ? undefined : run.parallelToolCalls,
    parameters: run.parameters,
  };
}

interface FittedRequest {
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDeclaration[];
  readonly shortened: number;
  readonly dropped: number;
}

/** Output the window must leave room for when the client names no limit: a quarter of it, 4096 tokens at most. */
const MAX_RESERVED_OUTPUT = 4096;

function fitRequest(request: ProviderRequest, window: number): FittedRequest {
  const { messages, tools, parameters } = request;
  if (window <= 0) return { messages, tools, shortened: 0, dropped: 0 };
  const asked = parameters.max_completion_tokens ?? parameters.max_tokens ?? MAX_RESERVED_OUTPUT;
  const output = Math.min(asked, Math.ceil(window / 4));
  return { ...fitContext(messages, window - output - toTokens(inputBytes([], tools))), tools };
}

function trimNotice({ shortened, dropped }: FittedRequest): readonly AgentEventBody[] {
  if (shortened === 0 && dropped === 0) return [];
  const message =
    `To fit the context window, ${shortened} tool results were shortened and ${dropped} messages left out`;
  return [{ type: "notice", code: "context_trimmed", message }];
}

function estimateUsage(messages: readonly Message[], tools: readonly ToolDeclaration[], turn: ModelTurn): Usage {
  const prompt = toTokens(inputBytes(messages, tools));
  const completion = turn.estimate();
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion, estimated: true };
}

function plainReason(reason: FinishReason): FinishReason {
  return reason === "tool_calls" ? "stop" : reason;
}

/** Keeps what the client will not send back: tool work of the agent, and parts of the vendor's reply. */
function suspend(run: AgentRun, clientCalls: readonly { readonly id: string }[], added: readonly Message[]): void {
  const only = added.length === 1 ? added[0] : undefined;
  if (only?.role === "assistant" && only.opaque === undefined) return;
  run.suspended.keep(clientCalls.map((call) => call.id), [...added]);
}

function toMessages(results: readonly CallResult[], advice: readonly string[]): readonly Message[] {
  return results.map((result, i) => {
    const isLast = i === results.length - 1;
    const content = [result.content, ...(isLast ? advice.map((line) => `[Postern] ${line}`) : [])].join("\n\n");
    return { role: "tool", tool_call_id: result.call.id, content };
  });
}

function toGuarded({ call, output, isError }: CallResult) {
  return { name: call.name, input: call.arguments, output, isError };
}

function toTerminal(error: unknown, run: AgentRun): TerminalBody {
  if (error instanceof CancelError) return { type: "error", code: error.reason, message: error.message };
  if (error instanceof ProviderError) return { type: "error", code: error.code, message: error.message };
  run.log.error("Run failed inside", { run_id: run.id, request_id: run.requestId, error });
  return { type: "error", ...INTERNAL };
}

function brokenReply(provider: string): ProviderError {
  return new ProviderError("provider_error", `Cannot use the reply of "${provider}": it ended without a finish`, {
    provider,
  });
}

/** Events of work that goes on beside the generator. `take` waits for some, and gives none once the queue is closed and empty. */
function createEventQueue() {
  let pending: AgentEvent[] = [];
  let closed = false;
  let wake = () => {};
  return {
    length: () => pending.length,
    push(events: readonly AgentEvent[]) {
      pending.push(...events);
      wake();
    },
    close() {
      closed = true;
      wake();
    },
    async take(): Promise<readonly AgentEvent[]> {
      while (pending.length === 0 && !closed) await new Promise<void>((resolve) => (wake = resolve));
      const taken = pending;
      pending = [];
      return taken;
    },
  };
}
