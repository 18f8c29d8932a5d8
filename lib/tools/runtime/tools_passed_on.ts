import type { ToolContext } from "./tool.ts";

/**
 * Patterns of the tools that what a call starts or schedules may have at most: those of its run, which passes on more than it has
 * itself where it is this one call alone. undefined: all enabled ones.
 */
export function toolsPassedOn(
  { allowed, inherited }: Pick<ToolContext, "allowed" | "inherited">,
): readonly string[] | undefined {
  return inherited?.tools ?? allowed;
}
