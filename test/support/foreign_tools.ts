import { canonicalDigest } from "../../lib/base/json.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";

/** Makes tools as nodes offer them, each with a schema of a few fields. */
export function foreignTools(count: number): readonly Tool[] {
  return Array.from({ length: count }, (_, index) => foreignTool(`node__box__device_${index}`));
}

/** Makes a tool as a node offers it, which answers with its input. */
export function foreignTool(name: string, description = `Reads the sensor values of ${name}, newest first`): Tool {
  const prepare: Tool["prepare"] = (text) => {
    const input: unknown = JSON.parse(text);
    return {
      input,
      digest: canonicalDigest(input),
      access: "read",
      effects: {},
      run: () => Promise.resolve({ output: text, isError: false }),
    };
  };
  return {
    name,
    description,
    access: "read",
    source: "node",
    enabled: "always",
    enabledBy: undefined,
    local: false,
    needs: [],
    inputSchema: {
      type: "object",
      properties: { channel: { type: "string", description: "Channel of the device" } },
      required: ["channel"],
      additionalProperties: false,
    },
    prepare,
    execute: (text, context) => prepare(text).run(context),
  };
}
