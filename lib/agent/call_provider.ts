import { textOf } from "../base/records/message.ts";
import { NO_USAGE } from "../base/records/usage.ts";
import type { Provider } from "../providers/provider.ts";

/** A tool call that is the whole work of a run. */
export interface SingleCall {
  readonly tool: string;
  /** JSON object as text, or the tool's plain-text form */
  readonly input: string;
  /** As `approvedDigest` of ToolCallRequest. Default: no person approved the call beforehand */
  readonly digest?: string | undefined;
}

/** Model name that such a run shows. */
export const CALL_MODEL = "postern/tool";

/** The tool's error, which ends the run with code `tool_failed`. */
export class CallFailed extends Error {
  override readonly name = "CallFailed";
}

/**
 * A model that asks for this one call and answers with what it gave, so that a call alone goes the way of all calls: loop, executor,
 * policy, approvals and journal. It keeps nothing between turns: a resumed run ends as it would have.
 * @param refusal why the run has no such tool; undefined when it has
 */
export function createCallProvider(call: SingleCall, refusal: string | undefined): Provider {
  return {
    name: "postern",
    async *stream({ messages }) {
      if (refusal !== undefined) throw new CallFailed(refusal);
      const last = messages.at(-1);
      if (last?.role !== "tool") {
        yield [
          { type: "tool_call_delta", index: 0, name: call.tool, arguments_delta: call.input },
          { type: "finish", finish_reason: "tool_calls", usage: NO_USAGE },
        ];
        return;
      }
      const output = textOf(last.content);
      if (last.is_error === true) throw new CallFailed(output);
      yield [
        { type: "text_delta", delta: output },
        { type: "finish", finish_reason: "stop", usage: NO_USAGE },
      ];
    },
    listModels: () => Promise.resolve([]),
    close: () => Promise.resolve(),
  };
}
