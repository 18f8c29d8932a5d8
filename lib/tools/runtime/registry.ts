import type { Tool } from "./tool.ts";

/** Immutable snapshot of all known tools, enabled or not. */
export interface ToolRegistry {
  get(name: string): Tool | undefined;
  /** All tools, sorted by name */
  readonly tools: readonly Tool[];
}

/** Names that OpenAI and Anthropic accept for a function */
const NAME = /^[a-zA-Z][a-zA-Z0-9_-]{0,63}$/;

/** Creates the registry of these tools. @throws {TypeError} for an invalid name and for a name that two tools have */
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

/** Tells whether a tool's name matches one of the patterns of `[agent] tools`: `*`, a name, or `prefix*`. No patterns match nothing. */
export function matchesPatterns(name: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern));
}
