import type { FinishReason } from "../../base/records/agent_event.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";
import type { Usage } from "../../base/records/usage.ts";
import { countOf, isRecord, type JsonRecord, stringOf } from "../upstream/json_reading.ts";
import type { TurnDecoder } from "../upstream/turn_stream.ts";
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

interface OpenBlock {
  readonly type: string;
  /** Place among the tool calls; -1 for other blocks */
  readonly call: number;
  /** The call's input when the block began with it, used when no part of it follows */
  readonly input: string;
  hasInput: boolean;
  /** A thinking block as it goes back */
  readonly opaque: Record<string, unknown> | undefined;
}

/**
 * Decodes one turn of the Messages API. Thinking blocks with their signatures are the `opaque` of `finish`; prompt tokens include
 * those read from and written to the cache.
 * Source: https://docs.anthropic.com/en/api/messages-streaming
 * @param notices told at the head of the stream
 */
export function createAnthropicDecoder(upstream: Upstream, notices: readonly ProviderEvent[] = []): TurnDecoder {
  const blocks = new Map<unknown, OpenBlock>();
  const opaque: Record<string, unknown>[] = [];
  let waiting = notices;
  let calls = 0;
  let model: string | undefined;
  let reason: string | undefined;
  let input: number | undefined;
  let output: number | undefined;
  /** Prompt tokens read from and written to the cache, as far as the vendor says */
  let cached: Record<string, number> | undefined;
  let empty = true;

  const readUsage = (usage: unknown) => {
    if (!isRecord(usage)) return;
    const prompt = countOf(usage["input_tokens"]);
    const read = countOf(usage["cache_read_input_tokens"]) ?? 0;
    const written = countOf(usage["cache_creation_input_tokens"]) ?? 0;
    if (prompt !== undefined) input = prompt + read + written;
    if (read + written > 0) cached = { cached_tokens: read, cache_write_tokens: written };
    output = countOf(usage["output_tokens"]) ?? output;
  };
  const start = (index: unknown, block: unknown, out: ProviderEvent[]) => {
    if (!isRecord(block)) return;
    const type = stringOf(block["type"]) ?? "";
    const keep = type === "thinking" || type === "redacted_thinking" ? { ...block } : undefined;
    if (keep !== undefined) opaque.push(keep);
    const given = isRecord(block["input"]) && Object.keys(block["input"]).length > 0 ? block["input"] : {};
    const call = type === "tool_use" ? calls++ : -1;
    blocks.set(index, { type, call, input: JSON.stringify(given), hasInput: false, opaque: keep });
    if (call >= 0) {
      empty = false;
      const name = stringOf(block["name"]) ?? "";
      out.push({
        type: "tool_call_delta",
        index: call,
        call_id: stringOf(block["id"]) ?? `call_${call}`,
        name,
        arguments_delta: "",
      });
    }
    const text = stringOf(block["text"]);
    if (type === "text" && text !== undefined) pushText(text, out);
    const thinking = stringOf(block["thinking"]);
    if (type === "thinking" && thinking !== undefined) out.push({ type: "reasoning_delta", delta: thinking });
  };
  const pushText = (delta: string, out: ProviderEvent[]) => {
    empty = false;
    out.push({ type: "text_delta", delta });
  };
  const delta = (block: OpenBlock | undefined, change: JsonRecord, out: ProviderEvent[]) => {
    const text = stringOf(change["text"]);
    if (change["type"] === "text_delta" && text !== undefined) return pushText(text, out);
    const json = stringOf(change["partial_json"]);
    if (change["type"] === "input_json_delta" && json !== undefined && block !== undefined && block.call >= 0) {
      block.hasInput = true;
      out.push({ type: "tool_call_delta", index: block.call, arguments_delta: json });
    }
    const thinking = stringOf(change["thinking"]);
    if (change["type"] === "thinking_delta" && thinking !== undefined) {
      if (block?.opaque !== undefined) block.opaque["thinking"] = `${block.opaque["thinking"] ?? ""}${thinking}`;
      out.push({ type: "reasoning_delta", delta: thinking });
    }
    const signature = stringOf(change["signature"]);
    if (change["type"] === "signature_delta" && signature !== undefined && block?.opaque !== undefined) {
      block.opaque["signature"] = `${block.opaque["signature"] ?? ""}${signature}`;
    }
  };
  const stop = (index: unknown, out: ProviderEvent[]) => {
    const block = blocks.get(index);
    blocks.delete(index);
    if (block === undefined || block.call < 0 || block.hasInput) return;
    out.push({ type: "tool_call_delta", index: block.call, arguments_delta: block.input });
  };
  const finish = (out: ProviderEvent[]) => {
    for (const index of [...blocks.keys()]) stop(index, out);
    const known = REASONS.get(reason ?? "");
    if (known === undefined) {
      out.push({
        type: "notice",
        code: "finish_reason_unknown",
        message: `The provider gave the stop reason "${reason ?? ""}"`,
      });
    }
    if (empty) {
      out.push({
        type: "notice",
        code: "empty_reply",
        message: "The provider's reply has neither text nor a tool call",
      });
    }
    const usage: Usage | undefined = input === undefined || output === undefined ? undefined : {
      prompt_tokens: input,
      completion_tokens: output,
      total_tokens: input + output,
      ...(cached === undefined ? {} : { prompt_tokens_details: cached }),
    };
    out.push({
      type: "finish",
      finish_reason: known ?? (calls > 0 ? "tool_calls" : "stop"),
      usage,
      ...(model === undefined ? {} : { model }),
      ...(opaque.length === 0 ? {} : { opaque, provider: upstream.name }),
    });
  };
  const parse = (data: string): JsonRecord => {
    let parsed: unknown;
    try {
      parsed = JSON.parse(data);
    } catch (cause) {
      throw brokenReply(upstream, "it contains something that is no JSON", cause);
    }
    if (!isRecord(parsed)) throw brokenReply(upstream, "its stream contains something that is no object");
    return parsed;
  };
  const message = (value: unknown) => {
    if (!isRecord(value)) return;
    model = stringOf(value["model"]) ?? model;
    reason = stringOf(value["stop_reason"]) ?? reason;
    readUsage(value["usage"]);
  };
  const decoder: TurnDecoder = {
    push(data, out) {
      out.push(...waiting);
      waiting = [];
      const event = parse(data);
      switch (event["type"]) {
        case "message_start":
          message(event["message"]);
          return false;
        case "content_block_start":
          start(event["index"], event["content_block"], out);
          return false;
        case "content_block_delta":
          if (isRecord(event["delta"])) delta(blocks.get(event["index"]), event["delta"], out);
          return false;
        case "content_block_stop":
          stop(event["index"], out);
          return false;
        case "message_delta":
          if (isRecord(event["delta"])) reason = stringOf(event["delta"]["stop_reason"]) ?? reason;
          readUsage(event["usage"]);
          return false;
        case "message_stop":
          if (reason === undefined) throw brokenReply(upstream, "it ended without a stop reason");
          finish(out);
          return true;
        case "error":
          throw toUpstreamError(upstream, { status: 200, body: data });
        default:
          // ping, and the event types to come: the vendor asks clients to skip what they do not know
          return false;
      }
    },
    end(rest, out) {
      try {
        if (rest !== undefined && decoder.push(rest, out)) return;
      } catch (error) {
        if (reason === undefined || !(error instanceof Error && error.cause instanceof SyntaxError)) throw error;
      }
      if (reason === undefined) throw brokenReply(upstream, "its stream ended before the reply was complete");
      finish(out);
    },
    whole(body, out) {
      out.push(...waiting);
      const parsed = parse(body);
      if (parsed["type"] === "error") throw toUpstreamError(upstream, { status: 200, body });
      if (!Array.isArray(parsed["content"])) throw brokenReply(upstream, "it holds no message");
      message(parsed);
      for (const [index, block] of parsed["content"].entries()) {
        start(index, block, out);
        stop(index, out);
      }
      finish(out);
    },
  };
  return decoder;
}
