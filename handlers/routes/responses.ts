import * as v from "valibot";
import { defineRoute, type RouteInput } from "../define_route.ts";
import {
  agentToolsOf,
  estimateInput,
  REPLY_ERRORS,
  requireAgent,
  toDecodedBody,
  TOOLS_HEADER,
} from "../wire/agent_runs.ts";
import { answerByRun, type AnswerParts, type DecodedRequest, type Wire } from "../wire/answer_by_run.ts";
import { jsonReply, type Reply } from "../wire/reply.ts";
import { readResponseBody, responseSchema } from "../wire/responses/response_body.ts";
import { ResponseEvents, responseJson } from "../wire/responses/response_reply.ts";
import { type ResponseInput, toResponseInput } from "../wire/responses/to_response_input.ts";

const nullable = v.nullable(v.string());

/** Schema of a reply. Source: the Open Responses specification of 2026-04-24 */
const responseReplySchema = v.looseObject({
  id: v.string(),
  object: v.literal("response"),
  created_at: v.number(),
  completed_at: v.nullable(v.number()),
  status: v.picklist(["in_progress", "completed", "incomplete", "failed"]),
  model: v.string(),
  /** Messages, reasoning and calls, in the order in which they came */
  output: v.array(v.looseObject({ type: v.string(), id: v.string() })),
  error: v.nullable(v.object({ code: v.string(), message: v.string() })),
  incomplete_details: v.nullable(v.object({ reason: v.string() })),
  instructions: nullable,
  previous_response_id: nullable,
  store: v.boolean(),
  usage: v.nullable(v.looseObject({
    input_tokens: v.number(),
    output_tokens: v.number(),
    total_tokens: v.number(),
  })),
});

/** POST /v1/responses, JSON and SSE from one stream of events (docs/design/completions.md "Replies and streams"). */
export const responsesRoute = defineRoute({
  method: "POST",
  path: "/v1/responses",
  access: "chat",
  needs: ["agent", "clock", "log", "tools"],
  steady: "completion",
  summary: "A reply in the Responses format; with stream: true as server-sent events",
  body: responseSchema,
  headers: TOOLS_HEADER,
  reply: { status: 200, type: "application/json", schema: responseReplySchema },
  otherReplies: [{ status: 200, type: "text/event-stream" }],
  errors: REPLY_ERRORS,
  idempotency: "by_run",
  before(parts, input) {
    requireAgent(parts);
    agentToolsOf(input);
  },
  read: readResponse,
  repeat: respond,
  handle: respond,
});

/** POST /v1/responses/input_tokens: an estimate, by a tokenizer where one is installed, else by bytes/4. */
export const inputTokensRoute = defineRoute({
  method: "POST",
  path: "/v1/responses/input_tokens",
  access: "chat",
  needs: ["agent"],
  steady: "completion",
  summary: "Estimate of the tokens of a response's input and tools",
  body: responseSchema,
  headers: TOOLS_HEADER,
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({ object: v.literal("response.input_tokens"), input_tokens: v.number() }),
  },
  errors: ["agent_unavailable", "unsupported_parameter", "model_not_found", "provider_error"],
  // Nothing is kept of it
  idempotency: "harmless",
  before: (parts) => void requireAgent(parts),
  read: readResponse,
  async handle(parts, { body: { input } }) {
    return jsonReply(200, { object: "response.input_tokens", input_tokens: await estimateInput(parts, input) });
  },
});

function readResponse(json: unknown, asking: Pick<RouteInput, "head" | "identity">, ignored: string[]) {
  const body = readResponseBody(json);
  const agentTools = agentToolsOf(asking, body.model ?? undefined);
  return toDecodedBody(toResponseInput(body, { plain: agentTools === "none" }), agentTools, ignored);
}

function respond(parts: AnswerParts, asked: DecodedRequest<ResponseInput>, runId?: string | null): Promise<Reply> {
  return answerByRun(RESPONSES, parts, asked, runId);
}

const RESPONSES: Wire<ResponseInput> = {
  toolChoiceField: "tool_choice.name",
  inOrder: true,
  json: (head, { said }, input) => responseJson(head, said, input),
  encoder: (head, input) => new ResponseEvents(head, input),
};
