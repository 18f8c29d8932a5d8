import {
  type Content,
  type ContentPart,
  isImagePart,
  isTextPart,
  type Message,
  type ToolCall,
} from "../../lib/base/records/message.ts";
import { type CompletionMessage, IMAGE_URL } from "./completion_body.ts";
import { httpError } from "./http_errors.ts";
import type { Fields } from "../../lib/base/join_fields.ts";

/** Fields of a request's body that the gateway does not know. */
export interface Unknown {
  /** Names of fields that are not copied, each once */
  readonly ignored: string[];
  /** Names of fields that go on to the model, each once */
  readonly passed: string[];
  /** true: every unknown field goes on to the model */
  readonly plain: boolean;
}

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

/** Types of content parts that the gateway knows in either mode. */
const KNOWN_PARTS: ReadonlySet<string> = new Set(["text", "image_url", "input_audio", "file", "refusal"]);
/** Names of fields with an address in a part: `url`, `image_url`, `fileUrl`. */
const ADDRESS_FIELD = /(?:^|_)url$|Url$/;

/**
 * Checks content parts of types that the gateway does not know. In plain mode they go to the model as they came, except one with an
 * address that a model server would read from its own disk. Where the agent's tools are on, they are refused.
 * @throws {HttpError} 400 `invalid_request` naming the part
 */
export function checkParts(messages: readonly CompletionMessage[], { plain }: { readonly plain: boolean }): void {
  for (let i = 0; i < messages.length; i++) {
    const content = messages[i]?.content;
    if (typeof content === "string" || !content) continue;
    for (let j = 0; j < content.length; j++) {
      const part = content[j];
      if (part === undefined || KNOWN_PARTS.has(part.type)) continue;
      const place = `messages[${i}].content[${j}]`;
      if (!plain) throw unknownPart(`${place}.type`, part.type);
      checkAddresses(part, place);
    }
  }
}

/** Checks the address fields of a part and of all objects in it. A body's depth is bounded, and so is the recursion. */
function checkAddresses(value: object, place: string): void {
  for (const [key, member] of Object.entries(value)) {
    const at = Array.isArray(value) ? `${place}[${key}]` : `${place}.${key.slice(0, MAX_SHOWN)}`;
    if (typeof member === "object" && member !== null) checkAddresses(member, at);
    else if (typeof member === "string" && ADDRESS_FIELD.test(key) && !IMAGE_URL.test(member)) {
      throw httpError("invalid_request", `Cannot accept "${at}": expected an http, https or data URL`, { param: at });
    }
  }
}

function unknownPart(param: string, type: string) {
  const shown = JSON.stringify(type.slice(0, MAX_SHOWN));
  return httpError(
    "invalid_request",
    `Cannot accept "${param}" ${shown}: with the agent's tools on, the types are ${
      [...KNOWN_PARTS].join(", ")
    }; the header ` +
      '"x-postern-tools: none" or the model "plain/<id>" passes other parts on to the model',
    { param },
  );
}

const MAX_SHOWN = 64;

/**
 * Sorts the unknown fields of an object into passed and ignored ones.
 * @param always names of fields that go on to the model in either mode
 * @returns the fields that go on to the model; undefined when there is none
 */
export function sortUnknownFields(
  fields: object,
  known: ReadonlySet<string>,
  place: string,
  unknown: Unknown,
  always: ReadonlySet<string> = NO_FIELDS,
): Fields | undefined {
  let kept: [string, unknown][] | undefined;
  for (const key in fields) {
    // The key was just listed on this object
    const value = (fields as Record<string, unknown>)[key];
    if (known.has(key) || value === null || value === undefined) continue;
    const isKept = unknown.plain || always.has(key);
    if (isKept) (kept ??= []).push([key, value]);
    addOnce(isKept ? unknown.passed : unknown.ignored, `${place}.${key}`);
  }
  return kept && Object.fromEntries(kept);
}

const NO_FIELDS: ReadonlySet<string> = new Set();

/** Adds a name to a list that does not have it. A list, not a set: it is nearly always empty, and bounded. */
export function addOnce(names: string[], name: string): void {
  if (names.length < MAX_IGNORED && !names.includes(name)) names.push(name);
}

/** Most names that are kept; the header shows fewer */
const MAX_IGNORED = 100;

/** Returns the unknown fields of an object with a `function` in it, as `extra`. */
export function withFunction(own: Fields | undefined, inner: Fields | undefined): { readonly extra?: Fields } {
  if (inner === undefined) return own === undefined ? {} : { extra: own };
  return { extra: { ...own, function: inner } };
}
