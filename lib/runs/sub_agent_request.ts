import type { SubAgentCaller } from "../tools/agents/sub_agents.ts";
import type { Inherited } from "../tools/runtime/tool.ts";
import type { RunRequest } from "./run_request.ts";
import { narrowLimits } from "./run_settings.ts";
import type { SubAgentRecord } from "./sub_agent_record.ts";

type Limits = NonNullable<SubAgentRecord["limits"]>;

/** What the run of a sub-agent is started with. */
export function subAgentRequest(
  record: Pick<SubAgentRecord, "id" | "kind" | "agent" | "parent_id" | "depth" | "tools" | "limits">,
  { text, by, durable }: { readonly text: string; readonly by: SubAgentCaller; readonly durable: boolean },
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

/** Another turn of a sub-agent, for this caller: with tools that both of them have, and the lower ones of their limits. */
export function nextTurn(
  record: SubAgentRecord,
  { held, by }: { readonly held: readonly string[]; readonly by: SubAgentCaller },
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

/** The bounds of a run, as they are kept. */
export function toLimits({ maxIterations, maxToolCalls, tokensPerRun }: Inherited["limits"]): Limits {
  return { maxIterations, maxToolCalls, tokensPerRun };
}

function instructionsOf({ id, kind }: Pick<SubAgentRecord, "id" | "kind">): string {
  const name = kind === "spawn" ? ` Your id is "${id}": it is your name in agents_ipc.` : "";
  return "You are a sub-agent: another agent gave you one task. Nobody answers questions, so decide by yourself and say what you " +
    `assumed. Your last answer is all that the other agent reads: put the whole result into it.${name}`;
}
