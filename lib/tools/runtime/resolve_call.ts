import { ToolError } from "../../base/errors.ts";
import type { RunTaint } from "../../base/taint.ts";
import type { ToolCatalogue } from "./registry.ts";
import type { RealCall, Tool } from "./tool.ts";
import type { Judgement, ToolPolicy } from "./tool_policy.ts";

/** Call by name and input, with the tools that exist for the caller. */
interface NamedCall {
  readonly name: string;
  readonly input: string;
  /** Patterns of the tools that exist for the caller. undefined: all enabled tools */
  readonly allowed?: readonly string[] | undefined;
}

/** Call that is really made: the tool that runs, and the call that named it where another tool stands for it. */
export interface ResolvedCall {
  readonly tool: Tool;
  readonly name: string;
  readonly input: string;
  /** Call of the tool that stands for this one. undefined: the call names its tool */
  readonly by: { readonly tool: Tool; readonly input: string } | undefined;
}

/**
 * Returns the call that is made for a named one: a call that stands for another, as `wasm_tool_exec` for the tool of a plugin, is the
 * other one from here on. Both tools must exist for the caller.
 */
export function resolveCall(
  call: NamedCall,
  catalogue: Pick<ToolCatalogue, "resolve">,
): ResolvedCall | { readonly reason: string } {
  const { name, input, allowed } = call;
  const tool = catalogue.resolve(call);
  if ("reason" in tool) return tool;
  const other = tool.standsFor && realCallOf(tool, input);
  if (other === undefined) return { tool, name, input, by: undefined };
  const real = catalogue.resolve({ name: other.tool, allowed });
  if ("reason" in real) return real;
  if (real.source !== other.source || !isOf(real, other)) {
    return { reason: `Cannot call "${other.tool}" by ${name}: it is no tool of the ${other.source} ${other.owner}` };
  }
  return { tool: real, name: real.name, input: other.input, by: { tool, input } };
}

/** Decides about a call. The stricter of two decisions counts where one tool stands for another. */
export function judgeCall({ tool, input, by }: ResolvedCall, policy: ToolPolicy, run?: RunTaint): Judgement {
  const judged = policy.judge(tool, input, run);
  if (by === undefined || judged.kind === "bad_input") return judged;
  const outer = policy.judge(by.tool, by.input, run);
  if (outer.kind === "bad_input") return outer;
  const isStricter = STRICTNESS.indexOf(outer.decision.kind) > STRICTNESS.indexOf(judged.decision.kind);
  return isStricter ? { ...judged, decision: outer.decision } : judged;
}

const STRICTNESS = ["allow", "ask", "deny"];

/** Returns the call that a call stands for. Undefined for a call of its own, and for a bad input, which the tool itself refuses. */
export function realCallOf(tool: Tool, input: string): RealCall | undefined {
  try {
    return tool.standsFor?.(input);
  } catch (error) {
    if (error instanceof ToolError) return undefined;
    throw error;
  }
}

/** Tells whether a tool is of an owner, such as `plugin words`, in whichever version. */
function isOf({ origin }: Tool, { owner }: RealCall): boolean {
  return origin !== undefined && origin.startsWith(`${owner} `);
}
