import { ConfigError } from "../base/errors.ts";
import type { Tool } from "./runtime/tool.ts";

/** Handle on a tool that the program made with defineTool. Any other object in the option `tools` is refused, whatever its shape. */
export class MadeTool {
  readonly name: string;
  readonly #tool: Tool;

  constructor(tool: Tool) {
    this.name = tool.name;
    this.#tool = tool;
  }

  /** Returns the tool behind a handle; undefined for anything else. */
  static toolOf(value: unknown): Tool | undefined {
    return typeof value === "object" && value !== null && #tool in value ? value.#tool : undefined;
  }
}

/** Returns the tools behind what a program gave. @throws {ConfigError} `tool_invalid`, `tool_name_taken` */
export function toTools(given: unknown, isTaken: (name: string) => boolean): readonly Tool[] {
  if (!Array.isArray(given)) throw new ConfigError("tool_invalid", 'Cannot use the option "tools": it must be a list');
  const names = new Set<string>();
  return given.map((one: unknown) => {
    const tool = MadeTool.toolOf(one);
    if (tool === undefined) {
      throw new ConfigError("tool_invalid", 'Cannot use an entry of the option "tools": make it with defineTool()');
    }
    if (names.has(tool.name) || isTaken(tool.name)) {
      const owner = names.has(tool.name) ? "another tool of the list" : "a built-in tool";
      throw new ConfigError("tool_name_taken", `Cannot add the tool "${tool.name}": ${owner} has this name`);
    }
    names.add(tool.name);
    return tool;
  });
}
