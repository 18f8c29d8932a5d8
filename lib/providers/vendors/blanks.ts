import { type Content, type ContentPart, isTextPart, type Message } from "../../base/records/message.ts";
import type { ProviderRequest } from "../provider.ts";

/** Result of a tool that gave none. */
const NO_OUTPUT = "(no output)";

/**
 * Leaves out the texts of a request that are blank or empty, and blanks at the end of a last message of the assistant. A request
 * without them is returned as it is. Claude refuses a whole request for one such text.
 * Source: the errors "text content blocks must contain non-whitespace text" and "final assistant content cannot end with trailing
 * whitespace" of the Messages API
 */
export function leaveOutBlanks(request: ProviderRequest): ProviderRequest {
  const { messages } = request;
  const last = messages.at(-1);
  const end = last?.role === "assistant" ? withoutEnd(last.content) : last?.content;
  if (end === last?.content && !messages.some(({ content }) => hasBlank(content))) return request;
  return {
    ...request,
    messages: messages.flatMap((message) => filled(message, message === last ? end ?? null : message.content)),
  };
}

function isBlank(text: string): boolean {
  return !/\S/.test(text);
}

function isBlankPart(part: ContentPart): boolean {
  return isTextPart(part) && isBlank(part.text);
}

function hasBlank(content: Content | null): boolean {
  return typeof content === "string" ? isBlank(content) : content?.some(isBlankPart) === true;
}

/** Returns a content without blanks at its end; the same one where there are none. */
function withoutEnd(content: Content | null): Content | null {
  if (typeof content === "string") return content.trimEnd();
  const part = content?.at(-1);
  if (content === null || part === undefined || !isTextPart(part) || !/\s$/.test(part.text)) return content;
  return [...content.slice(0, -1), { ...part, text: part.text.trimEnd() }];
}

/** The message with what is not blank of its content. One of which nothing is left goes too, unless it has calls, or is the result of one. */
function filled(message: Message, content: Content | null): readonly Message[] {
  if (content === message.content && !hasBlank(content)) return [message];
  const rest = typeof content === "string"
    ? (isBlank(content) ? null : content)
    : content?.filter((part) => !isBlankPart(part)) ?? null;
  if (message.role === "tool") return [{ ...message, content: rest === null || rest.length === 0 ? NO_OUTPUT : rest }];
  if (message.role !== "assistant") return rest === null || rest.length === 0 ? [] : [{ ...message, content: rest }];
  if (rest !== null && rest.length > 0) return [{ ...message, content: rest }];
  return (message.tool_calls?.length ?? 0) > 0 ? [{ ...message, content: null }] : [];
}
