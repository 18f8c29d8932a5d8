import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";
import type { ToolResult } from "../runtime/tool_call.ts";
import type { InspectedModule, InspectedSizes, ModuleList } from "./wasm_modules.ts";

/** Milliseconds that a call may take: a module of 50 MB takes seconds to read. */
const TIMEOUT_MS = 60_000;

/** `wasm_module`: looks at the WASM modules of `[runtime.wasm] tools_dir` (docs/design/tools.md "WASM modules"). */
export const wasmModule = defineTool({
  name: "wasm_module",
  description: "Lists WASM modules, shows what one imports and exports, or loads it for wasm_tool_exec",
  access: "read",
  outside: true,
  enabled: "always",
  needs: ["wasmModules"],
  timeoutMs: () => TIMEOUT_MS,
  input: v.strictObject({
    op: v.pipe(v.picklist(["list", "inspect", "load"]), v.description("What to do")),
    path: v.optional(
      v.pipe(v.string(), v.minLength(1), v.maxLength(1024), v.description("Module, for inspect and load: words.wasm")),
    ),
  }),
  check({ op, path }) {
    if ((op === "list") === (path === undefined)) return;
    const reason = op === "list" ? '"path" is not a field of "list"' : `"path" is missing, which "${op}" needs`;
    throw new ToolError("invalid_input", `Cannot call "wasm_module": ${reason}`);
  },
  async run({ op, path = "" }, context): Promise<ToolResult> {
    const { wasmModules } = context.services;
    if (op === "list") {
      const found = await wasmModules.list(context);
      return { output: describeList(found), isError: false, data: found };
    }
    const module = await wasmModules[op](path, context);
    const output = op === "load" ? `Loaded ${describe(module)}` : describe(module);
    return { output, isError: false, data: module };
  },
});

function describeList({ folder, modules, truncated }: ModuleList): string {
  if (modules.length === 0) return `There are no modules in "${folder}" ([runtime.wasm] tools_dir)`;
  const lines = modules.map(({ path, bytes, loaded }) => `${path}: ${bytes} bytes${loaded ? ", loaded" : ""}`);
  return [...lines, ...(truncated ? ["There are more"] : [])].join("\n");
}

function describe({ path, bytes, sha256, ...module }: InspectedModule): string {
  const { imports, exports, memory, tables, functions, has_start: hasStart, features, refusal } = module;
  const lines = [
    `${path}: ${bytes} bytes, SHA-256 ${sha256}`,
    refusal === null ? "It can be loaded" : `It is refused: ${refusal.reason}`,
    `Exports: ${listed(exports.map(({ name, kind, type }) => `${name} ${type ?? kind}`))}`,
    ...importLines(imports),
    `Functions: ${functions}${hasStart ? ", one of which runs at the start" : ""}`,
    `Memory: ${memory === null ? "none" : `${sizes(memory)} pages of 64 KiB`}`,
    `Tables: ${listed(tables.map((table) => `${sizes(table)} entries`))}`,
    `Features: ${listed(features)}`,
  ];
  return lines.join("\n");
}

/** Returns a line for each module that it imports from. */
function importLines(imports: InspectedModule["imports"]): readonly string[] {
  const modules = [...new Set(imports.map(({ module }) => module))];
  return modules.map((module) => {
    const ofModule = imports.filter((one) => one.module === module);
    const names = ofModule.map(({ name, kind, type, granted }) =>
      `${name} ${type ?? kind}${granted ? "" : " (not granted)"}`
    );
    return `Imports of ${module}: ${names.join(", ")}`;
  });
}

const listed = (items: readonly string[]) => (items.length === 0 ? "none" : items.join(", "));
const sizes = ({ min, max }: InspectedSizes) => (max === null ? `${min} or more` : `${min} to ${max}`);
