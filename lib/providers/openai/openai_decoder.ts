import { type Fields, joinFields } from "../../base/join_fields.ts";
import { isRecord } from "../../base/json.ts";
import type { FinishReason } from "../../base/records/agent_event.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";
import type { Usage } from "../../base/records/usage.ts";
import {
  addTexts,
  CHOICE_FIELDS,
  DELTA_FIELDS,
  DeltaTemplate,
  parseData,
  readSingleDelta,
  REPLY_FIELDS,
  returnedFields,
  withContent,
} from "./openai_chunk.ts";
import { fieldsBeside, type JsonRecord, stringOf, usageOf } from "../upstream/json_reading.ts";
import { ToolCallAssembly } from "./tool_call_assembly.ts";
import type { TurnDecoder } from "../upstream/upstream_http.ts";
import { brokenReply, toUpstreamError, type Upstream } from "../upstream/upstream_error.ts";

/** The upstream that answers, and how its reply is decoded. */
export interface OpenAiDecoderOptions {
  readonly upstream: Upstream;
  readonly nextId: () => string;
  /** Cut known chunks out of the text in place of parsing them. Default true; false is for the test that both agree */
  readonly fastScan?: boolean;
  /** Give what is said beside the known fields as `reply_fields`. Default false */
  readonly givesFields?: boolean;
  /** Notices for the head of the reply. Default: none */
  readonly notices?: readonly ProviderEvent[];
}

/** Vendor's parts of an assistant turn that go back with it: fields of the message, and of each of its calls in their order. */
export interface OpenAiOpaque {
  readonly message?: Fields | undefined;
  readonly calls?: readonly (Fields | null)[] | undefined;
}

const REASONS: ReadonlyMap<string, FinishReason> = new Map(Object.entries({
  stop: "stop",
  eos: "stop",
  eos_token: "stop",
  end_turn: "stop",
  stop_sequence: "stop",
  length: "length",
  max_tokens: "length",
  tool_calls: "tool_calls",
  function_call: "tool_calls",
  tool_use: "tool_calls",
  content_filter: "content_filter",
  // z.ai
  model_context_window_exceeded: "length",
  sensitive: "content_filter",
}));
const NONE: readonly ProviderEvent[] = [];
/** Finish reasons of a reply that failed: OpenRouter, z.ai, DeepSeek */
const FAILURES: ReadonlySet<string> = new Set(["error", "network_error", "insufficient_system_resource"]);

/**
 * Decodes one turn of the chat-completions format, streamed or whole, with the quirks of local servers mended and reported as
 * notices, each once a turn.
 */
export class OpenAiDecoder implements TurnDecoder {
  #noticed: Set<string> | undefined = undefined;
  #reason: string | undefined = undefined;
  #usage: Usage | undefined = undefined;
  #model: string | undefined = undefined;
  #empty = true;
  /** The usage came with or after a finish reason that stood alone: some servers give a finish reason with each part */
  #isSettled = false;
  #events = 0;
  // Made when the first call, or the first chunk of a stream comes: most replies need only one of the two, or none
  #calls: ToolCallAssembly | undefined = undefined;
  #template: DeltaTemplate | undefined = undefined;
  #reasoning = "";
  /** Name of the field that the reasoning came in */
  #reasoningName = "reasoning_content";
  /** Fields of the message that go back to the vendor */
  #returned: Fields | undefined = undefined;
  /** JSON of the reply's own fields that were given, by name */
  #given: Map<string, string> | undefined = undefined;
  /** Notices for the head of the reply, until they are given */
  #waiting: readonly ProviderEvent[];
  readonly #givesFields: boolean;
  readonly #upstream: Upstream;
  readonly #nextId: () => string;
  readonly #fastScan: boolean;

  constructor({ upstream, nextId, fastScan = true, givesFields = false, notices = NONE }: OpenAiDecoderOptions) {
    this.#waiting = notices;
    this.#givesFields = givesFields;
    this.#upstream = upstream;
    this.#nextId = nextId;
    this.#fastScan = fastScan;
  }

  push(data: string, out: ProviderEvent[]): boolean {
    this.#events++;
    const scanned = this.#template?.scan(data);
    if (scanned !== undefined) {
      if (scanned.type === "text_delta") this.#empty = false;
      else if (scanned.type === "reasoning_delta") this.#reasoning += scanned.delta;
      out.push(scanned);
      return false;
    }
    if (data === "") return false;
    if (data.trim() === "[DONE]") {
      if (this.#saysNothing()) throw brokenReply(this.#upstream, "its stream is empty");
      this.#finish(out);
      return true;
    }
    for (const parsed of parseData(data, this.#upstream)) {
      const before = out.length;
      this.#chunk(parsed, out);
      const only = out.length === before + 1 ? out[before] : undefined;
      if (this.#fastScan && only !== undefined && readSingleDelta(parsed) !== undefined) {
        (this.#template ??= new DeltaTemplate(readSingleDelta)).learn(data, only);
      }
    }
    return false;
  }

  complete(): "no" | "soon" | "yes" {
    if (this.#reason === undefined) return "no";
    return this.#isSettled ? "yes" : "soon";
  }

  end(rest: string | undefined, out: ProviderEvent[]): void {
    try {
      if (rest !== undefined && this.push(rest, out)) return;
    } catch (error) {
      // Half an event after the finish reason takes nothing away
      if (this.#reason === undefined || !(error instanceof Error && error.cause instanceof SyntaxError)) throw error;
    }
    if (this.#reason === undefined) {
      const what = this.#events === 0 ? "it is empty" : "its stream ended before the reply was complete";
      throw brokenReply(this.#upstream, what);
    }
    this.#finish(out);
  }

  whole(body: string, out: ProviderEvent[]): void {
    const [parsed] = parseData(body, this.#upstream);
    this.#chunk(parsed, out);
    if (this.#saysNothing()) throw brokenReply(this.#upstream, "it holds no message");
    this.#finish(out);
  }

  #saysNothing(): boolean {
    return this.#reason === undefined && this.#empty && (this.#calls?.count() ?? 0) === 0;
  }

  #chunk(parsed: unknown, out: ProviderEvent[]): void {
    if (!isRecord(parsed)) throw brokenReply(this.#upstream, "its stream contains something that is no object");
    const { error } = parsed;
    if ((error !== undefined && error !== null) || parsed["object"] === "error") {
      throw toUpstreamError(this.#upstream, { status: 200, body: JSON.stringify(parsed) });
    }
    if (this.#waiting.length > 0) {
      out.push(...this.#waiting);
      this.#waiting = NONE;
    }
    this.#model ??= stringOf(parsed["model"]);
    const choices = parsed["choices"];
    const first = Array.isArray(choices) ? choices[0] : undefined;
    const choice = isRecord(first) ? first : undefined;
    // Kimi has it in the choice
    const usage = usageOf(parsed["usage"]) ?? usageOf(choice?.["usage"]);
    this.#usage = usage ?? this.#usage;
    const given = isRecord(choice?.["delta"]) ? choice["delta"] : choice?.["message"];
    const delta = isRecord(given) ? given : undefined;
    const message = delta && fieldsBeside(delta, DELTA_FIELDS);
    if (this.#givesFields) this.#giveFields({ parsed, choice, message }, out);
    if (delta !== undefined) this.#keepReturned(delta, message);
    const before = out.length;
    if (choice !== undefined) this.#choice(choice, delta, out);
    if (usage !== undefined && this.#reason !== undefined) this.#isSettled = out.length === before;
  }

  /** Tells of what is beside the known fields. A list that is empty in a part of a stream says nothing */
  #giveFields(
    { parsed, choice, message }: {
      readonly parsed: JsonRecord;
      readonly choice: JsonRecord | undefined;
      readonly message: Fields | undefined;
    },
    out: ProviderEvent[],
  ): void {
    const isPart = choice?.["message"] === undefined;
    const reply = this.#newFields(fieldsBeside(parsed, REPLY_FIELDS));
    const ofChoice = choice && fieldsBeside(choice, CHOICE_FIELDS);
    const ofMessage = isPart ? withContent(message) : message;
    if (reply === undefined && ofChoice === undefined && ofMessage === undefined) return;
    out.push({
      type: "reply_fields",
      ...(reply === undefined ? {} : { reply }),
      ...(ofChoice === undefined ? {} : { choice: ofChoice }),
      ...(ofMessage === undefined ? {} : { message: ofMessage }),
      ...(ofMessage?.["reasoning_details"] === undefined ? {} : { provider: this.#upstream.name }),
    });
  }

  /** Returns the fields that were not given before with the same value: most servers repeat their fields in every chunk. */
  #newFields(fields: Fields | undefined): Fields | undefined {
    if (fields === undefined) return undefined;
    const given = (this.#given ??= new Map());
    const entries = Object.entries(fields).filter(([name, value]) => {
      const json = JSON.stringify(value);
      const isNew = given.get(name) !== json;
      if (isNew) given.set(name, json);
      return isNew;
    });
    return entries.length === 0 ? undefined : Object.fromEntries(entries);
  }

  #keepReturned(delta: JsonRecord, message: Fields | undefined): void {
    const content = stringOf(delta["reasoning_content"]);
    const reasoning = content ?? stringOf(delta["reasoning"]);
    if (reasoning !== undefined) {
      this.#reasoningName = content === undefined ? "reasoning" : "reasoning_content";
      this.#reasoning += reasoning;
    }
    const returned = message && returnedFields(message);
    if (returned !== undefined) this.#returned = joinFields(this.#returned, returned);
  }

  #choice(first: JsonRecord, delta: JsonRecord | undefined, out: ProviderEvent[]): void {
    if (delta !== undefined) {
      const before = out.length;
      addTexts(delta, out);
      if (this.#empty) this.#empty = !out.some((event, i) => i >= before && event.type !== "reasoning_delta");
      const toolCalls = delta["tool_calls"];
      if (Array.isArray(toolCalls)) { for (const call of toolCalls) this.#addCall(call, out); }
      if (isRecord(delta["function_call"])) this.#addCall({ index: 0, function: delta["function_call"] }, out);
    }
    const given = stringOf(first["finish_reason"]);
    if (given !== undefined && FAILURES.has(given)) {
      const error = first["error"] ?? { message: `it stopped with the finish reason "${given}"` };
      throw toUpstreamError(this.#upstream, { status: 200, body: JSON.stringify(error) });
    }
    this.#reason = given ?? this.#reason;
  }

  #addCall(call: unknown, out: ProviderEvent[]): void {
    this.#calls ??= new ToolCallAssembly({
      nextId: this.#nextId,
      notice: (code, message, out) => this.#notice(code, message, out),
    });
    this.#calls.push(call, out);
  }

  #finish(out: ProviderEvent[]): void {
    const count = this.#calls?.end(out) ?? 0;
    const finish_reason = this.#finishReason(count, out);
    const usage = this.#usage;
    const model = this.#model;
    const opaque = this.#opaque(count);
    if (opaque !== undefined) {
      const provider = this.#upstream.name;
      out.push({ type: "finish", finish_reason, usage, ...(model === undefined ? {} : { model }), opaque, provider });
      return;
    }
    out.push(
      model === undefined ? { type: "finish", finish_reason, usage } : { type: "finish", finish_reason, usage, model },
    );
  }

  /** The reasoning belongs to the calls that it led to; some vendors refuse it anywhere else. */
  #opaque(count: number): OpenAiOpaque | undefined {
    const isReturned = count > 0 && this.#reasoning !== "";
    const reasoning = isReturned ? { [this.#reasoningName]: this.#reasoning } : undefined;
    const message = reasoning === undefined ? this.#returned : { ...reasoning, ...this.#returned };
    const calls = this.#calls?.extras();
    return message === undefined && calls === undefined ? undefined : { message, calls };
  }

  #finishReason(count: number, out: ProviderEvent[]): FinishReason {
    const reason = this.#reason;
    const notice = (code: string, message: string) => this.#notice(code, message, out);
    if (this.#empty && count === 0) notice("empty_reply", "The provider's reply has neither text nor a tool call");
    if (this.#usage === undefined) notice("usage_missing", "The provider did not report its token usage");
    const known = reason === undefined ? undefined : REASONS.get(reason);
    if (reason === undefined) notice("finish_reason_missing", "The provider gave no finish reason");
    else if (known === undefined) notice("finish_reason_unknown", `The provider gave the finish reason "${reason}"`);
    if (known === "tool_calls" && count === 0) {
      notice("tool_call_lost", "The provider announced tool calls and sent none");
      return "stop";
    }
    if (count > 0 && known === "stop") {
      notice("finish_reason_mended", `The provider sent tool calls with the finish reason "stop"`);
      return "tool_calls";
    }
    return known ?? (count > 0 ? "tool_calls" : "stop");
  }

  #notice(code: string, message: string, out: ProviderEvent[]): void {
    if ((this.#noticed ??= new Set()).has(code)) return;
    this.#noticed.add(code);
    out.push({ type: "notice", code, message });
  }
}
