import * as v from "valibot";
import { joinTaints } from "../../base/taint.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { keyField, namespaceField } from "./memory_store.ts";

/** `memory_recall`: memories by key or by words, ranked (docs/design/tools.md "Memory and plans"). */
export const memoryRecall = defineTool({
  name: "memory_recall",
  description: "Finds what memory_store kept: by words, best first, or by exact key; without either, the newest",
  access: "read",
  enabled: "always",
  alwaysOffered: true,
  needs: ["memory"],
  input: v.strictObject({
    query: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(1000), v.description("Words to look for"))),
    key: v.optional(keyField),
    namespace: v.optional(namespaceField),
    limit: v.optional(
      v.pipe(
        v.number(),
        v.integer(),
        v.minValue(1),
        v.maxValue(100),
        v.description("Most memories. Default 10"),
      ),
    ),
  }),
  textField: "query",
  async run(input, context) {
    const records = await context.services.memory.recall(input);
    const output = records.map((record) => {
      const tags = record.tags.length === 0 ? "" : ` [${record.tags.join(", ")}]`;
      return `${record.key}${tags}: ${record.value}`;
    });
    return {
      output: output.length === 0 ? "No memory matches" : output.join("\n\n"),
      isError: false,
      data: { memories: records },
      taint: joinTaints(...records.map(({ taint }) => taint)),
    };
  },
});
