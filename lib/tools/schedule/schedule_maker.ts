import { type ToolContext, toolsPassedOn } from "../runtime/tool.ts";
import type { ScheduleMaker } from "./schedules.ts";

/** Who makes or changes a schedule by a tool: its runs never have more than this caller. */
export function scheduleMaker(context: Pick<ToolContext, "caller" | "allowed" | "inherited">): ScheduleMaker {
  return { caller: context.caller, tools: toolsPassedOn(context), limits: context.inherited?.limits };
}
