import type { Message } from "../base/records/message.ts";
import { textOf } from "../base/records/message.ts";
import { messageBytes, toTokens } from "./estimate_tokens.ts";
import { shorten } from "./shorten.ts";

/** Messages that fit, and what it took. */
export interface FittedContext {
  readonly messages: readonly Message[];
  /** Tool results that were shortened */
  readonly shortened: number;
  /** Messages that were left out */
  readonly dropped: number;
}

/** Tool results are cut to these lengths in characters, one after the other, before any turn is dropped. */
const RESULT_CHARACTERS = [4000, 1000, 200] as const;

/**
 * Makes a history fit the model's window, estimated as bytes/4.
 *
 * Tool results are shortened first, the oldest first; then whole turns go from the middle, the oldest after the first one first, and
 * at last the finished steps of the running turn; a marker stands where they were. System messages and the last user message stay
 * as they are; what still does not fit is left to the model to refuse.
 * Source: docs/design/runs.md "Conversations"
 * @param maxTokens tokens the messages may take
 * @param fixed how many of the first messages stay as they are, whatever they take. Default 0
 */
export function fitContext(messages: readonly Message[], maxTokens: number, fixed = 0): FittedContext {
  const sizes = new Map<Message, number>();
  const size = (message: Message) => {
    const known = sizes.get(message) ?? toTokens(messageBytes(message));
    sizes.set(message, known);
    return known;
  };
  let total = messages.reduce((sum, message) => sum + size(message), 0);
  if (total <= maxTokens) return { messages, shortened: 0, dropped: 0 };

  const kept = [...messages];
  const shortened = new Set<number>();
  for (const limit of RESULT_CHARACTERS) {
    for (let i = fixed; i < kept.length && total > maxTokens; i++) {
      const message = kept[i];
      if (message?.role !== "tool") continue;
      const text = textOf(message.content);
      if (text.length <= limit + 100) continue;
      const short: Message = { ...message, content: shorten(text, limit) };
      total += size(short) - size(message);
      kept[i] = short;
      shortened.add(i);
    }
  }
  let dropped = 0;
  let marked = -1;
  for (const group of droppable(kept, fixed)) {
    if (total <= maxTokens) break;
    for (const i of group) {
      total -= size(kept[i] as Message); // group indexes `kept`
      dropped++;
      delete kept[i];
    }
    const at = group[0] as number; // groups are never empty
    if (marked < 0 || at < marked) marked = at;
  }
  if (marked >= 0) {
    kept[marked] = {
      role: "user",
      content:
        `[Postern] ${dropped} earlier messages were left out here, because the conversation outgrew the model's context window.`,
    };
  }
  return { messages: kept.filter((message) => message !== undefined), shortened: shortened.size, dropped };
}

/** Groups of indexes that may go, in the order in which they go: whole turns, or a call together with its results. */
function droppable(messages: readonly Message[], fixed: number): readonly (readonly number[])[] {
  const lastUser = messages.findLastIndex((message) => message.role === "user");
  const turns: number[][] = [];
  const steps: number[][] = [];
  messages.forEach((message, i) => {
    if (i < fixed || message.role === "system" || message.role === "developer" || i === lastUser) return;
    const into = i < lastUser ? turns : steps;
    const starts = i < lastUser ? message.role === "user" : message.role === "assistant";
    if (starts || into.length === 0) into.push([i]);
    else into.at(-1)?.push(i);
  });
  const [first, ...middle] = turns;
  // The newest step is what the model is about to answer
  return [...middle, ...(first === undefined ? [] : [first]), ...steps.slice(0, -1)];
}
