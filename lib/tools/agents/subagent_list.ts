import * as v from "valibot";
import { runStatusSchema } from "../../base/records/run.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { hiddenLines } from "../runtime/owned_things.ts";
import { describeSubAgent, taintOfTasks } from "./sub_agents.ts";

/** `subagent_list`: the sub-agents in the background (docs/design/runs.md "Sub-agents"). */
export const subagentList = defineTool({
  name: "subagent_list",
  description: "Lists the sub-agents that subagent_spawn started, newest first, with their states",
  access: "read",
  enabled: "always",
  needs: ["subAgents"],
  input: v.strictObject({
    status: v.optional(v.pipe(runStatusSchema, v.description("Only those in this state"))),
  }),
  async run(input, context) {
    const none = input.status === undefined ? "There are no sub-agents" : "There is no such sub-agent";
    const { views, hidden } = await context.services.subAgents.list(input, context);
    return {
      output: [views.map(describeSubAgent).join("\n") || none, ...hiddenLines("sub_agent", hidden)].join("\n"),
      isError: false,
      data: { subagents: views, hidden },
      taint: taintOfTasks(views),
    };
  },
});
