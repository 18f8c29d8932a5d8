import { HttpError, ProviderError, ToolError } from "../../base/errors.ts";
import { type CallContext, type Inherited, toolsPassedOn } from "../../tools/runtime/tool_call.ts";
import type { RunHandle, RunRequest, RunSupervisor } from "../run_request.ts";
import { narrowLimits } from "../supervisor/run_settings.ts";
import type { SubAgentRecord } from "./sub_agent_records.ts";
import type { Config } from "../../config/config.ts";
import { SUB_AGENT_LIMITS } from "../../tools/agents/sub_agents.ts";
import { matchesPatterns } from "../../tools/runtime/registry.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";

type Limits = NonNullable<SubAgentRecord["limits"]>;

/** Returns the request that starts a run of a sub-agent. */
export function subAgentRequest(
  record: Pick<SubAgentRecord, "id" | "kind" | "agent" | "parent_id" | "depth" | "tools" | "limits">,
  { text, by, durable }: { readonly text: string; readonly by: CallContext; readonly durable: boolean },
): RunRequest {
  return {
    kind: "subagent",
    by: {
      caller: { ...by.caller, via: "subagent" },
      requestId: by.requestId,
      parentId: record.parent_id ?? undefined,
      depth: record.depth,
      taint: by.taint,
    },
    messages: [{ role: "user", content: text }],
    durable,
    agentTools: "configured",
    agent: {
      name: record.agent ?? undefined,
      tools: record.tools,
      limits: record.limits,
      instructions: instructionsOf(record),
    },
  };
}

/** Returns the record for a further task from this caller: with the tools that both have, and the lower of both limits. */
export function nextTask(
  record: SubAgentRecord,
  { held, by }: { readonly held: readonly string[]; readonly by: CallContext },
): SubAgentRecord {
  const given = by.inherited?.limits;
  const limits = record.limits === undefined ? given && toLimits(given) : narrowLimits(record.limits, given ?? {});
  return {
    ...record,
    parent_id: by.direct ? null : by.runId,
    tools: record.tools.filter((name) => held.includes(name)),
    ...(limits === undefined ? {} : { limits }),
  };
}

/** Returns the bounds of a run in the form of the record. */
export function toLimits({ maxIterations, maxToolCalls, tokensPerRun }: Inherited["limits"]): Limits {
  return { maxIterations, maxToolCalls, tokensPerRun };
}

function instructionsOf({ id, kind }: Pick<SubAgentRecord, "id" | "kind">): string {
  const name = kind === "spawn" ? ` Your id is "${id}": it is your name in agents_ipc.` : "";
  return "You are a sub-agent: another agent gave you one task. Nobody answers questions, so decide by yourself and say what you " +
    `assumed. Your last answer is all that the other agent reads: put the whole result into it.${name}`;
}

/** Starts a run. @throws {ToolError} with the code and the message that an HTTP client would get */
export async function startSubAgent(runs: RunSupervisor, request: RunRequest): Promise<RunHandle> {
  try {
    return await runs.start(request);
  } catch (cause) {
    if (cause instanceof HttpError || cause instanceof ProviderError) {
      throw new ToolError(cause.code, cause.message, { cause });
    }
    throw cause;
  }
}

/** Starts a run with a claim. A claim that the same call made before counts as this start. */
export async function startOnce(runs: RunSupervisor, request: RunRequest): Promise<void> {
  try {
    await startSubAgent(runs, request);
  } catch (error) {
    if (!(error instanceof ToolError) || error.code !== "conflict") throw error;
  }
}

/** Place of a sub-agent below its callers, pinned at its start. */
export type Lineage = Pick<SubAgentRecord, "parent_id" | "ancestors" | "chain" | "depth" | "max_depth">;

type AgentConfig = Config["agents"][string];

/**
 * Returns the place of a sub-agent below its caller. The lowest `max_depth` of all configured agents in the chain counts.
 * @param parent the sub-agent that the caller is; undefined: none
 * @throws {ToolError} `max_depth`
 */
export function lineageOf(
  child: { readonly id: string; readonly agent: string | null; readonly config: AgentConfig | undefined },
  { by, parent }: { readonly by: CallContext; readonly parent: SubAgentRecord | undefined },
): Lineage {
  const above = parent?.max_depth ?? (child.config === undefined ? SUB_AGENT_LIMITS.depth : Number.POSITIVE_INFINITY);
  const maxDepth = Math.min(above, child.config?.max_depth ?? Number.POSITIVE_INFINITY);
  const depth = (parent?.depth ?? by.depth) + 1;
  const top = by.direct ? by.caller.via : by.runId;
  const chain = [...parent?.chain ?? [top], child.agent ?? child.id];
  if (depth > maxDepth) {
    throw new ToolError(
      "max_depth",
      `Cannot start ${child.agent === null ? "a sub-agent" : `the agent "${child.agent}"`}: the chain ${
        chain.join(" > ")
      } is ${depth} deep, and max_depth is ${maxDepth}; do the work yourself`,
    );
  }
  const ancestors = parent === undefined ? [] : [...parent.ancestors, parent.id];
  return { parent_id: by.direct ? null : by.runId, ancestors, chain, depth, max_depth: maxDepth };
}

/** Returns the names of the tools that the caller can pass on: its own tools without `delegate`. */
export function heldTools(executor: Pick<ToolExecutor, "enabled">, by: CallContext): readonly string[] {
  return executor.enabled(toolsPassedOn(by) ?? ["*"]).map(({ name }) => name).filter((name) => name !== "delegate");
}

/**
 * Returns the tools of a sub-agent. Its caller and its configured agent must both have each tool that was asked for. Default: all tools
 * that both have.
 * @throws {ToolError} `tools_not_held`
 */
export function grantTools(
  executor: Pick<ToolExecutor, "enabled" | "get">,
  { by, asked, agent }: {
    readonly by: CallContext;
    readonly asked: readonly string[] | undefined;
    readonly agent: AgentConfig | undefined;
  },
): readonly string[] {
  const held = heldTools(executor, by);
  const ofAgent = agent === undefined ? ["*"] : agent.agentic ? agent.allowed_tools : [];
  for (const name of asked ?? []) {
    if (name.endsWith("*") || (held.includes(name) && matchesPatterns(name, ofAgent))) continue;
    throw notHeld(name, executor.get(name)?.reason, held.includes(name) ? "its agent" : "the caller");
  }
  return held.filter((name) => matchesPatterns(name, ofAgent) && matchesPatterns(name, asked ?? ["*"]));
}

function notHeld(name: string, off: string | null | undefined, who: string): ToolError {
  const reason = name === "delegate"
    ? "a sub-agent may not delegate"
    : off ?? (off === undefined ? "there is no such tool" : `${who} does not have it`);
  return new ToolError("tools_not_held", `Cannot give a sub-agent the tool ${JSON.stringify(name)}: ${reason}`);
}
