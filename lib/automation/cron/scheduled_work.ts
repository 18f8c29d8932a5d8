import { ToolError } from "../../base/errors.ts";
import { matchesPatterns } from "../../tools/runtime/registry.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import { SCHEDULE_LIMITS, type ScheduledWork } from "../../tools/schedule/schedules.ts";
import type { ScheduleRecord } from "./schedule_record.ts";

/**
 * Checks the work of a schedule as far as that is possible before it fires: a prompt, or a tool that exists and takes this input. Whether the
 * tool is on and the policy lets the call through is decided when it fires.
 * @param allowed patterns of the tools its maker has; undefined: all
 * @throws {ToolError} `invalid_input`
 */
export function checkWork(
  { prompt, tool, input }: ScheduledWork,
  { tools, allowed }: {
    readonly tools: Pick<ToolExecutor, "explain">;
    readonly allowed: readonly string[] | undefined;
  },
): Pick<ScheduleRecord, "prompt" | "call"> {
  if ((prompt === undefined) === (tool === undefined)) {
    throw invalid(
      `there must be either "prompt" or "tool", and there ${prompt === undefined ? "is neither" : "are both"}`,
    );
  }
  if (tool === undefined) {
    if (input !== undefined) throw invalid('"input" goes with "tool"');
    if (prompt === undefined || prompt.trim() === "") throw invalid('"prompt" must not be blank');
    return { prompt, call: null };
  }
  const call = { tool, input: { ...input } };
  const text = JSON.stringify(call.input);
  if (text.length > SCHEDULE_LIMITS.inputCharacters) {
    throw invalid(`"input" must have at most ${SCHEDULE_LIMITS.inputCharacters} characters as JSON`);
  }
  const judged = tools.explain(tool, text);
  const name = JSON.stringify(tool.slice(0, 64));
  if (judged === undefined) throw invalid(`there is no tool ${name}`);
  if (allowed !== undefined && !matchesPatterns(tool, allowed)) throw invalid(`the caller itself has no tool ${name}`);
  if (judged.kind === "bad_input") {
    throw judged.error instanceof ToolError ? invalid(judged.error.message) : judged.error;
  }
  return { prompt: null, call };
}

function invalid(reason: string): ToolError {
  return new ToolError("invalid_input", `Cannot use this schedule: ${reason}`);
}
