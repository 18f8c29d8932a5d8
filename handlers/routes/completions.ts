import * as v from "valibot";
import { usageSchema } from "../../lib/base/records/usage.ts";
import { defineRoute, type RouteInput } from "../define_route.ts";
import type { RouteParts } from "../route.ts";
import { agentToolsOf, BY_RUN, type DecodedBody, toDecodedBody } from "../wire/agent_runs.ts";
import { answerByRun, type AnswerParts, type DecodedRequest, type Wire } from "../wire/answer_by_run.ts";
import { CompletionChunks, completionJson } from "../wire/completion_reply.ts";
import { type CompletionBody, completionSchema, readCompletionBody } from "../wire/completion_body.ts";
import type { Reply } from "../wire/reply.ts";
import { namesFile, withSentFiles } from "../wire/sent_files.ts";
import { type CompletionInput, toCompletionInput } from "../wire/to_completion_input.ts";

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
  ...BY_RUN,
  path: "/v1/chat/completions",
  needs: ["agent", "kit", "tools"],
  summary: "Chat completion in the chat-completions format; with stream: true as server-sent events",
  body: completionSchema,
  reply: { status: 200, type: "application/json", schema: completionReplySchema },
  read: readCompletion,
  repeat: complete,
  handle: complete,
});

type Asking = Pick<RouteInput, "caller" | "head" | "identity" | "signal">;
type Read = DecodedBody<CompletionInput>;

/** Reads a completion, and whether it gets the agent's own tools. */
function readCompletion(
  json: unknown,
  asking: Asking,
  ignored: string[],
  { agent, kit: { log } }: Pick<RouteParts, "agent" | "kit">,
): Read | Promise<Read> {
  const body = readCompletionBody(json);
  if (!body.messages.some(namesFile)) return decode(body, asking, ignored);
  return withSentFiles(body.messages, "messages", { files: agent?.files, log, asking, toPart: (part) => part }).then(
    (messages) => decode({ ...body, messages: [...messages] }, asking, ignored),
  );
}

function decode(body: CompletionBody, asking: Asking, ignored: string[]): Read {
  const agentTools = agentToolsOf(asking, body.model ?? undefined);
  return toDecodedBody(toCompletionInput(body, { plain: agentTools === "none" }), agentTools, ignored);
}

function complete(parts: AnswerParts, asked: DecodedRequest<CompletionInput>, runId?: string | null): Promise<Reply> {
  return answerByRun(COMPLETIONS, parts, asked, runId);
}

// Made of the run's id, by which the log and the journal name the run
const toId = (runId: string) => `chatcmpl-${runId.slice("run_".length)}`;

const COMPLETIONS: Wire<CompletionInput> = {
  toolChoiceField: "tool_choice.function.name",
  json: ({ runId, created, model }, reply) => completionJson({ id: toId(runId), created, model }, reply),
  encoder: ({ runId, ...head }, { includeUsage }) => new CompletionChunks({ ...head, id: toId(runId), includeUsage }),
};
