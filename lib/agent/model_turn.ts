import type { AgentEvent, FinishReason } from "../base/records/agent_event.ts";
import type { AssistantMessage, ToolCall } from "../base/records/message.ts";
import type { ProviderEvent } from "../base/records/provider_event.ts";
import type { Usage } from "../base/records/usage.ts";
import type { RecordedTurn, TurnCall } from "./agent_run.ts";
import type { EventRecorder } from "./event_recorder.ts";
import type { TokenCounter } from "./estimate_tokens.ts";

/** Decides the owner and the id of each call of a turn. */
export interface CallNaming {
  ownerOf(name: string): TurnCall["owner"];
  newCallId(): string;
}

/** The state of the run that a new turn begins in. */
export interface ModelTurnOptions {
  readonly events: Pick<EventRecorder, "next" | "time">;
  readonly naming: CallNaming;
  /** Plain mode: a client's call has the id that the vendor gave it. Default false */
  readonly keepsIds?: boolean;
  /** Text that goes before the turn's first text in the events, so that texts of two turns do not run together; not part of the message */
  readonly separator: string;
  /** Characters after which the reply is ended, since its provider does not keep the limit of the request. Default: no limit was sent */
  readonly longest?: number | undefined;
  /** Tokens that a budget has granted for the output: a reply whose usage is beyond them counts as cut, and so does reasoning in `longest`. Default: no budget */
  readonly granted?: number | undefined;
}

/** The end of a turn as the provider reported it. */
export interface TurnFinish {
  readonly reason: FinishReason;
  readonly usage: Usage | undefined;
  /** The vendor's parts of the reply, which go back as they are; undefined: none */
  readonly opaque: unknown;
  /** Provider they belong to. undefined: the run's own */
  readonly provider: string | undefined;
}

/** A turn of the model, as far as it has come. */
export interface ModelTurn {
  /** Reads one array of the provider; pushes what the reader is shown onto `into`. @returns whether a delta was among it */
  take(batch: readonly ProviderEvent[], into: AgentEvent[]): boolean;
  readonly text: string;
  /** In the order of their first delta */
  readonly calls: readonly TurnCall[];
  /** undefined until the provider's `finish` */
  readonly finish: TurnFinish | undefined;
  /** Tokens of all that was said, for a provider that reports no usage */
  estimate(count: TokenCounter): number;
  /** The turn as a message of the history; `calls` may be left out of it. undefined when nothing was said at all */
  message(options: { readonly provider: string; readonly calls: boolean }): AssistantMessage | undefined;
}

/**
 * Turns provider events into agent events, in one pass and without a copy of its own.
 *
 * Calls to the client's tools are streamed as they come; the agent's own calls are only collected.
 */
export class LiveTurn implements ModelTurn {
  readonly calls: TurnCall[] = [];
  text = "";
  finish: TurnFinish | undefined = undefined;
  #refusal = "";
  #reasoning = "";
  /** By the provider's index; made with the first call */
  #byIndex: Map<number, OpenCall> | undefined = undefined;
  /** Ids of the vendor that calls have as their own; made with the first one */
  #ids: Set<string> | undefined = undefined;
  #clientCalls = 0;
  readonly #options: ModelTurnOptions;

  constructor(options: ModelTurnOptions) {
    this.#options = options;
  }

  take(batch: readonly ProviderEvent[], into: AgentEvent[]): boolean {
    const { events } = this.#options;
    const time = events.time();
    let delta = false;
    for (const event of batch) {
      switch (event.type) {
        case "text_delta": {
          if (event.delta === "") break;
          const shown = this.text === "" ? this.#options.separator + event.delta : event.delta;
          this.text += event.delta;
          into.push({ seq: events.next(), time, type: "text_delta", delta: shown });
          delta = true;
          break;
        }
        case "reasoning_delta":
          this.#reasoning += event.delta;
          into.push({ seq: events.next(), time, type: "reasoning_delta", delta: event.delta });
          delta = true;
          break;
        case "refusal_delta":
          this.#refusal += event.delta;
          into.push({ seq: events.next(), time, type: "refusal_delta", delta: event.delta });
          delta = true;
          break;
        case "tool_call_delta":
          this.#takeCall(event, into, time);
          delta = true;
          break;
        case "reply_fields":
          into.push({ seq: events.next(), time, ...event });
          delta = true;
          break;
        case "notice":
          into.push(noticeOf(event, events.next(), time));
          break;
        case "finish":
          this.finish = {
            reason: event.finish_reason,
            usage: event.usage,
            opaque: event.opaque,
            provider: event.provider,
          };
          break;
      }
    }
    if (this.#isPastLimit()) this.#cut(into, time);
    return delta;
  }

  #isPastLimit(): boolean {
    const { longest = Infinity, granted = Infinity } = this.#options;
    return (this.finish?.usage?.completion_tokens ?? 0) > granted || (longest < Infinity && this.#length() > longest);
  }

  /** Characters of what was said, as far as they count in the limit */
  #length(): number {
    // Some vendors let a model think beyond the limit; a budget counts that too
    const reasoning = this.#options.granted === undefined ? 0 : this.#reasoning.length;
    return this.calls.reduce(
      (length, call) => length + call.arguments.length,
      this.text.length + this.#refusal.length + reasoning,
    );
  }

  /** Ends a reply that has passed its limit. Calls that came whole stay calls */
  #cut(into: AgentEvent[], time: string): void {
    const { finish } = this;
    if (finish !== undefined && (finish.reason === "length" || this.calls.length > 0)) return;
    this.finish = { usage: undefined, ...NO_FINISH, ...finish, reason: "length" };
    into.push({ seq: this.#options.events.next(), time, type: "notice", ...LIMIT_PASSED });
  }

  estimate(count: TokenCounter): number {
    const called = this.calls.map((call) => `${call.name} ${call.arguments}`);
    return [this.text, this.#refusal, this.#reasoning, ...called].reduce(
      (tokens, part) => part === "" ? tokens : tokens + count(part),
      0,
    );
  }

  message(options: { readonly provider: string; readonly calls: boolean }): AssistantMessage | undefined {
    const { text, calls, finish } = this;
    const { opaque, provider } = finish ?? NO_FINISH;
    return toMessage({ text, refusal: this.#refusal, calls, opaque, provider }, options);
  }

  /** Adds to a call. A call to a tool of the client is shown as it comes; a call of the agent's is not. */
  #takeCall(event: CallDelta, into: AgentEvent[], time: string): void {
    const known = this.#byIndex?.get(event.index);
    const { call, clientIndex } = known ?? this.#openCall(event);
    call.arguments += event.arguments_delta;
    if (clientIndex < 0) return;
    into.push({
      seq: this.#options.events.next(),
      time,
      type: "client_tool_call_delta",
      index: clientIndex,
      call_id: call.id,
      ...(known === undefined ? { name: call.name } : {}),
      arguments_delta: event.arguments_delta,
      ...(event.extra === undefined ? {} : { extra: event.extra }),
    });
  }

  #openCall(event: CallDelta): OpenCall {
    const { naming, keepsIds = false } = this.#options;
    const { call_id: given, name = "" } = event;
    const isKept = keepsIds && given !== undefined && !this.#ids?.has(given);
    if (isKept) (this.#ids ??= new Set()).add(given);
    const call: TurnCall = {
      id: isKept ? given : naming.newCallId(),
      ...(isKept || given === undefined ? {} : { vendor_id: given }),
      name,
      arguments: "",
      owner: naming.ownerOf(name),
    };
    this.calls.push(call);
    const opened = { call, clientIndex: call.owner === "client" ? this.#clientCalls++ : -1 };
    (this.#byIndex ??= new Map()).set(event.index, opened);
    return opened;
  }
}

type CallDelta = Extract<ProviderEvent, { type: "tool_call_delta" }>;

function noticeOf(
  { code, message, param, model, count }: Extract<ProviderEvent, { type: "notice" }>,
  seq: number,
  time: string,
): AgentEvent {
  return {
    seq,
    time,
    type: "notice",
    code,
    message,
    ...(param === undefined ? {} : { param }),
    ...(model === undefined ? {} : { model }),
    ...(count === undefined ? {} : { count }),
  };
}

const LIMIT_PASSED = {
  code: "output_limit_passed",
  message: "The provider went beyond the request's limit of output: its reply counts as cut",
};

const NO_FINISH = { opaque: undefined, provider: undefined };

interface OpenCall {
  readonly call: TurnCall;
  /** Index among the client's calls; -1 for a call of the agent */
  readonly clientIndex: number;
}

/** A finished turn from the journal: its events were shown before, and it takes no more. */
export function restoreTurn(recorded: RecordedTurn): ModelTurn {
  const { text, calls, finishReason, usage, opaque, provider } = recorded;
  return {
    take: () => false,
    text,
    calls,
    finish: { reason: finishReason, usage, opaque, provider },
    estimate: () => usage.completion_tokens,
    message: (options) => toMessage(recorded, options),
  };
}

/** Returns the separator between a turn's text and the text of the next turn that has any. */
export function separatorAfter(text: string): string {
  return text.endsWith("\n") ? "" : "\n\n";
}

function toMessage(
  { text, refusal, calls, opaque, provider: answered }: Pick<
    RecordedTurn,
    "text" | "refusal" | "calls" | "opaque" | "provider"
  >,
  { provider, calls: withCalls }: { readonly provider: string; readonly calls: boolean },
): AssistantMessage | undefined {
  const toolCalls = withCalls ? calls.map(toToolCall) : [];
  const ids = withCalls && calls.some(({ vendor_id }) => vendor_id !== undefined)
    ? calls.map(({ id, vendor_id = id }) => vendor_id)
    : undefined;
  // A message of a refusal alone is empty for most vendors, and its words are what was said
  if (text === "" && refusal !== "" && toolCalls.length === 0) {
    const said = { text: refusal, refusal: "", calls, opaque, provider: answered };
    return toMessage(said, { provider, calls: withCalls });
  }
  const isPlain = refusal === "" && toolCalls.length === 0;
  if (isPlain && text === "") return undefined;
  if (isPlain && opaque === undefined) return { role: "assistant", content: text };
  return {
    role: "assistant",
    content: text === "" ? null : text,
    ...(refusal === "" ? {} : { refusal }),
    ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
    ...(opaque === undefined ? {} : { opaque: { [answered ?? provider]: opaque } }),
    ...(ids === undefined ? {} : { vendor_ids: { [answered ?? provider]: ids } }),
  };
}

/** Vendors and the templates of local servers parse the arguments of the history: a broken or nameless call must not spoil it. */
function toToolCall({ id, name, arguments: given, owner }: TurnCall): ToolCall {
  const text = given.trim() === "" ? "{}" : given;
  const mended = owner === "agent" && !isJsonObject(text)
    ? JSON.stringify({ invalid_arguments: text.slice(0, 2000) })
    : text;
  return { id, type: "function", function: { name: name === "" ? "unknown" : name, arguments: mended } };
}

function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
