import * as v from "valibot";
import { defineRoute, type RouteInput } from "../define_route.ts";
import type { QueryField } from "../route.ts";
import { agentToolsOf, BY_RUN, estimateInput, requireAgent, toDecodedBody, TOOLS_HEADER } from "../wire/agent_runs.ts";
import { answerByRun, type AnswerParts, type DecodedRequest, LIMITS, type Wire } from "../wire/answer_by_run.ts";
import { countTokensSchema, messagesSchema } from "../wire/messages/message_body.ts";
import { MESSAGE_PING, messageJson, MessageStream } from "../wire/messages/message_reply.ts";
import { toMessageInput } from "../wire/messages/to_message_input.ts";
import { jsonReply, type Reply } from "../wire/reply.ts";
import type { WireInput } from "../wire/to_completion_input.ts";

/** Schema of the reply. It is loose, because in plain mode a reply has every field of the model's vendor. */
const messageSchema = v.looseObject({
  id: v.string(),
  type: v.literal("message"),
  role: v.literal("assistant"),
  model: v.string(),
  content: v.array(v.looseObject({ type: v.string() })),
  stop_reason: v.string(),
  stop_sequence: v.nullable(v.string()),
  usage: v.looseObject({
    input_tokens: v.number(),
    cache_creation_input_tokens: v.number(),
    cache_read_input_tokens: v.number(),
    output_tokens: v.number(),
  }),
});

/** Mark of requests for a beta, which are the same as any other. */
const beta: QueryField<string | null> = {
  description: "Sent by clients of the format for its betas; nothing is different with it",
  schema: { type: "string" },
  read: (text) => text,
};

/** POST /v1/messages, JSON and SSE from one stream of events (docs/design/completions.md "Messages"). */
export const messagesRoute = defineRoute({
  ...BY_RUN,
  path: "/v1/messages",
  needs: ["agent", "kit", "tools"],
  summary: "Message in the format of Anthropic's Messages API; with stream: true as server-sent events",
  query: { beta },
  body: messagesSchema,
  reply: { status: 200, type: "application/json", schema: messageSchema },
  read: readMessages,
  repeat: answer,
  handle: answer,
});

/**
 * POST /v1/messages/count_tokens: an estimate of the tokens of a request's own messages and tools, by a tokenizer where one is installed, else
 * by bytes/4. What the agent adds is not counted.
 */
export const countTokensRoute = defineRoute({
  method: "POST",
  path: "/v1/messages/count_tokens",
  access: "chat",
  needs: ["agent"],
  steady: "completion",
  summary: "Estimate of the tokens of a message's input",
  query: { beta },
  body: countTokensSchema,
  headers: TOOLS_HEADER,
  reply: { status: 200, type: "application/json", schema: v.object({ input_tokens: v.number() }) },
  errors: ["agent_unavailable", "model_not_found", "provider_error"],
  // Nothing is kept of it
  idempotency: "harmless",
  before: (parts) => void requireAgent(parts),
  read: readMessages,
  async handle(parts, { body: { input } }) {
    return jsonReply(200, { input_tokens: await estimateInput(parts, input) });
  },
});

/** A body of this format, translated, and the id that an error in its stream has. */
export interface MessagesInput extends WireInput {
  readonly requestId: string;
}

/** Reads a request, and whether it gets the agent's own tools. */
function readMessages(json: unknown, asking: Pick<RouteInput, "head" | "identity" | "requestId">, ignored: string[]) {
  const agentTools = agentToolsOf(asking, modelIn(json));
  const { head: { headers }, requestId } = asking;
  const input: MessagesInput = { ...toMessageInput(json, { plain: agentTools === "none", headers }), requestId };
  return toDecodedBody(input, agentTools, ignored, NAMES);
}

/** Returns the model that a body names, before it is checked. */
function modelIn(json: unknown): string | undefined {
  const model = typeof json === "object" && json !== null && "model" in json ? json.model : undefined;
  return typeof model === "string" ? model : undefined;
}

function answer(parts: AnswerParts, asked: DecodedRequest<MessagesInput>, runId?: string | null): Promise<Reply> {
  return answerByRun(MESSAGES, parts, asked, runId);
}

/** Names of fields that this format has in another place than chat completions. */
const NAMES: ReadonlyMap<string, string> = new Map([
  ["tools[].function.parameters", "tools[].input_schema"],
  ["messages[].reasoning_content", "messages[].content[].thinking"],
  ["reasoning_effort", "thinking"],
  ["response_format", "output_config.format"],
  ["parallel_tool_calls", "tool_choice.disable_parallel_tool_use"],
  ["stop", "stop_sequences"],
  ["user", "metadata.user_id"],
]);

const MESSAGES: Wire<MessagesInput> = {
  toolChoiceField: "tool_choice.name",
  fieldName: (name) =>
    NAMES.get(name) ??
      (LIMITS.has(name) ? undefined : name.replace(".function.", ".").replace("tool_calls[]", "content[]")),
  inOrder: true,
  keepAlive: MESSAGE_PING,
  json: messageJson,
  encoder: (head, { requestId }) => new MessageStream({ ...head, requestId }),
};
