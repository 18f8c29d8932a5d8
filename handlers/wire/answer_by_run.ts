import { type HttpError, refuse } from "../../lib/base/errors.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { RunHandle, RunPace, RunRequest, RunSupervisor } from "../../lib/runs/run_request.ts";
import type { Services } from "../../lib/services.ts";
import type { RouteInput } from "../define_route.ts";
import type { RouteParts, RunClaim } from "../route.ts";
import { attachRun, type DecodedBody, readRun, requireAgent } from "./agent_runs.ts";
import { addNamed, type CollectedReply, collectReply, type NamedFields } from "./collect_reply.ts";
import { type EventEncoder, eventStream, KEEP_ALIVE_MS, openEvents, paceComment } from "./event_stream.ts";
import { endedInSilence, runFailure, toHttpError } from "./http_errors.ts";
import { changeHeaders, fallbackHeader, type Reply, streamReply } from "./reply.ts";
import type { WireInput } from "./to_completion_input.ts";

/** Members of a reply that do not change while it is told. */
export interface AnswerHead {
  /** Id of the run, of which each wire makes the id of its reply */
  readonly runId: string;
  /** Seconds since the epoch */
  readonly created: number;
  readonly model: string;
  /** Conversation that the run is recorded under. Default: none */
  readonly conversationId?: string | null | undefined;
}

/** Members of a streamed reply that are known before its first event. */
export interface StreamHead extends AnswerHead {
  /** Model of the beginning, where a fallback answers from the start */
  readonly firstModel: string;
  /** Tells whether an earlier stream of this run may have shown text of a turn that the model answers again. Undefined: none did */
  readonly interrupts: ((turn: number) => boolean) | undefined;
  /** true: the run goes on without this reader */
  readonly goesOn?: boolean | undefined;
  /** The error that a client is told for a run's `error` event */
  readonly toError: (event: Pick<Extract<AgentEvent, { type: "error" }>, "code" | "message" | "upstream">) => HttpError;
}

/** Language of a client: how the events of a run become its JSON reply and its stream. Its decoder makes a WireInput of a body. */
export interface Wire<Input extends WireInput> {
  /** Field that names the chosen tool, for the refusal of a tool that is not there */
  readonly toolChoiceField: string;
  /** true: the JSON reply is told what was said in its order. Default false */
  readonly inOrder?: boolean;
  /** Returns the client's own name of a field that chat completions name so; undefined where its form is translated anyway. Default: the same */
  fieldName?(name: string): string | undefined;
  /** Text of a stream's signs of life. Default: a comment line */
  readonly keepAlive?: string;
  /** Returns the text of the reply to work in the background, which has begun. Default: no work is */
  accepted?(head: AnswerHead, input: Input): string;
  /** Returns the text of the JSON reply */
  json(head: AnswerHead, reply: CollectedReply, input: Input): string;
  /** Returns the encoder of one stream */
  encoder(head: StreamHead, input: Input): EventEncoder;
}

/** Limits of chat completions, which other formats have under a name of their own in either case. */
export const LIMITS: ReadonlySet<string> = new Set(["max_tokens", "max_completion_tokens"]);

/** Services that answering by a run takes. */
export type AnswerParts = Pick<RouteParts, "agent" | "kit" | "tools">;
/** A request whose body was decoded. */
export type DecodedRequest<Input extends WireInput> = RouteInput<unknown, unknown, DecodedBody<Input>>;

/**
 * Starts the run of a request, or attaches to the one of an earlier request under its Idempotency-Key, and tells its events in the
 * client's language: JSON and stream from the same events (docs/design/completions.md "Replies and streams").
 * @param runId of the run that an earlier request started; undefined starts one
 */
export async function answerByRun<Input extends WireInput>(
  wire: Wire<Input>,
  parts: AnswerParts,
  asked: DecodedRequest<Input>,
  runId?: string | null,
): Promise<Reply> {
  const { runs } = requireAgent(parts);
  const { claim, body: { input, agentTools } } = asked;
  const { toolChoice, clientTools } = input.wishes;
  if (typeof toolChoice === "object" && !clientTools.some((tool) => tool.name === toolChoice.name)) {
    checkToolChoice(toolChoice.name, agentTools, { tools: parts.tools, field: wire.toolChoiceField });
  }
  // A repeat must find the work, so it outlives its client (docs/design/http.md "Idempotency")
  const { storing } = input;
  const durable = claim !== undefined || storing?.isBackground === true;
  if (durable || agentTools !== "none") await asked.confirm({ access: "tools" });
  const reading: Reading = { pace: undefined };
  const run = typeof runId === "string" ? await attached(runId, { runs, asked, reading }) : await runs.start({
    kind: "chat",
    messages: input.messages,
    model: input.model,
    by: { caller: asked.caller, requestId: asked.requestId, after: input.after },
    wishes: input.wishes,
    durable,
    claim: storing === undefined ? claim?.write : writesOf(storing, claim),
    conversationId: storing?.conversationId,
    reader: durable ? undefined : { controller: asked.controller, whole: !input.stream },
    agentTools,
    agent: input.agent,
  });
  const isRecorded = run.durable || storing !== undefined;
  const handle = run.durable ? readRun(run, { claim, tools: parts.tools }, { streams: input.stream }) : run;
  const createdMs = isRecorded ? await createdAt(handle, runs) : parts.kit.clock.now();
  const head: AnswerHead = {
    runId: handle.id,
    created: Math.floor(createdMs / 1000),
    model: handle.model,
    conversationId: handle.conversationId,
  };
  const named: NamedFields = { ignored: [], changed: [] };
  try {
    if (input.stream) return await streamed(wire, handle, { parts, asked, head, named, reading });
    if (storing?.isBackground && wire.accepted !== undefined) {
      return { status: 200, body: wire.accepted(head, input), type: "application/json", runId: handle.id };
    }
    const reply = await collectReply(handle, { inOrder: wire.inOrder, named });
    const { fallback } = reply;
    const answered = fallback !== undefined && reply.fallbackAnswered ? { ...head, model: fallback } : head;
    const fallen = fallback === undefined ? undefined : fallbackHeader(fallback);
    return {
      status: 200,
      body: wire.json(answered, reply, input),
      type: "application/json",
      // The history of a conversation may be trimmed, that of a client never is
      headers: storing === undefined ? fallen : changeHeaders(reply),
      runId: handle.id,
      ignored: ignoredIn(named, wire),
      changed: changedIn(named, wire, input),
    };
  } catch (error) {
    return {
      error,
      hadEffect: handle.hadEffect(),
      runId: handle.id,
      ignored: ignoredIn(named, wire),
      changed: changedIn(named, wire, input),
    };
  }
}

/** How the events of a run come; told once. */
interface Reading {
  pace: RunPace | undefined;
}

function attached(
  runId: string,
  { runs, asked, reading }: {
    readonly runs: RunSupervisor;
    readonly asked: DecodedRequest<WireInput>;
    readonly reading: Reading;
  },
): Promise<RunHandle> {
  return attachRun(runId, { runs, request: asked }, {
    streams: asked.body.input.stream,
    onPace: (now) => void (reading.pace = now),
  });
}

/** Returns what is written with the first record of a run that is stored. */
function writesOf(storing: NonNullable<WireInput["storing"]>, claim: RunClaim | undefined): RunRequest["claim"] {
  return (id) => [...claim === undefined ? [] : [claim.write(id)].flat(), ...storing.writes(id)];
}

/** Returns when a durable run was created, in ms since the epoch. Every reader of the run gets the same value. */
async function createdAt(handle: RunHandle, runs: RunSupervisor): Promise<number> {
  const run = await runs.get(handle.id);
  return Date.parse(run?.created_at ?? "");
}

interface Streaming<Input extends WireInput> {
  readonly parts: AnswerParts;
  readonly asked: DecodedRequest<Input>;
  readonly head: AnswerHead;
  /** Receives the parameters that notices before the first byte name */
  readonly named: NamedFields;
  readonly reading: Reading;
}

async function streamed<Input extends WireInput>(
  wire: Wire<Input>,
  handle: RunHandle,
  { parts: { kit: { clock, log } }, asked, head, named, reading }: Streaming<Input>,
): Promise<Reply> {
  const { claim, requestId, body: { input } } = asked;
  const opening = await openEvents(handle, { clock, maxWaitMs: KEEP_ALIVE_MS });
  let firstModel = head.model;
  let headers: Readonly<Record<string, string>> | undefined;
  for (const event of opening.held.flat()) {
    if (event.type === "error") throw runFailure(event);
    if (event.type === "turn_start" || event.type === "turn_restart") firstModel = head.model;
    if (event.type !== "notice") continue;
    addNamed(event, named);
    if (event.model === undefined) continue;
    firstModel = event.model;
    headers = fallbackHeader(firstModel);
  }
  const toError = (error: unknown) => toHttpError(error, { log, requestId });
  const encoder = wire.encoder({
    ...head,
    firstModel,
    goesOn: handle.durable,
    interrupts: claim === undefined ? undefined : claim.wasTold,
    toError: (event) => toError(runFailure(event)),
  }, input);
  const stream = eventStream({
    opening,
    encoder,
    clock,
    keepAlive: wire.keepAlive,
    comment() {
      const { pace } = reading;
      reading.pace = undefined;
      return pace === undefined ? "" : paceComment(pace);
    },
    toError: (error) => toError(error ?? endedInSilence()),
    onLeave: () => handle.leave("client_gone"),
  });
  return {
    ...streamReply(stream),
    headers,
    runId: head.runId,
    ignored: ignoredIn(named, wire),
    changed: changedIn(named, wire, input),
  };
}

type Naming = Pick<Wire<never>, "fieldName">;

/** Returns the client's names of what does not reach the model. */
function ignoredIn({ ignored }: NamedFields, wire: Naming): readonly string[] | undefined {
  return ignored.length === 0 ? undefined : ignored.map((name) => clientName(name, wire) ?? name);
}

/** Returns the client's names of what reaches the model in another form: by its wire's own translation, and by the provider. */
function changedIn({ changed }: NamedFields, wire: Naming, input: WireInput): readonly string[] | undefined {
  if (changed.length === 0) return input.changed;
  return [...new Set([...input.changed ?? [], ...changed.flatMap((name) => clientName(name, wire) ?? [])])];
}

function clientName(name: string, { fieldName }: Naming): string | undefined {
  return fieldName === undefined ? name : fieldName(name);
}

function checkToolChoice(
  name: string,
  agentTools: RunRequest["agentTools"],
  { tools, field }: { readonly tools: Services["tools"]; readonly field: string },
): void {
  if (agentTools === "configured" && tools.get(name)?.enabled) return;
  throw refuse("invalid_request", `Cannot choose the tool "${name}": it is not among the request's tools`, {
    param: field,
  });
}
