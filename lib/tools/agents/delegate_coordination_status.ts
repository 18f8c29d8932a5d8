import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { hiddenLines } from "../runtime/owned_things.ts";
import { type SubAgentView, taintOfTasks } from "./sub_agents.ts";

/** `delegate_coordination_status`: shows which agents work for which (docs/design/runs.md "Sub-agents"). */
export const delegateCoordinationStatus = defineTool({
  name: "delegate_coordination_status",
  description: "Shows the delegations and sub-agents, newest first: their chain, depth, state and times",
  access: "read",
  enabled: "always",
  needs: ["subAgents"],
  input: v.strictObject({}),
  async run(_input, context) {
    const { views: delegations, hidden } = await context.services.subAgents.delegations(context);
    return {
      output: [delegations.map(describe).join("\n") || "Nothing was delegated", ...hiddenLines("sub_agent", hidden)]
        .join("\n"),
      isError: false,
      data: { delegations, hidden },
      taint: taintOfTasks(delegations),
    };
  },
});

function describe(view: SubAgentView): string {
  const times = `started=${view.created_at} ended=${view.ended_at ?? "-"}`;
  return `id=${view.id} kind=${view.kind} status=${view.status} depth=${view.depth}/${view.max_depth} ` +
    `chain=${JSON.stringify(view.chain.join(" > "))} ${times}`;
}
