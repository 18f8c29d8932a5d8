import type { ClientAbility, ToolInfo } from "../../lib/base/records/tool_info.ts";
import type {
  CallToolRequest,
  CallToolResult,
  ContentBlock,
  InputRequiredResult,
  RequestStateCodec,
  ServerContext,
} from "@modelcontextprotocol/server";
import { Buffer } from "node:buffer";
import { neutralizeData, wrapUntrusted } from "../../lib/agent/untrusted_text.ts";
import { UNTAINTED } from "../../lib/base/taint.ts";
import type { CallWays, ClientCallIds } from "../../lib/runs/client_calls.ts";
import type { Services } from "../../lib/services.ts";
import type { Approver } from "../../lib/tools/runtime/tool_call.ts";
import { foundNames, TOOL_SEARCH } from "../../lib/tools/agents/tool_search.ts";
import type { ToolContent } from "../../lib/tools/runtime/tool_content.ts";
import type { ToolCallOutcome } from "../../lib/tools/runtime/tool_executor.ts";
import { checkScope } from "../door.ts";
import { CallApproval } from "./call_approval.ts";
import { type CallState, missingCapabilities, requestDigest } from "./call_state.ts";
import { ClientQuestions } from "./client_questions.ts";
import type { HeldRequests } from "./held_requests.ts";
import type { ClientWay } from "./asking_work.ts";
import { invalidParams, type McpSdk } from "./mcp_errors.ts";
import { mcpCallerOf, type McpRequest, requestOf } from "./mcp_request.ts";
import type { TaskWish } from "./offer_tasks.ts";
import { allowedTools, type FoundTools, isDeferred, type OfferedTo } from "./offered_tools.ts";
import type { RunTasks } from "./run_tasks.ts";
import { callRunTool, isRunTool, RUN_TOOLS, type RunToolName, startClientRun } from "./run_tools.ts";

/** Services and SDK that a call needs. */
export interface CallParts {
  readonly sdk: McpSdk;
  readonly services: Services;
  /** Seals the state of calls that wait for a person or for their client */
  readonly states: RequestStateCodec<CallState>;
  readonly tasks: RunTasks;
  /** Requests that ask their clients */
  readonly held: HeldRequests;
  readonly found: FoundTools;
}

/** Returns the client of a request as its list of tools depends on it. */
export function offeredTo(
  { identity }: McpRequest,
  { services, found }: Pick<CallParts, "services" | "found">,
): OfferedTo {
  const { scopes, tokenId, tools: own } = identity;
  const allowed = allowedTools(services.tools, { offered: services.config().mcp.server.tools, own });
  return { scopes, allowed, found: found.of(tokenId) };
}

/** A call of a tool as the SDK hands it over. */
export interface AskedCall {
  readonly params: CallToolRequest["params"];
  readonly context: ServerContext;
  /** Kinds of questions that the client answers */
  readonly can: ReadonlySet<ClientAbility>;
  readonly taskWish: TaskWish;
}

/**
 * Calls a tool for a client of MCP, by the executor and the policy of all calls. A call that needs a person is asked about in the client,
 * where the client can, and refused otherwise.
 * @throws {ProtocolError} -32602 for a tool that does not exist; {CancelError} when the client cancels or goes away
 */
export async function callTool(
  call: AskedCall,
  parts: CallParts,
): Promise<CallToolResult | InputRequiredResult> {
  const { params: { name }, context } = call;
  const { sdk, services, states, held } = parts;
  const { clock, config, approvals } = services;
  const asked = requestOf(context);
  const state = context.mcpReq.requestState<CallState>();
  if (state !== undefined && "held" in state) {
    return await held.resume<CallToolResult>(state, { call: requestDigest(call.params), context });
  }
  const offered = offeredTo(asked, parts);
  const isAllowed = offered.allowed?.includes(name) !== false;
  const tool = isAllowed ? services.tools.get(name) : undefined;
  if (tool === undefined) {
    if (isAllowed && isRunTool(name)) return await callForRun(name, call, parts);
    throw invalidParams(sdk, `Cannot call ${JSON.stringify(name.slice(0, 64))}: there is no such tool; see tools/list`);
  }
  if (call.taskWish === "asked") throw noTasks(sdk, name);
  const lacking = checkCapabilities(tool, call, sdk);
  if (lacking !== undefined) return lacking;
  const approval = new CallApproval({ sdk, approvals, clock, config, states }, call);
  const approver = await approval.begin();
  if (typeof approver !== "function") return approver;
  const work = async (way: ClientWay) => {
    approval.follow(way);
    const { allowed } = offered;
    const calls = await services.calls();
    const made = {
      name,
      input: JSON.stringify(call.params.arguments ?? {}),
      allowed,
      caller: mcpCallerOf(asked),
      requestId: asked.requestId,
      signal: way.signal,
    };
    const outcome = await calls.call(made, (ids) => waysOf(call, { ids, asked, approver, way, services }));
    const { isError, output } = outcome.result;
    if (name === TOOL_SEARCH) parts.found.add(asked.identity.tokenId, isError ? [] : foundNames(output));
    else if (isDeferred(name, services.tools, offered)) parts.found.add(asked.identity.tokenId, [name]);
    // Only a call that did not run waits for an approval, so it is the first request that is answered
    const question = outcome.ran || outcome.approvalId === undefined
      ? undefined
      : await approval.question(outcome.approvalId);
    return question ?? toCallResult(name, outcome, services);
  };
  return await held.begin(context, { call: requestDigest(call.params), work });
}

/** The request of a call, its approver and the way to its client. */
interface CallPlace {
  readonly ids: ClientCallIds;
  readonly asked: McpRequest;
  readonly approver: Approver;
  readonly way: ClientWay;
  readonly services: Services;
}

function waysOf({ params: { name }, can }: AskedCall, { ids, asked, approver, way, services }: CallPlace): CallWays {
  const place = { tool: name, requestId: asked.requestId, ...ids, caller: mcpCallerOf(asked) };
  return {
    approver,
    onProgress: createProgress(name, way),
    model: { sees: true },
    client: {
      onTold: (level, message) => {
        // Nobody reads what fails here: the call of a client that is gone ends by its signal
        way.context()?.mcpReq.log(level, message, name).catch(() => {});
      },
      asks: new ClientQuestions({ can, way, place, services }),
    },
  };
}

/** @throws {ProtocolError} -32021 for a tool that asks what the client does not answer */
function checkCapabilities(
  { name, client_needs: needs }: Pick<ToolInfo, "name" | "client_needs">,
  { can, context }: AskedCall,
  sdk: McpSdk,
): CallToolResult | undefined {
  const requiredCapabilities = missingCapabilities(needs, can);
  if (requiredCapabilities === undefined) return undefined;
  const why = `Cannot call "${name}": it asks the client, which does not declare ${
    JSON.stringify(requiredCapabilities)
  }`;
  if (context.mcpReq.envelope !== undefined) {
    throw new sdk.MissingRequiredClientCapabilityError({ requiredCapabilities }, why);
  }
  // Revisions with sessions have no error for it
  return { content: [{ type: "text", text: why }], isError: true };
}

/** Calls a tool for runs. A run that begins is answered with a task where the client takes one. */
async function callForRun(
  name: RunToolName,
  { params: { arguments: input = {} }, context, can, taskWish }: AskedCall,
  { sdk, services, tasks }: CallParts,
): Promise<CallToolResult> {
  const asked = requestOf(context);
  checkScope(RUN_TOOLS[name], asked.identity, `call "${name}"`);
  if (name === "run_start" && taskWish !== undefined) {
    // A task says at which address its question is answered
    const run = await startClientRun({ input, asked, showsQuestions: can.has("url") }, services);
    return tasks.created(run, { asked, context });
  }
  if (taskWish === "asked") throw noTasks(sdk, name);
  return await callRunTool({ name, input, asked, signal: context.mcpReq.signal }, services);
}

/** Returns the error of a call that is to become a task, of a tool that makes none. Source: MCP 2025-11-25 "Tasks" */
function noTasks(sdk: McpSdk, name: string): Error {
  return new sdk.ProtocolError(
    sdk.ProtocolErrorCode.MethodNotFound,
    `Cannot call "${name}" as a task: call it without`,
  );
}

/** Returns a function that tells the client what a tool reports: as progress where the client asked for it, otherwise as a log message. */
function createProgress(name: string, way: ClientWay): (message: string) => void {
  let progress = 0;
  return (message) => {
    const mcpReq = way.context()?.mcpReq;
    if (mcpReq === undefined) return;
    const progressToken = mcpReq._meta?.progressToken;
    const told = progressToken === undefined ? mcpReq.log("info", message, name) : mcpReq.notify({
      method: "notifications/progress",
      params: { progressToken, progress: ++progress, message },
    });
    // Nobody reads what fails here: the call of a client that is gone ends by its signal
    told.catch(() => {});
  };
}

/**
 * Returns an outcome as MCP writes it. Text from outside is in an envelope, as for the agent's own model; data is neutralized.
 * Source: docs/design/mcp.md "Server"
 */
function toCallResult(name: string, outcome: ToolCallOutcome, { random }: Pick<Services, "random">): CallToolResult {
  const { result, whole, taint = UNTAINTED } = outcome;
  const wrap = (text: string) => taint.length === 0 ? text : wrapUntrusted(name, text, { origin: taint, random });
  const clean: Clean = (data) => taint.length === 0 ? data : neutralizeData(data);
  // Claude Code and Codex show their model the data in place of the text, so that of read_file would hide the file
  const isSaid = JSON.stringify(result.data) === result.output;
  const structured = whole === undefined ? (isSaid ? result.data : undefined) : whole.structured;
  return {
    content: whole === undefined ? toContent(outcome, wrap) : whole.content.map((part) => wrapPart(part, wrap, clean)),
    ...(isObject(structured) ? { structuredContent: clean(structured) } : {}),
    ...(result.isError ? { isError: true } : {}),
    ...(outcome.approvalId === undefined ? {} : { _meta: { "postern/approval_id": outcome.approvalId } }),
  };
}

/** Returns the content of a tool that gives text and pictures. */
function toContent({ result, pictures = [] }: ToolCallOutcome, wrap: (text: string) => string): ContentBlock[] {
  return [
    { type: "text", text: wrap(result.output) },
    ...pictures.map(({ picture, bytes }) => ({
      type: "image" as const,
      data: Buffer.from(bytes).toString("base64"),
      mimeType: picture.media_type,
    })),
  ];
}

type Clean = <T>(data: T) => T;

/** Returns a part with its text in an envelope and its names and addresses neutralized; bytes stay as they are. */
function wrapPart(part: ToolContent, wrap: (text: string) => string, clean: Clean): ContentBlock {
  switch (part.type) {
    case "text":
      return { type: "text", text: wrap(part.text) };
    case "resource": {
      const { resource } = part;
      if ("text" in resource) {
        return { type: "resource", resource: { ...clean({ ...resource, text: "" }), text: wrap(resource.text) } };
      }
      return { type: "resource", resource: { ...clean({ ...resource, blob: "" }), blob: resource.blob } };
    }
    case "image":
    case "audio":
      return { ...clean({ ...part, data: "" }), data: part.data };
    case "resource_link":
      return clean(part);
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
