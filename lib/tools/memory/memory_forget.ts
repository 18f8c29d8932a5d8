import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { keyField, namespaceField } from "./memory_store.ts";

/** `memory_forget`: removes one memory (docs/design/tools.md "Memory and plans"). */
export const memoryForget = defineTool({
  name: "memory_forget",
  description: "Removes one memory by its exact key",
  access: "state",
  repeatable: true,
  enabled: "always",
  alwaysOffered: true,
  needs: ["memory"],
  input: v.strictObject({ key: keyField, namespace: v.optional(namespaceField) }),
  textField: "key",
  async run(input, context) {
    if (!await context.services.memory.forget(input)) {
      throw new ToolError(
        "not_found",
        `Cannot forget "${input.key}": no memory has this key; memory_recall shows the keys`,
      );
    }
    return { output: `Forgot "${input.key}"`, isError: false, data: { key: input.key } };
  },
});
