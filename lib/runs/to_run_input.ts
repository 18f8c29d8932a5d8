import type { Message } from "../base/records/message.ts";
import type { Tool } from "../tools/runtime/tool.ts";
import { digestOf } from "./resumed_tools.ts";
import type { RunInput } from "./run_records.ts";
import type { NarrowerLimits, RunRequest } from "./run_request.ts";

/** What a run was started with, pinned for its journal (docs/design/runs.md "Journal"). */
export function toRunInput(
  request: RunRequest,
  pinned: {
    readonly prompt: string | null;
    readonly agentTools: readonly Tool[];
    readonly depth: number;
    /** The messages with the parts of earlier turns in their places; the same array where there are none */
    readonly spliced: readonly Message[];
  },
): RunInput {
  const { caller, toolChoice, parallelToolCalls } = request;
  return {
    v: 2,
    messages: [...request.messages],
    ...(pinned.spliced === request.messages ? {} : { spliced: [...pinned.spliced] }),
    ...(request.model === undefined ? {} : { model: request.model }),
    system_prompt: pinned.prompt,
    parameters: { ...request.parameters },
    ...(toolChoice === undefined ? {} : { tool_choice: toolChoice }),
    ...(parallelToolCalls === undefined ? {} : { parallel_tool_calls: parallelToolCalls }),
    tools: pinned.agentTools.map((tool) => ({ name: tool.name, digest: digestOf(tool) })),
    client_tools: request.clientTools.map((tool) => ({ ...tool })),
    agent_tools: request.agentTools,
    durable: request.durable,
    caller: { via: caller.via, token_id: caller.tokenId, scopes: [...caller.scopes] },
    depth: pinned.depth,
    ...(request.agent === undefined ? {} : { agent: request.agent }),
    ...(request.limits === undefined ? {} : { limits: toLimits(request.limits) }),
    ...(request.call === undefined ? {} : { call: request.call }),
    ...(request.call === undefined || request.tools === undefined ? {} : { passed_tools: [...request.tools] }),
    request_id: request.requestId ?? null,
  };
}

function toLimits({ maxIterations, maxToolCalls, tokensPerRun }: NarrowerLimits): RunInput["limits"] {
  return { max_iterations: maxIterations, max_tool_calls: maxToolCalls, tokens_per_run: tokensPerRun };
}
