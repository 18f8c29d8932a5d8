import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import type { JsonObject } from "../../base/json.ts";
import { defineTool } from "../runtime/define_tool.ts";

/** Milliseconds beyond the limit of a module: its own error comes first and says more. */
const GRACE_MS = 5_000;

/**
 * `wasm_tool_exec`: calls a tool of an enabled WASM plugin, or a module (docs/design/tools.md "WASM modules").
 *
 * A call of a plugin's tool is decided, approved and recorded as if the model had called that tool by its name.
 */
export const wasmToolExec = defineTool({
  name: "wasm_tool_exec",
  description: "Calls a tool of an enabled WASM plugin, or a WASM module, which computes and reaches nothing",
  // The widest that a plugin may have. A module computes, and the call of a plugin's tool has that tool's own access
  access: "network",
  accessOf: () => "read",
  outside: true,
  enabled: "always",
  needs: ["wasmModules"],
  timeoutMs: ({ runtime }) => runtime.wasm.timeout_secs * 1000 + GRACE_MS,
  input: v.strictObject({
    tool: v.pipe(v.string(), v.regex(/^[a-zA-Z][a-zA-Z0-9_-]{0,63}$/), v.description("Tool of it")),
    input: v.pipe(v.looseObject({}), v.description("Input of the tool")),
    plugin: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description("Id of the plugin"))),
    module: v.optional(
      v.pipe(v.string(), v.minLength(1), v.maxLength(1024), v.description("Or a module of wasm_module: words.wasm")),
    ),
  }),
  check({ plugin, module }) {
    if ((plugin === undefined) !== (module === undefined)) return;
    const reason = plugin === undefined
      ? 'one of "plugin" and "module" is missing'
      : 'give "plugin" or "module", not both';
    throw new ToolError("invalid_input", `Cannot call "wasm_tool_exec": ${reason}`);
  },
  standsFor: ({ plugin, tool, input }) =>
    plugin === undefined
      ? undefined
      : { tool, input: JSON.stringify(input), source: "wasm", owner: `plugin ${plugin}` },
  async run({ module = "", tool, input }, context) {
    const { wasmModules } = context.services;
    // The input was parsed from JSON
    const call = { tool, input: input as JsonObject };
    const { output, is_error: isError, data } = await wasmModules.call(module, call, context);
    return { output, isError, ...(data === undefined ? {} : { data }) };
  },
});
