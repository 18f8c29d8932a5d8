import { HttpError, ProviderError, ToolError } from "../../base/errors.ts";
import type { CallContext, Inherited } from "../../tools/runtime/tool_call.ts";
import type { RunHandle, RunRequest, RunSupervisor } from "../run_request.ts";
import { narrowLimits } from "../supervisor/run_settings.ts";
import type { SubAgentRecord } from "./sub_agent_records.ts";

type Limits = NonNullable<SubAgentRecord["limits"]>;

/** Returns the request that starts a run of a sub-agent. */
export function subAgentRequest(
  record: Pick<SubAgentRecord, "id" | "kind" | "agent" | "parent_id" | "depth" | "tools" | "limits">,
  { text, by, durable }: { readonly text: string; readonly by: CallContext; readonly durable: boolean },
): RunRequest {
  return {
    kind: "subagent",
    messages: [{ role: "user", content: text }],
    parentId: record.parent_id ?? undefined,
    depth: record.depth,
    caller: { ...by.caller, via: "subagent" },
    requestId: by.requestId,
    durable,
    canApprove: false,
    agent: record.agent ?? undefined,
    tools: record.tools,
    limits: record.limits,
    instructions: instructionsOf(record),
    agentTools: "configured",
    clientTools: [],
    parameters: {},
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
