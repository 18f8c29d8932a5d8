import type { AgentEvent, FinishReason } from "../../lib/base/records/agent_event.ts";
import type { ToolCall } from "../../lib/base/records/message.ts";
import type { Usage } from "../../lib/base/records/usage.ts";
import { type Fields, joinFields } from "../../lib/base/join_fields.ts";
import { PARAMETER_CHANGED } from "../../lib/providers/provider.ts";
import type { RunHandle } from "../../lib/runs/run_request.ts";
import { endedInSilence, runFailure } from "./http_errors.ts";

/** A run's whole answer, for replies that are not streamed. */
export interface CollectedReply {
  readonly text: string;
  readonly reasoning: string;
  readonly refusal: string;
  /** Calls to the client's tools, in the order of their index */
  readonly toolCalls: readonly ToolCall[];
  readonly finishReason: FinishReason;
  /** The `provider/model` that served a turn in place of the one that was asked for; undefined: no other did */
  readonly fallback: string | undefined;
  /** Tells whether `fallback` served the last turn, and so gave the answer: the provider may be back for a later turn */
  readonly fallbackAnswered: boolean;
  /** Messages of the history that did not reach the model as they were; 0: all did */
  readonly trimmed: number;
  readonly usage: Usage;
  /** Fields that the gateway does not know, of the reply, of its choice and of its message; undefined: there are none */
  readonly fields: ReplyFields | undefined;
  /** Events of what was said and done, in the order in which it came, to the end: deltas of one kind are one event. Empty unless it was asked for */
  readonly said: readonly AgentEvent[];
}

/** Parameters of a request that notices of its run name, each once, as chat completions call them. */
export interface NamedFields {
  /** The provider has nothing for them */
  readonly ignored: string[];
  /** The provider got them in another form */
  readonly changed: string[];
}

/** Adds the parameter that a notice names. */
export function addNamed({ param, code }: Extract<AgentEvent, { type: "notice" }>, named: NamedFields): void {
  const names = code === PARAMETER_CHANGED ? named.changed : named.ignored;
  if (param !== undefined && !names.includes(param)) names.push(param);
}

/** Fields of a completion that the gateway does not know, by the object that they stand in. */
export interface ReplyFields {
  readonly reply?: Fields | undefined;
  readonly choice?: Fields | undefined;
  readonly message?: Fields | undefined;
}

/**
 * Reads a run to its end and collects the reply from the same events that a stream shows.
 * Source: docs/design/architecture.md "One path for each thing"
 * @param options.inOrder true: `said` is kept. Default false
 * @param options.named receives the parameters that notices name, also of a run that fails. Default: nobody is told
 * @throws {HttpError | ProviderError | CancelError} the run failed
 */
export async function collectReply(
  handle: RunHandle,
  { inOrder = false, named }: { readonly inOrder?: boolean | undefined; readonly named?: NamedFields } = {},
): Promise<CollectedReply> {
  const collector = new Collector(inOrder, named);
  for await (const events of handle.events()) {
    for (const event of events) collector.add(event);
  }
  const { end } = collector;
  if (end?.type === "done") return collector.reply(end);
  throw end === undefined ? endedInSilence() : runFailure(end);
}

/** Answer of a run as far as it has come. */
export interface SaidSoFar extends Pick<CollectedReply, "said"> {
  /** Last event of the run; undefined: it has not ended */
  readonly end: AgentEvent | undefined;
  /** The `provider/model` that gives the answer in place of the one that was asked for; undefined: no other does */
  readonly answeredBy: string | undefined;
}

/** Reads events, which need not come to the end of their run, and collects what was said. */
export async function collectSaid(events: AsyncIterable<readonly AgentEvent[]>): Promise<SaidSoFar> {
  const collector = new Collector(true);
  for await (const batch of events) for (const event of batch) collector.add(event);
  return collector.soFar();
}

/** Returns the text of a reply, or the refusal when there is no text. */
export function spokenText(reply: CollectedReply): string {
  return reply.text === "" ? reply.refusal : reply.text;
}

type EndEvent = Extract<AgentEvent, { type: "done" | "error" }>;

class Collector {
  end: EndEvent | undefined;
  #text = "";
  #reasoning = "";
  #refusal = "";
  #calls: { id: string; name: string; arguments: string; extra: Fields | undefined }[] = [];
  #fields: ReplyFields | undefined = undefined;
  readonly #named: NamedFields | undefined;
  #fallback: string | undefined = undefined;
  #fallbackAnswers = false;
  /** Messages left out before the first turn, said once */
  #trimmedBefore = 0;
  /** Messages left out of the turn that lacked the most: each turn counts them again */
  #trimmedInTurn = 0;
  #hasTurn = false;
  /** Lengths at the end of each turn by its number; made with the first. The reply is cut back to them when the turn after it is asked again */
  #ends: typeof NOTHING_SAID[] | undefined = undefined;
  readonly #said: AgentEvent[] | undefined;

  constructor(inOrder: boolean, named?: NamedFields) {
    this.#named = named;
    this.#said = inOrder ? [] : undefined;
  }

  add(event: AgentEvent): void {
    if (this.#said !== undefined) this.#keep(event, this.#said);
    switch (event.type) {
      case "text_delta":
        this.#text += event.delta;
        break;
      case "reasoning_delta":
        this.#reasoning += event.delta;
        break;
      case "refusal_delta":
        this.#refusal += event.delta;
        break;
      case "client_tool_call_delta": {
        const call = (this.#calls[event.index] ??= { id: event.call_id, name: "", arguments: "", extra: undefined });
        if (event.name !== undefined) call.name = event.name;
        call.arguments += event.arguments_delta;
        if (event.extra !== undefined) call.extra = joinFields(call.extra, event.extra);
        break;
      }
      case "reply_fields":
        this.#fields = joinParts(this.#fields, event);
        break;
      case "notice":
        if (event.model !== undefined) {
          this.#fallback = event.model;
          this.#fallbackAnswers = true;
        }
        if (event.count !== undefined) this.#countTrimmed(event.count);
        if (this.#named !== undefined) addNamed(event, this.#named);
        break;
      case "turn_start":
        this.#hasTurn = true;
        // A notice names the fallback of each turn, so a turn without a notice is the model's own
        this.#fallbackAnswers = false;
        break;
      case "turn_end":
        (this.#ends ??= [])[event.turn] = this.#lengths();
        break;
      case "tool_end":
        // Calls come after the end of their turn, and stay when the next one is asked again
        if (this.#ends !== undefined) this.#ends[this.#ends.length - 1] = this.#lengths();
        break;
      case "turn_restart":
        this.#fallbackAnswers = false;
        this.#goBack(event.turn);
        break;
      case "done":
      case "error":
        this.end = event;
        break;
    }
  }

  reply(done: Extract<EndEvent, { type: "done" }>): CollectedReply {
    return {
      text: this.#text,
      reasoning: this.#reasoning,
      refusal: this.#refusal,
      toolCalls: this.#calls.filter(Boolean).map(({ id, name, arguments: given, extra }) => {
        const { function: inner, ...own } = extra ?? NO_FIELDS;
        return {
          id,
          type: "function",
          function: { name, arguments: given, ...(typeof inner === "object" ? inner : {}) },
          ...own,
        };
      }),
      finishReason: done.finish_reason,
      fallback: this.#fallback,
      fallbackAnswered: this.#fallbackAnswers,
      trimmed: this.#trimmedBefore + this.#trimmedInTurn,
      usage: done.usage,
      fields: this.#fields,
      said: this.#said ?? NOTHING,
    };
  }

  soFar(): SaidSoFar {
    const answeredBy = this.#fallbackAnswers ? this.#fallback : undefined;
    return { said: this.#said ?? NOTHING, end: this.end, answeredBy };
  }

  #keep(event: AgentEvent, said: AgentEvent[]): void {
    if (!SAID.has(event.type)) return;
    const last = said.at(-1);
    const joined = last === undefined ? undefined : joinSaid(last, event);
    if (joined === undefined) said.push(event);
    else said[said.length - 1] = joined;
  }

  #countTrimmed(count: number): void {
    if (this.#hasTurn) this.#trimmedInTurn = Math.max(this.#trimmedInTurn, count);
    else this.#trimmedBefore += count;
  }

  #lengths() {
    return {
      text: this.#text.length,
      reasoning: this.#reasoning.length,
      refusal: this.#refusal.length,
      said: this.#said?.length ?? 0,
    };
  }

  /** Removes the text of an interrupted turn, whose begin or end may have been seen or not. A turn with client calls ends its run, so all calls belong to this turn. */
  #goBack(turn: number): void {
    const { text, reasoning, refusal, said } = this.#ends?.[turn - 1] ?? NOTHING_SAID;
    this.#text = this.#text.slice(0, text);
    this.#reasoning = this.#reasoning.slice(0, reasoning);
    this.#refusal = this.#refusal.slice(0, refusal);
    this.#calls = [];
    this.#said?.splice(said);
    // Only runs of one turn have unknown fields
    this.#fields = undefined;
  }
}

function joinParts(before: ReplyFields | undefined, { reply, choice, message }: ReplyFields): ReplyFields {
  const replaced = { texts: "replace" } as const;
  return {
    reply: reply === undefined ? before?.reply : { ...before?.reply, ...reply },
    choice: choice === undefined ? before?.choice : joinFields(before?.choice, choice, replaced),
    message: message === undefined ? before?.message : joinFields(before?.message, message),
  };
}

const SAID: ReadonlySet<string> = new Set([
  "text_delta",
  "reasoning_delta",
  "refusal_delta",
  "client_tool_call_delta",
  "reply_fields",
  "tool_start",
  "tool_end",
  "turn_end",
  "done",
]);

/** Returns two deltas as one; undefined where they are of different things. */
function joinSaid(last: AgentEvent, event: AgentEvent): AgentEvent | undefined {
  switch (event.type) {
    case "text_delta":
    case "reasoning_delta":
    case "refusal_delta":
      return last.type === event.type ? { ...last, delta: last.delta + event.delta } : undefined;
    case "client_tool_call_delta":
      if (last.type !== event.type || last.index !== event.index || event.extra !== undefined) return undefined;
      return { ...last, arguments_delta: last.arguments_delta + event.arguments_delta };
    default:
      return undefined;
  }
}

const NO_FIELDS: Fields = {};
const NOTHING: readonly AgentEvent[] = [];

const NOTHING_SAID = { text: 0, reasoning: 0, refusal: 0, said: 0 };
