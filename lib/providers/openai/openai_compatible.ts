import { ProviderError } from "../../base/errors.ts";
import { isRecord } from "../../base/json.ts";
import { firstChatModel } from "../models/model_list.ts";
import type { AssistantMessage, ContentPart, Message, ToolCall } from "../../base/records/message.ts";
import { OpenAiDecoder, type OpenAiOpaque } from "./openai_decoder.ts";
import { readEmbeddings } from "./embeddings.ts";
import { hasPictures, splitPictures } from "../picture_parts.ts";
import {
  parameterChanged,
  parameterIgnored,
  type Provider,
  type ProviderCallOptions,
  type ProviderLayer,
  type ProviderRequest,
  type ToolDeclaration,
} from "../provider.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";
import { readModelList, sendUpstream, TurnStream, type UpstreamSettings } from "../upstream/upstream_http.ts";
import { joinMessages } from "../vendors/fit_messages.ts";
import { sendInForm } from "../vendors/send_in_form.ts";
import type { VendorForm, VendorForms } from "../vendors/vendor_forms.ts";
import type { Fields } from "../../base/join_fields.ts";

/**
 * A provider that speaks the chat-completions format: OpenAI, OpenRouter, Ollama, LM Studio, llama.cpp, vLLM, SGLang and others.
 * Streams unless the reply is wanted whole. Requests have the form that `forms` knows for the model.
 * Source: https://platform.openai.com/docs/api-reference/chat
 */
export function createOpenAiCompatible(settings: UpstreamSettings, forms: VendorForms): Provider {
  const { upstream, client, nextId } = settings;
  const headers: Record<string, string> = { accept: "text/event-stream", "content-type": "application/json" };
  const jsonHeaders: Record<string, string> = { accept: "application/json", "content-type": "application/json" };
  const listHeaders: Record<string, string> = { accept: "application/json" };
  if (upstream.key !== undefined) {
    for (const sent of [headers, jsonHeaders, listHeaders]) sent["authorization"] = `Bearer ${upstream.key}`;
  }
  /** @param notices gets those of what the request that was sent last leaves out, and has in another form */
  const open = (request: ProviderRequest, options: ProviderCallOptions, notices: ProviderEvent[]) => {
    const { signal, whole = false, givesFields = false } = options;
    const { passed, reasoning_effort } = request.parameters;
    return sendInForm({
      forms,
      request,
      provider: upstream.name,
      build: (fitted, form, others) => {
        const changed = [...others];
        const body = toOpenAiRequest(fitted, { form, whole, provider: upstream.name, changed });
        notices.length = 0;
        if (reasoning_effort !== undefined || (givesFields && passed?.sent !== undefined)) {
          notices.push(...leftOut(request, form).map(parameterIgnored));
        }
        if (givesFields) {
          for (const name of changed) notices.push(parameterChanged(name));
          for (const name of passed?.changed ?? []) notices.push(parameterChanged(name));
        }
        return body;
      },
      post: (body, onRefusal) =>
        sendUpstream(settings, {
          path: "/chat/completions",
          headers: whole ? jsonHeaders : headers,
          body,
          signal,
          whole,
          onRefusal,
        }),
    });
  };
  return {
    name: upstream.name,
    stream(request, call) {
      // Fields of this format say nothing to a client of another one
      const givesFields = call.givesFields === true && request.parameters.passed?.sent === undefined;
      const notices: ProviderEvent[] = [];
      return new TurnStream({
        upstream,
        open: () => open(request, call, notices),
        decoder: new OpenAiDecoder({ upstream, nextId, givesFields, notices }),
        whole: call.whole,
      });
    },
    listModels: (signal) => readModelList(settings, { path: "/models", headers: listHeaders, signal }),
    embed: (request, signal) => readEmbeddings(settings, { headers: jsonHeaders, request, signal }),
    sees: (model) => forms.of(model).sees,
    close: () => client.close(),
  };
}

/** Returns the names of what a request leaves out: fields of another format, and an effort that the server has refused. */
function leftOut(
  { messages, parameters: { passed, reasoning_effort } }: ProviderRequest,
  form: VendorForm,
): readonly string[] {
  const hasFailed = () => messages.some((message) => message.role === "tool" && message.is_error === true);
  const names = passed?.sent === undefined ? [] : [...passed.names, ...(hasFailed() ? [FAILED] : [])];
  return reasoning_effort !== undefined && form.takesEffort === false ? [...names, "reasoning_effort"] : names;
}

const FAILED = "messages[].content[].is_error";

/** Layer by which a request without a model name goes to the first model that the provider lists at that time. */
export const withDefaultModel: ProviderLayer = (provider) => ({
  stream: (request, options) =>
    request.model !== "" ? provider.stream(request, options) : streamFirst(provider, request, options),
});

async function* streamFirst(provider: Provider, request: ProviderRequest, options: ProviderCallOptions) {
  const model = firstChatModel(await provider.listModels(options.signal));
  if (model === undefined) {
    throw new ProviderError("model_not_found", `Cannot choose a model: provider "${provider.name}" lists none`, {
      provider: provider.name,
    });
  }
  yield* provider.stream({ ...request, model }, options);
}

/** How a request is told. */
interface OpenAiRequestOptions {
  readonly form: VendorForm;
  /** Ask for the reply in one piece */
  readonly whole: boolean;
  /** Name under which the opaque parts of its own replies were kept */
  readonly provider: string;
  /** Gets the names of what goes out in another form, each once */
  readonly changed: string[];
}

/**
 * Returns the JSON of a chat-completions request. A vendor's own parts of its replies and the fields that a client sent beside the known
 * ones stand where they came. Left out are another vendor's opaque parts, and what `withoutNotes` leaves out.
 */
function toOpenAiRequest(request: ProviderRequest, options: OpenAiRequestOptions): string {
  const { max_tokens, max_completion_tokens, passed } = request.parameters;
  const { form, whole, changed } = options;
  const limit = max_completion_tokens ?? max_tokens;
  const said = request.messages.some(hasPictures) ? spreadPictures(request) : request.messages;
  const isFilled = form.wantsReasoning === true || form.wantsSignatures === true;
  const messages = isFilled || said.some(isSpecial) ? said.map((message) => toWire(message, options)) : said;
  const joint = joinMessages(messages, form);
  if (joint !== messages) addOnce(changed, "messages[].role");
  const body: Record<string, unknown> = {
    model: request.model,
    messages: joint,
    stream: !whole,
  };
  for (const [name, value] of Object.entries(request.parameters)) if (!OWN_PARAMETERS.has(name)) body[name] = value;
  if (passed !== undefined) Object.assign(body, passed.body);
  const { stream_options: asked } = passed?.body ?? {};
  if (whole || !form.takesStreamOptions) delete body["stream_options"];
  else body["stream_options"] = { ...(isRecord(asked) ? asked : {}), include_usage: true };
  if (form.takesEffort === false) delete body["reasoning_effort"];
  if (limit !== undefined) body[form.limit] = limit;
  if (max_tokens !== undefined && body["max_tokens"] !== max_tokens) addOnce(changed, "max_tokens");
  if (max_completion_tokens !== undefined && body["max_completion_tokens"] !== max_completion_tokens) {
    addOnce(changed, "max_completion_tokens");
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

function addOnce(names: string[], name: string): void {
  if (!names.includes(name)) names.push(name);
}

/** Parameters that have another place, or another name, in a request. */
const OWN_PARAMETERS: ReadonlySet<string> = new Set([
  "max_tokens",
  "max_completion_tokens",
  "limit_holds_thinking",
  "passed",
]);

/**
 * Puts the pictures of tool results into a user message after all results of their turn, since a tool message of this format holds
 * text alone. Pictures from outside stand in their envelope there.
 */
function spreadPictures({ messages, pictures }: ProviderRequest): readonly Message[] {
  const spread: Message[] = [];
  let waiting: ContentPart[] = [];
  const flush = () => {
    if (waiting.length > 0) spread.push({ role: "user", content: waiting });
    waiting = [];
  };
  for (const message of messages) {
    if (message.role !== "tool") flush();
    if (message.role !== "tool" || !hasPictures(message)) {
      spread.push(message);
      continue;
    }
    const { shown, plain } = splitPictures(message, pictures);
    spread.push(plain);
    if (shown.length === 0) continue;
    const { open, close } = message.frame ?? { open: undefined, close: undefined };
    const title = `[Postern] Pictures of the result of the tool call ${JSON.stringify(message.tool_call_id)}:`;
    waiting.push({ type: "text", text: open === undefined ? title : `${title}\n${open}` });
    for (const { media_type, base64 } of shown) {
      waiting.push({ type: "image_url", image_url: { url: `data:${media_type};base64,${base64}` } });
    }
    if (close !== undefined) waiting.push({ type: "text", text: close });
  }
  flush();
  return spread;
}

/** Tells whether a message must be sent in another form than the one it is kept in. */
function isSpecial(message: Message): boolean {
  if (message.extra !== undefined) return true;
  if (message.role === "user") return message.files !== undefined;
  if (message.role === "tool") return message.is_error !== undefined || message.denied_by !== undefined;
  return message.role === "assistant" &&
    (message.opaque !== undefined || message.tool_calls?.some((call) => call.extra !== undefined) === true);
}

/** Returns a message without what the gateway noted about it, which the format of chat completions has no place for. */
function withoutNotes(message: Message): Message {
  if (message.role === "user") {
    const { files: _, ...said } = message;
    return said;
  }
  if (message.role !== "tool") return message;
  const { is_error: _, denied_by: _by, ...told } = message;
  return told;
}

/** The result may have fields of the vendor that no type of ours names. */
function toWire(message: Message, options: OpenAiRequestOptions): Message {
  if (message.role === "assistant") return toWireAssistant(message, options);
  const { extra, ...known } = message;
  return { ...withoutNotes(known), ...extra };
}

function toWireAssistant(message: AssistantMessage, { provider, form, changed }: OpenAiRequestOptions): Message {
  const { opaque, extra, tool_calls: calls, ...known } = message;
  const own = toOpaque(opaque?.[provider]);
  // Fields that the gateway kept are whole and win: clients that join streams may keep only the last part of a field unknown to them
  const { reasoning_content: reasoning, ...others } = {
    ...(hasReasoning(own) ? withoutReasoningOf(extra) : extra),
    ...own.message,
  };
  // The gateway's own name for it, beside the vendor's, says nothing more
  const isTold = reasoning === undefined || others["reasoning"] === reasoning || !form.takesReasoning;
  if ((reasoning !== undefined && isTold) || form.wantsReasoning === true) {
    addOnce(changed, "messages[].reasoning_content");
  }
  if (form.wantsSignatures === true && calls !== undefined) addOnce(changed, "messages[].tool_calls[].extra_content");
  const sent = calls?.map((call, i) => toWireCall(call, own.calls?.[i] ?? undefined));
  return {
    ...known,
    ...(sent === undefined ? {} : { tool_calls: form.wantsSignatures === true ? withSignature(sent) : sent }),
    ...others,
    ...(isTold ? {} : { reasoning_content: reasoning }),
    // Kimi refuses an empty text
    ...(form.wantsReasoning === true && (isTold || reasoning === "") ? { reasoning_content: " " } : {}),
  };
}

/** Signature by which Gemini lets calls pass that it did not make itself. Source: https://ai.google.dev/gemini-api/docs/thought-signatures */
const NO_THOUGHT = { google: { thought_signature: "skip_thought_signature_validator" } };

/** Signs the first call where none is: Gemini signs the first of its calls alone. */
function withSignature(calls: readonly ToolCall[]): ToolCall[] {
  const isSigned = calls.some((call) => "extra_content" in call);
  return calls.map((call, i) => isSigned || i > 0 ? call : { ...call, extra_content: NO_THOUGHT });
}

function hasReasoning({ message }: OpenAiOpaque): boolean {
  return message?.["reasoning"] !== undefined || message?.["reasoning_content"] !== undefined;
}

function withoutReasoningOf(extra: Fields | undefined): Fields | undefined {
  if (extra === undefined) return undefined;
  const { reasoning: _, reasoning_content: _content, ...rest } = extra;
  return rest;
}

function toWireCall({ extra, ...call }: ToolCall, kept: Fields | undefined): ToolCall {
  if (extra === undefined && kept === undefined) return call;
  const { function: inner, ...own } = { ...extra, ...kept };
  return { ...call, function: { ...call.function, ...(isRecord(inner) ? inner : {}) }, ...own };
}

/** Opaque parts as this format keeps them; nothing of any other form. */
function toOpaque(value: unknown): OpenAiOpaque {
  if (!isRecord(value)) return {};
  const { message, calls } = value;
  return {
    message: isRecord(message) ? message : undefined,
    calls: Array.isArray(calls) ? calls.map((call) => (isRecord(call) ? call : null)) : undefined,
  };
}

function toTool({ name, description, parameters, strict, extra }: ToolDeclaration) {
  const { function: inner, ...own } = extra ?? NO_FIELDS;
  return {
    type: "function",
    function: {
      name,
      description,
      ...(parameters === undefined ? {} : { parameters }),
      ...(strict === undefined ? {} : { strict }),
      ...(isRecord(inner) ? inner : {}),
    },
    ...own,
  };
}

const NO_FIELDS: Fields = {};
