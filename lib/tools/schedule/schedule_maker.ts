import type { ToolContext } from "../runtime/tool.ts";
import type { ScheduleMaker } from "./schedules.ts";

/** Who makes or changes a schedule by a tool: its runs never have more than this caller. */
export function scheduleMaker(
  { caller, allowed, inherited }: Pick<ToolContext, "caller" | "allowed" | "inherited">,
): ScheduleMaker {
  return { caller, tools: inherited?.tools ?? allowed, limits: inherited?.limits };
}
