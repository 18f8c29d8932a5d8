import type { AgentEvent, FinishReason } from "../../lib/base/records/agent_event.ts";
import type { ToolCall } from "../../lib/base/records/message.ts";
import type { Usage } from "../../lib/base/records/usage.ts";
import type { RunHandle } from "../../lib/runs/run_request.ts";
import { cancelOnAbort } from "./cancel_on_abort.ts";
import { endedInSilence, runFailure } from "./run_failure.ts";

/** A run's whole answer, for replies that are not streamed. */
export interface CollectedReply {
  readonly text: string;
  readonly reasoning: string;
  readonly refusal: string;
  /** Calls to the client's tools, in the order of their index */
  readonly toolCalls: readonly ToolCall[];
  readonly finishReason: FinishReason;
  /** Parameters of the request that the provider has nothing for */
  readonly ignored: readonly string[];
  readonly usage: Usage;
}

/**
 * Reads a run to its end: the reply without streaming is a collector over the same events (DESIGN.md section 1).
 * @param signal cancels the run with its reason when it aborts; undefined for work that outlives its client
 * @throws {HttpError | ProviderError | CancelError} the run failed
 */
export async function collectReply(handle: RunHandle, signal: AbortSignal | undefined): Promise<CollectedReply> {
  const unwatch = cancelOnAbort(handle, signal);
  const collector = createCollector();
  try {
    for await (const events of handle.events()) {
      for (const event of events) collector.add(event);
    }
  } finally {
    unwatch();
  }
  const end = collector.end();
  if (end?.type === "done") return collector.reply(end);
  throw end === undefined ? endedInSilence() : runFailure(end);
}

/** What the model said to the person: its text, or its refusal where it said nothing else. */
export function spokenText(reply: CollectedReply): string {
  return reply.text === "" ? reply.refusal : reply.text;
}

type EndEvent = Extract<AgentEvent, { type: "done" | "error" }>;

interface PartialReply {
  text: string;
  reasoning: string;
  refusal: string;
  calls: { id: string; name: string; arguments: string }[];
}

function createCollector() {
  let partial: PartialReply = { text: "", reasoning: "", refusal: "", calls: [] };
  // What stood before the running turn: an interrupted turn is asked again from there
  let before = copy(partial);
  let end: EndEvent | undefined;
  const ignored = new Set<string>();
  return {
    add(event: AgentEvent): void {
      switch (event.type) {
        case "text_delta":
          partial.text += event.delta;
          break;
        case "reasoning_delta":
          partial.reasoning += event.delta;
          break;
        case "refusal_delta":
          partial.refusal += event.delta;
          break;
        case "client_tool_call_delta": {
          const call = (partial.calls[event.index] ??= { id: event.call_id, name: "", arguments: "" });
          if (event.name !== undefined) call.name = event.name;
          call.arguments += event.arguments_delta;
          break;
        }
        case "notice":
          if (event.param !== undefined) ignored.add(event.param);
          break;
        case "turn_start":
          before = copy(partial);
          break;
        case "turn_restart":
          partial = copy(before);
          break;
        case "done":
        case "error":
          end = event;
          break;
      }
    },
    end: () => end,
    reply: (done: Extract<EndEvent, { type: "done" }>): CollectedReply => ({
      text: partial.text,
      reasoning: partial.reasoning,
      refusal: partial.refusal,
      toolCalls: partial.calls.filter(Boolean).map((call) => ({
        id: call.id,
        type: "function",
        function: { name: call.name, arguments: call.arguments },
      })),
      finishReason: done.finish_reason,
      ignored: [...ignored],
      usage: done.usage,
    }),
  };
}

function copy(partial: PartialReply): PartialReply {
  return { ...partial, calls: partial.calls.map((call) => ({ ...call })) };
}
