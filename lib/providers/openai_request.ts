import { type Message, textOf } from "../base/records/message.ts";
import type { ProviderRequest, ToolDeclaration } from "./provider.ts";

export interface OpenAiRequestOptions {
  /** Ask for the usage at the end of the stream; some local servers refuse the option */
  readonly includeUsage: boolean;
  /** OpenAI's own API: it takes `max_completion_tokens` only, and knows the role `developer` */
  readonly ownApi: boolean;
  /** Ask for the reply in one piece */
  readonly whole: boolean;
}

/** The JSON of a chat-completions request. Left out is what the format has no place for: opaque parts, which are another vendor's, and `is_error`. */
export function toOpenAiRequest(request: ProviderRequest, options: OpenAiRequestOptions): string {
  const { max_tokens, ...parameters } = request.parameters;
  const messages = request.messages.some(isForeign) ? request.messages.map(withoutForeign) : request.messages;
  const body: Record<string, unknown> = {
    model: request.model,
    messages: options.ownApi ? messages : withOneSystem(messages),
    stream: !options.whole,
    ...parameters,
  };
  if (options.includeUsage && !options.whole) body["stream_options"] = { include_usage: true };
  if (max_tokens !== undefined) {
    if (!options.ownApi) body["max_tokens"] = max_tokens;
    else body["max_completion_tokens"] ??= max_tokens;
  }
  if (request.tools.length > 0) {
    body["tools"] = request.tools.map(toTool);
    if (request.parallelToolCalls !== undefined) body["parallel_tool_calls"] = request.parallelToolCalls;
    const { toolChoice } = request;
    if (typeof toolChoice === "string") body["tool_choice"] = toolChoice;
    else if (toolChoice !== undefined) body["tool_choice"] = { type: "function", function: { name: toolChoice.name } };
  }
  return JSON.stringify(body);
}

function isForeign(message: Message): boolean {
  if (message.role === "assistant") return message.opaque !== undefined;
  return message.role === "tool" && message.is_error !== undefined;
}

function withoutForeign(message: Message): Message {
  if (message.role === "assistant") {
    const { opaque: _, ...rest } = message;
    return rest;
  }
  if (message.role !== "tool") return message;
  const { is_error: _, ...rest } = message;
  return rest;
}

/** Templates of local models know no role `developer`, and often one system message only, at the beginning. */
function withOneSystem(messages: readonly Message[]): readonly Message[] {
  if (!messages.some(({ role }, i) => role === "developer" || (role === "system" && i > 0))) return messages;
  const end = messages.findIndex((message) => !isInstruction(message));
  const head = messages.slice(0, end < 0 ? messages.length : end);
  const rest = messages.slice(head.length).map((message): Message =>
    message.role === "developer" ? { ...message, role: "system" } : message
  );
  if (head.length === 0) return rest;
  return [{ role: "system", content: head.map(({ content }) => textOf(content)).join("\n\n") }, ...rest];
}

function isInstruction({ role }: Message): boolean {
  return role === "system" || role === "developer";
}

function toTool({ name, description, parameters, strict }: ToolDeclaration) {
  return {
    type: "function",
    function: {
      name,
      description,
      ...(parameters === undefined ? {} : { parameters }),
      ...(strict === undefined ? {} : { strict }),
    },
  };
}
