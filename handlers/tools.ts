import * as v from "valibot";
import { hasScope } from "../lib/base/records/caller.ts";
import type { RequestContext, Route } from "./route.ts";
import { askByReply } from "./wire/ask_by_reply.ts";
import { callerOf } from "./wire/caller_of.ts";
import { httpError } from "./wire/error_codes.ts";
import { listReply, listSchema } from "./wire/list_reply.ts";
import { readJson } from "./wire/read_json.ts";
import { errorReply, jsonReply } from "./wire/reply.ts";

const toolSchema = v.object({
  name: v.string(),
  description: v.string(),
  access: v.picklist(["read", "state", "write", "network"]),
  enabled: v.boolean(),
  reason: v.nullable(v.string()),
  source: v.picklist(["builtin", "wasm", "process", "ffi", "mcp", "node"]),
  input_schema: v.optional(v.record(v.string(), v.unknown())),
});

const callSchema = v.object({
  /** An object, or the tool's plain-text form */
  input: v.optional(v.union([v.record(v.string(), v.unknown()), v.string()])),
  /** A person has seen this very call and grants it; needs the scope `approve` */
  approved: v.optional(v.boolean()),
  /** An approval of this very call, answered since: it lets the call through once */
  approval_id: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(128))),
});

const resultSchema = v.object({
  output: v.string(),
  is_error: v.boolean(),
  data: v.optional(v.unknown()),
  approval_id: v.optional(v.string()),
});

/** GET /v1/tools: all known tools, with the reason why one is off. */
export const toolsRoute: Route = {
  method: "GET",
  path: "/v1/tools",
  access: "tools",
  summary: "Tools, enabled or not",
  reply: { status: 200, type: "application/json", schema: listSchema(toolSchema) },
  handler(_request, context) {
    const tools = context.services.tools.list();
    return listReply(context, tools, { hasMore: false, lastId: tools.at(-1)?.name ?? null });
  },
};

/** GET /v1/tools/:name */
export const toolRoute: Route = {
  method: "GET",
  path: "/v1/tools/:name",
  access: "tools",
  summary: "One tool",
  reply: { status: 200, type: "application/json", schema: toolSchema },
  handler: (_request, context) => jsonReply(context, 200, findTool(context)),
};

/** POST /v1/tools/:name/call: one call through the same door and policy as the agent's own. */
export const callToolRoute: Route = {
  method: "POST",
  path: "/v1/tools/:name/call",
  access: "tools",
  summary: "Call a tool; a bad, disabled or denied call is a result with is_error",
  body: callSchema,
  bodyOptional: true,
  reply: { status: 200, type: "application/json", schema: resultSchema },
  idempotency: "honoured",
  repeat: callAgain,
  handler: call,
};

async function call(request: Request, context: RequestContext): Promise<Response> {
  const { name, input_schema: schema } = findTool(context);
  const body = (await readJson(request, context, callSchema, { optional: true })) ?? {};
  const { input, approved = false, approval_id: given } = body;
  const stray = context.ignored.find((field) => Object.hasOwn(schema?.properties ?? {}, field));
  if (body.input === undefined && stray !== undefined) throw misplaced(stray);
  const { services } = context;
  // A repeat must find the call, so it outlives its client (DESIGN.md section 7)
  const signal = context.claim === undefined ? context.signal : new AbortController().signal;
  const caller = callerOf(context, "http");
  let hadEffect = false;
  try {
    const { result, approvalId } = await services.tools.call({
      name,
      input: toInputText(input),
      runId: services.random.id("run_"),
      callId: services.random.id("call_"),
      requestId: context.requestId,
      caller,
      depth: 0,
      direct: true,
      signal,
      onStart({ access }) {
        hadEffect = access !== "read";
        return Promise.resolve();
      },
      approver: askByReply({
        approvals: services.approvals,
        given,
        granted: approved && hasScope(caller.scopes, "approve"),
        timeoutMs: services.config().runs.approval_timeout_secs * 1000,
      }),
    });
    return jsonReply(context, 200, {
      output: result.output,
      is_error: result.isError,
      ...(result.data === undefined ? {} : { data: result.data }),
      ...(approvalId === undefined ? {} : { approval_id: approvalId }),
    });
  } catch (error) {
    return errorReply(context, error, { hadEffect });
  }
}

/** What only reads, or cannot be called at all, is called once more; whether anything else took effect, nobody knows. */
async function callAgain(request: Request, context: RequestContext): Promise<Response> {
  const { name } = findTool(context);
  const { input } = (await readJson(request, context, callSchema, { optional: true })) ?? {};
  const access = context.services.tools.accessOf(name, toInputText(input));
  if (access === undefined || access === "read") return await call(request, context);
  throw httpError(
    "conflict",
    `Cannot repeat this call: the gateway stopped during the first one, and whether "${name}" took effect is unknown; ` +
      "look before you call it again under another Idempotency-Key",
  );
}

function toInputText(input: v.InferOutput<typeof callSchema>["input"] = {}): string {
  return typeof input === "string" ? input : JSON.stringify(input);
}

/** The tool's fields beside `input` instead of in it. */
function misplaced(field: string) {
  return httpError(
    "invalid_request",
    `Cannot accept "${field}": the tool's input goes into "input", as {"input": {...}}`,
    { param: field },
  );
}

function findTool({ services, params }: RequestContext) {
  const tool = services.tools.get(params["name"] ?? "");
  if (tool === undefined) {
    throw httpError("not_found", "Cannot find this tool: see /v1/tools for those that exist", { param: "name" });
  }
  return tool;
}
