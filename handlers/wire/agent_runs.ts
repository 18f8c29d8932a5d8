import type { Services } from "../../lib/services.ts";
import type { StoredRuns } from "../../lib/runs/journal/stored_runs.ts";
import type { RouteInput } from "../define_route.ts";
import type { RunClaim } from "../route.ts";
import * as v from "valibot";
import type { ContentPart, Message } from "../../lib/base/records/message.ts";
import { CONVERSATION_ID } from "../../lib/runs/conversations/conversation_records.ts";
import type { FollowOptions, RunHandle, RunReach, RunRequest, RunSupervisor } from "../../lib/runs/run_request.ts";
import { CancelError } from "../../lib/base/cancel.ts";
import { type ErrorCode, ProviderError, refuse } from "../../lib/base/errors.ts";
import { type AgentEvent, isTerminal } from "../../lib/base/records/agent_event.ts";
import { type Caller, hasScope, mayReach } from "../../lib/base/records/caller.ts";
import { isPlainModel, plainModelOf } from "../../lib/providers/models/model_names.ts";
import type { SentFile } from "./sent_files.ts";
import type { WireInput } from "./to_completion_input.ts";

/** Errors of a route that starts a run or acts on one. */
export const RUN_ERRORS = [
  "agent_unavailable",
  "shutting_down",
  "halted",
  "overloaded",
  "conflict",
] as const satisfies readonly ErrorCode[];

/**
 * Errors of a route that replies with the output of a run, including errors of the model's provider. A provider may use its own codes
 * for 400, 404, 413 and 422.
 */
export const REPLY_ERRORS = [
  ...RUN_ERRORS,
  "unsupported_parameter",
  "model_not_found",
  "needs_review",
  "rate_limited",
  "loop_detected",
  "run_interrupted",
  "provider_error",
  "provider_timeout",
  "payload_too_large",
  422,
] as const satisfies readonly (ErrorCode | number)[];

/** Returns the agent's services. @throws {HttpError} 503 agent_unavailable when the gateway was started without agent configuration */
export function requireAgent(services: Pick<Services, "agent">): NonNullable<Services["agent"]> {
  if (services.agent !== undefined) return services.agent;
  throw refuse(
    "agent_unavailable",
    'Cannot reach an agent: the gateway was started with --no-agent or [provider] kind = "none"',
  );
}

/** Returns the runs for a route that only reads, which works without an agent. */
export function runsToRead({ agent, storedRuns }: Pick<Services, "agent" | "storedRuns">): StoredRuns {
  return agent?.runs ?? storedRuns;
}

/** Body of a request, decoded, and whether its run gets the agent's own tools. */
export interface DecodedBody<Input extends WireInput> {
  readonly input: Input;
  readonly agentTools: RunRequest["agentTools"];
}

/** Header of a request that turns the agent's own tools off, as /openapi.json describes it. */
export const TOOLS_HEADER = {
  "x-postern-tools": {
    description: "none: without the agent's own tools",
    schema: { type: "string", enum: ["none"] },
  },
} as const;

/**
 * Returns whether a request gets the agent's own tools, by its header, its token and the model that it names.
 * @throws {HttpError} 400 invalid_request for another value of the header
 */
export function agentToolsOf(
  { head, identity }: Pick<RouteInput, "head" | "identity">,
  model?: string | undefined,
): RunRequest["agentTools"] {
  const value = head.headers.get("x-postern-tools");
  if (value !== null && value.trim().toLowerCase() !== "none") {
    throw refuse("invalid_request", `Cannot read the header "x-postern-tools": the only value is "none"`);
  }
  return value !== null || identity?.plain || isPlainModel(model) ? "none" : "configured";
}

/** Members of each route that answers a client's own form of a request by a run (answer_by_run.ts). */
export const BY_RUN = {
  method: "POST",
  access: "chat",
  steady: "completion",
  headers: TOOLS_HEADER,
  otherReplies: [{ status: 200, type: "text/event-stream" }],
  errors: REPLY_ERRORS,
  idempotency: "by_run",
  before(parts: Pick<Services, "agent">, input: Pick<RouteInput, "head" | "identity">): void {
    requireAgent(parts);
    agentToolsOf(input);
  },
} as const;

/** Returns a decoded body for its run, and names the fields that are not honoured. @param names the client's, by those of chat completions */
export function toDecodedBody<Input extends WireInput>(
  input: Input,
  agentTools: RunRequest["agentTools"],
  ignored: string[],
  names?: ReadonlyMap<string, string>,
): DecodedBody<Input> {
  ignored.push(...input.ignored);
  if (agentTools === "none" && input.wishes.clientTools.length === 0) {
    if (typeof input.wishes.toolChoice === "string") ignored.push("tool_choice");
    if (input.wishes.parallelToolCalls !== undefined) ignored.push(names?.get(PARALLEL) ?? PARALLEL);
  }
  return { input, agentTools };
}

const PARALLEL = "parallel_tool_calls";

/** Returns an estimate of the tokens of a request's own messages and tools. What the agent adds is not counted. */
export async function estimateInput(services: Pick<Services, "agent">, input: WireInput): Promise<number> {
  const { messages, model: name, wishes: { clientTools: tools, parameters } } = input;
  const { model } = requireAgent(services).providers.resolve(isPlainModel(name) ? plainModelOf(name) : name);
  const { estimateUsage } = await import("../../lib/agent/estimate_tokens.ts");
  return (await estimateUsage({ model, messages, tools, parameters }, () => 0)).prompt_tokens;
}

/** Schema of the field `conversation_id`; `new` begins a conversation. */
export const conversationIdSchema = v.pipe(
  v.string(),
  v.regex(CONVERSATION_ID, 'Expected 1 to 128 letters, digits, ".", "_", ":" or "-"'),
);

/** Schema of what is said to the agent. Blanks alone say nothing, and vendors refuse a conversation with such a message. */
export const spokenSchema = v.pipe(v.string(), v.regex(/\S/, "Expected a text with more than blanks"));

/** A message of a person or a channel to the agent. */
export interface ChatInput {
  readonly message: string;
  /** Goes before the message as a part of its own */
  readonly context?: string | undefined;
  readonly conversationId: string;
  readonly model?: string | undefined;
  /** Go behind the message. Default: none */
  readonly files?: readonly SentFile[] | undefined;
}

type Circumstances = Pick<RunRequest, "kind" | "by" | "durable" | "claim" | "reader">;

/** Returns the request for a run that answers one message with the agent's own tools, recorded under a conversation. */
export function toChatRequest(input: ChatInput, circumstances: Circumstances): RunRequest {
  return {
    ...circumstances,
    messages: [toMessage(input)],
    model: input.model,
    conversationId: input.conversationId,
    agentTools: "configured",
  };
}

function toMessage({ message, context = "", files = [] }: ChatInput): Message {
  if (context === "" && files.length === 0) return { role: "user", content: message };
  const texts = context === "" ? [message] : [context, message];
  const content = [...texts.map((text): ContentPart => ({ type: "text", text })), ...files.map(({ part }) => part)];
  return { role: "user", content, ...(files.length === 0 ? {} : { files: files.map(({ name }) => name) }) };
}

/**
 * Returns the handle of a durable run that an earlier request started. Its events are read from the first one, live to the end.
 * `leave` ends the reading alone: the run may have other readers.
 * @param options.onPace see FollowOptions. @param options.streams true for a reply that is a stream, which outlives the request's signal
 * @throws {HttpError} 409 conflict when the run is forgotten
 */
export async function attachRun(
  runId: string,
  { runs, request }: { readonly runs: RunSupervisor; readonly request: Pick<RouteInput, "signal"> },
  { streams, onPace }: { readonly streams: boolean; readonly onPace?: FollowOptions["onPace"] },
): Promise<RunHandle> {
  const run = await runs.get(runId);
  if (run === undefined) throw forgotten();
  const own = new AbortController();
  const signal = streams ? own.signal : AbortSignal.any([own.signal, request.signal]);
  async function* events() {
    const followed = await runs.follow(runId, { afterSeq: 0, signal, onPace });
    if (followed === undefined) throw forgotten();
    let ended = false;
    for await (const batch of followed) {
      // An empty array says here that the model has begun to answer, and there that the events come in another way
      if (batch.length === 0) continue;
      ended ||= batch.some(isTerminal);
      yield batch;
    }
    if (signal.aborted) throw signal.reason;
    // The run was stopped for the shutdown and resumes at the next start
    if (!ended) throw new CancelError("shutdown");
  }
  return {
    id: runId,
    model: run.model,
    conversationId: run.conversation_id,
    events,
    durable: true,
    cancel: (reason) => void runs.cancel(runId, reason).catch(() => {}),
    leave: (reason) => own.abort(new CancelError(reason)),
    hadEffect: () => undefined,
  };
}

function forgotten() {
  return refuse("conflict", "Cannot repeat this request: the run that the first one started is not kept any more");
}

function beginsEffect(batch: readonly AgentEvent[], tools: Services["tools"]): boolean {
  return batch.some((event) => event.type === "tool_start" && tools.get(event.tool)?.access !== "read");
}

/** Tells whether a run that has ended may have had an effect. True for one whose events are not kept any more. */
export async function runHadEffect(
  id: string,
  { runs, tools, signal }: {
    readonly runs: StoredRuns;
    readonly tools: Services["tools"];
    readonly signal: AbortSignal;
  },
): Promise<boolean> {
  const followed = await runs.follow(id, { afterSeq: 0, signal });
  if (followed === undefined) return true;
  for await (const batch of followed) {
    if (beginsEffect(batch, tools)) return true;
    if (batch.some(isTerminal)) return false;
  }
  return true;
}

/** Returns a run whose events come in another way. */
function withEvents(handle: RunHandle, events: RunHandle["events"], hadEffect = () => handle.hadEffect()): RunHandle {
  const { id, model, conversationId, durable } = handle;
  return {
    ...{ id, model, conversationId, durable, events, hadEffect },
    cancel: (reason) => handle.cancel(reason),
    leave: (reason) => handle.leave(reason),
    isAskedAgain: () => handle.isAskedAgain?.() === true,
  };
}

/**
 * Follows durable work for the reply to a request. Where it was at work elsewhere, its effects are those that the reader sees. The claim of an
 * Idempotency-Key is told of the end that the reader sees.
 * @param options.streams true for a reply whose text goes out as it comes
 */
export function readRun(
  handle: RunHandle,
  { claim, tools }: { readonly claim: RunClaim | undefined; readonly tools: Services["tools"] },
  { streams }: { readonly streams: boolean },
): RunHandle {
  const told = streams && claim !== undefined ? withClaimMarks(handle, claim) : handle;
  let hadEffect = false;
  let isOver = false;
  const end = (errorCode: string | undefined) => {
    // After a shutdown it goes on
    isOver = errorCode !== "shutdown";
    claim?.shows(errorCode);
  };
  async function* events() {
    try {
      for await (const batch of told.events()) {
        hadEffect ||= beginsEffect(batch, tools);
        const last = batch.at(-1);
        if (last?.type === "done") end(undefined);
        if (last?.type === "error") end(last.code);
        yield batch;
      }
    } catch (error) {
      // A provider's refusal before any event is thrown, and is the end of the run
      if (error instanceof ProviderError) end(error.code);
      throw error;
    }
  }
  // Without a key a repeat begins another run, while this one may have its effect yet
  return withEvents(told, events, () => (handle.hadEffect() ?? hadEffect) || (claim === undefined && !isOver));
}

/**
 * A run whose reader is told on disk, before the first text of a turn goes out, that it does: after a crash it is then known that the
 * text cannot be taken back (docs/design/http.md "Idempotency"). Costs one write a turn.
 */
function withClaimMarks(handle: RunHandle, claim: RunClaim): RunHandle {
  async function* events() {
    let turn = 1;
    for await (const batch of handle.events()) {
      for (const event of batch) {
        if (event.type === "turn_start" || event.type === "turn_restart") turn = event.turn;
        if (isTold(event)) await claim.tell(turn);
      }
      yield batch;
    }
  }
  return withEvents(handle, events);
}

function isTold({ type }: AgentEvent): boolean {
  return type === "text_delta" || type === "reasoning_delta" || type === "refusal_delta" ||
    type === "client_tool_call_delta" || type === "reply_fields";
}

/** Position and caller of a reader. */
export interface OpenRunEventsOptions {
  /** Position of the reader, and how the request called it */
  readonly after: { readonly name: string; readonly seq: number };
  /** true: the position is checked, and the events come from the first on. Default false */
  readonly fromStart?: boolean;
  /** Ends the reading, not the run */
  readonly signal: AbortSignal;
  readonly caller: Pick<Caller, "tokenId" | "scopes">;
  /** See FollowOptions. Default: nobody is told */
  readonly onPace?: FollowOptions["onPace"];
}

/** A run's events after a position, and how far they had come when the reading began. */
export interface RunEvents extends RunReach {
  readonly events: AsyncIterable<readonly AgentEvent[]>;
}

/**
 * A run's events after a reader's position, live to its end. Every door that shows a run's events comes through here.
 * @throws {HttpError} 404 not_found for an unknown run and for one of which nothing is kept; 403 insufficient_scope for a run that
 *   another token began, where the caller lacks `runs`; 400 invalid_request for a position that the run has not reached
 */
export async function openRunEvents(runs: StoredRuns, id: string, options: OpenRunEventsOptions): Promise<RunEvents> {
  const { after, fromStart = false, signal, caller, onPace } = options;
  const reaches = await reachesRun(runs, id, caller);
  if (reaches === undefined) throw unknownRun();
  if (!reaches) {
    throw refuse(
      "insufficient_scope",
      'Cannot follow this run: another token began it, and yours lacks the scope "runs"',
    );
  }
  const reach = await runs.reach(id);
  if (reach !== undefined && after.seq > reach.furthest) {
    throw refuse("invalid_request", `Cannot go on after ${after.seq}: the run's events have not come that far`, {
      param: after.name,
    });
  }
  const events = reach === undefined
    ? undefined
    : await runs.follow(id, { afterSeq: fromStart ? 0 : after.seq, signal, onPace });
  if (reach === undefined || events === undefined) {
    throw unknownRun();
  }
  return { ...reach, events };
}

/** Tells whether a caller may act on a run. Undefined: there is no such run, which is not looked for on behalf of one who may act on any. */
export async function reachesRun(
  runs: Pick<StoredRuns, "startedBy">,
  id: string,
  caller: Pick<Caller, "tokenId" | "scopes">,
): Promise<boolean | undefined> {
  if (hasScope(caller.scopes, "runs")) return true;
  const starter = await runs.startedBy(id);
  return starter && mayReach(caller, starter);
}

/** Yields the events up to a seq, which are recorded, without a wait for more. */
export async function* upTo(
  last: number,
  { after, events }: { readonly after: number; readonly events: AsyncIterable<readonly AgentEvent[]> },
): AsyncGenerator<readonly AgentEvent[]> {
  if (after >= last) return;
  for await (const batch of events) {
    const some = batch.filter(({ seq }) => seq <= last);
    if (some.length > 0) yield some;
    if ((batch.at(-1)?.seq ?? 0) >= last) return;
  }
}

function unknownRun() {
  return refuse(
    "not_found",
    'Cannot follow this run: "postern run list" and GET /v1/runs show those that are recorded',
  );
}
