import { canonicalDigest } from "../base/canonical_json.ts";
import type { Tool } from "../tools/runtime/tool.ts";
import type { ToolExecutor } from "../tools/runtime/tool_executor.ts";
import type { RunInput } from "./run_records.ts";

/** The tools of a run that goes on. */
export interface ResumedTools {
  /** Those that are still what the run was started with */
  readonly agentTools: readonly Tool[];
  /** Why each of the others cannot be called any more, by name */
  readonly gone: ReadonlyMap<string, string>;
}

/** @param enabled the tools the run would get now */
export function resumedTools(
  enabled: readonly Tool[],
  { tools: pinned }: Pick<RunInput, "tools">,
  executor: Pick<ToolExecutor, "get">,
): ResumedTools {
  const agentTools: Tool[] = [];
  const gone = new Map<string, string>();
  for (const { name, digest } of pinned) {
    const tool = enabled.find((known) => known.name === name);
    if (tool !== undefined && digestOf(tool) === digest) agentTools.push(tool);
    else gone.set(name, `Cannot call "${name}": ${tool === undefined ? missing(name, executor) : CHANGED}`);
  }
  return { agentTools, gone };
}

const CHANGED = "it takes another input than when this run was started, before the gateway was restarted";

/** What a run is pinned to: SHA-256 of the input schema. */
export function digestOf(tool: Pick<Tool, "inputSchema">): string {
  return canonicalDigest(tool.inputSchema ?? null);
}

function missing(name: string, executor: Pick<ToolExecutor, "get">): string {
  return executor.get(name)?.reason ?? "the gateway does not have it any more since it was restarted";
}
