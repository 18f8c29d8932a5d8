import type { Clock } from "../base/clock.ts";
import type { AssistantMessage, Message } from "../base/records/message.ts";
import { inputBytes } from "./estimate_tokens.ts";

/**
 * Prefix of a client call's id when the run has already called tools of the agent: the client never sees that work, so the
 * gateway keeps it under the id. A call that comes before the agent's own calls of the same turn has a plain id, although the
 * rest of the turn is kept under it too.
 */
export const SHARED_CALL_PREFIX = "call_pst_";

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
  /** Keeps what the run added to the history, under the client's call ids: 15 minutes, 256 turns, 64 MiB */
  keep(callIds: readonly string[], messages: readonly Message[]): void;
  /** Returns true when work is kept under this call id */
  has(callId: string): boolean;
  /** Remembers that the rest of these calls' turn is gone: the model is told so when their results come */
  lose(callIds: readonly string[]): void;
  /** The client's messages with the kept parts in their places; the same array when there is nothing to do */
  splice(messages: readonly Message[]): readonly Message[];
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
  readonly bytes: number;
  readonly until: number;
}

/** Turns live in memory: after a restart those of attached runs are gone, and the model is told so. */
export function createParkedClientCalls(clock: Pick<Clock, "monotonic">): ParkedClientCalls {
  const byCall = new Map<string, Kept>();
  const turns = new Set<Kept>();
  /** Calls whose turn was forgotten; the oldest id first */
  const lost = new Set<string>();
  let bytes = 0;
  const lose = (callIds: readonly string[]) => {
    for (const id of callIds) lost.add(id);
    for (const oldest of lost) {
      if (lost.size <= MAX_LOST) break;
      lost.delete(oldest);
    }
  };
  const forget = (kept: Kept) => {
    if (turns.delete(kept)) bytes -= kept.bytes;
    for (const id of kept.callIds) byCall.delete(id);
    if (hasOwnWork(kept.messages)) lose(kept.callIds);
  };
  const isLost = (id: string) => id.startsWith(SHARED_CALL_PREFIX) || lost.has(id);
  const find = (id: string): Kept | undefined => {
    const kept = byCall.get(id);
    if (kept === undefined || kept.until > clock.monotonic()) return kept;
    forget(kept);
    return undefined;
  };
  return {
    keep(callIds, messages) {
      const kept = { callIds, messages, bytes: inputBytes(messages, []), until: clock.monotonic() + KEEP_MS };
      turns.add(kept);
      bytes += kept.bytes;
      for (const id of callIds) byCall.set(id, kept);
      // Sets keep their order: the first is the oldest
      for (const oldest of turns) {
        if (turns.size <= MAX_TURNS && bytes <= MAX_BYTES && oldest.until > clock.monotonic()) break;
        forget(oldest);
      }
    },
    has: (callId) => find(callId) !== undefined,
    lose,
    splice(messages) {
      if (!messages.some((message) => message.role === "tool")) return messages;
      const placed = new Set<Kept>();
      const out: Message[] = [];
      let changed = false;
      messages.forEach((message, i) => {
        const ids = message.role === "assistant"
          ? (message.tool_calls ?? []).map((call) => call.id)
          : message.role === "tool"
          ? [message.tool_call_id]
          : [];
        const kept = ids.map(find).find((found) => found !== undefined);
        if (kept === undefined) {
          const gone = message.role === "tool" && isLost(message.tool_call_id) && isTrailing(messages, i);
          out.push(gone ? withNote(message) : message);
          changed ||= gone;
          return;
        }
        changed = true;
        const told = placed.has(kept) ? undefined : withOpaque(message, kept);
        if (told !== undefined) out.push(told);
        else if (!placed.has(kept)) out.push(...kept.messages);
        placed.add(kept);
        if (message.role === "tool") out.push(message);
      });
      return changed ? answerAllCalls(out) : messages;
    },
  };
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
