import { refuse } from "../../../lib/base/errors.ts";
import {
  type AssistantMessage,
  type ContentPart,
  isTextPart,
  type Message,
  type ToolCall,
} from "../../../lib/base/records/message.ts";
import {
  FORMAT_HEADERS,
  type ModelParameters,
  type SentRequest,
  type ToolChoice,
  type ToolDeclaration,
} from "../../../lib/providers/provider.ts";
import { PassedBounds } from "../passed_bounds.ts";
import { isSealed, ownedThought, Seals } from "../sealed_fields.ts";
import { checkAddresses } from "../completion_body.ts";
import { addOnce, type WireInput } from "../to_completion_input.ts";
import {
  type MessageBlock,
  type MessagesBody,
  messagesSchema,
  type MessageTool,
  readMessagesBody,
} from "./message_body.ts";

/** Block by which Claude Code tells its vendor whom to bill. It changes with each request, which spoils what other servers keep of a prompt. */
const BILLING = /^x-anthropic-billing-header:/;

/** Names of what a request says and the run's own words have no place for, each once. */
class LeftOut {
  readonly names: string[] = [];
  /** Names of what a chat completion has in another form */
  readonly changed = new Set<string>();
  /** Present: a provider of the same format gets them */
  readonly #bounds: PassedBounds | undefined;

  constructor(isPassed: boolean) {
    this.#bounds = isPassed ? new PassedBounds() : undefined;
  }

  add(name: string): void {
    addOnce(this.names, name);
  }

  /** Adds the fields of an object that are not among the known ones. */
  sort(fields: object, known: ReadonlySet<string>, place: string): void {
    let before = 0;
    for (const name in fields) {
      // The name was just listed on this object
      const value = (fields as Record<string, unknown>)[name];
      if (known.has(name) || value === null || value === undefined) continue;
      const path = place === "" ? name : `${place}.${name}`;
      this.#bounds?.add(path, value, before++);
      this.add(path);
    }
  }
}

/**
 * Translates a body of POST /v1/messages for the start of a run. What a chat completion has no place for is named: in `ignored` where the
 * agent's tools are on, else beside the body, which a provider of the same format gets as it came.
 * @throws {HttpError} 400 `invalid_request` naming the field at fault
 */
export function toMessageInput(json: unknown, { plain, headers }: {
  /** The agent's own tools are off: a provider of the same format gets the body as it came */
  readonly plain: boolean;
  /** Headers of the request, of which those of the format go on with the body */
  readonly headers: Headers;
}): WireInput {
  const body = readMessagesBody(json);
  const left = new LeftOut(plain);
  left.sort(body, BODY_FIELDS, "");
  const messages = toMessages(body, left, plain);
  const clientTools = toTools(body.tools ?? [], left);
  const parameters = toParameters(body, left);
  const passed = plain
    ? {
      passed: {
        body: {},
        names: left.names,
        changed: [...left.changed],
        sent: sentRequest(body, headers),
      } satisfies ModelParameters["passed"],
    }
    : {};
  return {
    model: body.model ?? undefined,
    messages,
    stream: body.stream ?? false,
    wishes: {
      clientTools,
      toolChoice: toToolChoice(body, { clientTools, left, plain }),
      parallelToolCalls: isSingle(body) ? false : undefined,
      givesThoughts: true,
      parameters: { ...parameters, ...passed },
    },
    ignored: plain ? [] : left.names,
  };
}

function sentRequest(body: MessagesBody, headers: Headers): SentRequest {
  const given = FORMAT_HEADERS.flatMap((name) => {
    const value = headers.get(name);
    return value === null ? [] : [[name, value] as const];
  });
  return { format: "messages", body: withoutUnsigned(body), headers: Object.fromEntries(given) };
}

/** Leaves out thinking that the gateway told without the vendor's signature, of another vendor or beside the agent's tools: the vendor refuses it. */
function withoutUnsigned(body: MessagesBody): MessagesBody {
  const isUnsigned = ({ type, signature, data }: MessageBlock) =>
    (type === "thinking" && (signature === "" || isSealed(signature))) ||
    (type === "redacted_thinking" && isSealed(data));
  const { messages } = body;
  if (!messages.some(({ content }) => typeof content !== "string" && content.some(isUnsigned))) return body;
  const kept = messages.map((message) => {
    const { content } = message;
    return typeof content === "string" ? message : { ...message, content: content.filter((one) => !isUnsigned(one)) };
  });
  return { ...body, messages: kept.filter(({ content }) => content.length > 0) };
}

const BODY_FIELDS: ReadonlySet<string> = new Set(
  Object.keys(messagesSchema.entries).filter((name) => name !== "top_k"),
);

function toParameters(body: MessagesBody, left: LeftOut): ModelParameters {
  const { max_tokens, temperature, top_p, stop_sequences: stop, metadata, output_config: output } = body;
  const effort = effortOf(body);
  const user = metadata?.user_id;
  if (effort !== undefined) left.changed.add("thinking");
  if (metadata) left.sort(metadata, METADATA_FIELDS, "metadata");
  if (body.thinking) left.sort(body.thinking, THINKING_FIELDS, "thinking");
  if (output) left.sort(output, OUTPUT_FIELDS, "output_config");
  if (output?.effort && body.thinking?.type !== "adaptive") left.add("output_config.effort");
  return {
    ...(typeof max_tokens === "number" ? { max_tokens } : {}),
    ...(typeof temperature === "number" ? { temperature } : {}),
    ...(typeof top_p === "number" ? { top_p } : {}),
    ...(stop && stop.length > 0 ? { stop } : {}),
    ...(typeof user === "string" ? { user } : {}),
    ...(effort === undefined ? {} : { reasoning_effort: effort, limit_holds_thinking: true }),
    ...(output?.format ? { response_format: toResponseFormat(output.format) } : {}),
  };
}

const METADATA_FIELDS: ReadonlySet<string> = new Set(["user_id"]);
const THINKING_FIELDS: ReadonlySet<string> = new Set(["type", "budget_tokens", "display"]);
const OUTPUT_FIELDS: ReadonlySet<string> = new Set(["effort", "format"]);

/** Tokens of thinking up to which an effort is meant; more is `high`. */
const EFFORTS: readonly (readonly [tokens: number, effort: string])[] = [[4_096, "low"], [12_288, "medium"]];

function effortOf({ thinking, output_config: output }: MessagesBody): string | undefined {
  if (!thinking || thinking.type === "disabled") return undefined;
  if (thinking.type === "enabled") {
    const budget = thinking.budget_tokens ?? 0;
    return EFFORTS.find(([tokens]) => budget <= tokens)?.[1] ?? "high";
  }
  const effort = output?.effort ?? "medium";
  return effort === "low" || effort === "medium" ? effort : "high";
}

function toResponseFormat(format: { readonly type: string; readonly schema?: unknown }) {
  return format.type === "json_schema"
    ? { type: "json_schema", json_schema: { name: "reply", schema: format.schema, strict: true } }
    : format;
}

function isSingle({ tool_choice: choice }: MessagesBody): boolean {
  return choice?.type !== "none" && choice?.disable_parallel_tool_use === true;
}

function toToolChoice(
  { tool_choice: choice, tools }: MessagesBody,
  { clientTools, left, plain }: {
    readonly clientTools: readonly ToolDeclaration[];
    readonly left: LeftOut;
    readonly plain: boolean;
  },
): ToolChoice | undefined {
  switch (choice?.type) {
    case "any":
      return "required";
    case "auto":
    case "none":
      return choice.type;
    case "tool": {
      const isVendors = tools?.some((tool) => tool.name === choice.name) === true &&
        !clientTools.some((tool) => tool.name === choice.name);
      if (!isVendors) return { name: choice.name };
      if (plain) return void left.add("tool_choice");
      throw invalid(
        "tool_choice.name",
        `Cannot choose the tool "${choice.name}": it is one that Anthropic defines, and with the agent's tools on no model gets those`,
      );
    }
    case undefined:
      return undefined;
  }
}

const TOOL_FIELDS: ReadonlySet<string> = new Set(["name", "type", "description", "input_schema", "strict"]);

function toTools(tools: readonly MessageTool[], left: LeftOut): readonly ToolDeclaration[] {
  const seen = new Set<string>();
  return tools.flatMap((tool, index) => {
    const { name, type, description, input_schema: parameters, strict } = tool;
    if (seen.has(name)) {
      throw invalid(`tools[${index}].name`, `Cannot accept "tools[${index}].name": two tools have it`);
    }
    seen.add(name);
    if (typeof type === "string" && type !== "custom") {
      left.add(`tools[${type}]`);
      return [];
    }
    left.sort(tool, TOOL_FIELDS, "tools[]");
    return [{
      name,
      description: description ?? "",
      parameters: parameters ?? undefined,
      ...(typeof strict === "boolean" ? { strict } : {}),
    }];
  });
}

function toMessages({ system, messages }: MessagesBody, left: LeftOut, plain: boolean): readonly Message[] {
  const instructions = typeof system === "string" ? system : (system ?? []).flatMap((block) => {
    left.sort(block, TEXT_FIELDS, "system[]");
    if (!BILLING.test(block.text)) return [block.text];
    left.add("system[x-anthropic-billing-header]");
    return [];
  }).join("\n\n");
  const said: Message[] = instructions === "" ? [] : [{ role: "system", content: instructions }];
  const seals = new Seals();
  messages.forEach((message, index) => {
    left.sort(message, MESSAGE_FIELDS, "messages[]");
    const { role, content } = message;
    if (typeof content === "string") said.push({ role, content });
    else if (role === "assistant") toAssistant(content, { left, said, seals });
    else toUser(content, { role, left, plain, place: () => `messages[${index}].content`, said });
  });
  return said;
}

const MESSAGE_FIELDS: ReadonlySet<string> = new Set(["role", "content"]);
const TEXT_FIELDS: ReadonlySet<string> = new Set(["type", "text"]);
const CALL_FIELDS: ReadonlySet<string> = new Set(["type", "id", "name", "input"]);
const RESULT_FIELDS: ReadonlySet<string> = new Set(["type", "tool_use_id", "content", "is_error"]);
const IMAGE_FIELDS: ReadonlySet<string> = new Set(["type", "source"]);
const DOCUMENT_FIELDS: ReadonlySet<string> = new Set(["type", "source", "title", "context"]);
const BLOCK_PLACE = "messages[].content[]";

/** Text of a turn is one text: its blocks are pieces of it. Thinking goes back to a vendor that takes it, beside the calls that it led to. */
function toAssistant(
  blocks: readonly MessageBlock[],
  { left, said, seals }: Pick<UserPlace, "left" | "said"> & { readonly seals: Seals },
): void {
  let text = "";
  let thinking = "";
  let opaque: AssistantMessage["opaque"];
  const calls: ToolCall[] = [];
  for (const block of blocks) {
    // The schema has checked each block by its type; the loose last alternative hides that from the compiler
    if (is(block, "text")) {
      left.sort(block, TEXT_FIELDS, BLOCK_PLACE);
      text += block.text;
    } else if (is(block, "thinking")) {
      thinking += block.thinking;
      opaque = ownedThought(seals.open(block.signature)) ?? opaque;
    } else if (is(block, "redacted_thinking") && isSealed(block.data)) {
      opaque = ownedThought(seals.open(block.data)) ?? opaque;
    } else if (is(block, "tool_use")) {
      left.sort(block, CALL_FIELDS, BLOCK_PLACE);
      const { id, name, input } = block;
      calls.push({ id, type: "function", function: { name, arguments: JSON.stringify(input) } });
    } else left.add(`messages[].content[${block.type}]`);
  }
  if (text === "" && calls.length === 0) return;
  said.push({
    role: "assistant",
    content: text === "" ? null : text,
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
    ...(calls.length === 0 || thinking === "" ? {} : { extra: { reasoning_content: thinking } }),
    ...(calls.length === 0 || opaque === undefined ? {} : { opaque }),
  });
}

interface UserPlace {
  readonly role: "user" | "system";
  readonly left: LeftOut;
  readonly plain: boolean;
  /** Returns the place of the content, such as `messages[2].content` */
  readonly place: () => string;
  /** Receives the messages */
  readonly said: Message[];
}

/** Results of calls come first, and what they hold beside text is in the user's own message, where every vendor takes it. */
function toUser(blocks: readonly MessageBlock[], { role, left, plain, place, said }: UserPlace): void {
  const parts: ContentPart[] = [];
  blocks.forEach((block, index) => {
    const at = { left, plain, place: () => `${place()}[${index}]` };
    if (!is(block, "tool_result")) {
      for (const part of toParts(block, at)) parts.push(part);
      return;
    }
    left.sort(block, RESULT_FIELDS, BLOCK_PLACE);
    const { tool_use_id, content, is_error } = block;
    const failed = is_error === true ? { is_error } : {};
    if (typeof content === "string" || !content) {
      said.push({ role: "tool", tool_call_id: tool_use_id, content: content ?? "", ...failed });
      return;
    }
    const given = content.flatMap((part, i) => toParts(part, { ...at, place: () => `${at.place()}.content[${i}]` }));
    const text = given.filter(isTextPart).map(({ text }) => text).join("\n");
    said.push({ role: "tool", tool_call_id: tool_use_id, content: text, ...failed });
    if (given.every(isTextPart)) return;
    left.changed.add("messages[].content[].content");
    parts.push({ type: "text", text: `[Postern] Of the result of the tool call ${JSON.stringify(tool_use_id)}:` });
    for (const part of given) if (!isTextPart(part)) parts.push(part);
  });
  if (parts.length === 0) return;
  said.push({ role, content: parts.every(isTextPart) ? parts.map(({ text }) => text).join("\n\n") : parts });
}

type BlockOf<Type extends string> = Extract<MessageBlock, { readonly type: Type }>;

/** Tells whether a checked block has this type: the schema has found its fields. */
function is<Type extends string>(block: MessageBlock, type: Type): block is BlockOf<Type> {
  return block.type === type;
}

interface PartPlace extends Omit<UserPlace, "role" | "said"> {}

function toParts(block: MessageBlock, { left, plain, place }: PartPlace): readonly ContentPart[] {
  if (is(block, "text")) {
    left.sort(block, TEXT_FIELDS, BLOCK_PLACE);
    return [{ type: "text", text: block.text }];
  }
  if (is(block, "image")) {
    left.sort(block, IMAGE_FIELDS, BLOCK_PLACE);
    const url = urlOf(block.source);
    if (url !== undefined) return [{ type: "image_url", image_url: { url } }];
  } else if (is(block, "document")) {
    left.sort(block, DOCUMENT_FIELDS, BLOCK_PLACE);
    const parts = documentParts(block, { left, plain, place });
    if (parts !== undefined) return parts;
  } else if (block.type === "search_result") {
    return [{ type: "text", text: searchText(block) }];
  } else if (block.type === "tool_reference") {
    // Every tool is told at once, so that nothing but the words is left of it
    return [{ type: "text", text: `This tool can be called from now on: ${String(block["tool_name"])}` }];
  } else checkAddresses(block, place());
  // A server of the format gets the body as it came, and any other says by itself what it does not take
  if (plain) return [{ ...block, type: block.type === "image" ? "image_file" : block.type }];
  const param = place();
  throw invalid(
    param,
    `Cannot accept "${param}": with the agent's tools on, send texts, and images and PDF documents as base64, or images by their URL`,
  );
}

type Source = BlockOf<"document">["source"];

function urlOf(source: Source): string | undefined {
  switch (source.type) {
    case "base64":
      return `data:${source["media_type"]};base64,${source["data"]}`;
    case "url":
      return String(source["url"]);
    default:
      return undefined;
  }
}

function documentParts(block: BlockOf<"document">, at: PartPlace): readonly ContentPart[] | undefined {
  const { source, title, context } = block;
  const head = [title, context].filter((text) => typeof text === "string" && text !== "").join("\n");
  const named = (text: string): ContentPart => ({ type: "text", text: head === "" ? text : `${head}\n${text}` });
  switch (source.type) {
    case "text":
      return [named(String(source["data"]))];
    case "content": {
      const { content } = source as Extract<Source, { readonly type: "content" }>; // by its type
      if (typeof content === "string") return [named(content)];
      const parts = content.flatMap((inner, i) =>
        toParts(inner, { ...at, place: () => `${at.place()}.source.content[${i}]` })
      );
      return head === "" ? parts : [{ type: "text", text: head }, ...parts];
    }
    case "base64": {
      const file = { type: "file", file: { filename: title || "document.pdf", file_data: urlOf(source) } };
      return context ? [{ type: "text", text: context }, file] : [file];
    }
    default:
      return undefined;
  }
}

/** Returns a result of a search as a text with its title and its source. */
function searchText(block: Readonly<Record<string, unknown>>): string {
  const content = Array.isArray(block["content"]) ? block["content"] : [];
  const texts = content.flatMap((part: unknown) => {
    const text = typeof part === "object" && part !== null && "text" in part ? part.text : undefined;
    return typeof text === "string" ? [text] : [];
  });
  return [block["title"], block["source"]].filter((text) => typeof text === "string").concat(texts).join("\n");
}

function invalid(param: string, message: string) {
  return refuse("invalid_request", message, { param });
}
