import type { Tool } from "./tool.ts";

/** All known tools, enabled or not: an immutable snapshot. */
export interface ToolRegistry {
  get(name: string): Tool | undefined;
  /** By name */
  readonly tools: readonly Tool[];
}

/** What OpenAI and Anthropic accept as a function's name */
const NAME = /^[a-zA-Z][a-zA-Z0-9_-]{0,63}$/;

/** @throws {TypeError} for a bad name and for one that is taken */
export function createToolRegistry(tools: readonly Tool[]): ToolRegistry {
  const byName = new Map<string, Tool>();
  for (const tool of tools) {
    if (!NAME.test(tool.name)) throw new TypeError(`Tool name ${JSON.stringify(tool.name)} is not of ${NAME.source}`);
    if (byName.has(tool.name)) throw new TypeError(`Tool "${tool.name}" is registered twice`);
    byName.set(tool.name, tool);
  }
  const sorted = [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  return { get: (name) => byName.get(name), tools: sorted };
}

/** Whether a tool's name is named by the patterns of `[agent] tools`: `*`, a name, or `prefix*`. No pattern, no tool. */
export function matchesPatterns(name: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern));
}
