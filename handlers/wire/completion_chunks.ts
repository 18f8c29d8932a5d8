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
 * `[DONE]`. Chunks of text are a prefix and a suffix made once a reply around one JSON string. Tool calls of the agent, notices and
 * the like have no place in this format and give no text, but a notice of a fallback changes the chunks' `model`; reasoning goes out as `reasoning_content`, as the field does it.
 * Source: the chat-completions streaming format
 */
export class CompletionChunks implements EventEncoder {
  ended = false;
  /** Before the choices of each chunk */
  #head: string;
  /** What stands around a delta's text. In one piece each: a text put together by + is put together anew at every chunk */
  #content: string;
  readonly #close: string;
  /** Indexes of the client's calls that were told of; made with the first */
  #told: Set<number> | undefined = undefined;
  #lastDelta = 0;
  readonly #options: CompletionChunksOptions;

  constructor(options: CompletionChunksOptions) {
    this.#options = options;
    this.#head = headOf(options, options.model);
    this.#content = [this.#open, CONTENT].join("");
    this.#close = options.includeUsage ? CLOSE_WITH_USAGE : CLOSE;
  }

  start(): string {
    return `${this.#open}"role":"assistant",${CONTENT}""${this.#close}`;
  }

  encode(events: readonly AgentEvent[]): string {
    let text = "";
    for (let i = 0; i < events.length && !this.ended; i++) {
      // The index is below the length
      const event = events[i] as AgentEvent;
      switch (event.type) {
        case "text_delta":
          text += this.#content + JSON.stringify(event.delta) + this.#close;
          this.#lastDelta = event.seq;
          break;
        case "reasoning_delta":
          text += `${this.#open}"reasoning_content":${JSON.stringify(event.delta)}${this.#close}`;
          this.#lastDelta = event.seq;
          break;
        case "refusal_delta":
          text += `${this.#open}"refusal":${JSON.stringify(event.delta)}${this.#close}`;
          this.#lastDelta = event.seq;
          break;
        case "client_tool_call_delta":
          text += this.#toolCall(event);
          this.#lastDelta = event.seq;
          break;
        case "turn_restart":
          // What was sent cannot be taken back in this format: an honest error instead of a doubled text
          if (event.from_seq <= this.#lastDelta || this.#options.interrupts?.(event.turn)) {
            const { seq, time } = event;
            text += this.fail(this.#options.toError({ seq, time, type: "error", ...RESTARTED }));
          }
          break;
        case "notice":
          // Another model answers from here on
          if (event.model === undefined) break;
          this.#head = headOf(this.#options, event.model);
          this.#content = [this.#open, CONTENT].join("");
          break;
        case "done":
          text += this.#done(event);
          break;
        case "error":
          text += this.fail(this.#options.toError(event));
          break;
      }
    }
    return text;
  }

  fail(error: HttpError): string {
    this.ended = true;
    return `data: ${JSON.stringify(errorBody(error))}\n\ndata: [DONE]\n\n`;
  }

  get #open(): string {
    return `${this.#head}{"index":0,"delta":{`;
  }

  #toolCall({ index, call_id, name = "", arguments_delta }: ClientCallDelta): string {
    const told = (this.#told ??= new Set());
    const isFirst = !told.has(index);
    told.add(index);
    const head = isFirst ? `"id":${JSON.stringify(call_id)},"type":"function",` : "";
    const named = isFirst ? `"name":${JSON.stringify(name)},` : "";
    const call = `{"index":${index},${head}"function":{${named}"arguments":${JSON.stringify(arguments_delta)}}}`;
    return `${this.#open}"tool_calls":[${call}]${this.#close}`;
  }

  #done(event: Extract<AgentEvent, { type: "done" }>): string {
    this.ended = true;
    const { includeUsage } = this.#options;
    const noUsage = includeUsage ? NO_USAGE : "";
    const last = `${this.#open}},"finish_reason":"${event.finish_reason}"}]${noUsage}}\n\n`;
    const usage = includeUsage ? `${this.#head}],"usage":${JSON.stringify(event.usage)}}\n\n` : "";
    return `${last}${usage}data: [DONE]\n\n`;
  }
}

function headOf({ id, created }: CompletionHead, model: string): string {
  return [
    `data: {"id":${JSON.stringify(id)},"object":"chat.completion.chunk","created":${created},`,
    `"model":${JSON.stringify(model)},"choices":[`,
  ].join("");
}

type ClientCallDelta = Extract<AgentEvent, { type: "client_tool_call_delta" }>;

const CONTENT = `"content":`;
const NO_USAGE = `,"usage":null`;
const CLOSE = `},"finish_reason":null}]}\n\n`;
const CLOSE_WITH_USAGE = `},"finish_reason":null}]${NO_USAGE}}\n\n`;

const RESTARTED = {
  code: "run_interrupted",
  message:
    "Cannot continue this stream: the gateway stopped after a part of the model's turn had been sent, and the turn was " +
    'asked again; the whole answer is the result of the run, which has this stream\'s id with "run_" for "chatcmpl-"',
};
