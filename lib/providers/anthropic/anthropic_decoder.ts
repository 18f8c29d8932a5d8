import { isRecord } from "../../base/json.ts";
import type { FinishReason } from "../../base/records/agent_event.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";
import type { Usage } from "../../base/records/usage.ts";
import { ARGUMENTS_REPEATED, CallArguments } from "../upstream/call_arguments.ts";
import { countOf, fieldsBeside, type JsonRecord, stringOf } from "../upstream/json_reading.ts";
import { toThoughtDetail } from "./thought_details.ts";
import type { TurnDecoder } from "../upstream/upstream_http.ts";
import { brokenReply, toUpstreamError, type Upstream } from "../upstream/upstream_error.ts";

const REASONS: ReadonlyMap<string, FinishReason> = new Map(Object.entries({
  end_turn: "stop",
  stop_sequence: "stop",
  pause_turn: "stop",
  max_tokens: "length",
  model_context_window_exceeded: "length",
  tool_use: "tool_calls",
  refusal: "content_filter",
}));

/** Fields of a usage that the gateway reads. */
const COUNTS: ReadonlySet<string> = new Set([
  "input_tokens",
  "output_tokens",
  "cache_read_input_tokens",
  "cache_creation_input_tokens",
]);

/** Fields of the event at the end of a message that the gateway reads. */
const ENDINGS: ReadonlySet<string> = new Set(["type", "delta", "usage"]);
/** Fields of a whole message that it reads, or says by itself. */
const MESSAGE_FIELDS: ReadonlySet<string> = new Set(["id", "type", "role", "model", "content", "usage"]);

/** Returns a block without the text that follows as deltas. */
function asItBegins(type: string, block: JsonRecord): JsonRecord {
  if (type === "text") return { ...block, text: "" };
  return type === "thinking" ? { ...block, thinking: "" } : block;
}

/** Tells whether a delta has an event of its own. The arguments of a server's own tool have none. */
function isTold({ type }: JsonRecord, block: OpenBlock | undefined): boolean {
  if (type === "input_json_delta") return block !== undefined && block.call >= 0;
  return type === "text_delta" || type === "thinking_delta";
}

interface OpenBlock {
  readonly type: string;
  /** Place among the tool calls; -1 for other blocks */
  readonly call: number;
  /** The call's input when the block began with it, used when no part of it follows */
  readonly input: string;
  readonly given: CallArguments;
  /** A thinking block as the next request returns it */
  readonly opaque: Record<string, unknown> | undefined;
}

/** Types of the marks in the `opaque` of a turn whose thinking goes on behind other blocks: their order may not change. */
export const TEXT_MARK = "postern_text";
export const CALL_MARK = "postern_call";

/** Mark of a text with its UTF-16 units, or of a call. */
type OrderMark = { readonly type: typeof TEXT_MARK; units: number } | { readonly type: typeof CALL_MARK };

/** Options of `AnthropicDecoder`. */
interface AnthropicDecoderOptions {
  /** Events at the head of the stream. Default: none */
  readonly notices?: readonly ProviderEvent[];
  /**
   * Gives what a client of the same format is told beside texts, thinking and calls, as `reply_fields`: each block as it begins, deltas of
   * other kinds, and what ends the message. Default false
   */
  readonly givesBlocks?: boolean;
  /** Gives thinking at the beginning of a turn with its signature, as `reply_fields` of a chat completion. Default false */
  readonly givesDetails?: boolean;
}

/**
 * Decodes one turn of the Messages API. Thinking blocks with their signatures are the `opaque` of `finish`. Prompt tokens include
 * those read from and written to the cache.
 * Source: https://docs.anthropic.com/en/api/messages-streaming
 */
export class AnthropicDecoder implements TurnDecoder {
  readonly #upstream: Upstream;
  /** Notices for the head of the stream, until they are given */
  #waiting: readonly ProviderEvent[];
  readonly #blocks = new Map<unknown, OpenBlock>();
  /** Thinking blocks, and marks for what stands before a later one of them */
  readonly #opaque: Record<string, unknown>[] = [];
  /** Marks of what came after the last thinking block */
  #marks: OrderMark[] = [];
  #calls = 0;
  #model: string | undefined;
  #reason: string | undefined;
  #input: number | undefined;
  #output: number | undefined;
  /** Prompt tokens read from and written to the cache, as far as the vendor says */
  #cached: Record<string, number> | undefined;
  /** The usage came with or after the stop reason: that of the beginning counts one token of the output */
  #isSettled = false;
  /** Other figures of the vendor's usage */
  #figures: Record<string, unknown> | undefined;
  #empty = true;

  readonly #givesBlocks: boolean;
  readonly #givesDetails: boolean;

  constructor(
    upstream: Upstream,
    { notices = [], givesBlocks = false, givesDetails = false }: AnthropicDecoderOptions = {},
  ) {
    this.#upstream = upstream;
    this.#waiting = notices;
    this.#givesBlocks = givesBlocks;
    this.#givesDetails = givesDetails;
  }

  push(data: string, out: ProviderEvent[]): boolean {
    this.#giveNotices(out);
    const event = this.#parse(data);
    switch (event["type"]) {
      case "message_start":
        this.#readMessage(event["message"]);
        return false;
      case "content_block_start":
        this.#startBlock(event["index"], event["content_block"], out);
        return false;
      case "content_block_delta":
        if (isRecord(event["delta"])) this.#changeBlock(this.#blocks.get(event["index"]), event["delta"], out);
        return false;
      case "content_block_stop":
        this.#stopBlock(event["index"], out);
        return false;
      case "message_delta":
        if (isRecord(event["delta"])) {
          this.#reason = stringOf(event["delta"]["stop_reason"]) ?? this.#reason;
          this.#giveEnding(fieldsBeside(event, ENDINGS), event["delta"], out);
        }
        this.#isSettled = this.#reason !== undefined && this.#readUsage(event["usage"]);
        return false;
      case "message_stop":
        if (this.#reason === undefined) throw brokenReply(this.#upstream, "it ended without a stop reason");
        this.#finish(out);
        return true;
      case "error":
        throw toUpstreamError(this.#upstream, { status: 200, body: data });
      default:
        // ping, and the event types to come: the vendor asks clients to skip unknown types
        return false;
    }
  }

  complete(): "no" | "soon" | "yes" {
    if (this.#reason === undefined) return "no";
    return this.#isSettled ? "yes" : "soon";
  }

  end(rest: string | undefined, out: ProviderEvent[]): void {
    try {
      if (rest !== undefined && this.push(rest, out)) return;
    } catch (error) {
      if (this.#reason === undefined || !(error instanceof Error && error.cause instanceof SyntaxError)) throw error;
    }
    if (this.#reason === undefined) {
      throw brokenReply(this.#upstream, "its stream ended before the reply was complete");
    }
    this.#finish(out);
  }

  whole(body: string, out: ProviderEvent[]): void {
    this.#giveNotices(out);
    const parsed = this.#parse(body);
    if (parsed["type"] === "error") throw toUpstreamError(this.#upstream, { status: 200, body });
    if (!Array.isArray(parsed["content"])) throw brokenReply(this.#upstream, "it holds no message");
    this.#readMessage(parsed);
    for (const [index, block] of parsed["content"].entries()) {
      this.#startBlock(index, block, out);
      this.#stopBlock(index, out);
    }
    this.#giveEnding(undefined, fieldsBeside(parsed, MESSAGE_FIELDS) ?? {}, out);
    this.#finish(out);
  }

  #giveNotices(out: ProviderEvent[]): void {
    out.push(...this.#waiting);
    this.#waiting = [];
  }

  /** Gives the fields that end the message: those of the event, and those of its delta. */
  #giveEnding(beside: Record<string, unknown> | undefined, delta: JsonRecord, out: ProviderEvent[]): void {
    if (this.#givesBlocks) out.push({ type: "reply_fields", reply: { ...beside, ...delta } });
  }

  #parse(data: string): JsonRecord {
    let parsed: unknown;
    try {
      parsed = JSON.parse(data);
    } catch (cause) {
      throw brokenReply(this.#upstream, "it contains something that is no JSON", cause);
    }
    if (!isRecord(parsed)) throw brokenReply(this.#upstream, "its stream contains something that is no object");
    return parsed;
  }

  #readMessage(message: unknown): void {
    if (!isRecord(message)) return;
    this.#model = stringOf(message["model"]) ?? this.#model;
    this.#reason = stringOf(message["stop_reason"]) ?? this.#reason;
    this.#readUsage(message["usage"]);
  }

  /** Returns whether it tells the tokens of the output. */
  #readUsage(usage: unknown): boolean {
    if (!isRecord(usage)) return false;
    const prompt = countOf(usage["input_tokens"]);
    const read = countOf(usage["cache_read_input_tokens"]) ?? 0;
    const written = countOf(usage["cache_creation_input_tokens"]) ?? 0;
    if (prompt !== undefined) this.#input = prompt + read + written;
    if (read + written > 0) this.#cached = { cached_tokens: read, cache_write_tokens: written };
    this.#output = countOf(usage["output_tokens"]) ?? this.#output;
    const figures = fieldsBeside(usage, COUNTS);
    if (figures !== undefined) this.#figures = { ...this.#figures, ...figures };
    return countOf(usage["output_tokens"]) !== undefined;
  }

  #startBlock(index: unknown, block: unknown, out: ProviderEvent[]): void {
    if (!isRecord(block)) return;
    const type = stringOf(block["type"]) ?? "";
    const opaque = type === "thinking" || type === "redacted_thinking" ? { ...block } : undefined;
    if (opaque !== undefined) {
      this.#opaque.push(...this.#marks, opaque);
      this.#marks = [];
    }
    const given = isRecord(block["input"]) && Object.keys(block["input"]).length > 0 ? block["input"] : {};
    if (this.#givesBlocks) out.push({ type: "reply_fields", message: { content_block: asItBegins(type, block) } });
    const call = type === "tool_use" ? this.#calls++ : -1;
    this.#blocks.set(index, { type, call, input: JSON.stringify(given), given: new CallArguments(), opaque });
    if (call >= 0) this.#pushCall(call, block, out);
    const text = stringOf(block["text"]);
    if (type === "text" && text !== undefined) this.#pushText(text, out);
    const thinking = stringOf(block["thinking"]);
    if (type === "thinking" && thinking !== undefined) out.push({ type: "reasoning_delta", delta: thinking });
  }

  #pushCall(index: number, block: JsonRecord, out: ProviderEvent[]): void {
    this.#empty = false;
    this.#marks.push({ type: CALL_MARK });
    const call_id = stringOf(block["id"]) ?? `call_${index}`;
    const name = stringOf(block["name"]) ?? "";
    out.push({ type: "tool_call_delta", index, call_id, name, arguments_delta: "" });
  }

  #pushText(delta: string, out: ProviderEvent[]): void {
    this.#empty = false;
    this.#markText(delta.length);
    out.push({ type: "text_delta", delta });
  }

  #markText(units: number): void {
    const last = this.#marks.at(-1);
    if (last?.type === TEXT_MARK) last.units += units;
    else this.#marks.push({ type: TEXT_MARK, units });
  }

  #changeBlock(block: OpenBlock | undefined, change: JsonRecord, out: ProviderEvent[]): void {
    const text = stringOf(change["text"]);
    if (change["type"] === "text_delta" && text !== undefined) return this.#pushText(text, out);
    const json = stringOf(change["partial_json"]);
    if (change["type"] === "input_json_delta" && json !== undefined && block !== undefined && block.call >= 0) {
      const delta = block.given.take(json);
      if (delta !== "") out.push({ type: "tool_call_delta", index: block.call, arguments_delta: delta });
    }
    if (this.#givesBlocks && !isTold(change, block)) out.push({ type: "reply_fields", message: { delta: change } });
    const thinking = stringOf(change["thinking"]);
    if (change["type"] === "thinking_delta" && thinking !== undefined) {
      if (block?.opaque !== undefined) block.opaque["thinking"] = `${block.opaque["thinking"] ?? ""}${thinking}`;
      out.push({ type: "reasoning_delta", delta: thinking });
    }
    const signature = stringOf(change["signature"]);
    if (change["type"] === "signature_delta" && signature !== undefined && block?.opaque !== undefined) {
      block.opaque["signature"] = `${block.opaque["signature"] ?? ""}${signature}`;
    }
  }

  #stopBlock(index: unknown, out: ProviderEvent[]): void {
    const block = this.#blocks.get(index);
    this.#blocks.delete(index);
    if (block?.opaque !== undefined && this.#givesDetails && this.#empty) {
      const reasoning_details = [toThoughtDetail(block.opaque, this.#opaque.length - 1)];
      out.push({ type: "reply_fields", message: { reasoning_details }, provider: this.#upstream.name });
    }
    if (block === undefined || block.call < 0) return;
    const held = block.given.text === "" ? block.input : block.given.finish();
    if (held !== "") out.push({ type: "tool_call_delta", index: block.call, arguments_delta: held });
    if (block.given.isCut) out.push({ type: "notice", ...ARGUMENTS_REPEATED });
  }

  #finish(out: ProviderEvent[]): void {
    for (const index of [...this.#blocks.keys()]) this.#stopBlock(index, out);
    const known = REASONS.get(this.#reason ?? "");
    if (known === undefined) {
      const message = `The provider gave the stop reason "${this.#reason ?? ""}"`;
      out.push({ type: "notice", code: "finish_reason_unknown", message });
    }
    if (this.#empty) {
      const message = "The provider's reply has neither text nor a tool call";
      out.push({ type: "notice", code: "empty_reply", message });
    }
    out.push({
      type: "finish",
      finish_reason: known ?? (this.#calls > 0 ? "tool_calls" : "stop"),
      usage: this.#usage(),
      ...(this.#model === undefined ? {} : { model: this.#model }),
      ...(this.#opaque.length === 0 ? {} : { opaque: this.#opaque, provider: this.#upstream.name }),
    });
  }

  #usage(): Usage | undefined {
    if (this.#input === undefined || this.#output === undefined) return undefined;
    return {
      prompt_tokens: this.#input,
      completion_tokens: this.#output,
      total_tokens: this.#input + this.#output,
      ...(this.#cached === undefined ? {} : { prompt_tokens_details: this.#cached }),
      ...(this.#figures === undefined ? {} : { vendor: this.#figures }),
    };
  }
}
