import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { usageSchema } from "../../lib/base/records/usage.ts";
import { isPlainModel } from "../../lib/providers/models/model_names.ts";
import type { ModelWishes } from "../../lib/providers/provider.ts";
import type { RunHandle, RunPace, RunRequest, RunSupervisor } from "../../lib/runs/run_request.ts";
import type { Services } from "../../lib/services.ts";
import { defineRoute, type RouteInput } from "../define_route.ts";
import { attachRun, readRun, REPLY_ERRORS, requireAgent } from "../wire/agent_runs.ts";
import { collectReply } from "../wire/collect_reply.ts";
import { CompletionChunks, type CompletionHead, completionJson } from "../wire/completion_reply.ts";
import { completionSchema, readCompletionBody } from "../wire/completion_body.ts";
import { endedInSilence, runFailure, toHttpError } from "../wire/http_errors.ts";
import { eventStream, KEEP_ALIVE_MS, openEvents, paceComment } from "../wire/event_stream.ts";
import { fallbackHeader, type Reply, streamReply } from "../wire/reply.ts";
import { toCompletionInput } from "../wire/to_completion_input.ts";

const { vendor: _, ...usageEntries } = usageSchema.entries;

/** Schema of the reply. It is loose, because in plain mode a reply has every field of the model's vendor. */
const completionReplySchema = v.looseObject({
  id: v.string(),
  object: v.literal("chat.completion"),
  created: v.number(),
  model: v.string(),
  choices: v.array(v.looseObject({
    index: v.number(),
    message: v.looseObject({
      role: v.literal("assistant"),
      content: v.nullable(v.string()),
      reasoning_content: v.optional(v.string()),
      refusal: v.nullable(v.string()),
      tool_calls: v.optional(v.array(v.looseObject({
        id: v.string(),
        type: v.literal("function"),
        function: v.looseObject({ name: v.string(), arguments: v.string() }),
      }))),
    }),
    logprobs: v.nullable(v.looseObject({})),
    finish_reason: v.picklist(["stop", "length", "tool_calls", "content_filter"]),
  })),
  usage: v.looseObject(usageEntries),
});

/** POST /v1/chat/completions, JSON and SSE from one stream of events (docs/design/completions.md "Replies and streams"). */
export const completionsRoute = defineRoute({
  method: "POST",
  path: "/v1/chat/completions",
  access: "chat",
  needs: ["agent", "clock", "log", "tools"],
  steady: "completion",
  summary: "Chat completion in the chat-completions format; with stream: true as server-sent events",
  body: completionSchema,
  headers: {
    "x-postern-tools": {
      description: "none: without the agent's own tools",
      schema: { type: "string", enum: ["none"] },
    },
  },
  reply: { status: 200, type: "application/json", schema: completionReplySchema },
  otherReplies: [{ status: 200, type: "text/event-stream" }],
  errors: REPLY_ERRORS,
  idempotency: "by_run",
  before(parts, input) {
    requireAgent(parts);
    agentToolsOf(input);
  },
  read: readCompletion,
  repeat: complete,
  handle: complete,
});

type CompletionParts = Pick<Services, "agent" | "clock" | "log" | "tools">;
type CompletionInput = RouteInput<unknown, unknown, ReturnType<typeof readCompletion>>;
type Asking = Pick<RouteInput, "head" | "identity">;

/** Reads a completion, and whether it gets the agent's own tools. */
function readCompletion(json: unknown, asking: Asking, ignored: string[]) {
  const asked = agentToolsOf(asking);
  const body = readCompletionBody(json);
  const agentTools = isPlainModel(body.model ?? undefined) ? "none" : asked;
  const input = toCompletionInput(body, { plain: agentTools === "none" });
  ignored.push(...input.ignored);
  if (agentTools === "none" && input.wishes.clientTools.length === 0) {
    if (typeof input.wishes.toolChoice === "string") ignored.push("tool_choice");
    if (input.wishes.parallelToolCalls !== undefined) ignored.push("parallel_tool_calls");
  }
  return { input, agentTools };
}

/** @param runId of the run that was started for an earlier request under the same Idempotency-Key; undefined starts one */
async function complete(parts: CompletionParts, asked: CompletionInput, runId?: string | null): Promise<Reply> {
  const { runs } = requireAgent(parts);
  const { claim, body: { input, agentTools } } = asked;
  checkToolChoice(input.wishes, agentTools, parts.tools);
  // A repeat must find the work, so it outlives its client (docs/design/http.md "Idempotency")
  const durable = claim !== undefined;
  let pace: RunPace | undefined;
  if (durable || agentTools !== "none") await asked.confirm({ access: "tools" });
  const run = typeof runId === "string"
    ? await attachRun(runId, { runs, request: asked }, { streams: input.stream, onPace: (now) => void (pace = now) })
    : await runs.start({
      kind: "chat",
      messages: input.messages,
      model: input.model,
      by: { caller: asked.caller, requestId: asked.requestId },
      wishes: input.wishes,
      durable,
      claim: claim?.write,
      reader: durable ? undefined : { controller: asked.controller, whole: !input.stream },
      agentTools,
    });
  const handle = durable ? readRun(run, { claim, tools: parts.tools }, { streams: input.stream }) : run;
  const head: CompletionHead = {
    // Made of the run's id, by which the log and the journal name the run
    id: `chatcmpl-${handle.id.slice("run_".length)}`,
    created: Math.floor((durable ? await createdAt(handle, runs) : parts.clock.now()) / 1000),
    model: handle.model,
  };
  try {
    if (input.stream) {
      const leaves = !durable || typeof runId === "string";
      const comment = () => {
        const text = pace === undefined ? "" : paceComment(pace);
        pace = undefined;
        return text;
      };
      return await streamed(handle, { parts, asked }, { ...head, includeUsage: input.includeUsage, leaves, comment });
    }
    const reply = await collectReply(handle);
    const { fallback, ignored } = reply;
    const answered = fallback !== undefined && reply.fallbackAnswered ? { ...head, model: fallback } : head;
    const headers = fallback === undefined ? undefined : fallbackHeader(fallback);
    return { status: 200, body: completionJson(answered, reply), type: "application/json", headers, ignored };
  } catch (error) {
    return { error, hadEffect: handle.hadEffect() };
  }
}

/** Returns when a durable run was created, in ms since the epoch. Every reader of the run gets the same value. */
async function createdAt(handle: RunHandle, runs: RunSupervisor): Promise<number> {
  const run = await runs.get(handle.id);
  return Date.parse(run?.created_at ?? "");
}

interface StreamOptions extends CompletionHead {
  readonly includeUsage: boolean;
  /** true: the handle is cancelled when the reader leaves */
  readonly leaves: boolean;
  /** See EventStreamOptions */
  readonly comment: () => string;
}

async function streamed(
  handle: RunHandle,
  { parts: { clock, log }, asked: { claim, requestId } }: {
    readonly parts: CompletionParts;
    readonly asked: CompletionInput;
  },
  options: StreamOptions,
): Promise<Reply> {
  const leave = () => {
    if (options.leaves) handle.cancel("client_gone");
  };
  const opening = await openEvents(handle, { clock, maxWaitMs: KEEP_ALIVE_MS });
  let firstModel = options.model;
  let headers: Readonly<Record<string, string>> | undefined;
  let ignored: string[] | undefined;
  for (const event of opening.held.flat()) {
    if (event.type === "error") throw runFailure(event);
    if (event.type === "turn_start" || event.type === "turn_restart") firstModel = options.model;
    if (event.type !== "notice") continue;
    if (event.param !== undefined) (ignored ??= []).push(event.param);
    if (event.model === undefined) continue;
    firstModel = event.model;
    headers = fallbackHeader(firstModel);
  }
  const toError = (error: unknown) => toHttpError(error, { log, requestId });
  const encoder = new CompletionChunks({
    ...options,
    firstModel,
    interrupts: claim === undefined ? undefined : claim.wasTold,
    toError: (event) => toError(runFailure(event)),
  });
  const stream = eventStream({
    opening,
    encoder,
    clock,
    comment: options.comment,
    toError: (error) => toError(error ?? endedInSilence()),
    onLeave: leave,
  });
  return { ...streamReply(stream), headers, ignored };
}

function agentToolsOf({ head, identity }: Asking): RunRequest["agentTools"] {
  const value = head.headers.get("x-postern-tools");
  if (value === null) return identity?.plain ? "none" : "configured";
  if (value.trim().toLowerCase() === "none") return "none";
  throw refuse("invalid_request", `Cannot read the header "x-postern-tools": the only value is "none"`);
}

function checkToolChoice(
  { toolChoice: choice, clientTools }: ModelWishes,
  agentTools: RunRequest["agentTools"],
  tools: Services["tools"],
): void {
  if (typeof choice !== "object" || clientTools.some((tool) => tool.name === choice.name)) return;
  if (agentTools === "configured" && tools.get(choice.name)?.enabled) return;
  throw refuse("invalid_request", `Cannot choose the tool "${choice.name}": it is not among the request's tools`, {
    param: "tool_choice.function.name",
  });
}
