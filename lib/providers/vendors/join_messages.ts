import { type ContentPart, type Message, textOf } from "../../base/records/message.ts";
import type { VendorForm } from "./vendor_forms.ts";

/** Joins messages that a vendor takes only as one. Messages of which it takes each are returned as they are. */
export function joinMessages(
  messages: readonly Message[],
  { instructions, alternates = false }: Pick<VendorForm, "instructions" | "alternates">,
): readonly Message[] {
  const told = instructions === "as_sent" ? messages : withOneSystem(messages);
  return alternates ? withTurns(told) : told;
}

const NO_REPLY: Message = { role: "assistant", content: "[no reply]" };

/**
 * Joins what one side says in several messages, up to its calls, so that the two take turns. Instructions behind the first message are what
 * the user says. Templates of models count no calls and no results, so that a reply stands between those and the user's next word.
 */
function withTurns(messages: readonly Message[]): readonly Message[] {
  const turns: Message[] = [];
  for (const [i, given] of messages.entries()) {
    const message: Message = i > 0 && isInstruction(given) ? { ...given, role: "user" } : given;
    const before = turns.at(-1);
    if (before?.role === "tool" && message.role === "user") turns.push(NO_REPLY);
    if (before?.role === message.role && isSaid(before)) turns[turns.length - 1] = joined(before, message);
    else turns.push(message);
  }
  return turns;
}

function isSaid(message: Message): boolean {
  return message.role === "user" || (message.role === "assistant" && message.tool_calls === undefined);
}

/** Joins the instructions at the beginning to one system message, and makes later ones of the role `developer` system messages. */
function withOneSystem(messages: readonly Message[]): readonly Message[] {
  if (!messages.some(({ role }, i) => role === "developer" || (role === "system" && i > 0))) return messages;
  const end = messages.findIndex((message) => !isInstruction(message));
  const head = messages.slice(0, end < 0 ? messages.length : end);
  const rest = messages.slice(head.length).map((message): Message =>
    message.role === "developer" ? { ...message, role: "system" } : message
  );
  if (head.length === 0) return rest;
  return [head.reduce(joined), ...rest].map((message, i): Message =>
    i === 0 && message.role === "developer" ? { ...message, role: "system" } : message
  );
}

/** Joins two messages to one of the second one's role. */
function joined(before: Message, message: Message): Message {
  const [a, b] = [before.content, message.content];
  const content = isText(a) && isText(b) ? `${textOf(a)}\n\n${textOf(b)}` : [...toParts(a), ...toParts(b)];
  // Both are of one kind, so that the fields of one fit the other
  return { ...before, ...message, content } as Message;
}

/** Tells whether a content can be written as one text without loss. */
function isText(content: Message["content"]): boolean {
  return !Array.isArray(content) || content.every((part) => part.type === "text" && Object.keys(part).length === 2);
}

function toParts(content: Message["content"]): readonly ContentPart[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : content ?? [];
}

function isInstruction(message: Message): message is Extract<Message, { role: "system" | "developer" }> {
  return message.role === "system" || message.role === "developer";
}
