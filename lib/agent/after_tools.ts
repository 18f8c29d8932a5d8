import type { AgentEventBody } from "../base/records/agent_event.ts";
import type { Message } from "../base/records/message.ts";
import type { AgentLimits } from "./agent_run.ts";
import type { CallResult } from "./call_tools.ts";
import type { LoopVerdict } from "./loop_guard.ts";

/** What follows from the results of a turn's calls. */
export interface AfterTools {
  /** The results as messages for the model, with the gateway's advice under the last one */
  readonly answers: readonly Message[];
  /** What the reader is told */
  readonly notices: readonly AgentEventBody[];
}

export interface AfterToolsOptions {
  readonly results: readonly CallResult[];
  readonly verdict: LoopVerdict;
  /** Whether another turn of the model follows */
  readonly goesOn: boolean;
  /** The turn just done, from 1 */
  readonly turn: number;
  /** Tool calls that may still run; below 1: none */
  readonly callsLeft: number;
  readonly limits: AgentLimits;
}

/** Puts the results into messages; a repeated call and a reached limit are told to the model and to the reader. */
export function afterTools({ results, verdict, goesOn, turn, callsLeft, limits }: AfterToolsOptions): AfterTools {
  const advice: string[] = [];
  const notices: AgentEventBody[] = [];
  if (verdict.kind === "warn") {
    advice.push(`You repeated yourself: ${verdict.what}. Do something else, or answer with what you have.`);
    notices.push({ type: "notice", code: "loop_warning", message: `The model repeats itself: ${verdict.what}` });
  }
  const noCalls = callsLeft < 1;
  if (goesOn && (noCalls || turn >= limits.maxIterations)) {
    const limit = noCalls ? `${limits.maxToolCalls} tool calls` : `${limits.maxIterations} turns`;
    const code = noCalls ? "max_tool_calls" : "max_iterations";
    advice.push(
      `The limit of ${limit} for one run is reached. Answer now with what you have; no tool can be called any more.`,
    );
    notices.push({
      type: "notice",
      code,
      message: `The limit of ${limit} is reached: one last turn without tools follows`,
    });
  }
  const answers = results.map((result, i): Message => {
    const lines = i === results.length - 1 ? advice.map((line) => `[Postern] ${line}`) : [];
    const content = [result.content, ...lines].join("\n\n");
    const message: Message = { role: "tool", tool_call_id: result.call.id, content };
    return result.isError ? { ...message, is_error: true } : message;
  });
  return { answers, notices };
}
