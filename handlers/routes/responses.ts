import * as v from "valibot";
import { lazily } from "../../lib/base/lazily.ts";
import { refuse } from "../../lib/base/errors.ts";
import { type ContentPart, isImagePart, isTextPart, type Message } from "../../lib/base/records/message.ts";
import { defineRoute, type RouteInput } from "../define_route.ts";
import type { RouteParts } from "../route.ts";
import {
  agentToolsOf,
  BY_RUN,
  type DecodedBody,
  estimateInput,
  openRunEvents,
  REPLY_ERRORS,
  requireAgent,
  RUN_ERRORS,
  toDecodedBody,
  TOOLS_HEADER,
  upTo,
} from "../wire/agent_runs.ts";
import { answerByRun, type AnswerParts, type DecodedRequest, LIMITS, type Wire } from "../wire/answer_by_run.ts";
import { followReply } from "../wire/event_stream.ts";
import { toHttpError } from "../wire/http_errors.ts";
import { afterOf, choiceQuery, countQuery, positionQuery, textQuery } from "../wire/lists.ts";
import { CHANGE_HEADERS, jsonReply, type Reply } from "../wire/reply.ts";
import { readResponseBody, type ResponseBody, responseSchema } from "../wire/responses/response_body.ts";
import { acceptedJson, ResponseEvents, responseJson, seqOf } from "../wire/responses/response_reply.ts";
import { isTriggered, type ResponseInput, toResponseInput } from "../wire/responses/to_response_input.ts";
import { cancelRun } from "../wire/run_work.ts";
import { namesFile, withSentFiles } from "../wire/sent_files.ts";

const nullable = v.nullable(v.string());

const output = v.array(v.looseObject({ type: v.string(), id: v.string() }));
const usage = v.looseObject({ input_tokens: v.number(), output_tokens: v.number(), total_tokens: v.number() });

/** Schema of a reply. Source: the Open Responses specification of 2026-04-24 */
const responseReplySchema = v.looseObject({
  id: v.string(),
  object: v.literal("response"),
  created_at: v.number(),
  completed_at: v.nullable(v.number()),
  status: v.picklist(["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]),
  model: v.string(),
  /** Messages, reasoning and calls, in the order in which they came */
  output,
  error: v.nullable(v.object({ code: v.string(), message: v.string() })),
  incomplete_details: v.nullable(v.object({ reason: v.string() })),
  instructions: nullable,
  previous_response_id: nullable,
  store: v.boolean(),
  usage: v.nullable(usage),
});

/** Errors of a route that may condense a conversation, for which the offline assistant has no model. */
const COMPACTION_ERRORS = [...REPLY_ERRORS, "not_implemented"] as const;

/** POST /v1/responses, JSON and SSE from one stream of events (docs/design/completions.md "Replies and streams"). */
export const responsesRoute = defineRoute({
  ...BY_RUN,
  path: "/v1/responses",
  needs: ["agent", "kit", "store", "tools"],
  summary: "A reply in the Responses format; with stream: true as server-sent events",
  body: responseSchema,
  reply: { status: 200, type: "application/json", schema: responseReplySchema, headers: CHANGE_HEADERS },
  errors: COMPACTION_ERRORS,
  read: (json, asking, ignored, parts) => toInput(json, asking, { parts, ignored }),
  repeat: respond,
  handle: respond,
});

/** POST /v1/responses/compact: a conversation condensed by the model that would go on with it. */
export const compactRoute = defineRoute({
  ...BY_RUN,
  path: "/v1/responses/compact",
  needs: ["agent", "kit", "store", "tools"],
  summary: "A conversation condensed into one item, which goes before its next messages",
  body: responseSchema,
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({
      id: v.string(),
      object: v.literal("response.compaction"),
      created_at: v.number(),
      /** The newest messages of the user, and the item of the type `compaction` */
      output,
      usage,
    }),
  },
  otherReplies: [],
  errors: COMPACTION_ERRORS,
  read: async (json, asking, ignored, parts) => {
    const { input, agentTools } = await toInput(json, asking, { parts, ignored, condenses: true });
    return { input: { ...input, stream: false }, agentTools };
  },
  repeat: compact,
  handle: compact,
});

/** POST /v1/responses/input_tokens: an estimate, by a tokenizer where one is installed, else by bytes/4. */
export const inputTokensRoute = defineRoute({
  method: "POST",
  path: "/v1/responses/input_tokens",
  access: "chat",
  needs: ["agent", "kit", "store"],
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
  read: (json, asking, ignored, parts) => toInput(json, asking, { parts, ignored, counts: true }),
  async handle(parts, { body: { input } }) {
    return jsonReply(200, { object: "response.input_tokens", input_tokens: await estimateInput(parts, input) });
  },
});

const stored = lazily(() => import("../wire/responses/stored_response.ts"));

const STREAM = choiceQuery("true: as server-sent events, live to the end. Default false", ["true", "false"]);
const PLACE = "Only events after this sequence_number";

const included = textQuery("Ignored: a response is shown with what its request included");
/** `include` as OpenAI's clients write it. */
const INCLUDE = { include: included, "include[]": included };

function ignoredIn(query: Readonly<Record<keyof typeof INCLUDE, string | undefined>>): Pick<Reply, "ignored"> {
  return query.include === undefined && query["include[]"] === undefined ? {} : { ignored: ["include"] };
}

/** GET /v1/responses/:id: a stored response as far as it has come; with stream=true its events, the same as at first. */
export const storedResponseRoute = defineRoute({
  method: "GET",
  path: "/v1/responses/:id",
  access: "chat",
  needs: ["agent", "storedRuns", "store", "kit"],
  summary: "A stored response, which may be at work; with stream=true its events from any of them on",
  query: {
    stream: STREAM,
    starting_after: {
      ...positionQuery(`${PLACE}; the header Last-Event-ID wins. Default: from the first`),
      // Where the header wins, the parameter is not looked at
      read: (text: string | null) => text,
    },
    include_obfuscation: choiceQuery("Ignored: no delta is padded", ["true", "false"]),
    ...INCLUDE,
  },
  headers: { "Last-Event-ID": positionQuery(PLACE) },
  reply: { status: 200, type: "application/json", schema: responseReplySchema },
  otherReplies: [{ status: 200, type: "text/event-stream" }],
  errors: ["overloaded"],
  async handle(parts, input) {
    const { findResponse, showResponse, toStoredHead } = await stored();
    const { params, query, head: { headers }, caller, requestId } = input;
    const { clock, log } = parts.kit;
    const found = await findResponse(params.id, parts, { caller });
    const ignored = ignoredIn(query);
    if (query.stream !== "true") {
      return { ...jsonReply(200, await showResponse(found, { log, asking: input })), ...ignored };
    }
    const after = afterOf(headers, { name: "starting_after", text: query.starting_after });
    const reading = new AbortController();
    const { run, form, runs } = found;
    const opened = await openRunEvents(runs, run.id, {
      after: { name: after?.name ?? "", seq: after === undefined ? 0 : seqOf(after.place) },
      fromStart: true,
      signal: reading.signal,
      caller,
    });
    const followed = followReply({
      events: opened.eventsFollow ? opened.events : upTo(opened.recorded, { after: 0, events: opened.events }),
      reading,
      encoder: new ResponseEvents({ ...toStoredHead(run, { log, requestId }), after: after?.place }, form),
      clock,
      toError: (error) =>
        toHttpError(error ?? refuse("shutting_down", "Cannot send more of this response now"), { log, requestId }),
    });
    return { ...followed, ...ignored };
  },
});

/** DELETE /v1/responses/:id: forgets a stored response with its run. */
export const deleteResponseRoute = defineRoute({
  method: "DELETE",
  path: "/v1/responses/:id",
  access: "chat",
  needs: ["agent", "storedRuns", "store", "conversations"],
  summary:
    "Forget a stored response with its run, and its conversation where nothing else was said; one at work is 409",
  errors: ["conflict"],
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({ id: v.string(), object: v.literal("response"), deleted: v.literal(true) }),
  },
  async handle(parts, { params: { id }, caller }) {
    const { findResponse, removeResponse } = await stored();
    await removeResponse(await findResponse(id, parts, { caller }), parts);
    return jsonReply(200, { id, object: "response", deleted: true });
  },
});

/** POST /v1/responses/:id/cancel: stops a stored response. */
export const cancelResponseRoute = defineRoute({
  method: "POST",
  path: "/v1/responses/:id/cancel",
  access: "chat",
  needs: ["agent", "store", "kit"],
  summary: "Stop a stored response; one that has ended is 409",
  reply: { status: 200, type: "application/json", schema: responseReplySchema },
  errors: RUN_ERRORS,
  idempotency: "honoured",
  before: (parts) => void requireAgent(parts),
  repeat: (parts, input) => cancelResponse(parts, input, { isRepeat: true }),
  handle: (parts, input) => cancelResponse(parts, input, { isRepeat: false }),
});

async function cancelResponse(
  parts: Pick<RouteParts, "agent" | "store" | "kit">,
  input: RouteInput<{ readonly id: string }>,
  { isRepeat }: { readonly isRepeat: boolean },
): Promise<Reply> {
  const { findResponse, showResponse } = await stored();
  const { params: { id }, caller } = input;
  const found = await findResponse(id, parts, { caller });
  // A run is cancelled once, so its status tells whether the first request did it
  const run = isRepeat && found.run.status === "cancelled"
    ? found.run
    : await cancelRun(requireAgent(parts).runs, found.run.id, parts.kit.clock);
  return jsonReply(200, await showResponse({ ...found, run }, { log: parts.kit.log, asking: input }));
}

/** GET /v1/responses/:id/input_items: the items that a stored response answered. */
export const inputItemsRoute = defineRoute({
  method: "GET",
  path: "/v1/responses/:id/input_items",
  access: "chat",
  needs: ["agent", "storedRuns", "store"],
  summary: "Items of the input of a stored response, the last one first",
  query: {
    limit: countQuery("Maximum number of items", { max: 100, usual: 20 }),
    after: textQuery("Only items behind this id"),
    order: choiceQuery("desc: the last one first. Default desc", ["asc", "desc"]),
    ...INCLUDE,
  },
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({
      object: v.literal("list"),
      data: v.array(v.looseObject({ type: v.string(), id: v.string() })),
      first_id: nullable,
      last_id: nullable,
      has_more: v.boolean(),
    }),
  },
  async handle(parts, { params: { id }, query, caller }) {
    const { limit, after, order } = query;
    const { input } = await (await stored()).findResponse(id, parts, { caller });
    if (input === undefined) {
      throw refuse("not_found", "Cannot list the input of this response: it was over 4 MiB, and was not kept");
    }
    const items = order === "asc" ? input : input.toReversed();
    const place = after === undefined ? -1 : items.findIndex((item) => item["id"] === after);
    if (after !== undefined && place < 0) {
      throw refuse("invalid_request", 'Cannot go on after this item: "after" is the id of no item of the input', {
        param: "after",
      });
    }
    const data = items.slice(place + 1, place + 1 + limit);
    const list = {
      object: "list",
      data,
      first_id: data[0]?.["id"] ?? null,
      last_id: data.at(-1)?.["id"] ?? null,
      has_more: place + 1 + limit < items.length,
    };
    return { ...jsonReply(200, list), ...ignoredIn(query) };
  },
});

type ReadParts = Pick<RouteParts, "agent" | "store" | "kit">;

/**
 * @param options.counts true for a request that is only counted, with its history. Default false
 * @param options.condenses true for a request whose reply is a compaction. Default: one that ends with a trigger is
 */
function toInput(
  json: unknown,
  asking: Omit<RouteInput, "body" | "ignored">,
  options: ReadOptions,
): DecodedBody<ResponseInput> | Promise<DecodedBody<ResponseInput>> {
  const body = readResponseBody(json);
  const { condenses = isTriggered(body), ignored } = options;
  const agentTools = agentToolsOf(asking, body.model ?? undefined);
  const plain = agentTools === "none";
  if (!plain) return toAgentInput(body, asking, { ...options, condenses });
  const read = (whole: ResponseBody) =>
    toDecodedBody(toResponseInput(whole, { plain, condenses }), agentTools, ignored);
  const filled = fillFiles(body, options.parts, asking);
  return filled instanceof Promise ? filled.then(read) : read(filled);
}

interface ReadOptions {
  readonly parts: ReadParts;
  readonly ignored: string[];
  readonly counts?: boolean;
  readonly condenses?: boolean;
}

/** Reads a request with the agent's tools, and what was said before it. */
async function toAgentInput(
  asked: ResponseBody,
  asking: Omit<RouteInput, "body" | "ignored">,
  { parts, ignored, counts = false, condenses = false }: ReadOptions,
): Promise<DecodedBody<ResponseInput>> {
  const agentTools = "configured";
  const plain = false;
  const { conversationFor, readHistory, resolveReferences, toStoring } = await stored();
  const { caller } = asking;
  const body = await resolveReferences(asked, parts, asking);
  const isStored = body.store !== false && !condenses;
  const goesOn = isStored || (condenses && typeof body.previous_response_id === "string");
  const place = await conversationFor(goesOn ? body : {}, parts, caller);
  const { brought, after } = place;
  // Nothing is stored of what is only counted, so that it has no bound but that of any body
  const counted = { conversationId: place.conversationId, isBackground: false, writes: () => [] };
  const storing = isStored ? (counts ? counted : toStoring(body, place)) : undefined;
  const input = toResponseInput(await fillFiles(body, parts, asking), { plain, condenses, brought, storing });
  if (counts) {
    const { instructions } = input.agent ?? {};
    const ruled: readonly Message[] = instructions === undefined ? [] : [{ role: "system", content: instructions }];
    const messages = [...ruled, ...await readHistory(place, parts, caller), ...input.messages];
    return toDecodedBody({ ...input, messages }, agentTools, ignored);
  }
  return toDecodedBody({ ...input, after }, condenses ? "none" : agentTools, ignored);
}

/** Returns a body with what the files hold that its input names. The stored input keeps their names. */
function fillFiles(
  body: ResponseBody,
  { agent, kit: { log } }: Pick<ReadParts, "agent" | "kit">,
  asking: Pick<RouteInput, "caller" | "signal">,
): ResponseBody | Promise<ResponseBody> {
  const { input } = body;
  if (!Array.isArray(input) || !input.some(namesFile)) return body;
  const toPart = (part: ContentPart) =>
    isImagePart(part)
      ? { type: "input_image", image_url: part.image_url.url }
      : { type: "input_text", text: isTextPart(part) ? part.text : "" };
  return withSentFiles(input, "input", { files: agent?.files, log, asking, toPart })
    .then((items) => ({ ...body, input: [...items] }));
}

function respond(parts: AnswerParts, asked: DecodedRequest<ResponseInput>, runId?: string | null): Promise<Reply> {
  return answerByRun(RESPONSES, parts, asked, runId);
}

async function compact(
  parts: AnswerParts,
  asked: DecodedRequest<ResponseInput>,
  runId?: string | null,
): Promise<Reply> {
  const { compactedJson } = await import("../wire/responses/compacted_response.ts");
  const json: Wire<ResponseInput>["json"] = (head, { said }, input) => compactedJson(head, said, input);
  return await answerByRun({ ...RESPONSES, json }, parts, asked, runId);
}

/** Names of fields that this format has in another place than chat completions. */
const NAMES: ReadonlyMap<string, string> = new Map([
  ["messages[].tool_calls[].id", "input[].call_id"],
  ["messages[].reasoning_content", "input[].encrypted_content"],
  ["messages[].refusal", "input[].content[].refusal"],
  ["messages[].content[].image_url.detail", "input[].content[].detail"],
  ["reasoning_effort", "reasoning.effort"],
  ["response_format", "text.format"],
  ["verbosity", "text.verbosity"],
]);

const RESPONSES: Wire<ResponseInput> = {
  toolChoiceField: "tool_choice.name",
  fieldName: (name) =>
    NAMES.get(name) ?? (LIMITS.has(name) ? undefined : name.replace(/^messages/, "input").replace(".function.", ".")),
  inOrder: true,
  accepted: acceptedJson,
  json: (head, { said }, input) => responseJson(head, said, input),
  encoder: (head, input) => new ResponseEvents(head, input),
};
