import { isRecord, isWholeJson } from "../../../lib/base/json.ts";
import type { AgentEvent, FinishReason } from "../../../lib/base/records/agent_event.ts";
import { type Fields, joinFields } from "../../../lib/base/join_fields.ts";
import type { Usage } from "../../../lib/base/records/usage.ts";
import { seal } from "../sealed_fields.ts";

/** Event of a message between its start and its end, in the form of the Messages API. */
export type BlockEvent =
  | { readonly type: "content_block_start"; readonly index: number; readonly content_block: Fields }
  | { readonly type: "content_block_delta"; readonly index: number; readonly delta: Fields }
  | { readonly type: "content_block_stop"; readonly index: number };

/** Call whose arguments are on their way. */
interface OpenCall {
  readonly index: number;
  readonly id: string;
  readonly name: string;
  readonly block: Fields | undefined;
  /** Arguments so far */
  given: string;
  /** Parts that wait until the call before has all of its arguments */
  waiting: string[];
}

type SaidType = keyof typeof EMPTY;
type CallDelta = Extract<AgentEvent, { type: "client_tool_call_delta" }>;

/**
 * Puts what a model says into content blocks, one after the other: text, thinking and calls to the client's tools. Where the model's server
 * speaks the same format, its own blocks come as `reply_fields` and are told as they are, with their signatures.
 *
 * Clients expect one open block. So a call whose arguments come while those of the one before it are not whole waits for them, and so does
 * what is said in the middle of a call.
 * Source: https://docs.anthropic.com/en/api/messages-streaming
 */
export class MessageBlocks {
  /** Stop reason, and fields beside it, as the server of the same format gave them */
  ending: Fields = {};
  /** The model refused in words of its own */
  isRefused = false;
  /** The server speaks the same format */
  isNative = false;
  #count = 0;
  /** Type of the open block. undefined: none is open */
  #open: string | undefined = undefined;
  /** The open block is whole */
  #isSigned = false;
  /** The vendor's own parts of the turn's thinking */
  #thought: Fields | undefined = undefined;
  /** Block that the server has begun, for the event that follows */
  #begun: Fields | undefined = undefined;
  /** Calls that are not told whole, the open one first */
  #calls: OpenCall[] = [];
  /** Deltas that came in the middle of a call, and are told behind it */
  #saidMeanwhile: { readonly type: SaidType; readonly delta: Fields }[] = [];
  /** Calls that were begun: the index behind the last of them */
  #toldCalls = 0;

  /** Index of the block of text that a delta goes on with as it comes; undefined: none is open, or a call comes first */
  get openText(): number | undefined {
    return this.#open === "text" && this.#calls.length === 0 ? this.#count - 1 : undefined;
  }

  /** Pushes the block events of one event of the run. */
  add(event: AgentEvent, out: BlockEvent[]): void {
    switch (event.type) {
      case "refusal_delta":
        this.isRefused = true;
        return this.#say("text", { type: "text_delta", text: event.delta }, out);
      case "text_delta":
        return this.#say("text", { type: "text_delta", text: event.delta }, out);
      case "reasoning_delta":
        return this.#say("thinking", { type: "thinking_delta", thinking: event.delta }, out);
      case "client_tool_call_delta":
        return this.#addToCall(event, out);
      case "reply_fields":
        return event.message?.["reasoning_details"] === undefined
          ? this.#takeNative(event, out)
          : this.#sign(event, out);
      case "turn_end":
        this.#thought = undefined;
        break;
    }
  }

  /** Closes what is open, at the end of the message. */
  end(out: BlockEvent[]): void {
    this.#endCalls(out);
    this.#close(out);
  }

  #say(type: SaidType, delta: Fields, out: BlockEvent[]): void {
    if (!this.#calls.every(({ given }) => isWholeJson(given))) return void this.#saidMeanwhile.push({ type, delta });
    if (this.#open !== type || this.#isSigned) this.#start({ ...EMPTY[type] }, out);
    this.#delta(delta, out);
  }

  /** Tells the vendor's own parts of thinking, all of the turn so far, as the signature of the block: the last one of a turn counts. */
  #sign({ message = {}, provider }: Extract<AgentEvent, { type: "reply_fields" }>, out: BlockEvent[]): void {
    this.#thought = joinFields(this.#thought, message);
    const sealed = seal({ ...this.#thought, provider });
    if (this.#open === "thinking" && !this.#isSigned) this.#delta({ type: "signature_delta", signature: sealed }, out);
    else this.#start({ type: "redacted_thinking", data: sealed }, out);
    this.#isSigned = true;
  }

  #takeNative({ reply, message }: Extract<AgentEvent, { type: "reply_fields" }>, out: BlockEvent[]): void {
    this.isNative = true;
    if (reply !== undefined) this.ending = { ...this.ending, ...reply };
    const { content_block: block, delta } = message ?? {};
    if (isRecord(block)) {
      // The call's own first delta has the id under which the client answers it
      if (block["type"] === "tool_use") this.#begun = block;
      else this.#start(block, out);
    }
    if (isRecord(delta) && this.#open !== undefined) this.#delta(delta, out);
  }

  #addToCall(event: CallDelta, out: BlockEvent[]): void {
    const { index, arguments_delta: part } = event;
    const call = this.#calls.find((one) => one.index === index) ?? this.#newCall(event, out);
    // Behind a whole call nothing can follow that means anything
    if (call === undefined || part === "") return;
    call.given += part;
    if (call === this.#calls[0]) this.#delta({ type: "input_json_delta", partial_json: part }, out);
    else call.waiting.push(part);
    // Arguments are an object, so that no other part makes them whole
    if (part.trimEnd().endsWith("}")) this.#goOn(out);
  }

  #newCall({ index, call_id: id, name = "" }: CallDelta, out: BlockEvent[]): OpenCall | undefined {
    if (index < this.#toldCalls) return undefined;
    const call: OpenCall = { index, id, name, block: this.#begun, given: "", waiting: [] };
    this.#begun = undefined;
    this.#calls.push(call);
    if (this.#calls[0] === call) this.#tell(call, out);
    else this.#goOn(out);
    return call;
  }

  /** Goes on with the next call as soon as the open one is whole, and behind the last one with what was said meanwhile. */
  #goOn(out: BlockEvent[]): void {
    for (
      let [open, next] = this.#calls;
      next !== undefined && isWholeJson(open?.given ?? "");
      [open, next] = this.#calls
    ) {
      this.#calls.shift();
      this.#tell(next, out);
    }
    const [last, next] = this.#calls;
    if (this.#saidMeanwhile.length > 0 && next === undefined && isWholeJson(last?.given ?? "")) this.#endCalls(out);
  }

  /** Tells the calls that wait, as far as they have come, and what was said meanwhile. */
  #endCalls(out: BlockEvent[]): void {
    const [, ...waiting] = this.#calls;
    const said = this.#saidMeanwhile;
    this.#calls = [];
    this.#saidMeanwhile = [];
    for (const call of waiting) this.#tell(call, out);
    for (const { type, delta } of said) this.#say(type, delta, out);
  }

  #tell({ index, id, name, block, waiting }: OpenCall, out: BlockEvent[]): void {
    this.#toldCalls = Math.max(this.#toldCalls, index + 1);
    this.#close(out);
    this.#begin({ ...block, type: "tool_use", id, name, input: {} }, out);
    for (const part of waiting) this.#delta({ type: "input_json_delta", partial_json: part }, out);
  }

  #start(block: Fields, out: BlockEvent[]): void {
    this.#endCalls(out);
    this.#close(out);
    this.#begin(block, out);
  }

  #begin(block: Fields, out: BlockEvent[]): void {
    this.#open = String(block["type"]);
    this.#isSigned = false;
    out.push({ type: "content_block_start", index: this.#count++, content_block: block });
  }

  #delta(delta: Fields, out: BlockEvent[]): void {
    out.push({ type: "content_block_delta", index: this.#count - 1, delta });
  }

  #close(out: BlockEvent[]): void {
    if (this.#open !== undefined) out.push({ type: "content_block_stop", index: this.#count - 1 });
    this.#open = undefined;
  }
}

/** Blocks as they begin. Thinking that its vendor does not want back has no signature. */
const EMPTY = {
  text: { type: "text", text: "" },
  thinking: { type: "thinking", thinking: "", signature: "" },
} as const;

/** Puts block events together again, as clients of the format do. */
export function toMessageContent(events: readonly BlockEvent[]): readonly Fields[] {
  const content: Record<string, unknown>[] = [];
  let input = "";
  for (const event of events) {
    if (event.type === "content_block_start") {
      content.push({ ...event.content_block });
      input = "";
      continue;
    }
    const block = content[event.index];
    if (block === undefined) continue;
    if (event.type === "content_block_delta") {
      if (event.delta["type"] === "input_json_delta") input += String(event.delta["partial_json"]);
      else addDelta(block, event.delta);
    } else if (input !== "") {
      block["input"] = parseInput(input);
      input = "";
    }
  }
  return content;
}

function addDelta(block: Record<string, unknown>, { type: _, ...delta }: Fields): void {
  for (const [name, value] of Object.entries(delta)) {
    if (name === "citation") {
      block["citations"] = [...(Array.isArray(block["citations"]) ? block["citations"] : []), value];
    } else if (typeof value === "string") block[name] = `${block[name] ?? ""}${value}`;
    else block[name] = value;
  }
}

/** Returns the input of a call; a text that is no JSON object stands under a name of its own, so that nothing of it is lost. */
function parseInput(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    if (isRecord(value)) return value;
  } catch {
    // The arguments that the model wrote are no JSON
  }
  return { invalid_arguments: text };
}

const STOP_REASONS: Readonly<Record<FinishReason, string>> = {
  stop: "end_turn",
  length: "max_tokens",
  tool_calls: "tool_use",
  content_filter: "refusal",
};

/** Returns the fields at the end of a message: its stop reason, and what a server of the same format said beside it. */
export function endingOf({ ending, isRefused }: MessageBlocks, reason: FinishReason): Fields {
  const own = isRefused && reason === "stop" ? "refusal" : STOP_REASONS[reason];
  return { stop_sequence: null, ...ending, stop_reason: ending["stop_reason"] ?? own };
}

/** Returns the usage of a message: tokens of the prompt without those of the cache. */
export function toMessageUsage(usage: Usage, isNative: boolean): Fields {
  const read = Number(usage.prompt_tokens_details?.["cached_tokens"] ?? 0);
  const written = Number(usage.prompt_tokens_details?.["cache_write_tokens"] ?? 0);
  return {
    ...(isNative ? usage.vendor : {}),
    input_tokens: Math.max(0, usage.prompt_tokens - read - written),
    cache_creation_input_tokens: written,
    cache_read_input_tokens: read,
    output_tokens: usage.completion_tokens,
  };
}
