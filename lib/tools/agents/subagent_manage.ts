import * as v from "valibot";
import { joinTaints } from "../../base/taint.ts";
import { type ContextWith, defineTool } from "../runtime/define_tool.ts";
import { requireOpFields } from "../runtime/parse_input.ts";
import type { ToolResult } from "../runtime/tool_call.ts";
import { describeSubAgent, taintOfTasks } from "./sub_agents.ts";

/** `subagent_manage`: one sub-agent's state, answer, next turn or end (docs/design/runs.md "Sub-agents"). */
export const subagentManage = defineTool({
  name: "subagent_manage",
  description:
    "Asks after a sub-agent (status), waits up to a minute for its answer (result), says more to it, which is its next turn " +
    "after the one at work (message), or stops it (cancel)",
  access: "state",
  // Messages carry the taint, and a caller cancels only what it may reach
  carriesTaint: true,
  repeatable: true,
  enabled: "always",
  needs: ["subAgents"],
  input: v.strictObject({
    op: v.pipe(v.picklist(["status", "result", "message", "cancel"]), v.description("What to do")),
    id: v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description("Id that subagent_spawn gave")),
    text: v.optional(v.pipe(v.string(), v.minLength(1), v.description("message: what to say"))),
  }),
  check: (input) => requireOpFields("subagent_manage", input, { message: ["text"] }),
  async run({ op, id, text = "" }, context) {
    const { subAgents } = context.services;
    switch (op) {
      case "status": {
        const view = await subAgents.status(id, context);
        return { output: describeSubAgent(view), isError: false, data: view, taint: taintOfTasks([view]) };
      }
      case "result":
        return await result(id, context);
      case "message": {
        const view = await subAgents.message(id, text, context);
        return { output: `Sent. ${describeSubAgent(view)}`, isError: false, data: view, taint: taintOfTasks([view]) };
      }
      case "cancel": {
        const cancelled = await subAgents.cancel(id, context);
        const output = cancelled ? `Cancelled "${id}"` : `Sub-agent "${id}" was over already`;
        return { output, isError: false, data: { id, cancelled } };
      }
    }
  },
});

async function result(id: string, context: ContextWith<"subAgents">): Promise<ToolResult> {
  const { view, result: text, error, ageMs, taint: read } = await context.services.subAgents.result(id, context);
  const taint = joinTaints(taintOfTasks([view]), read);
  const data = { ...view, result: text, error };
  if (text !== null) return { output: text, isError: false, data, taint };
  if (error !== null) {
    return { output: `Sub-agent "${id}" ended as ${view.status}: ${error}`, isError: true, data, taint };
  }
  const age = Math.round(ageMs / 1000);
  const output = `Sub-agent "${id}" is ${view.status} after ${age} s: go on with other work, and ask again later`;
  return { output, isError: false, data, taint };
}
