import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { hiddenLines } from "../runtime/owned_things.ts";
import type { SopCatalogue, SopSummary } from "./sops.ts";

/** `sop_list`: lists the procedures, and files that are not valid procedures (docs/design/automation.md "Procedures"). */
export const sopList = defineTool({
  name: "sop_list",
  description:
    "Lists the standard operating procedures that can be executed, with their inputs and steps, and executions that are open",
  access: "read",
  enabled: "always",
  needs: ["sops"],
  input: v.strictObject({}),
  async run(_, context) {
    const found = await context.services.sops.list(context);
    const reads = [...found.sops, ...found.invalid].map(({ file }) => file);
    return { output: toText(found), isError: false, data: found, reads };
  },
});

function toText({ sops, invalid, open, hidden }: SopCatalogue): string {
  return [
    ...(sops.length === 0 ? ["There are no procedures; a file in {data_dir}/sops makes one"] : sops.map(procedureText)),
    ...invalid.flatMap(({ problems }) => problems.map(({ message }) => message)),
    ...(open.length === 0
      ? []
      : ["Open executions:", ...open.map(({ id, sop, status }) => `${id} of "${sop}": ${status}`)]),
    ...hiddenLines("execution", hidden),
  ].join("\n");
}

/** Returns a procedure as lines: its name, its inputs and its steps. */
export function procedureText({ id, name, description, in_workspace, inputs, steps }: SopSummary): string {
  const about = description === "" ? "" : `. ${description}`;
  return [
    `${id}: ${name}${about}${in_workspace ? " (found in the workspace: a person must let it begin)" : ""}`,
    ...inputs.map((input) => {
      const needed = input.required ? "required" : `default ${JSON.stringify(input.default)}`;
      const choices = input.choices === null ? "" : `, one of ${JSON.stringify(input.choices)}`;
      return `  input ${input.name} (${input.type}, ${needed}${choices}) ${input.description}`.trimEnd();
    }),
    ...steps.map((step, index) =>
      `  ${index + 1}. ${step.title} (${step.tool ?? step.kind})${step.requires_approval ? ", requires approval" : ""}${
        step.tool_off === null ? "" : `; cannot run now: ${step.tool_off}`
      }`
    ),
  ].join("\n");
}
