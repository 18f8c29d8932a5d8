import * as v from "valibot";
import { type Plan, PLAN_STATUSES } from "../../memory/plans.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { requireOpFields } from "../runtime/parse_input.ts";
import type { ToolResult } from "../runtime/tool_call.ts";

const title = v.pipe(v.string(), v.minLength(1), v.maxLength(500));

const NEEDED = { create: ["tasks"], add: ["title"], update: ["id", "status"], list: [], delete: [] } as const;

/**
 * `task_plan`: the agent's list of tasks, one plan per conversation, and one for the workspace outside of any.
 * Source: docs/design/tools.md "Memory and plans"
 */
export const taskPlan = defineTool({
  name: "task_plan",
  description: "Keeps a plan of tasks for longer work",
  access: "state",
  repeatable: ({ op }) => op !== "add",
  // The plan carries the taint
  carriesTaint: true,
  enabled: "always",
  needs: ["plans"],
  input: v.strictObject({
    op: v.pipe(v.picklist(["create", "add", "update", "list", "delete"]), v.description("What to do")),
    tasks: v.optional(
      v.pipe(
        v.array(v.pipe(title, v.description("Title"))),
        v.minLength(1),
        v.maxLength(200),
        v.description("create: the titles, in order"),
      ),
    ),
    title: v.optional(v.pipe(title, v.description("add: the task's title"))),
    id: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(16), v.description("update: the task's id"))),
    status: v.optional(v.pipe(v.picklist(PLAN_STATUSES), v.description("update: its new status"))),
  }),
  check: (input) => requireOpFields("task_plan", input, NEEDED),
  async run(
    { op, tasks = [], title = "", id = "", status = "pending" },
    { services: { plans }, conversationId, workspaceRoot, taint },
  ) {
    const scope = conversationId ?? workspaceRoot;
    switch (op) {
      case "create":
        return shown(await plans.create(scope, tasks, taint));
      case "add":
        return shown(await plans.add(scope, title, taint));
      case "update":
        return shown(await plans.update(scope, id, status));
      case "list":
        return shown(await plans.list(scope));
      case "delete": {
        const deleted = await plans.delete(scope);
        return { output: deleted ? "Deleted the plan" : "There was no plan", isError: false, data: { deleted } };
      }
    }
  },
});

function shown({ tasks, taint }: Plan): ToolResult {
  const lines = tasks.map((task) => `${task.id}. [${task.status}] ${task.title}`);
  const output = lines.length === 0 ? "There is no plan" : lines.join("\n");
  return { output, isError: false, data: { tasks }, taint };
}
