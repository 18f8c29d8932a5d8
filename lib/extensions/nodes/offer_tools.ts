import type { Random } from "../../base/random.ts";
import type { ServiceName, Tool } from "../../tools/runtime/tool.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import { type Approver, nobodyCouldAnswer } from "../../tools/runtime/tool_call.ts";
import type { NodeWork } from "./node_end.ts";
import { MAX_TOOLS, OFFERED_TOOL_NAME, type ToolOffer } from "./protocol.ts";

/** Services that need an agent, which a node does not have. */
const OF_AN_AGENT: ReadonlySet<ServiceName> = new Set(["subAgents", "schedules", "sops"]);

/**
 * A node's own tools for its gateway: each call goes through this machine's tool executor, policy and audit. Where the policy asks, it is a
 * denial, since nobody sits at a node; what the gateway believes of a tool's access counts for nothing here.
 */
export function createNodeWork({ executor, random, patterns }: {
  readonly executor: ToolExecutor;
  readonly random: Random;
  /** Patterns of the tools that are offered: `*`, names, `prefix*` */
  readonly patterns: readonly string[];
}): NodeWork {
  const offered = () => executor.enabled(patterns).filter(isOfferable).slice(0, MAX_TOOLS);
  return {
    tools: () => offered().map(toOffer),
    async call({ tool, input, call_id: gatewayCallId }, signal) {
      const outcome = await executor.call({
        name: tool,
        input: JSON.stringify(input),
        scope: {
          runId: random.id("run_"),
          // The same id is in the audits of both machines
          requestId: gatewayCallId,
          conversationId: null,
          // The gateway alone calls here, so all that goes on on a node is the gateway's
          caller: { via: "node", tokenId: null, scopes: ["tools", "runs"] },
          depth: 0,
          signal,
        },
        callId: random.id("call_"),
        allowed: offered().map(({ name }) => name),
        approver: denyOnNode,
      });
      const { output, isError, data } = outcome.result;
      return { output, is_error: isError, ran: outcome.ran, ...(data === undefined ? {} : { data }) };
    },
  };
}

const denyOnNode: Approver = ({ reason }) =>
  Promise.resolve(nobodyCouldAnswer(
    `the node's own policy asks, and nobody answers there: ${reason}; a change there counts from the node's next start`,
  ));

function isOfferable({ name, source, needs }: Tool): boolean {
  return OFFERED_TOOL_NAME.test(name) && source !== "node" && !needs.some((need) => OF_AN_AGENT.has(need));
}

function toOffer({ name, description, access, inputSchema }: Tool): ToolOffer {
  // The schema is sent as JSON, where nothing is read-only
  const schema = inputSchema as ToolOffer["input_schema"];
  return { name, description, access, ...(schema === undefined ? {} : { input_schema: schema }) };
}
