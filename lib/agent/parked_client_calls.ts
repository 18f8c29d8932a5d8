import type { Clock } from "../base/clock.ts";
import type { AssistantMessage, Message } from "../base/records/message.ts";
import { joinTaints, type Taint, UNTAINTED } from "../base/taint.ts";
import { inputBytes } from "./estimate_tokens.ts";

const KEEP_MS = 15 * 60 * 1000;
const MAX_TURNS = 256;
const MAX_BYTES = 64 * 1024 * 1024;
/** Ids of forgotten turns that are remembered: the model is told that the rest is gone. */
const MAX_LOST = 10_000;
const GONE =
  "[Postern] The gateway no longer keeps the rest of this turn: the results of its own tools in it are lost; call them again " +
  "where they matter.";
const UNANSWERED = "No result was given for this call.";

/** Work of runs that ended with a call to the client's tools, kept until the client sends the results (docs/design/completions.md "Two kinds of tools"). */
export interface ParkedClientCalls {
  /**
   * Keeps what the run added to the history, under the client's call ids: 15 minutes, 256 turns, 64 MiB
   * @param taint outside content that the run has read. Default: none
   */
  keep(callIds: readonly string[], messages: readonly Message[], taint?: Taint): void;
  /** Returns true when work is kept under this call id */
  has(callId: string): boolean;
  /** Remembers that the rest of these calls' turn is gone: the model is told so when their results come */
  lose(callIds: readonly string[]): void;
  /** The client's messages with the kept parts in their places; the same array when there is nothing to do */
  splice(messages: readonly Message[]): readonly Message[];
  /** Returns the outside content that the runs had read whose kept parts belong to these messages */
  taintOf(messages: readonly Message[]): Taint;
}

/** Tells whether a run added work of the agent's own tools, which its client never sees. */
export function hasOwnWork(added: readonly Message[]): boolean {
  return added.some((message) => message.role === "tool");
}

/** Tells whether a run that ends with a client call added anything that the client does not send back: own work, or opaque parts. */
export function hasMoreThanClient(added: readonly Message[]): boolean {
  return added.length > 1 || added.some((message) => message.role === "assistant" && message.opaque !== undefined);
}

interface Kept {
  readonly callIds: readonly string[];
  readonly messages: readonly Message[];
  readonly taint: Taint;
  readonly bytes: number;
  readonly until: number;
}

/** Creates an empty list. Turns live in memory: after a restart those of attached runs are gone, and the model is told so. */
export function createParkedClientCalls(clock: Pick<Clock, "monotonic">): ParkedClientCalls {
  return new ParkedTurns(clock);
}

class ParkedTurns implements ParkedClientCalls {
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #byCall = new Map<string, Kept>();
  readonly #turns = new Set<Kept>();
  /** Calls whose turn was forgotten; the oldest id first */
  readonly #lost = new Set<string>();
  #bytes = 0;

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  keep(callIds: readonly string[], messages: readonly Message[], taint: Taint = UNTAINTED): void {
    const bytes = inputBytes(messages, []);
    const kept = { callIds, messages, taint, bytes, until: this.#clock.monotonic() + KEEP_MS };
    this.#turns.add(kept);
    this.#bytes += kept.bytes;
    for (const id of callIds) this.#byCall.set(id, kept);
    // Sets keep their order: the first is the oldest
    for (const oldest of this.#turns) {
      const isFull = this.#turns.size > MAX_TURNS || this.#bytes > MAX_BYTES;
      if (!isFull && oldest.until > this.#clock.monotonic()) break;
      this.#forget(oldest);
    }
  }

  has(callId: string): boolean {
    return this.#find(callId) !== undefined;
  }

  lose(callIds: readonly string[]): void {
    for (const id of callIds) this.#lost.add(id);
    for (const oldest of this.#lost) {
      if (this.#lost.size <= MAX_LOST) break;
      this.#lost.delete(oldest);
    }
  }

  splice(messages: readonly Message[]): readonly Message[] {
    if (!messages.some((message) => message.role === "tool")) return messages;
    const placed = new Set<Kept>();
    const spliced = messages.flatMap((message, i) => {
      const kept = callsOf(message).map((id) => this.#find(id)).find((found) => found !== undefined);
      if (kept !== undefined) return withKept(message, kept, placed);
      const isGone = message.role === "tool" && this.#lost.has(message.tool_call_id) && isTrailing(messages, i);
      return [isGone ? withNote(message) : message];
    });
    const isChanged = placed.size > 0 || spliced.some((message, i) => message !== messages[i]);
    return isChanged ? answerAllCalls(spliced) : messages;
  }

  taintOf(messages: readonly Message[]): Taint {
    if (this.#turns.size === 0) return UNTAINTED;
    return joinTaints(...messages.flatMap(callsOf).map((id) => this.#find(id)?.taint));
  }

  #find(id: string): Kept | undefined {
    const kept = this.#byCall.get(id);
    if (kept === undefined || kept.until > this.#clock.monotonic()) return kept;
    this.#forget(kept);
    return undefined;
  }

  #forget(kept: Kept): void {
    if (this.#turns.delete(kept)) this.#bytes -= kept.bytes;
    for (const id of kept.callIds) this.#byCall.delete(id);
    if (hasOwnWork(kept.messages)) this.lose(kept.callIds);
  }
}

/** Returns the ids of the calls that a message makes or answers. */
function callsOf(message: Message): readonly string[] {
  if (message.role === "tool") return [message.tool_call_id];
  return message.role === "assistant" ? (message.tool_calls ?? []).map((call) => call.id) : [];
}

/** Returns what stands in place of a message that belongs to a kept turn. The kept messages come once, at the turn's first message. */
function withKept(message: Message, kept: Kept, placed: Set<Kept>): readonly Message[] {
  const own = message.role === "tool" ? [message] : [];
  if (placed.has(kept)) return own;
  placed.add(kept);
  const told = withOpaque(message, kept);
  return told === undefined ? [...kept.messages, ...own] : [told, ...own];
}

/**
 * The client's own message with the vendor's parts of the kept one, when those are all that it lacks: its text and its arguments
 * stay as the client sent them. undefined for any other message.
 */
function withOpaque(message: Message, { messages }: Kept): Message | undefined {
  const [only] = messages;
  if (messages.length > 1 || only?.role !== "assistant" || message.role !== "assistant") return undefined;
  const isSame = callIds(only) === callIds(message);
  return isSame && only.opaque !== undefined ? { ...message, opaque: only.opaque } : undefined;
}

function callIds({ tool_calls: calls = [] }: AssistantMessage): string {
  return calls.map(({ id }) => id).join();
}

/** Gives every tool call without a result one that says so, since vendors refuse a history with an open call. */
export function answerAllCalls(messages: readonly Message[]): readonly Message[] {
  const out: Message[] = [];
  let open: string[] = [];
  const close = () => {
    for (const id of open) out.push({ role: "tool", tool_call_id: id, content: UNANSWERED });
    open = [];
  };
  for (const message of messages) {
    if (message.role === "tool") open = open.filter((id) => id !== message.tool_call_id);
    else close();
    out.push(message);
    if (message.role === "assistant") open = (message.tool_calls ?? []).map((call) => call.id);
  }
  close();
  return out;
}

/** Returns true when only tool messages follow. An old exchange deep in the client's history stays as the client sent it. */
function isTrailing(messages: readonly Message[], from: number): boolean {
  return messages.slice(from).every((message) => message.role === "tool");
}

function withNote(message: Extract<Message, { role: "tool" }>): Message {
  const content = typeof message.content === "string"
    ? `${message.content}\n\n${GONE}`
    : [...message.content, { type: "text" as const, text: GONE }];
  return { ...message, content };
}
