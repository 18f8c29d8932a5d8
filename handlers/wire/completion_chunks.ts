import type { HttpError } from "../../lib/base/errors.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { CompletionHead } from "./completion_object.ts";
import type { EventEncoder } from "./event_stream.ts";
import { errorBody } from "./to_http_error.ts";

export interface CompletionChunksOptions extends CompletionHead {
  /** `stream_options.include_usage`: a last chunk with the usage, and `"usage":null` in the others */
  readonly includeUsage: boolean;
  /** Whether an earlier stream of this run may have shown text of a turn that is asked again. Default: none did */
  readonly interrupts?: ((turn: number) => boolean) | undefined;
  /** The error shape of a run's `error` event */
  readonly toError: (event: Extract<AgentEvent, { type: "error" }>) => HttpError;
}

/**
 * Events as chunks of a streamed completion (DESIGN.md section 3): the role first, deltas, the reason, the usage if asked,
 * `[DONE]`. Chunks are a prefix and a suffix made once a reply around one JSON string. Tool calls of the agent, notices and
 * the like have no place in this format and give no text; reasoning goes out as `reasoning_content`, as the field does it.
 * Source: the chat-completions streaming format
 */
export function createCompletionChunks(options: CompletionChunksOptions): EventEncoder {
  const head = `data: {"id":${
    JSON.stringify(options.id)
  },"object":"chat.completion.chunk","created":${options.created},"model":${JSON.stringify(options.model)},"choices":[`;
  const noUsage = options.includeUsage ? `,"usage":null` : "";
  const open = `${head}{"index":0,"delta":{`;
  const close = `},"finish_reason":null}]${noUsage}}\n\n`;
  const content = `${open}"content":`;
  const reasoning = `${open}"reasoning_content":`;
  const refusal = `${open}"refusal":`;
  const toolCalls = `${open}"tool_calls":[`;
  const known = new Set<number>();
  let lastDelta = 0;
  let ended = false;

  const toolCall = (event: Extract<AgentEvent, { type: "client_tool_call_delta" }>) => {
    const args = JSON.stringify(event.arguments_delta);
    if (known.has(event.index)) return `${toolCalls}{"index":${event.index},"function":{"arguments":${args}}}]${close}`;
    known.add(event.index);
    const id = JSON.stringify(event.call_id);
    const name = JSON.stringify(event.name ?? "");
    return `${toolCalls}{"index":${event.index},"id":${id},"type":"function","function":{"name":${name},"arguments":${args}}}]${close}`;
  };
  const fail = (error: HttpError) => {
    ended = true;
    return `data: ${JSON.stringify(errorBody(error))}\n\ndata: [DONE]\n\n`;
  };
  const done = (event: Extract<AgentEvent, { type: "done" }>) => {
    ended = true;
    const last = `${open}},"finish_reason":"${event.finish_reason}"}]${noUsage}}\n\n`;
    const usage = options.includeUsage ? `${head}],"usage":${JSON.stringify(event.usage)}}\n\n` : "";
    return `${last}${usage}data: [DONE]\n\n`;
  };

  return {
    start: () => `${open}"role":"assistant","content":""${close}`,
    encode(events) {
      let text = "";
      for (let i = 0; i < events.length && !ended; i++) {
        // The index is below the length
        const event = events[i] as AgentEvent;
        switch (event.type) {
          case "text_delta":
            text += content + JSON.stringify(event.delta) + close;
            lastDelta = event.seq;
            break;
          case "reasoning_delta":
            text += reasoning + JSON.stringify(event.delta) + close;
            lastDelta = event.seq;
            break;
          case "refusal_delta":
            text += refusal + JSON.stringify(event.delta) + close;
            lastDelta = event.seq;
            break;
          case "client_tool_call_delta":
            text += toolCall(event);
            lastDelta = event.seq;
            break;
          case "turn_restart":
            // What was sent cannot be taken back in this format: an honest error instead of a doubled text
            if (event.from_seq <= lastDelta || options.interrupts?.(event.turn)) {
              text += fail(options.toError({ seq: event.seq, time: event.time, type: "error", ...RESTARTED }));
            }
            break;
          case "done":
            text += done(event);
            break;
          case "error":
            text += fail(options.toError(event));
            break;
        }
      }
      return text;
    },
    fail,
    ended: () => ended,
  };
}

const RESTARTED = {
  code: "run_interrupted",
  message:
    "Cannot continue this stream: the gateway stopped after a part of the model's turn had been sent, and the turn was " +
    'asked again; the whole answer is the result of the run, which has this stream\'s id with "run_" for "chatcmpl-"',
};
