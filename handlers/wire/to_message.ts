import {
  type Content,
  type ContentPart,
  isImagePart,
  isTextPart,
  type Message,
  type ToolCall,
} from "../../lib/base/records/message.ts";
import type { CompletionMessage } from "./completion_body.ts";
import { sortUnknownFields, type Unknown, withFunction } from "./unknown_fields.ts";

/** Translates one message of a checked body. */
export function toMessage(message: CompletionMessage, unknown: Unknown): Message {
  switch (message.role) {
    case "system":
    case "developer":
    case "user": {
      const extra = sortUnknownFields(message, MESSAGE_FIELDS, "messages[]", unknown);
      const { role, name } = message;
      const content = toContent(message.content, unknown);
      // Nearly every message takes this way: a plain literal costs a fraction of one with spreads
      if (extra === undefined && typeof name !== "string") return { role, content };
      return {
        role,
        content,
        ...(typeof name === "string" ? { name } : {}),
        ...(extra === undefined ? {} : { extra }),
      };
    }
    case "assistant":
      return toAssistant(message, unknown);
    case "tool": {
      const extra = sortUnknownFields(message, TOOL_FIELDS, "messages[]", unknown);
      return {
        role: "tool",
        content: toContent(message.content, unknown),
        tool_call_id: message.tool_call_id,
        ...(extra === undefined ? {} : { extra }),
      };
    }
  }
}

function toAssistant(message: Extract<CompletionMessage, { role: "assistant" }>, unknown: Unknown): Message {
  const calls = message.tool_calls ?? NO_CALLS;
  const vendors = calls.length > 0 ? VENDOR_FIELDS : NO_FIELDS;
  const extra = sortUnknownFields(message, ASSISTANT_FIELDS, "messages[]", unknown, vendors);
  return {
    role: "assistant",
    content: message.content === null || message.content === undefined ? null : toContent(message.content, unknown),
    ...(typeof message.refusal === "string" ? { refusal: message.refusal } : {}),
    ...(calls.length > 0 ? { tool_calls: calls.map((call) => toToolCall(call, unknown)) } : {}),
    ...(typeof message.name === "string" ? { name: message.name } : {}),
    ...(extra === undefined ? {} : { extra }),
  };
}

type WireToolCall = NonNullable<Extract<CompletionMessage, { role: "assistant" }>["tool_calls"]>[number];
const NO_CALLS: readonly WireToolCall[] = [];

const MESSAGE_FIELDS: ReadonlySet<string> = new Set(["role", "content", "name"]);
const ASSISTANT_FIELDS: ReadonlySet<string> = new Set(["role", "content", "name", "refusal", "tool_calls"]);
const TOOL_FIELDS: ReadonlySet<string> = new Set(["role", "content", "tool_call_id"]);
const NO_FIELDS: ReadonlySet<string> = new Set();
/** Fields with a message's reasoning, which vendors want back with the tool calls that the reasoning led to */
const VENDOR_FIELDS: ReadonlySet<string> = new Set(["reasoning_content", "reasoning", "reasoning_details"]);
const VENDOR_CALL_FIELDS: ReadonlySet<string> = new Set(["extra_content"]);

type WireContent = NonNullable<CompletionMessage["content"]>;

function toContent(content: WireContent, unknown: Unknown): Content {
  return typeof content === "string" ? content : content.map((part) => toPart(part, unknown));
}

const TEXT_FIELDS: ReadonlySet<string> = new Set(["type", "text"]);
const IMAGE_FIELDS: ReadonlySet<string> = new Set(["type", "image_url"]);
const IMAGE_URL_FIELDS: ReadonlySet<string> = new Set(["url", "detail"]);

function toPart(part: Exclude<WireContent, string>[number], unknown: Unknown): ContentPart {
  if (isTextPart(part)) {
    return { type: "text", text: part.text, ...sortUnknownFields(part, TEXT_FIELDS, "messages[].content[]", unknown) };
  }
  if (!isImagePart(part)) return part;
  const { url, detail } = part.image_url;
  const own = sortUnknownFields(part, IMAGE_FIELDS, "messages[].content[]", unknown);
  const inner = sortUnknownFields(part.image_url, IMAGE_URL_FIELDS, "messages[].content[].image_url", unknown);
  return {
    type: "image_url",
    image_url: { url, ...(typeof detail === "string" ? { detail } : {}), ...inner },
    ...own,
  };
}

const CALL_FIELDS: ReadonlySet<string> = new Set(["id", "type", "function", "index"]);
const CALL_FUNCTION_FIELDS: ReadonlySet<string> = new Set(["name", "arguments"]);

function toToolCall(call: WireToolCall, unknown: Unknown): ToolCall {
  const own = sortUnknownFields(call, CALL_FIELDS, "messages[].tool_calls[]", unknown, VENDOR_CALL_FIELDS);
  const inner = sortUnknownFields(call.function, CALL_FUNCTION_FIELDS, "messages[].tool_calls[].function", unknown);
  return {
    id: call.id,
    type: "function" as const,
    function: { name: call.function.name, arguments: call.function.arguments },
    ...withFunction(own, inner),
  };
}
