import * as v from "valibot";
import { DEFAULT_NAMESPACE } from "../../memory/memory.ts";
import { defineTool } from "../runtime/define_tool.ts";

/** Field for the key of a memory. */
export const keyField = v.pipe(v.string(), v.minLength(1), v.maxLength(256), v.description("The key"));

/** Field for the namespace of a memory. */
export const namespaceField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(64),
  v.description("Default: default"),
);

/** `memory_store`: keeps a text under a key (docs/design/tools.md "Memory and plans"). */
export const memoryStore = defineTool({
  name: "memory_store",
  description: "Keeps a text under a key, in place of an earlier one; memory_recall finds it",
  access: "state",
  repeatable: true,
  enabled: "always",
  alwaysOffered: true,
  needs: ["memory"],
  input: v.strictObject({
    key: keyField,
    value: v.pipe(v.string(), v.description("At most 64 KiB")),
    namespace: v.optional(namespaceField),
    tags: v.optional(
      v.pipe(
        v.array(v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description("A word"))),
        v.maxLength(20),
        v.description("Words to find it by"),
      ),
    ),
  }),
  async run(input, context) {
    const { record, replaced } = await context.services.memory.store({ ...input, taint: context.taint });
    const place = record.namespace === DEFAULT_NAMESPACE ? "" : ` in "${record.namespace}"`;
    return {
      output: `${replaced ? "Replaced" : "Stored"} "${record.key}"${place}`,
      isError: false,
      data: { key: record.key, namespace: record.namespace, replaced },
    };
  },
});
