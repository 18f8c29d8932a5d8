import { hash } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { type AssistantMessage, type Message, textOf } from "../base/records/message.ts";
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

const OWN_ID = /^call_(?:pst_)?[0-9a-z]{24}$/;
const TURN_PREFIX = "turn_";

/** Tells whether a call id has the form of those that the gateway makes. */
export function isOwnId(id: string): boolean {
  return OWN_ID.test(id);
}

/**
 * Returns the keys of the calls that a message makes, under which work is kept: their ids, which are random. Ids of a vendor may come again
 * in another conversation, such as `functions.look:0`, so such a turn has one key, made of them and of the message before it.
 */
export function turnKeys(messages: readonly Message[], at: number): readonly string[] {
  const message = messages[at];
  const calls = message?.role === "assistant" ? message.tool_calls ?? [] : [];
  if (calls.every(({ id }) => isOwnId(id))) return calls.map(({ id }) => id);
  const before = textOf(messages[at - 1]?.content ?? null);
  const said = JSON.stringify([before, ...calls.map(({ id, function: { name } }) => [id, name])]);
  return [TURN_PREFIX + hash("sha256", said)];
}

/** Tells whether a run added work of the agent's own tools, which its client never sees. */
export function hasOwnWork(added: readonly Message[]): boolean {
  return added.some((message) => message.role === "tool");
}

/** Tells whether a run that ends with a client call added anything that the client does not send back: own work, or parts or ids of the vendor. */
export function hasMoreThanClient(added: readonly Message[]): boolean {
  return added.length > 1 || added.some((message) => message.role === "assistant" && hasVendorParts(message));
}

function hasVendorParts({ opaque, vendor_ids: ids }: AssistantMessage): boolean {
  return opaque !== undefined || ids !== undefined;
}

interface Kept {
  readonly keys: readonly string[];
  readonly messages: readonly Message[];
  readonly taint: Taint;
  readonly bytes: number;
  readonly until: number;
}

/**
 * Work of runs that ended with a call to the client's tools, by the keys of its turn (`turnKeys`), kept until the client sends the results (docs/design/completions.md "Two kinds of tools").
 *
 * Turns live in memory: after a restart those of attached runs are gone, and the model is told so.
 */
export class ParkedClientCalls {
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #byKey = new Map<string, Kept>();
  /** Number of kept turns whose ids are a vendor's */
  #ofVendors = 0;
  readonly #turns = new Set<Kept>();
  /** Calls whose turn was forgotten; the oldest id first */
  readonly #lost = new Set<string>();
  #bytes = 0;

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /**
   * Keeps what the run added to the history, under the client's calls: 15 minutes, 256 turns, 64 MiB
   * @param taint outside content that the run has read. Default: none
   */
  keep(keys: readonly string[], messages: readonly Message[], taint: Taint = UNTAINTED): void {
    const bytes = inputBytes(messages, []);
    const kept = { keys, messages, taint, bytes, until: this.#clock.monotonic() + KEEP_MS };
    this.#turns.add(kept);
    this.#bytes += kept.bytes;
    if (isOfVendor(kept)) this.#ofVendors++;
    for (const key of keys) this.#byKey.set(key, kept);
    // Sets keep their order: the first is the oldest
    for (const oldest of this.#turns) {
      const isFull = this.#turns.size > MAX_TURNS || this.#bytes > MAX_BYTES;
      if (!isFull && oldest.until > this.#clock.monotonic()) break;
      this.#forget(oldest);
    }
  }

  /** Returns true when work is kept under this key */
  has(key: string): boolean {
    return this.#find(key) !== undefined;
  }

  /** Remembers that the rest of these calls' turn is gone: the model is told so when their results come */
  noteGone(keys: readonly string[]): void {
    for (const key of keys) this.#lost.add(key);
    for (const oldest of this.#lost) {
      if (this.#lost.size <= MAX_LOST) break;
      this.#lost.delete(oldest);
    }
  }

  /** The client's messages with the kept parts in their places; the same array when there is nothing to do */
  splice(messages: readonly Message[]): readonly Message[] {
    if (!messages.some((message) => message.role === "tool")) return messages;
    const placed = new Set<Kept>();
    const spliced = messages.flatMap((message, i) => {
      const kept = this.#keysOf(messages, i).map((key) => this.#find(key)).find((found) => found !== undefined);
      if (kept !== undefined) return withKept(message, kept, placed);
      const isGone = message.role === "tool" && this.#lost.has(message.tool_call_id) && isTrailing(messages, i);
      return [isGone ? withNote(message) : message];
    });
    const isChanged = placed.size > 0 || spliced.some((message, i) => message !== messages[i]);
    return isChanged ? answerAllCalls(spliced) : messages;
  }

  /** Returns the outside content that the runs had read whose kept parts belong to these messages */
  taintOf(messages: readonly Message[]): Taint {
    if (this.#turns.size === 0) return UNTAINTED;
    return joinTaints(...messages.flatMap((_, i) => this.#keysOf(messages, i)).map((key) => this.#find(key)?.taint));
  }

  /** Returns the keys under which work for a message may be kept. A key that is made of a text is made only where there are such keys. */
  #keysOf(messages: readonly Message[], at: number): readonly string[] {
    const message = messages[at];
    if (message?.role === "tool") return [message.tool_call_id];
    if (message?.role !== "assistant" || message.tool_calls === undefined) return [];
    return this.#ofVendors > 0 ? turnKeys(messages, at) : message.tool_calls.map(({ id }) => id);
  }

  #find(key: string): Kept | undefined {
    const kept = this.#byKey.get(key);
    if (kept === undefined || kept.until > this.#clock.monotonic()) return kept;
    this.#forget(kept);
    return undefined;
  }

  #forget(kept: Kept): void {
    if (!this.#turns.delete(kept)) return;
    this.#bytes -= kept.bytes;
    if (isOfVendor(kept)) this.#ofVendors--;
    // The same turn of a vendor may have been kept again
    for (const key of kept.keys) if (this.#byKey.get(key) === kept) this.#byKey.delete(key);
    if (hasOwnWork(kept.messages)) this.noteGone(kept.keys);
  }
}

function isOfVendor({ keys: [key] }: Kept): boolean {
  return key?.startsWith(TURN_PREFIX) === true;
}

/** Returns what takes the place of a message that belongs to a kept turn. The kept messages come once, at the turn's first message. */
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
  if (!isSame || !hasVendorParts(only)) return undefined;
  const { opaque, vendor_ids } = only;
  return {
    ...message,
    ...(opaque === undefined ? {} : { opaque }),
    ...(vendor_ids === undefined ? {} : { vendor_ids }),
  };
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
