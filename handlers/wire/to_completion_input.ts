import { refuse } from "../../lib/base/errors.ts";
import {
  type Content,
  type ContentPart,
  isImagePart,
  isTextPart,
  type Message,
  type ToolCall,
} from "../../lib/base/records/message.ts";
import type { ModelParameters, ModelWishes, ToolChoice, ToolDeclaration } from "../../lib/providers/provider.ts";
import type { AskedAgent, RunAuthor, RunRequest } from "../../lib/runs/run_request.ts";
import type { Write } from "../../lib/storage/store.ts";
import { checkParts, type CompletionBody, type CompletionMessage, type CompletionTool } from "./completion_body.ts";
import { PassedBounds } from "./passed_bounds.ts";
import type { Fields } from "../../lib/base/join_fields.ts";

/** A body of any wire, translated for the start of a run. */
export interface WireInput {
  readonly model: string | undefined;
  readonly messages: readonly Message[];
  readonly stream: boolean;
  readonly wishes: ModelWishes;
  /** Fields that are not honoured, such as `logit_bias` or `messages[].cache_control`, each once */
  readonly ignored: readonly string[];
  /** Fields that reach the model in another form than a chat completion has. Default: none */
  readonly changed?: readonly string[] | undefined;
  /** See RunRequest. Default: the gateway's own agent */
  readonly agent?: AskedAgent | undefined;
  /** How the reply is stored. Default: it is not */
  readonly storing?: ReplyStoring | undefined;
  /** See RunAuthor. Default: the run goes on behind no other */
  readonly after?: RunAuthor["after"];
}

/** Way in which a reply is stored: as a run of a conversation. */
export interface ReplyStoring extends Pick<RunRequest, "conversationId"> {
  /** Returns the writes that go with the first record of the run */
  readonly writes: (runId: string) => readonly Write[];
  /** The run goes on without its client */
  readonly isBackground: boolean;
}

/** A completions body, translated for the start of a run. */
export interface CompletionInput extends WireInput {
  readonly includeUsage: boolean;
}

/** Fields of a request's body that the gateway does not know. */
interface Unknown {
  /** Names of fields that are not copied, each once */
  readonly ignored: string[];
  /** Names of fields that go on to the model, each once */
  readonly passed: string[];
  /** True: every unknown field goes on to the model, within `bounds` */
  readonly plain: boolean;
  /** Undefined before the first field that goes on */
  bounds: PassedBounds | undefined;
}

/**
 * Translates a checked body. Fields that are `null` are left out, and so are limits of -1, which are none. In plain mode unknown fields are copied to the place they came from;
 * those of the body itself, and the names of all, go to `parameters.passed`. Otherwise they are named in `ignored` and not copied, save
 * a vendor's own parts of a reply that the client sends back with a tool call.
 * @throws {HttpError} 400 `unsupported_parameter` for `n` above 1, for `logprobs` where the agent's tools are on, and for the legacy
 * `functions`; 400 `invalid_request` for a tool name given twice, for too many unknown fields, and for a content part that `checkParts` refuses
 */
export function toCompletionInput(
  body: CompletionBody,
  { plain = false }: {
    /** The agent's own tools are off: unknown fields go on to the model. Default false: they are named in `ignored` */
    readonly plain?: boolean;
  } = {},
): CompletionInput {
  if ((body.n ?? 1) > 1) {
    throw unsupported(
      "n",
      `Cannot make ${body.n} choices: this gateway makes one a request, so leave "n" out or send 1`,
    );
  }
  if (body.logprobs && !plain) {
    throw unsupported(
      "logprobs",
      'Cannot give "logprobs" for a reply in which the agent uses its own tools: leave it out, or turn those tools off with the ' +
        'header "x-postern-tools: none" or the model "plain/<id>"',
    );
  }
  const unknown: Unknown = { ignored: [], passed: [], plain, bounds: undefined };
  const parameters: Record<string, unknown> = {};
  const unlimited: string[] = [];
  let passedBody: [string, unknown][] | undefined;
  for (const key in body) {
    // The key was just listed on this object
    const value = (body as Record<string, unknown>)[key];
    if (value === null || value === undefined || OWN_FIELDS.has(key)) continue;
    if (PARAMETERS.has(key)) {
      if (value !== -1 || !key.startsWith("max_")) parameters[key] = value;
      else if (plain) unlimited.push(key);
    } else if (key === "functions" || key === "function_call") {
      throw unsupported(key, `Cannot honour "${key}": use "${key === "functions" ? "tools" : "tool_choice"}" instead`);
    } else if (key !== "logprobs" || value === true) {
      addOnce(plain ? unknown.passed : unknown.ignored, key);
      if (!plain) continue;
      (unknown.bounds ??= new PassedBounds()).add(key, value, passedBody?.length ?? 0);
      (passedBody ??= []).push([key, value]);
    }
  }
  if (body.stream_options) {
    const options = body.stream
      ? sortUnknownFields(body.stream_options, STREAM_OPTIONS, "stream_options", unknown)
      : undefined;
    if (!body.stream) addOnce(unknown.ignored, "stream_options");
    else if (options !== undefined) (passedBody ??= []).push(["stream_options", options]);
  }
  checkParts(body.messages, { plain });
  const clientTools = body.tools ? toTools(body.tools, unknown) : NO_TOOLS;
  const messages = body.messages.map((message) => toMessage(message, unknown));
  const { ignored, passed: names } = unknown;
  if (names.length > 0) parameters["passed"] = { body: Object.fromEntries(passedBody ?? []), names };
  return {
    model: body.model ?? undefined,
    messages,
    stream: body.stream ?? false,
    includeUsage: body.stream_options?.include_usage ?? false,
    wishes: {
      clientTools,
      toolChoice: toToolChoice(body.tool_choice),
      parallelToolCalls: body.parallel_tool_calls ?? undefined,
      // Holds only fields that the schema has checked and ModelParameters names
      parameters: parameters as ModelParameters,
    },
    ignored,
    changed: unlimited,
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

const TOOL_DECLARATION_FIELDS: ReadonlySet<string> = new Set(["type", "function"]);
const FUNCTION_FIELDS: ReadonlySet<string> = new Set(["name", "description", "parameters", "strict"]);

function toTools(tools: readonly CompletionTool[], unknown: Unknown): readonly ToolDeclaration[] {
  const seen = new Set<string>();
  return tools.map((declared, index) => {
    const tool = declared.function;
    const own = sortUnknownFields(declared, TOOL_DECLARATION_FIELDS, "tools[]", unknown);
    const inner = sortUnknownFields(tool, FUNCTION_FIELDS, "tools[].function", unknown);
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
      ...withFunction(own, inner),
    };
  });
}

function toToolChoice(choice: CompletionBody["tool_choice"]): ToolChoice | undefined {
  if (choice === null || choice === undefined) return undefined;
  return typeof choice === "string" ? choice : { name: choice.function.name };
}

function invalid(param: string, message: string) {
  return refuse("invalid_request", message, { param });
}

function unsupported(param: string, message: string) {
  return refuse("unsupported_parameter", message, { param });
}

/** Translates one message of a checked body. */
function toMessage(message: CompletionMessage, unknown: Unknown): Message {
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

/**
 * Sorts the unknown fields of an object into passed and ignored ones.
 * @param always names of fields that go on to the model in either mode
 * @returns the fields that go on to the model; undefined when there is none
 */
function sortUnknownFields(
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
    const isVendors = always.has(key);
    const isKept = unknown.plain || isVendors;
    if (unknown.plain && !isVendors) {
      (unknown.bounds ??= new PassedBounds()).add(`${place}.${key}`, value, kept?.length ?? 0);
    }
    if (isKept) (kept ??= []).push([key, value]);
    addOnce(isKept ? unknown.passed : unknown.ignored, `${place}.${key}`);
  }
  return kept && Object.fromEntries(kept);
}

const NO_FIELDS: ReadonlySet<string> = new Set();

/** Adds the name of a field that is not honoured to a list that does not have it. A list, not a set: it is nearly always empty, and bounded. */
export function addOnce(names: string[], name: string): void {
  if (names.length < MAX_IGNORED && !names.includes(name)) names.push(name);
}

/** Most names of fields that are not honoured; the header shows fewer. */
export const MAX_IGNORED = 100;

/** Returns the unknown fields of an object with a `function` in it, such as `extra`. */
function withFunction(own: Fields | undefined, inner: Fields | undefined): { readonly extra?: Fields } {
  if (inner === undefined) return own === undefined ? {} : { extra: own };
  return { extra: { ...own, function: inner } };
}
