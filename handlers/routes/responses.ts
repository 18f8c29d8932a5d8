import * as v from "valibot";
import { defineRoute, type RouteInput } from "../define_route.ts";
import { agentToolsOf, REPLY_ERRORS, requireAgent, toDecodedBody, TOOLS_HEADER } from "../wire/agent_runs.ts";
import { answerByRun, type AnswerParts, type DecodedRequest, type Wire } from "../wire/answer_by_run.ts";
import type { Reply } from "../wire/reply.ts";
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
  json: (head, _, told) => responseJson(head, told),
  encoder: (head, input) => new ResponseEvents(head, input),
};
