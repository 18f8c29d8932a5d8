import type { HttpError } from "../../../lib/base/errors.ts";
import type { Fields } from "../../../lib/base/join_fields.ts";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import type { CollectedReply } from "../collect_reply.ts";
import { type EventEncoder, restarted } from "../event_stream.ts";
import type { AnswerHead, StreamHead } from "../answer_by_run.ts";
import { type BlockEvent, endingOf, MessageBlocks, toMessageContent, toMessageUsage } from "./message_blocks.ts";
import { messageErrorBody } from "../http_errors.ts";

/**
 * Returns the JSON reply of a message, from the same blocks that a stream tells.
 * Source: https://docs.anthropic.com/en/api/messages
 */
export function messageJson(head: AnswerHead, reply: CollectedReply): string {
  const blocks = new MessageBlocks();
  const events: BlockEvent[] = [];
  for (const event of reply.said) blocks.add(event, events);
  blocks.end(events);
  return JSON.stringify({
    ...shellOf(head, head.model),
    content: toMessageContent(events),
    ...endingOf(blocks, reply.finishReason),
    usage: toMessageUsage(reply.usage, blocks.isNative),
  });
}

function shellOf({ runId }: AnswerHead, model: string) {
  return { id: `msg_${runId.slice("run_".length)}`, type: "message", role: "assistant", model } as const;
}

/** Options of `MessageStream`. */
export interface MessageStreamOptions extends StreamHead {
  readonly requestId: string;
}

/**
 * Writes events as those of a streamed message, from `message_start` to `message_stop`. Tool calls of the agent, notices and the like have no
 * place in this format. The usage comes at the end: at the beginning nobody knows it.
 * Source: https://docs.anthropic.com/en/api/messages-streaming
 */
export class MessageStream implements EventEncoder {
  ended = false;
  #lastDelta = 0;
  readonly #blocks = new MessageBlocks();
  readonly #options: MessageStreamOptions;

  constructor(options: MessageStreamOptions) {
    this.#options = options;
  }

  start(): string {
    const { firstModel } = this.#options;
    const message = {
      ...shellOf(this.#options, firstModel),
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: NO_TOKENS,
    };
    return eventText({ type: "message_start", message }) + MESSAGE_PING;
  }

  encode(events: readonly AgentEvent[]): string {
    let text = "";
    for (const event of events) {
      if (this.ended) break;
      switch (event.type) {
        case "turn_restart":
          // Sent text cannot be taken back
          if (event.from_seq <= this.#lastDelta || this.#options.interrupts?.(event.turn)) {
            text += this.fail(this.#options.toError(RESTARTED));
          }
          break;
        case "done":
          text += this.#done(event);
          break;
        case "error":
          text += this.fail(this.#options.toError(event));
          break;
        case "text_delta":
          text += this.#say(event);
          break;
        default:
          text += this.#tell(event);
      }
    }
    return text;
  }

  fail(error: HttpError): string {
    this.ended = true;
    return eventText(messageErrorBody(error, this.#options));
  }

  /** Most events are texts that go on in the open block: these need no objects of their own. */
  #say(event: Extract<AgentEvent, { type: "text_delta" }>): string {
    const index = this.#blocks.openText;
    if (index === undefined) return this.#tell(event);
    this.#lastDelta = event.seq;
    return deltaText(index, event.delta);
  }

  #tell(event: AgentEvent): string {
    const out: BlockEvent[] = [];
    this.#blocks.add(event, out);
    if (out.length > 0) this.#lastDelta = event.seq;
    let text = "";
    for (const block of out) text += eventText(block);
    return text;
  }

  #done({ finish_reason, usage }: Extract<AgentEvent, { type: "done" }>): string {
    this.ended = true;
    const out: BlockEvent[] = [];
    this.#blocks.end(out);
    const delta = endingOf(this.#blocks, finish_reason);
    const last = { type: "message_delta", delta, usage: toMessageUsage(usage, this.#blocks.isNative) };
    return out.map(eventText).join("") + eventText(last) + eventText({ type: "message_stop" });
  }
}

function eventText(event: Fields & { readonly type: string }): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}

/** Writes a delta of a text by hand around the text. */
function deltaText(index: number, text: string): string {
  return `${DELTA}${index},"delta":{"type":"text_delta","text":${JSON.stringify(text)}}}\n\n`;
}

const DELTA = 'event: content_block_delta\ndata: {"type":"content_block_delta","index":';

/** Sign of life of the format, in place of comment lines. */
export const MESSAGE_PING = eventText({ type: "ping" });

const NO_TOKENS = {
  input_tokens: 0,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: 0,
  output_tokens: 0,
};

const RESTARTED = restarted("this message", "msg_");
