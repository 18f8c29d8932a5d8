import { HttpError } from "../../lib/base/errors.ts";
import type { Content, ContentPart, Message } from "../../lib/base/records/message.ts";
import type { ModelParameters, ToolChoice, ToolDeclaration } from "../../lib/providers/provider.ts";
import type { CompletionBody, CompletionMessage, CompletionTool } from "./completion_schema.ts";

/** A completions body in the words of a run. */
export interface CompletionInput {
  readonly model: string | undefined;
  readonly messages: readonly Message[];
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly clientTools: readonly ToolDeclaration[];
  readonly toolChoice: ToolChoice | undefined;
  readonly parallelToolCalls: boolean | undefined;
  readonly parameters: ModelParameters;
  /** Fields that are not honoured, as `logit_bias` or `messages[].cache_control`, each once */
  readonly ignored: readonly string[];
}

/**
 * Translates a checked body. `null` fields are gone, and unknown fields are named in `ignored` instead of copied, so that
 * nothing of the request reaches the model's vendor unseen.
 * @throws {HttpError} 400 `unsupported_parameter` for `n` above 1 and the legacy `functions`; 400 `invalid_request` for a tool
 * name given twice
 */
export function toCompletionInput(body: CompletionBody): CompletionInput {
  if ((body.n ?? 1) > 1) {
    throw unsupported(
      "n",
      `Cannot make ${body.n} choices: this gateway makes one a request, so leave "n" out or send 1`,
    );
  }
  const ignored: string[] = [];
  const parameters: Record<string, unknown> = {};
  for (const key in body) {
    // The key was just listed on this object
    const value = (body as Record<string, unknown>)[key];
    if (value === null || value === undefined || OWN_FIELDS.has(key)) continue;
    if (PARAMETERS.has(key)) parameters[key] = value;
    else if (key === "functions" || key === "function_call") {
      throw unsupported(key, `Cannot honour "${key}": use "${key === "functions" ? "tools" : "tool_choice"}" instead`);
    } else addOnce(ignored, key);
  }
  if (body.stream_options) {
    if (!body.stream) addOnce(ignored, "stream_options");
    else nameUnknown(body.stream_options, STREAM_OPTIONS, "stream_options", ignored);
  }
  const clientTools = body.tools ? toTools(body.tools, ignored) : NO_TOOLS;
  return {
    model: body.model ?? undefined,
    messages: body.messages.map((message) => toMessage(message, ignored)),
    stream: body.stream ?? false,
    includeUsage: body.stream_options?.include_usage ?? false,
    clientTools,
    toolChoice: toToolChoice(body.tool_choice),
    parallelToolCalls: body.parallel_tool_calls ?? undefined,
    // Only fields that the schema has checked and ModelParameters names
    parameters: parameters as ModelParameters,
    ignored,
  };
}

const NO_TOOLS: readonly ToolDeclaration[] = [];

const OWN_FIELDS: ReadonlySet<string> = new Set([
  "model",
  "messages",
  "stream",
  "stream_options",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "n",
]);

const PARAMETERS: ReadonlySet<string> = new Set([
  "temperature",
  "top_p",
  "max_tokens",
  "max_completion_tokens",
  "stop",
  "seed",
  "presence_penalty",
  "frequency_penalty",
  "response_format",
  "reasoning_effort",
  "user",
  "metadata",
]);

const STREAM_OPTIONS: ReadonlySet<string> = new Set(["include_usage"]);

function toMessage(message: CompletionMessage, ignored: string[]): Message {
  switch (message.role) {
    case "system":
    case "developer":
    case "user": {
      nameUnknown(message, MESSAGE_FIELDS, "messages[]", ignored);
      const { role, name } = message;
      const content = toContent(message.content, ignored);
      return typeof name === "string" ? { role, content, name } : { role, content };
    }
    case "assistant":
      nameUnknown(message, ASSISTANT_FIELDS, "messages[]", ignored);
      return {
        role: "assistant",
        content: message.content === null || message.content === undefined ? null : toContent(message.content, ignored),
        ...(typeof message.refusal === "string" ? { refusal: message.refusal } : {}),
        ...(message.tool_calls && message.tool_calls.length > 0
          ? { tool_calls: message.tool_calls.map(toToolCall) }
          : {}),
        ...(typeof message.name === "string" ? { name: message.name } : {}),
      };
    case "tool":
      nameUnknown(message, TOOL_FIELDS, "messages[]", ignored);
      return { role: "tool", content: toContent(message.content, ignored), tool_call_id: message.tool_call_id };
  }
}

const MESSAGE_FIELDS: ReadonlySet<string> = new Set(["role", "content", "name"]);
const ASSISTANT_FIELDS: ReadonlySet<string> = new Set(["role", "content", "name", "refusal", "tool_calls"]);
const TOOL_FIELDS: ReadonlySet<string> = new Set(["role", "content", "tool_call_id"]);

function nameUnknown(fields: object, known: ReadonlySet<string>, place: string, ignored: string[]): void {
  for (const key in fields) {
    // The key was just listed on this object
    if (!known.has(key) && (fields as Record<string, unknown>)[key] !== null) addOnce(ignored, `${place}.${key}`);
  }
}

/** A list, not a set: nearly always empty, and short where it is not. */
function addOnce(names: string[], name: string): void {
  if (names.length < MAX_IGNORED && !names.includes(name)) names.push(name);
}

/** No header tells more */
const MAX_IGNORED = 100;

type WireContent = NonNullable<CompletionMessage["content"]>;

function toContent(content: WireContent, ignored: string[]): Content {
  return typeof content === "string" ? content : content.map((part) => toPart(part, ignored));
}

const TEXT_FIELDS: ReadonlySet<string> = new Set(["type", "text"]);
const IMAGE_FIELDS: ReadonlySet<string> = new Set(["type", "image_url"]);
const IMAGE_URL_FIELDS: ReadonlySet<string> = new Set(["url", "detail"]);

function toPart(part: Exclude<WireContent, string>[number], ignored: string[]): ContentPart {
  switch (part.type) {
    case "text":
      nameUnknown(part, TEXT_FIELDS, "messages[].content[]", ignored);
      return { type: "text", text: part.text };
    case "image_url": {
      const { url, detail } = part.image_url;
      nameUnknown(part, IMAGE_FIELDS, "messages[].content[]", ignored);
      nameUnknown(part.image_url, IMAGE_URL_FIELDS, "messages[].content[].image_url", ignored);
      return { type: "image_url", image_url: typeof detail === "string" ? { url, detail } : { url } };
    }
    case "input_audio":
    case "file":
    case "refusal":
      return part;
  }
}

function toToolCall(call: { id: string; function: { name: string; arguments: string } }) {
  return {
    id: call.id,
    type: "function" as const,
    function: { name: call.function.name, arguments: call.function.arguments },
  };
}

const TOOL_DECLARATION_FIELDS: ReadonlySet<string> = new Set(["type", "function"]);
const FUNCTION_FIELDS: ReadonlySet<string> = new Set(["name", "description", "parameters", "strict"]);

function toTools(tools: readonly CompletionTool[], ignored: string[]): readonly ToolDeclaration[] {
  const seen = new Set<string>();
  return tools.map((declared, index) => {
    const tool = declared.function;
    nameUnknown(declared, TOOL_DECLARATION_FIELDS, "tools[]", ignored);
    nameUnknown(tool, FUNCTION_FIELDS, "tools[].function", ignored);
    if (seen.has(tool.name)) {
      throw invalid(
        `tools[${index}].function.name`,
        `Cannot declare the tool "${tool.name}" twice: rename one of the two`,
      );
    }
    seen.add(tool.name);
    return {
      name: tool.name,
      description: tool.description ?? "",
      parameters: tool.parameters ?? undefined,
      ...(typeof tool.strict === "boolean" ? { strict: tool.strict } : {}),
    };
  });
}

function toToolChoice(choice: CompletionBody["tool_choice"]): ToolChoice | undefined {
  if (choice === null || choice === undefined) return undefined;
  return typeof choice === "string" ? choice : { name: choice.function.name };
}

function invalid(param: string, message: string): HttpError {
  return new HttpError("invalid_request", message, { status: 400, type: "invalid_request_error", param });
}

function unsupported(param: string, message: string): HttpError {
  return new HttpError("unsupported_parameter", message, { status: 400, type: "invalid_request_error", param });
}
