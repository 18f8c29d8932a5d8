import type { Message } from "../base/records/message.ts";
import type { ProviderRequest, ToolDeclaration } from "./provider.ts";

export interface OpenAiRequestOptions {
  /** Ask for the usage at the end of the stream; some local servers refuse the option */
  readonly includeUsage: boolean;
  /** The vendor takes `max_completion_tokens` only (OpenAI's own API) */
  readonly renameMaxTokens: boolean;
}

/** The JSON of a streamed chat-completions request. Opaque parts of assistant messages are another vendor's and left out. */
export function toOpenAiRequest(request: ProviderRequest, options: OpenAiRequestOptions): string {
  const { max_tokens, ...parameters } = request.parameters;
  const body: Record<string, unknown> = {
    model: request.model,
    messages: request.messages.some(hasOpaque) ? request.messages.map(withoutOpaque) : request.messages,
    stream: true,
    ...parameters,
  };
  if (options.includeUsage) body["stream_options"] = { include_usage: true };
  if (max_tokens !== undefined) {
    if (!options.renameMaxTokens) body["max_tokens"] = max_tokens;
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

function hasOpaque(message: Message): boolean {
  return message.role === "assistant" && message.opaque !== undefined;
}

function withoutOpaque(message: Message): Message {
  if (message.role !== "assistant") return message;
  const { opaque: _, ...rest } = message;
  return rest;
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
