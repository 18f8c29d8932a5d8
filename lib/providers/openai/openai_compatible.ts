import { ProviderError } from "../../base/errors.ts";
import type { Message } from "../../base/records/message.ts";
import { OpenAiDecoder } from "./openai_decoder.ts";
import { toOpenAiRequest } from "./openai_request.ts";
import type { Provider, ProviderCallOptions, ProviderRequest } from "../provider.ts";
import { TurnStream } from "../upstream/turn_stream.ts";
import { readModelList, sendUpstream, type UpstreamSettings } from "../upstream/upstream_http.ts";

/** Settings of a server that speaks the chat-completions format. */
export interface OpenAiCompatibleOptions extends UpstreamSettings {
  /** OpenAI's own API: it takes `max_completion_tokens` only, and knows the role `developer`. Default false */
  readonly ownApi?: boolean;
}

/**
 * A provider that speaks the chat-completions format: OpenAI, OpenRouter, Ollama, LM Studio, llama.cpp, vLLM, SGLang and others.
 * Streams unless the reply is wanted whole. A server that refuses `stream_options` is asked again without, and from then on never with it.
 * Source: https://platform.openai.com/docs/api-reference/chat
 */
export function createOpenAiCompatible(options: OpenAiCompatibleOptions): Provider {
  const { upstream, client, nextId, ownApi = false } = options;
  const headers: Record<string, string> = { accept: "text/event-stream", "content-type": "application/json" };
  const jsonHeaders: Record<string, string> = { accept: "application/json", "content-type": "application/json" };
  const listHeaders: Record<string, string> = { accept: "application/json" };
  if (upstream.key !== undefined) {
    for (const sent of [headers, jsonHeaders, listHeaders]) sent["authorization"] = `Bearer ${upstream.key}`;
  }
  /** Flags that change once the server was seen to refuse `stream_options` or `reasoning_content` */
  let includeUsage = true;
  let withoutReasoning = false;

  const send = (request: ProviderRequest, { signal, whole = false }: ProviderCallOptions, form: RequestForm) =>
    sendUpstream(options, {
      path: "/chat/completions",
      headers: whole ? jsonHeaders : headers,
      body: toOpenAiRequest(request, { ...form, ownApi, whole, provider: upstream.name }),
      signal,
      whole,
    });
  const open = (request: ProviderRequest, call: ProviderCallOptions) => {
    const form = { includeUsage: includeUsage && !call.whole, withoutReasoning };
    const mayReason = !withoutReasoning && request.messages.some(mayHoldReasoning);
    if (!form.includeUsage && !mayReason) return send(request, call, form);
    return send(request, call, form).catch(async (error) => {
      const without = withoutRefused(form, error, mayReason);
      if (without === undefined) throw error;
      const exchange = await send(request, call, without);
      if (form.includeUsage) ({ includeUsage } = without);
      ({ withoutReasoning } = without);
      return exchange;
    });
  };
  return {
    name: upstream.name,
    stream: (request, call) =>
      new TurnStream({
        upstream,
        open: () => open(request, call),
        decoder: new OpenAiDecoder({ upstream, nextId, givesFields: call.givesFields === true }),
        whole: call.whole,
      }),
    listModels: (signal) => readModelList(options, { path: "/models", headers: listHeaders, signal }),
    close: () => client.close(),
  };
}

function mayHoldReasoning(message: Message): boolean {
  return message.role === "assistant" && (message.opaque !== undefined || message.extra !== undefined);
}

interface RequestForm {
  readonly includeUsage: boolean;
  readonly withoutReasoning: boolean;
}

/** The form without what the server refused by name; undefined for any other error. */
function withoutRefused(form: RequestForm, error: unknown, mayReason: boolean): RequestForm | undefined {
  if (!(error instanceof ProviderError) || error.code !== "provider_rejected") return undefined;
  const { param = "", message } = error;
  if (form.includeUsage && (param.startsWith("stream_options") || /stream_options|include_usage/.test(message))) {
    return { ...form, includeUsage: false };
  }
  const namesReasoning = param.endsWith("reasoning_content") || /reasoning_content/.test(message);
  // DeepSeek and Moonshot say so when it is missing, Groq and Mistral when it is there
  if (!mayReason || !namesReasoning || /missing|must be (passed|provided|included)|required/i.test(message)) {
    return undefined;
  }
  return { ...form, withoutReasoning: true };
}
