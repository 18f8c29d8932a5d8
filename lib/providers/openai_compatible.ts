import { ProviderError } from "../base/errors.ts";
import { OpenAiDecoder } from "./openai_decoder.ts";
import { toOpenAiRequest } from "./openai_request.ts";
import type { Provider, ProviderCallOptions, ProviderRequest } from "./provider.ts";
import { TurnStream } from "./turn_stream.ts";
import { readModelList, sendUpstream, type UpstreamSettings } from "./upstream_http.ts";

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
  let includeUsage = true;

  const send = (request: ProviderRequest, { signal, whole = false }: ProviderCallOptions, includeUsage: boolean) =>
    sendUpstream(options, {
      path: "/chat/completions",
      headers: whole ? jsonHeaders : headers,
      body: toOpenAiRequest(request, { includeUsage, ownApi, whole }),
      signal,
      whole,
    });
  const open = (request: ProviderRequest, call: ProviderCallOptions) => {
    if (!includeUsage || call.whole) return send(request, call, false);
    return send(request, call, true).catch(async (error) => {
      if (!refusesStreamOptions(error)) throw error;
      const exchange = await send(request, call, false);
      includeUsage = false;
      return exchange;
    });
  };
  return {
    name: upstream.name,
    stream: (request, call) =>
      new TurnStream({
        upstream,
        open: () => open(request, call),
        decoder: new OpenAiDecoder({ upstream, nextId }),
        whole: call.whole,
      }),
    listModels: (signal) => readModelList(options, { path: "/models", headers: listHeaders, signal }),
    close: () => client.close(),
  };
}

function refusesStreamOptions(error: unknown): boolean {
  if (!(error instanceof ProviderError) || error.code !== "provider_rejected") return false;
  return error.param?.startsWith("stream_options") === true || /stream_options|include_usage/.test(error.message);
}
