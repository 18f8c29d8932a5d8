import { AnthropicDecoder } from "./anthropic_decoder.ts";
import { toAnthropicRequest } from "./anthropic_request.ts";
import { parameterIgnored, type Provider, type ProviderRequest } from "../provider.ts";
import { TurnStream } from "../upstream/turn_stream.ts";
import { readModelList, sendUpstream, type UpstreamSettings } from "../upstream/upstream_http.ts";

const VERSION = "2023-06-01";

/**
 * A provider that speaks the Messages API, always streamed. Parameters the vendor has nothing for are named in a notice.
 * Source: https://docs.anthropic.com/en/api/messages
 */
export function createAnthropic(settings: UpstreamSettings): Provider {
  const { upstream, client } = settings;
  const headers: Record<string, string> = {
    accept: "application/json",
    "anthropic-version": VERSION,
    "content-type": "application/json",
    ...(upstream.key === undefined ? {} : { "x-api-key": upstream.key }),
  };
  const stream = (request: ProviderRequest, signal: AbortSignal) => {
    const { body, ignored } = toAnthropicRequest(request, upstream.name);
    return new TurnStream({
      upstream,
      open: () => sendUpstream(settings, { path: "/messages", headers, body, signal }),
      decoder: new AnthropicDecoder(upstream, ignored.map(parameterIgnored)),
    });
  };
  return {
    name: upstream.name,
    stream: (request, { signal }) => ({
      // The request is built when it is asked for, so that a refused content part is an error of the stream
      [Symbol.asyncIterator]: () => stream(request, signal),
    }),
    listModels: (signal) => readModelList(settings, { path: "/models?limit=1000", headers, signal }),
    close: () => client.close(),
  };
}
