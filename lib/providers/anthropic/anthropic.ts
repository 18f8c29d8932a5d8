import { isRecord, isShallow } from "../../base/json.ts";
import { AnthropicDecoder, CALL_MARK, TEXT_MARK } from "./anthropic_decoder.ts";
import {
  type ModelParameters,
  parameterChanged,
  parameterIgnored,
  type Provider,
  type ProviderRequest,
  type SentRequest,
  thinkingTokens,
} from "../provider.ts";
import { THOUGHT_DETAILS, toThoughtBlocks } from "./thought_details.ts";
import { readDataUrl, splitPictures } from "../picture_parts.ts";
import { readModelList, sendUpstream, TurnStream, type UpstreamSettings } from "../upstream/upstream_http.ts";
import { ProviderError } from "../../base/errors.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";
import type { HttpExchange } from "../../system/net/http_exchange.ts";
import { sendInForm } from "../vendors/send_in_form.ts";
import type { VendorForm, VendorForms } from "../vendors/vendor_forms.ts";
import {
  type AssistantMessage,
  type Content,
  type ContentPart,
  isImagePart,
  isTextPart,
  type Message,
  textOf,
} from "../../base/records/message.ts";

const VERSION = "2023-06-01";
/** The vendor requires a limit */
const DEFAULT_MAX_TOKENS = 8_192;
const UNKNOWN: readonly (keyof ModelParameters)[] = [
  "seed",
  "presence_penalty",
  "frequency_penalty",
  "response_format",
];

/**
 * A provider that speaks the Messages API, always streamed. Parameters the vendor has nothing for are named in a notice.
 * Source: https://docs.anthropic.com/en/api/messages
 */
export function createAnthropic(settings: UpstreamSettings, forms: VendorForms): Provider {
  const { upstream, client } = settings;
  const headers: Record<string, string> = {
    accept: "application/json",
    "anthropic-version": VERSION,
    "content-type": "application/json",
    ...(upstream.key === undefined ? {} : { "x-api-key": upstream.key }),
  };
  return {
    name: upstream.name,
    stream(request, { signal, givesFields, givesThoughts = givesFields }) {
      const { sent } = request.parameters.passed ?? {};
      const given = sent === undefined ? headers : { ...headers, ...sent.headers };
      /** Names of what the request that was sent last leaves out */
      const notices: ProviderEvent[] = [];
      const build = (fitted: ProviderRequest, form: VendorForm, others: readonly string[]) => {
        const { body, ignored, changed } = sent === undefined
          ? toAnthropicRequest(fitted, { provider: upstream.name, form, isPlain: givesFields === true })
          : toSentRequest(fitted, sent);
        const told = givesFields === true ? [...(sent === undefined ? others : []), ...changed] : [];
        notices.splice(0, notices.length, ...ignored.map(parameterIgnored), ...told.map(parameterChanged));
        return body;
      };
      const post = (body: string, onRefusal: (error: ProviderError) => Promise<HttpExchange>) =>
        sendUpstream(settings, { path: "/messages", headers: given, body, signal, onRefusal });
      return new TurnStream({
        upstream,
        // The request is built when it is asked for, so that a refused content part is an error of the stream
        open: () => sendInForm({ forms, provider: upstream.name, request, build, post }),
        decoder: new AnthropicDecoder(upstream, {
          notices,
          givesBlocks: givesFields === true && sent !== undefined,
          givesDetails: givesThoughts === true && sent === undefined,
        }),
      });
    },
    listModels: (signal) => readModelList(settings, { path: "/models?limit=1000", headers, signal }),
    sees: (model) => forms.of(model).sees,
    close: () => client.close(),
  };
}

/** Returns a client's own request of this format: its model resolved, streamed, and within what a budget has granted. */
function toSentRequest(
  { model, parameters: { max_tokens: most } }: ProviderRequest,
  { body }: SentRequest,
): AnthropicRequest {
  const asked = body["max_tokens"] ?? DEFAULT_MAX_TOKENS;
  const max_tokens = typeof asked === "number" && most !== undefined && most < asked ? most : asked;
  const changed = max_tokens === body["max_tokens"] || body["max_tokens"] === undefined ? [] : ["max_tokens"];
  return { body: JSON.stringify({ ...body, model, max_tokens, stream: true }), ignored: [], changed };
}

/** A Messages request, the names of the parameters that the vendor has nothing for, and of those that it takes in another form. */
interface AnthropicRequest {
  readonly body: string;
  readonly ignored: readonly string[];
  readonly changed: readonly string[];
}

type Block = Readonly<Record<string, unknown>>;
interface Turn {
  readonly role: "user" | "assistant";
  readonly content: Block[];
}

/**
 * A chat-completions request as a streamed Messages request: system and developer messages become `system`, tool messages become
 * `tool_result` blocks of the user's turn, neighbouring turns of one role are joined, opaque blocks go back unchanged. The stable
 * beginning is marked for the vendor's cache: https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
 * Source: https://docs.anthropic.com/en/api/messages
 * @param options.provider name under which the opaque parts were kept
 * @throws {ProviderError} `provider_rejected` for content the vendor has no block for, and for a last message that the model refuses
 */
function toAnthropicRequest(
  request: ProviderRequest,
  { provider, form, isPlain }: { readonly provider: string; readonly form: VendorForm; readonly isPlain: boolean },
): AnthropicRequest {
  const { parameters, messages, tools, stableTools = 0 } = request;
  const system = messages
    .flatMap(({ role, content }) => (role === "system" || role === "developer" ? [textOf(content)] : []))
    .filter((text) => text !== "");
  const thinking = thinkingTokens(parameters.reasoning_effort ?? "");
  const limit = parameters.max_completion_tokens ?? parameters.max_tokens ?? DEFAULT_MAX_TOKENS;
  const most = parameters.limit_holds_thinking === true ? limit - 1 : thinking;
  const budget = mayThink(messages, provider) ? budgetOf(thinking, most) : 0;
  const asked = (typeof parameters.stop === "string" ? [parameters.stop] : parameters.stop) ?? [];
  // The vendor refuses sequences of blanks
  const stop = asked.filter((text) => text.trim() !== "");
  const user = parameters.user ?? parameters.metadata?.["user_id"];
  const turns = toTurns(request, provider);
  if (form.takesPrefill === false && turns.at(-1)?.role === "assistant") throw noPrefill(request.model, provider);
  // The vendor refuses sampling parameters beside thinking
  const sampling = budget > 0 ? {} : toSampling(parameters, form);
  const body = {
    model: request.model,
    max_tokens: parameters.limit_holds_thinking === true ? limit : limit + budget,
    stream: true,
    messages: turns,
    ...(system.length === 0 ? {} : { system: toSystem(system.join("\n\n"), stableTools > 0) }),
    ...(stop.length === 0 ? {} : { stop_sequences: stop }),
    ...(user === undefined ? {} : { metadata: { user_id: user } }),
    ...sampling,
    ...(budget > 0 ? toThinking(budget, parameters, form) : {}),
    ...(tools.length === 0
      ? closedTools(messages)
      : { tools: toTools(tools, stableTools), ...toolChoice(request, budget > 0) }),
  };
  return {
    body: JSON.stringify(body),
    ignored: [
      ...UNKNOWN.filter((name) => parameters[name] !== undefined),
      ...(stop.length < asked.length ? ["stop"] : []),
      ...SAMPLING.filter((name) => parameters[name] !== undefined && !(name in sampling)),
      ...(parameters.passed?.names.filter((name) => !TAKEN.has(name) || !messages.some(hasDetails)) ?? []),
      ...(isPlain ? leftOut(request, budget > 0) : []),
      ...(thinking > 0 && budget === 0 ? ["reasoning_effort"] : []),
    ],
    changed: [
      ...(budget > 0 ? ["reasoning_effort"] : []),
      ...(Number(parameters.temperature ?? 0) > 1 && "temperature" in sampling ? ["temperature"] : []),
      ...(messages.some(({ role }, at) => role === "developer" || (role === "system" && at > 0))
        ? ["messages[].role"]
        : []),
    ],
  };
}

/** Returns the names of fields that the format has no place for, as chat completions have them. */
function leftOut({ messages, tools, toolChoice, parameters: { metadata, user } }: ProviderRequest, thinking: boolean) {
  const isNamed = messages.some((message) => "name" in message && message.name !== undefined);
  const hasRefusal = messages.some((message) => message.role === "assistant" && message.refusal !== undefined);
  const isDetailed = (part: ContentPart) => isImagePart(part) && part.image_url.detail !== undefined;
  const hasDetail = messages.some(({ content }) => Array.isArray(content) && content.some(isDetailed));
  const isStrict = tools.some(({ strict }) => strict !== undefined);
  const isForced = toolChoice === "required" || typeof toolChoice === "object";
  const others = Object.keys(metadata ?? {}).some((name) => name !== "user_id" || user !== undefined);
  return [
    ...(isNamed ? ["messages[].name"] : []),
    ...(hasRefusal ? ["messages[].refusal"] : []),
    ...(hasDetail ? ["messages[].content[].image_url.detail"] : []),
    ...(isStrict ? ["tools[].function.strict"] : []),
    ...(isForced && thinking ? ["tool_choice"] : []),
    ...(others ? ["metadata"] : []),
  ];
}

/** The vendor refuses a smaller budget of thinking */
const LEAST_BUDGET = 1_024;

function budgetOf(thinking: number, most: number): number {
  const budget = Math.min(thinking, most);
  return budget < LEAST_BUDGET ? 0 : budget;
}

const SAMPLING = ["temperature", "top_p"] as const;

/** Sampling parameters that the model takes; of two, where it takes one, the temperature. The vendor refuses temperatures above 1 */
function toSampling({ temperature, top_p }: ModelParameters, { sampling }: VendorForm) {
  if (sampling === "none") return {};
  const both = sampling !== "one" || temperature === undefined;
  return {
    ...(temperature === undefined ? {} : { temperature: Math.min(temperature, 1) }),
    ...(top_p === undefined || !both ? {} : { top_p }),
  };
}

function toThinking(budget: number, { reasoning_effort: effort }: ModelParameters, { thinking }: VendorForm) {
  return thinking === "adaptive"
    // Models of this form keep their thinking to themselves unless it is asked for
    ? { thinking: { type: "adaptive", display: "summarized" }, output_config: { effort } }
    : { thinking: { type: "enabled", budget_tokens: budget } };
}

function noPrefill(model: string, provider: string): ProviderError {
  return new ProviderError(
    "provider_rejected",
    `Cannot send the messages: the model "${model}" does not begin its reply with a given text, ` +
      "so end the messages with one of the user",
    { provider, status: 400, param: "messages" },
  );
}

/** Ends a part of the prompt that the vendor keeps for the run's next requests, which are then cheaper. */
const CACHED = { cache_control: { type: "ephemeral" } } as const;

/** The vendor orders a prompt as tools, system, messages: the mark at the system's end covers the tools before it. */
function toSystem(text: string, isStable: boolean): string | readonly Block[] {
  return isStable ? [{ type: "text", text, ...CACHED }] : text;
}

/** Marks the last stable tool too: what was kept up to it counts also after a found tool was added behind it. */
function toTools(tools: ProviderRequest["tools"], stable: number): readonly Block[] {
  return tools.map((tool, index) => (index === stable - 1 ? { ...toTool(tool), ...CACHED } : toTool(tool)));
}

function toTool({ name, description, parameters }: ProviderRequest["tools"][number]): Block {
  return { name, description, input_schema: parameters ?? { type: "object", properties: {} } };
}

/** The vendor refuses a history with tool blocks whose request declares no tools: those it names, not to be called any more. */
function closedTools(messages: readonly Message[]): { tools?: readonly Block[]; tool_choice?: Block } {
  const names = new Set(
    messages.flatMap((message) =>
      message.role === "assistant" ? (message.tool_calls ?? []).map((call) => call.function.name) : []
    ),
  );
  if (names.size === 0) return {};
  const tools = [...names].map((name) => toTool({ name, description: "", parameters: undefined }));
  return { tools, tool_choice: { type: "none" } };
}

function toolChoice({ toolChoice, parallelToolCalls }: ProviderRequest, thinking: boolean): { tool_choice?: Block } {
  const single = parallelToolCalls === false ? { disable_parallel_tool_use: true } : {};
  if (toolChoice === "none") return { tool_choice: { type: "none" } };
  // Beside thinking only `auto` is accepted
  if (toolChoice === undefined || toolChoice === "auto" || thinking) {
    return parallelToolCalls === false ? { tool_choice: { type: "auto", ...single } } : {};
  }
  if (toolChoice === "required") return { tool_choice: { type: "any", ...single } };
  return { tool_choice: { type: "tool", name: toolChoice.name, ...single } };
}

/** The vendor refuses thinking when a tool call under way came without its thinking block. */
function mayThink(messages: readonly Message[], provider: string): boolean {
  const last = messages.findLastIndex((message) => message.role === "user");
  return messages.slice(last + 1).every((message) =>
    message.role !== "assistant" || (message.tool_calls?.length ?? 0) === 0 || opaqueOf(message, provider).length > 0
  );
}

function toTurns({ messages, pictures }: ProviderRequest, provider: string): readonly Turn[] {
  const turns: Turn[] = [];
  for (const message of messages) {
    if (message.role === "system" || message.role === "developer") continue;
    const role = message.role === "assistant" ? "assistant" : "user";
    const content = blocksOf(message, provider, pictures);
    if (content.length === 0) continue;
    const last = turns.at(-1);
    if (last?.role !== role) turns.push({ role, content });
    else for (const block of content) last.content.push(block);
  }
  return turns;
}

function blocksOf(
  message: Exclude<Message, { role: "system" | "developer" }>,
  provider: string,
  pictures: ProviderRequest["pictures"],
): Block[] {
  if (message.role === "user") return toBlocks(message.content, provider);
  if (message.role === "tool") {
    const { shown, plain } = splitPictures(message, pictures);
    const images = shown.map(({ media_type, base64: data }) => ({
      type: "image",
      source: { type: "base64", media_type, data },
    }));
    const text = plain.content;
    const content = typeof text === "string" && images.length === 0 ? text : [...toBlocks(text, provider), ...images];
    // The vendor takes text alone in a result that failed
    const failed = message.is_error === true && images.length === 0 ? { is_error: true } : {};
    return [{ type: "tool_result", tool_use_id: message.tool_call_id, content, ...failed }];
  }
  const calls = (message.tool_calls ?? []).map((call) => ({
    type: "tool_use",
    id: call.id,
    name: call.function.name,
    input: parseInput(call.function.arguments),
  }));
  return inOrder(opaqueOf(message, provider), message.content ?? "", { calls, provider });
}

/** Puts thinking blocks where they stood among texts and calls: the vendor refuses them in any other place. */
function inOrder(
  opaque: readonly Block[],
  content: Content,
  { calls, provider }: { readonly calls: Block[]; readonly provider: string },
): Block[] {
  const isMark = ({ type }: Block) => type === TEXT_MARK || type === CALL_MARK;
  // Parts are the client's own, and marks say nothing of them
  if (typeof content !== "string") {
    return [...opaque.filter((block) => !isMark(block)), ...toBlocks(content, provider), ...calls];
  }
  let rest = content;
  const take = (units: number) => {
    const text = rest.slice(0, units);
    rest = rest.slice(units);
    return /\S/.test(text) ? toBlocks(text, provider) : [];
  };
  const placed = opaque.flatMap((block) => {
    if (!isMark(block)) return [block];
    return block["type"] === CALL_MARK ? calls.splice(0, 1) : take(Number(block["units"]));
  });
  return [...placed, ...take(rest.length), ...calls];
}

/** Returns what the provider gave with a turn; where nobody kept it, what the client sends back of it. */
function opaqueOf(message: AssistantMessage, provider: string): Block[] {
  const opaque = message.opaque?.[provider];
  if (Array.isArray(opaque)) return opaque.filter(isRecord);
  // A client hands the details back, sealed with the name of the provider or as they are
  const fields = isRecord(opaque) && isRecord(opaque["message"]) ? opaque["message"] : message.extra;
  return toThoughtBlocks(fields?.[THOUGHT_DETAILS]);
}

/** Names of the details, and of the same thinking without its signature, as a request that leaves them out says them */
const TAKEN: ReadonlySet<string> = new Set([`messages[].${THOUGHT_DETAILS}`, "messages[].reasoning_content"]);

function hasDetails({ extra }: Message): boolean {
  return toThoughtBlocks(extra?.[THOUGHT_DETAILS]).length > 0;
}

function toBlocks(content: Content, provider: string): Block[] {
  if (typeof content === "string") return content === "" ? [] : [{ type: "text", text: content }];
  return content.flatMap((part) => (isTextPart(part) && part.text === "" ? [] : [toBlock(part, provider)]));
}

function toBlock(part: ContentPart, provider: string): Block {
  if (isTextPart(part)) return { type: "text", text: part.text };
  if (isImagePart(part)) return { type: "image", source: toSource(part.image_url.url) };
  if (part.type === "refusal") return { type: "text", text: String(part["refusal"] ?? "") };
  const file = part.type === "file" && isRecord(part["file"]) ? part["file"]["file_data"] : undefined;
  const document = typeof file === "string" ? readDataUrl(file) : undefined;
  if (document?.media_type === "application/pdf") return { type: "document", source: { type: "base64", ...document } };
  throw new ProviderError(
    "provider_rejected",
    `Cannot send a content part of type "${part.type}": provider "${provider}" has nothing for it`,
    { provider, status: 400, param: "messages" },
  );
}

function toSource(url: string): Block {
  const data = readDataUrl(url);
  return data === undefined ? { type: "url", url } : { type: "base64", ...data };
}

const MAX_NESTING = 64;

function parseInput(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    // Arguments that nest without a bound can be read, but not written
    return isRecord(value) && isShallow(value, MAX_NESTING) ? value : {};
  } catch {
    return {};
  }
}
