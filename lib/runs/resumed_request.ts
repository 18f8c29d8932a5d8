import type { Caller } from "../base/records/caller.ts";
import type { ToolChoice, ToolDeclaration } from "../providers/provider.ts";
import type { InterruptedRun } from "./recover_runs.ts";
import type { RunInput } from "./run_records.ts";
import type { NarrowerLimits, RunRequest } from "./run_request.ts";

/** What an interrupted run was asked for, from its pinned input: it asks for the same again. */
export function resumedRequest({ run, input }: InterruptedRun): RunRequest {
  const { tool_choice, parallel_tool_calls, caller, limits } = input;
  return {
    kind: run.kind,
    messages: input.messages,
    model: input.model,
    // The agent it is of has a model of its own; else it stays with the model it had
    lastModel: input.agent === undefined ? run.model : undefined,
    conversationId: run.conversation_id ?? undefined,
    parentId: run.parent_id ?? undefined,
    depth: input.depth,
    // Written from a Caller
    caller: { via: caller.via, tokenId: caller.token_id, scopes: caller.scopes } as Caller,
    requestId: input.request_id ?? undefined,
    durable: true,
    canApprove: false,
    agent: input.agent,
    // A call has the one tool whatever they say: they are what it passes on
    tools: input.call === undefined ? input.tools.map(({ name }) => name) : input.passed_tools,
    limits: limits === undefined ? undefined : toLimits(limits),
    call: input.call,
    agentTools: input.agent_tools,
    // Written from ToolDeclarations and a ToolChoice
    clientTools: input.client_tools as unknown as readonly ToolDeclaration[],
    toolChoice: tool_choice as ToolChoice | undefined,
    parallelToolCalls: parallel_tool_calls,
    parameters: input.parameters,
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
