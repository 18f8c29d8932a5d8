import { redactJson } from "../../base/redact.ts";
import type { TimeLimit } from "./time_limit.ts";
import type { PreparedCall, Tool, ToolContext } from "./tool.ts";
import type { ElicitationAnswer } from "./tool_call.ts";
import type { ToolCallRequest } from "./tool_executor.ts";

/** Call that is running, and its time limit. */
export interface ElicitingCall {
  readonly tool: Tool;
  readonly prepared: PreparedCall;
  readonly request: ToolCallRequest;
  readonly limit: TimeLimit;
  readonly signal: AbortSignal;
}

/** Questions that the server of one call may ask: more of them are an attack on the patience of a person. */
const MAX_ELICITATIONS = 16;

/**
 * Returns the function by which a running call asks a person for its server, one question after the other.
 * @returns undefined when nobody can be asked
 */
export function createElicitor(
  { redact, workspaceRoot }: { readonly redact: (text: string) => string; readonly workspaceRoot: string },
  { tool, prepared, request, limit, signal }: ElicitingCall,
): ToolContext["elicit"] {
  const { approver, caller, runId, callId, requestId } = request;
  const { elicit } = approver;
  if (elicit === undefined) return undefined;
  let asked = 0;
  let last: Promise<unknown> = Promise.resolve();
  return (elicitation, { signal: wanted = signal } = {}) => {
    if (++asked > MAX_ELICITATIONS) {
      const reason = `one call may ask ${MAX_ELICITATIONS} questions, and its server has asked more`;
      return Promise.resolve<ElicitationAnswer>({ action: "cancel", reason });
    }
    const answer = limit.pause(() =>
      last.then(() =>
        elicit({
          elicitation,
          tool: tool.name,
          access: prepared.access,
          input: redactJson(prepared.input, redact),
          inputDigest: prepared.digest,
          workspaceRoot,
          caller,
          runId,
          callId,
          requestId,
        }, wanted)
      )
    );
    last = answer.catch(() => {});
    return answer;
  };
}
