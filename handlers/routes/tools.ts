import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { toolInfoSchema } from "../../lib/base/records/tool_info.ts";
import { matchesPatterns } from "../../lib/tools/runtime/registry.ts";
import type { Services } from "../../lib/services.ts";
import { defineRoute, type RouteInput } from "../define_route.ts";
import { listSchema, placedListReply } from "../wire/lists.ts";
import { callFields, callReplySchema, makeCall, toInputText } from "../wire/make_call.ts";
import { jsonReply, type Reply } from "../wire/reply.ts";

const callSchema = v.object(callFields);

/** GET /v1/tools: all known tools, with the reason why a tool is off. */
export const toolsRoute = defineRoute({
  method: "GET",
  path: "/v1/tools",
  access: "tools",
  needs: ["tools"],
  summary: "Tools, enabled or not",
  reply: { status: 200, type: "application/json", schema: listSchema(toolInfoSchema) },
  handle(parts, { identity }) {
    const allowed = identity?.tools ?? ["*"];
    const tools = parts.tools.list().filter(({ name }) => matchesPatterns(name, allowed));
    return placedListReply(tools, { hasMore: false, lastId: tools.at(-1)?.name ?? null });
  },
});

/** GET /v1/tools/:name: one tool. */
export const toolRoute = defineRoute({
  method: "GET",
  path: "/v1/tools/:name",
  access: "tools",
  needs: ["tools"],
  summary: "One tool",
  reply: { status: 200, type: "application/json", schema: toolInfoSchema },
  handle: ({ tools }, { params }) => jsonReply(200, findTool(tools, params.name)),
});

/** POST /v1/tools/:name/enable: turns a tool on for good, in the gateway's configuration file. */
export const enableToolRoute = defineRoute({
  method: "POST",
  path: "/v1/tools/:name/enable",
  access: "admin",
  strict: true,
  needs: ["tools", "turnOnTool"],
  summary: "Turn a tool on by its key of the configuration file; runs that begin from then on have it",
  reply: { status: 200, type: "application/json", schema: toolInfoSchema },
  errors: ["not_found", "conflict"],
  idempotency: "harmless",
  async handle({ tools, turnOnTool }, { params, caller }) {
    const { name } = findTool(tools, params.name);
    return jsonReply(200, await turnOnTool(name, caller));
  },
});

/** POST /v1/tools/:name/call: one call through the same executor and policy as the agent's own. */
export const callToolRoute = defineRoute({
  method: "POST",
  path: "/v1/tools/:name/call",
  access: "tools",
  needs: ["tools", "calls"],
  summary: "Call a tool; a bad, disabled or denied call is a result with is_error",
  body: callSchema,
  bodyOptional: true,
  reply: { status: 200, type: "application/json", schema: callReplySchema },
  errors: ["shutting_down", "halted", "provider_timeout"],
  idempotency: "honoured",
  before: ({ tools }, { params }) => void findTool(tools, params.name),
  repeat: callAgain,
  handle: call,
});

type CallParts = Pick<Services, "tools" | "calls">;
type CallInput = RouteInput<{ readonly name: string }, unknown, v.InferOutput<typeof callSchema> | undefined>;

async function call({ tools, calls }: CallParts, request: CallInput): Promise<Reply> {
  const { params, body = {}, ignored } = request;
  const { name, input_schema: schema } = findTool(tools, params.name);
  const stray = ignored.find((field) => Object.hasOwn(schema?.properties ?? {}, field));
  if (body.input === undefined && stray !== undefined) throw misplaced(stray);
  return await makeCall(name, body, { calls, request });
}

/** Answers a repeat after a crash. A tool that only reads is called again; for any other tool the outcome of the first call is unknown. */
async function callAgain(parts: CallParts, request: CallInput): Promise<Reply> {
  const { name } = findTool(parts.tools, request.params.name);
  const access = parts.tools.accessOf(name, toInputText(request.body?.input));
  if (access === undefined || access === "read") return await call(parts, request);
  throw refuse(
    "conflict",
    `Cannot repeat this call: the end of the first one was not recorded, and whether "${name}" took effect is unknown; ` +
      "look before you call it again under another Idempotency-Key",
  );
}

/** Returns the refusal of a body that has the tool's fields beside `input` instead of in it. */
function misplaced(field: string) {
  return refuse(
    "invalid_request",
    `Cannot accept "${field}": the tool's input goes into "input", as {"input": {...}}`,
    { param: field },
  );
}

function findTool(tools: Pick<Services["tools"], "get">, name: string) {
  const tool = tools.get(name);
  if (tool === undefined) {
    throw refuse(
      "not_found",
      'Cannot find this tool: "postern tool list" and GET /v1/tools show those that exist',
      { param: "name" },
    );
  }
  return tool;
}
