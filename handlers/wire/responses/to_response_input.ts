import { refuse } from "../../../lib/base/errors.ts";
import { isRecord } from "../../../lib/base/json.ts";
import {
  type AssistantMessage,
  type ContentPart,
  isTextPart,
  type Message,
  summaryMessages,
  type ToolCall,
} from "../../../lib/base/records/message.ts";
import type { ModelParameters } from "../../../lib/providers/provider.ts";
import { addOnce, type ReplyStoring, type WireInput } from "../to_completion_input.ts";
import { ownedThought, Seals } from "../sealed_fields.ts";
import { type ResponseBody, type ResponseItem, type ResponsePart, responseSchema } from "./response_body.ts";
import { CLIENT_SEARCH, CUSTOM_INPUT, flatName, type NamedTool, toFound, toResponseTools } from "./response_tools.ts";

/** Facts of a request that its reply depends on. */
export interface ResponseForm {
  /** The body as it came, whose fields the reply repeats */
  readonly body: ResponseBody;
  /** Tools of the client by the name that the model is told */
  readonly named: ReadonlyMap<string, NamedTool>;
  /** The reply's reasoning has `encrypted_content` */
  readonly sealsReasoning: boolean;
  /** The reply shows calls of the agent's own tools */
  readonly showsOwnCalls: boolean;
  /** The reply is stored */
  readonly isStored: boolean;
  /** The reply is one item that stands for the messages. Default: it answers them */
  readonly condenses?: boolean | undefined;
}

/** A body of POST /v1/responses, translated for the start of a run. */
export interface ResponseInput extends WireInput, ResponseForm {}

/** Returns what the reply to a request depends on. */
export function toResponseForm(
  body: ResponseBody,
  { named, isStored }: Pick<ResponseForm, "named" | "isStored">,
): ResponseForm {
  const include = body.include ?? [];
  return {
    body,
    named,
    isStored,
    sealsReasoning: include.includes(SEALED_REASONING),
    showsOwnCalls: include.includes(OWN_CALLS),
  };
}

/** Name under which `include` asks for the calls of the agent's own tools. */
export const OWN_CALLS = "postern:tool_calls";
const SEALED_REASONING = "reasoning.encrypted_content";

/**
 * Translates a checked body. In plain mode fields that chat completions have too go on to the model; any other field that is not honoured
 * is named in `ignored`.
 * @param options.storing how the reply is stored. Undefined: it is not
 * @param options.condenses true: the reply is a compaction, as after a trigger at the end of the input. Default: it answers
 * @param options.brought items of earlier responses that bring tools. Default: none
 * @throws {HttpError} 400 `unsupported_parameter` for prompts and files that are kept at the vendor, and where the reply is not stored for fields
 *   that need a stored one; 400 `invalid_request` for a request without input
 */
export function toResponseInput(
  body: ResponseBody,
  { plain, storing, condenses = false, brought }: {
    readonly plain: boolean;
    readonly storing?: ReplyStoring | undefined;
    readonly condenses?: boolean;
    readonly brought?: readonly ResponseItem[];
  },
): ResponseInput {
  const ignored: string[] = [];
  refuseUnsupported(body, { isStored: storing !== undefined, plain, condenses });
  const tools = toResponseTools(body, ignored, brought);
  const include = body.include ?? [];
  for (const key in body) {
    const value = body[key];
    if (value !== null && value !== undefined && !Object.hasOwn(responseSchema.entries, key)) addOnce(ignored, key);
  }
  if (body.store === true && (plain || condenses)) addOnce(ignored, "store");
  if (body.truncation === "auto") addOnce(ignored, "truncation");
  if (body.top_logprobs) addOnce(ignored, "top_logprobs");
  if (body.stream_options?.include_obfuscation) addOnce(ignored, "stream_options.include_obfuscation");
  if (plain && typeof body.max_tool_calls === "number") addOnce(ignored, "max_tool_calls");
  for (const name of include) if (name !== OWN_CALLS && name !== SEALED_REASONING) addOnce(ignored, `include.${name}`);
  const goesOn = condenses && typeof body.previous_response_id === "string";
  const messages = toMessages(goesOn ? body.input || [TRIGGER] : body.input, ignored);
  const isSaid = goesOn || messages.some(({ role }) => !condenses || (role !== "system" && role !== "developer"));
  const nothing = 'Cannot accept "input": it holds nothing for the model';
  if (!isSaid) throw refuse("invalid_request", nothing, { param: "input" });
  const { instructions } = body;
  const ruled = typeof instructions === "string" && instructions !== "" ? instructions : undefined;
  return {
    model: body.model ?? undefined,
    messages: plain && ruled !== undefined ? [{ role: "system", content: ruled }, ...messages] : messages,
    stream: body.stream ?? false,
    // A summary is asked for without tools, in the gateway's own words
    wishes: condenses ? { clientTools: [], parameters: {}, condenses } : {
      clientTools: tools.declared,
      toolChoice: tools.choice,
      parallelToolCalls: body.parallel_tool_calls ?? undefined,
      parameters: toParameters(body, { plain, ignored }),
      ...(include.includes(SEALED_REASONING) ? { givesThoughts: true } : {}),
    },
    ignored,
    changed: plain && tools.named.size > 0 ? changedTools([...tools.named.values()]) : undefined,
    agent: plain ? undefined : {
      instructions: ruled,
      limits: typeof body.max_tool_calls === "number" ? { maxToolCalls: body.max_tool_calls } : undefined,
    },
    storing,
    condenses,
    ...toResponseForm(body, { named: tools.named, isStored: storing !== undefined }),
  };
}

const TRIGGER = { type: "compaction_trigger" } as const;

/** Tells whether a request asks for a compaction in place of an answer. */
export function isTriggered({ input }: ResponseBody): boolean {
  return Array.isArray(input) && input.some(({ type }) => type === TRIGGER.type);
}

/** Returns the kinds of tools that the model is told of as functions. */
function changedTools(tools: readonly NamedTool[]): readonly string[] {
  return [
    ...(tools.some(({ kind }) => kind === "custom") ? ["tools[].custom"] : []),
    ...(tools.some(({ namespace }) => namespace !== undefined) ? ["tools[].namespace"] : []),
  ];
}

/** Fields that go on to the model in plain mode, and are named in `ignored` otherwise. */
const PASSED = ["safety_identifier", "prompt_cache_key", "service_tier"] as const;

function refuseUnsupported(
  body: ResponseBody,
  { isStored, plain, condenses }: {
    readonly isStored: boolean;
    readonly plain: boolean;
    readonly condenses: boolean;
  },
): void {
  if (isRecord(body["prompt"])) {
    throw unsupported("prompt", 'it is kept at the vendor; send its text as "instructions" or "input"');
  }
  const field = STATEFUL.find((name) =>
    (body[name] ?? false) !== false && (!condenses || plain || name !== "previous_response_id")
  );
  if (isStored || field === undefined) return;
  const where = plain
    ? "plain mode keeps nothing of a reply"
    : condenses
    ? "nothing is kept of a compaction"
    : '"store": false keeps nothing of this reply';
  throw unsupported(field, `${where}; ${field === "background" ? BACKGROUND : HISTORY}`);
}

/** Fields that a reply must be stored for. */
const STATEFUL = ["previous_response_id", "conversation", "background"] as const;
const HISTORY = 'send the whole history as "input"';
const BACKGROUND = "POST /v1/runs starts work that goes on by itself";

function unsupported(param: string, reason: string) {
  return refuse("unsupported_parameter", `Cannot honour "${param}": ${reason}`, { param });
}

function toParameters(
  body: ResponseBody,
  { plain, ignored }: { readonly plain: boolean; readonly ignored: string[] },
): ModelParameters {
  const passed: Record<string, unknown> = {};
  for (const name of PASSED) if (typeof body[name] === "string") passed[name] = body[name];
  if (typeof body.text?.verbosity === "string") passed["verbosity"] = body.text.verbosity;
  const names = Object.keys(passed);
  if (!plain) { for (const name of names) addOnce(ignored, name === "verbosity" ? "text.verbosity" : name); }
  const parameters: Record<string, unknown> = {};
  // Only fields with a value, since a present one goes on to the model
  const add = (name: keyof ModelParameters, value: unknown) => {
    if (value !== undefined && value !== null) parameters[name] = value;
  };
  add("temperature", body.temperature);
  add("top_p", body.top_p);
  add("presence_penalty", body.presence_penalty);
  add("frequency_penalty", body.frequency_penalty);
  add("max_completion_tokens", body.max_output_tokens);
  add("reasoning_effort", body.reasoning?.effort);
  add("response_format", toFormat(body.text?.format));
  add("user", body.user);
  add("metadata", body.metadata);
  if (plain && names.length > 0) add("passed", { body: passed, names });
  // Holds only fields that the schema has checked, under names of ModelParameters
  return parameters as ModelParameters;
}

function toFormat(format: NonNullable<ResponseBody["text"]>["format"]): ModelParameters["response_format"] {
  if (!format || format.type === "text") return undefined;
  if (format.type === "json_object") return { type: "json_object" };
  const { type, ...schema } = format;
  return { type, json_schema: schema };
}

/** Fields of the model's reasoning: those that every vendor may get, and those that go back to the provider that gave them. */
type Thought = Pick<AssistantMessage, "extra" | "opaque">;

/** Messages of the model that items of one turn are put together to. */
interface Turn {
  texts: string[];
  refusal: string;
  thought: Thought;
  calls: ToolCall[];
}

function toMessages(input: ResponseBody["input"], ignored: string[]): readonly Message[] {
  if (input === undefined || input.length === 0) {
    throw refuse("invalid_request", 'Cannot accept "input": it is missing', { param: "input" });
  }
  if (typeof input === "string") return [{ role: "user", content: input }];
  const messages: Message[] = [];
  const sealed = { ignored, seals: new Seals() };
  let turn: Turn | undefined;
  const own = () => (turn ??= { texts: [], refusal: "", thought: {}, calls: [] });
  const flush = () => {
    if (turn !== undefined) messages.push(...toAssistant(turn));
    turn = undefined;
  };
  input.forEach((item, at) => {
    if (isOf(item, "compaction_trigger")) {
      const param = `input[${at}]`;
      const message = `Cannot accept "${param}": a compaction_trigger must be the last item of the input`;
      if (at < input.length - 1) throw refuse("invalid_request", message, { param });
    } else if (isOf(item, "compaction")) {
      flush();
      // Behind a last message of the assistant models go on with its text, or refuse
      messages.push(...toSummary(item, sealed).slice(0, at === input.length - 1 ? 1 : 2));
    } else if (isOf(item, "reasoning")) {
      if (turn !== undefined && (turn.texts.length > 0 || turn.calls.length > 0)) flush();
      own().thought = joinThoughts(own().thought, toThought(item, sealed));
    } else if (isOf(item, "function_call")) own().calls.push(toCall(item, item.arguments));
    else if (isOf(item, "custom_tool_call")) {
      own().calls.push(toCall(item, JSON.stringify({ [CUSTOM_INPUT]: item.input })));
    } else if (isOf(item, "tool_search_call") && isAtClient(item)) {
      const { call_id, arguments: given = {} } = item;
      own().calls.push(
        toCall({ call_id, name: CLIENT_SEARCH }, typeof given === "string" ? given : JSON.stringify(given)),
      );
    } else if (isOf(item, "additional_tools")) {
      // The tools of this item are told beside those of the request
    } else if (isOf(item, "message") && item.role === "assistant") {
      if (turn !== undefined && turn.texts.length > 0) flush();
      const { texts, refusal } = toSaid(item.content);
      const said = own();
      said.texts.push(...texts);
      said.refusal += refusal;
    } else {
      flush();
      const message = toMessage(item, at, ignored);
      if (message !== undefined) messages.push(message);
    }
  });
  flush();
  return messages;
}

type Item<T extends string> = Extract<ResponseItem, { type: T }> & { readonly type: T };

/** Tells whether a checked item is of this type, whose schema then has passed. */
function isOf<T extends KnownType>(item: ResponseItem, type: T): item is Item<T> {
  return item.type === type;
}
type KnownType =
  | "message"
  | "function_call"
  | "function_call_output"
  | "custom_tool_call"
  | "custom_tool_call_output"
  | "tool_search_call"
  | "tool_search_output"
  | "additional_tools"
  | "reasoning"
  | "compaction"
  | "compaction_trigger"
  | "item_reference";

function toMessage(item: ResponseItem, at: number, ignored: string[]): Message | undefined {
  if (isOf(item, "message")) {
    const { role, content } = item;
    // An assistant's message is put together with what it stands beside
    return role === "assistant" ? undefined : { role, content: toContent(content, () => `input[${at}].content`) };
  }
  if (isOf(item, "function_call_output") || isOf(item, "custom_tool_call_output")) {
    return { role: "tool", tool_call_id: item.call_id, content: toContent(item.output, () => `input[${at}].output`) };
  }
  if (isOf(item, "tool_search_output") && isAtClient(item)) {
    return { role: "tool", tool_call_id: item.call_id, content: toFound(item.tools) };
  }
  if (isOf(item, "item_reference")) {
    const param = `input[${at}]`;
    throw refuse(
      "unsupported_parameter",
      `Cannot find the item of "${param}": plain mode keeps nothing of a reply; send the item itself`,
      { param },
    );
  }
  addOnce(ignored, `input[].${item.type}`);
  return undefined;
}

/** Tells whether a search is one that the client executed, which its model called. */
function isAtClient<T extends Item<"tool_search_call"> | Item<"tool_search_output">>(
  item: T,
): item is T & { readonly call_id: string } {
  return typeof item.call_id === "string" && item.execution !== "server";
}

function toCall(
  item: Pick<Item<"function_call">, "call_id" | "name"> & { readonly namespace?: string | null | undefined },
  given: string,
): ToolCall {
  const name = flatName(item.name, item.namespace);
  return { id: item.call_id, type: "function", function: { name, arguments: given } };
}

function toAssistant({ texts, refusal, thought, calls }: Turn): readonly AssistantMessage[] {
  if (texts.length === 0 && refusal === "" && calls.length === 0) return [];
  return [{
    role: "assistant",
    content: texts.length === 0 ? null : texts.join("\n\n"),
    ...(refusal === "" ? {} : { refusal }),
    // Vendors want reasoning back with the calls that it led to
    ...(calls.length === 0 ? {} : { tool_calls: calls, ...thought }),
  }];
}

/** The vendor's own fields, of which the gateway reads the texts */
const THOUGHT_FIELDS: Readonly<Record<string, (value: unknown) => boolean>> = {
  reasoning_content: isText,
  reasoning: isText,
  reasoning_details: Array.isArray,
};

function joinThoughts(before: Thought, { extra, opaque }: Thought): Thought {
  return {
    ...before,
    ...(extra === undefined ? {} : { extra: { ...before.extra, ...extra } }),
    ...(opaque === undefined ? {} : { opaque: { ...before.opaque, ...opaque } }),
  };
}

/** Reader of the sealed texts of a body, and the list that names what it cannot read. */
interface SealedPlace {
  readonly ignored: string[];
  readonly seals: Seals;
}

function toThought(item: Item<"reasoning">, { ignored, seals }: SealedPlace): Thought {
  const sealed = item.encrypted_content;
  const fields = seals.open(sealed);
  const known = Object.entries(THOUGHT_FIELDS).filter(([name]) => fields?.[name] !== undefined);
  if (known.length > 0 && known.every(([name, fits]) => fits(fields?.[name]))) {
    const { reasoning_details: _, ...extra } = Object.fromEntries(known.map(([name]) => [name, fields?.[name]]));
    const opaque = ownedThought(fields);
    return {
      ...(Object.keys(extra).length === 0 ? {} : { extra }),
      ...(opaque === undefined ? {} : { opaque }),
    };
  }
  if (typeof sealed === "string") addOnce(ignored, "input[].encrypted_content");
  const parts = [...(item.content?.length ? item.content : item.summary ?? [])];
  const text = parts.flatMap((part) => "text" in part ? [part.text] : []).join("\n");
  return text === "" ? {} : { extra: { reasoning_content: text } };
}

/** Most characters of a summary that is taken back: several times what the gateway makes. */
const MAX_SUMMARY = 16_384;

/** Returns the messages of the user and the assistant that a compaction stands for. Attack: anybody may have written it, so it instructs nobody. */
function toSummary(item: Item<"compaction">, { ignored, seals }: SealedPlace): readonly Message[] {
  const summary = seals.open(item.encrypted_content)?.["summary"];
  if (typeof summary === "string" && summary.length <= MAX_SUMMARY) return summaryMessages("part", summary);
  addOnce(ignored, "input[].compaction");
  return [];
}

function isText(value: unknown): boolean {
  return typeof value === "string";
}

function toSaid(content: string | readonly ResponsePart[]): { readonly texts: string[]; readonly refusal: string } {
  if (typeof content === "string") return { texts: content === "" ? [] : [content], refusal: "" };
  let text: string | undefined;
  let refusal = "";
  for (const part of content) {
    if ("text" in part) text = (text ?? "") + part.text;
    else if (part.type === "refusal") refusal += part.refusal;
  }
  return { texts: text === undefined ? [] : [text], refusal };
}

/** @param place of the content, such as `input[3].output` */
function toContent(content: string | readonly ResponsePart[], place: () => string): string | ContentPart[] {
  if (typeof content === "string") return content;
  const parts = content.map((part, at) => toPart(part, () => `${place()}[${at}]`));
  const [only] = parts;
  return parts.length === 1 && only !== undefined && isTextPart(only) ? only.text : parts;
}

function toPart(part: ResponsePart, place: () => string): ContentPart {
  switch (part.type) {
    case "input_image": {
      if (typeof part.file_id === "string") throw noFile(`${place()}.file_id`);
      const { image_url: url, detail } = part;
      if (typeof url !== "string") throw missing(`${place()}.image_url`);
      return { type: "image_url", image_url: { url, ...(typeof detail === "string" ? { detail } : {}) } };
    }
    case "input_file": {
      if (typeof part.file_id === "string") throw noFile(`${place()}.file_id`);
      if (typeof part.file_url === "string") {
        throw unsupported(`${place()}.file_url`, 'send the file itself as "file_data"');
      }
      if (typeof part.file_data !== "string") throw missing(`${place()}.file_data`);
      const { filename, file_data } = part;
      return { type: "file", file: { ...(typeof filename === "string" ? { filename } : {}), file_data } };
    }
    case "refusal":
      return { type: "text", text: part.refusal };
    default:
      return { type: "text", text: part.text };
  }
}

function noFile(param: string) {
  return unsupported(
    param,
    "no file here has such an id; send the content itself, or POST /v1/files, and name the id that it gives",
  );
}

function missing(param: string) {
  return refuse("invalid_request", `Cannot accept "${param}": it is missing`, { param });
}
