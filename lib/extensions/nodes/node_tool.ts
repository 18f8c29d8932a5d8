import { canonicalDigest, type ObjectJsonSchema } from "../../base/json.ts";
import { ToolError } from "../../base/errors.ts";
import { parseInput } from "../../tools/runtime/parse_input.ts";
import type { Access, PreparedCall, Tool, ToolContext } from "../../tools/runtime/tool.ts";
import type { ToolResult } from "../../tools/runtime/tool_call.ts";
import type { ToolOffer } from "./protocol.ts";

/** The offer of a node and the way to call it, from which a tool is made. */
export interface NodeToolOptions {
  readonly nodeId: string;
  readonly offer: ToolOffer;
  /** The operator's word, `network` without one (docs/design/plugins.md "Nodes") */
  readonly access: () => Access;
  readonly connected: () => boolean;
  /** Makes the call on the node. @throws {ToolError} {CancelError} */
  readonly call: (input: Readonly<Record<string, unknown>>, context: ToolContext) => Promise<ToolResult>;
}

/** The name of a node's tool in the registry. */
export function nodeToolName(nodeId: string, tool: string): string {
  return `node__${nodeId}__${tool}`;
}

/** A tool of a node as one of the gateway's: its input is looked at here as far as its schema says plainly, and checked on the node. */
export function createNodeTool(options: NodeToolOptions): Tool {
  const { nodeId, offer, access } = options;
  const name = nodeToolName(nodeId, offer.name);
  const inputSchema: ObjectJsonSchema | undefined = offer.input_schema;
  const fields = Object.keys(inputSchema?.properties ?? {});
  const required = inputSchema?.required ?? [];
  const prepare = (text: string): PreparedCall => {
    const input = parseInput(text, { tool: name, fields, required, textField: fields[0] });
    const missing = required.find((field) => !Object.hasOwn(input, field));
    const unknown = Object.keys(input).find((field) => !fields.includes(field));
    const wrong = missing ?? unknown;
    if (wrong !== undefined) {
      const fault = `${JSON.stringify(wrong.slice(0, 64))} ${missing === undefined ? "is not a field" : "is missing"}`;
      throw new ToolError(
        "invalid_input",
        `Cannot call "${name}": ${fault}; the fields are ${fields.join(", ") || "none"}`,
      );
    }
    return {
      input,
      digest: canonicalDigest(input),
      access: access(),
      effects: {},
      run: (context) => options.call(input, context),
    };
  };
  return {
    name,
    description: `On the node "${nodeId}": ${offer.description}`,
    get access() {
      return access();
    },
    source: "node",
    enabled: options.connected,
    enabledBy: `up the link of the node "${nodeId}", there: postern node --connect <url> --id ${nodeId}`,
    needs: [],
    inputSchema,
    prepare,
    execute: async (text, context) => await prepare(text).run(context),
  };
}
