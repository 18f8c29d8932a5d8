import type { ToolResult } from "../runtime/tool.ts";
import type { SopExecutionView, SopStepView } from "./sops.ts";

/** Of a step's output in the text; `data` has more */
const SHOWN_CHARACTERS = 600;

/** An execution as text for the model, and whole for programs. @param said what stands before it */
export function showExecution(execution: SopExecutionView, said = ""): ToolResult {
  const { id, sop, status, error, steps, waits_for } = execution;
  const lines = [
    said,
    `Execution ${id} of "${sop}" is ${status}${error === null ? "" : `: ${error.message}`}`,
    ...steps.map(stepLine),
    waits_for,
  ];
  return { output: lines.filter((line) => line !== "").join("\n"), isError: false, data: execution };
}

function stepLine(step: SopStepView, index: number): string {
  const { title, status, tool, kind, run_id, output } = step;
  const run = run_id === null ? "" : `, ${run_id}`;
  const line = `${index + 1}. [${status}] ${title} (${tool ?? kind}${run})`;
  if (output === null || output === "") return line;
  const shown = output.length > SHOWN_CHARACTERS ? `${output.slice(0, SHOWN_CHARACTERS)} ...` : output;
  return `${line}\n${shown.split("\n").map((text) => `   ${text}`).join("\n")}`;
}
