import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { describeSubAgent } from "./sub_agents.ts";

/** `subagent_spawn`: a sub-agent that works in the background (docs/design/runs.md "Sub-agents"). */
export const subagentSpawn = defineTool({
  name: "subagent_spawn",
  description:
    "Starts a sub-agent on one task in the background and gives its id at once; subagent_manage gives its answer. It sees nothing of this conversation",
  access: "state",
  // The sub-agent begins with the taint
  carriesTaint: true,
  repeatable: true,
  enabled: "always",
  needs: ["subAgents"],
  input: v.strictObject({
    task: v.pipe(v.string(), v.minLength(1), v.description("What it is to do, with all it must know")),
    agent: v.optional(
      v.pipe(
        v.string(),
        v.minLength(1),
        v.maxLength(64),
        v.description("A configured agent. Default: the gateway's own"),
      ),
    ),
    tools: v.optional(
      v.pipe(
        v.array(v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description("A tool's name, or prefix*"))),
        v.maxLength(200),
        v.description("Which of your tools it gets; an empty list: none. Default: all of them"),
      ),
    ),
  }),
  textField: "task",
  async run(input, context) {
    const view = await context.services.subAgents.spawn(input, context);
    return { output: describeSubAgent(view), isError: false, data: view };
  },
});
