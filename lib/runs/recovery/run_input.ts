import { canonicalDigest } from "../../base/json.ts";
import { lazilyEach } from "../../base/lazily.ts";
import type { Caller } from "../../base/records/caller.ts";
import type { Message } from "../../base/records/message.ts";
import { type Taint, taintField } from "../../base/taint.ts";
import type { ToolChoice, ToolDeclaration } from "../../providers/provider.ts";
import { TOOL_SEARCH } from "../../tools/agents/tool_search.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { Tool } from "../../tools/runtime/tool.ts";
import type { InterruptedRun } from "./recover_runs.ts";
import { placeIn, type RunInput } from "../journal/run_records.ts";
import type { NarrowerLimits, RunRequest } from "../run_request.ts";
import { NO_WISHES } from "../supervisor/run_settings.ts";

/** Returns the input that a run was started with, pinned for its journal (docs/design/runs.md "Journal"). */
export function toRunInput(
  request: RunRequest,
  pinned: {
    readonly prompt: string | null;
    readonly agentTools: readonly Tool[];
    /** Names of the tools that the model is not told of at first. */
    readonly deferred: ReadonlySet<string>;
    readonly depth: number;
    /** Messages with parked parts of earlier turns in their places; the same array when there are none. */
    readonly spliced: readonly Message[];
    readonly taint: Taint;
    /** Workspace of the cluster that its tools need. Default: none */
    readonly workspace?: string | null | undefined;
  },
): RunInput {
  const { by: { caller, requestId, links, after }, agent, wishes = NO_WISHES } = request;
  const { toolChoice, parallelToolCalls } = wishes;
  return {
    v: 2,
    messages: [...request.messages],
    ...(pinned.spliced === request.messages ? {} : { spliced: [...pinned.spliced] }),
    ...(request.model === undefined ? {} : { model: request.model }),
    system_prompt: pinned.prompt,
    parameters: { ...wishes.parameters },
    ...(toolChoice === undefined ? {} : { tool_choice: toolChoice }),
    ...(parallelToolCalls === undefined ? {} : { parallel_tool_calls: parallelToolCalls }),
    tools: pinned.agentTools.map((tool) => ({
      name: tool.name,
      digest: digestOf(tool),
      ...(pinned.deferred.has(tool.name) ? { deferred: true as const } : {}),
    })),
    client_tools: wishes.clientTools.map((tool) => ({ ...tool })),
    agent_tools: request.agentTools,
    durable: request.durable,
    caller: { via: caller.via, token_id: caller.tokenId, scopes: [...caller.scopes] },
    depth: pinned.depth,
    ...(agent?.name === undefined ? {} : { agent: agent.name }),
    ...(agent?.limits === undefined ? {} : { limits: toRecordedLimits(agent.limits) }),
    ...(wishes.condenses === true ? { condenses: true } : {}),
    ...(request.call === undefined ? {} : { call: request.call }),
    ...(request.call === undefined || agent?.tools === undefined ? {} : { passed_tools: [...agent.tools] }),
    ...(pinned.workspace == null ? {} : { workspace: pinned.workspace }),
    request_id: requestId ?? null,
    ...taintField(pinned.taint),
    ...(links === undefined ? {} : { links: [...links] }),
    ...(after === undefined ? {} : { after: { conversation_id: after.conversationId, run_id: after.runId } }),
  };
}

function toRecordedLimits({ maxIterations, maxToolCalls, tokensPerRun }: NarrowerLimits): RunInput["limits"] {
  return { max_iterations: maxIterations, max_tool_calls: maxToolCalls, tokens_per_run: tokensPerRun };
}

/** Returns the request that an interrupted run goes on with, from its pinned input. */
export function resumedRequest({ run, input }: InterruptedRun): RunRequest {
  const { tool_choice, parallel_tool_calls, caller, limits } = input;
  return {
    kind: run.kind,
    by: {
      // Written from a Caller
      caller: { via: caller.via, tokenId: caller.token_id, scopes: caller.scopes } as Caller,
      requestId: input.request_id ?? undefined,
      parentId: run.parent_id ?? undefined,
      depth: input.depth,
      taint: input.taint,
      links: input.links,
      steers: run.steers && { mode: run.steers.mode, runId: run.steers.run_id },
      after: placeIn(input),
    },
    messages: input.messages,
    model: input.model,
    wishes: {
      // Written from ToolDeclarations and a ToolChoice
      clientTools: input.client_tools as unknown as readonly ToolDeclaration[],
      toolChoice: tool_choice as ToolChoice | undefined,
      parallelToolCalls: parallel_tool_calls,
      parameters: input.parameters,
      condenses: input.condenses,
    },
    conversationId: run.conversation_id ?? undefined,
    durable: true,
    agentTools: input.agent_tools,
    agent: {
      name: input.agent,
      // A single call has its one tool in any case: these are the tools that it passes on
      tools: input.call === undefined ? input.tools.map(({ name }) => name) : input.passed_tools,
      limits: limits === undefined ? undefined : toLimits(limits),
    },
    call: input.call,
  };
}

function toLimits(limits: NonNullable<RunInput["limits"]>): NarrowerLimits {
  const { max_iterations, max_tool_calls, tokens_per_run } = limits;
  return {
    ...(max_iterations === undefined ? {} : { maxIterations: max_iterations }),
    ...(max_tool_calls === undefined ? {} : { maxToolCalls: max_tool_calls }),
    ...(tokens_per_run === undefined ? {} : { tokensPerRun: tokens_per_run }),
  };
}

/** The tools of a run that goes on. */
export interface ResumedTools {
  /** Tools that are the same as when the run was started. */
  readonly agentTools: readonly Tool[];
  /** Names of the tools that are deferred as they were. Empty when the tool that finds them is gone. */
  readonly deferred: ReadonlySet<string>;
  /** Reason why each other tool cannot be called any more, by name. */
  readonly gone: ReadonlyMap<string, string>;
}

/** Compares the pinned tools with the present ones. @param enabled tools that the run would get now */
export function resumedTools(
  enabled: readonly Tool[],
  { tools: pinned }: Pick<RunInput, "tools">,
  executor: Pick<ToolExecutor, "get">,
): ResumedTools {
  const agentTools: Tool[] = [];
  const gone = new Map<string, string>();
  for (const { name, digest } of pinned) {
    const tool = enabled.find((known) => known.name === name);
    if (tool !== undefined && digestOf(tool) === digest) agentTools.push(tool);
    else gone.set(name, `Cannot call "${name}": ${tool === undefined ? missing(name, executor) : CHANGED}`);
  }
  const canSearch = agentTools.some(({ name }) => name === TOOL_SEARCH);
  const deferred = canSearch ? pinned.flatMap((tool) => (tool.deferred === true ? [tool.name] : [])) : [];
  return { agentTools, deferred: new Set(deferred), gone };
}

const CHANGED = "it takes another input than when this run was started, before the gateway was restarted";

/**
 * Returns the digest that a run is pinned to: SHA-256 of the tool's input schema. The texts of a built-in tool's schema do not count, so
 * that an upgrade that words them differently takes no tool away from interrupted runs. Those of another's tool do: they are what its approval
 * was given for. Each run pins all of its tools, and a tool that changes is another object.
 */
export const digestOf = lazilyEach(({ source, inputSchema }: Pick<Tool, "source" | "inputSchema">): string =>
  canonicalDigest((source === "builtin" ? withoutTexts(inputSchema) : inputSchema) ?? null)
);

/** Keywords of a JSON Schema that hold values, not schemas: their texts count. */
const VALUES: ReadonlySet<string> = new Set(["const", "default", "enum"]);

/** Returns a JSON Schema without its descriptions and titles. A property that is called so stays: its value is a schema, not a text. */
function withoutTexts(schema: unknown): unknown {
  if (schema === null || typeof schema !== "object") return schema;
  if (Array.isArray(schema)) return schema.map(withoutTexts);
  const kept = Object.entries(schema).filter(([key, value]) =>
    typeof value !== "string" || (key !== "description" && key !== "title")
  );
  return Object.fromEntries(kept.map(([key, value]) => [key, VALUES.has(key) ? value : withoutTexts(value)]));
}

function missing(name: string, executor: Pick<ToolExecutor, "get">): string {
  return executor.get(name)?.reason ?? "the gateway does not have it any more since it was restarted";
}
