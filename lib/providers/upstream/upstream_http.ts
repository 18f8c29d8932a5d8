import type { ModelEntry } from "../../base/records/provider_event.ts";
import type { HttpExchange } from "../../system/net/http_exchange.ts";
import type { ProviderClient } from "../../system/net/provider_client.ts";
import { countOf, isRecord, type JsonRecord, stringOf } from "./json_reading.ts";
import { brokenReply, toUpstreamError, type Upstream } from "./upstream_error.ts";

/** Settings and services of a provider over HTTP. */
export interface UpstreamSettings {
  readonly upstream: Upstream;
  readonly client: ProviderClient;
  /** Path before the format's own, as `/v1`; no slash at the end */
  readonly basePath: string;
  /** Longest silence of the upstream, milliseconds */
  readonly timeoutMs: number;
  /** A new unique id, as `call_...` */
  readonly nextId: () => string;
}

/** A request to an upstream. */
export interface UpstreamCall {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON of a POST; undefined for a GET */
  readonly body?: string | undefined;
  readonly signal: AbortSignal;
  /** The reply comes in one piece: its head arrives when the whole reply is ready. Default false */
  readonly whole?: boolean;
}

/** Factor of the timeout for a reply in one piece: the upstream is silent until the model has spoken its last word. */
const WHOLE_PATIENCE = 5;
/** Longest reply that comes whole, asked for or in place of a stream */
export const MAX_WHOLE_BYTES = 32 * 1024 * 1024;
const MAX_ERROR_BYTES = 65_536;
const MAX_LIST_BYTES = 8 * 1024 * 1024;

/** Sends a request and gives its reply when the status is good. @throws {ProviderError} by `toUpstreamError`; {CancelError} */
export function sendUpstream(settings: UpstreamSettings, call: UpstreamCall): Promise<HttpExchange> {
  return settings.client.send({
    method: call.body === undefined ? "GET" : "POST",
    path: `${settings.basePath}${call.path}`,
    headers: call.headers,
    body: call.body,
    signal: call.signal,
    timeoutMs: call.whole ? settings.timeoutMs * WHOLE_PATIENCE : settings.timeoutMs,
    wholeBytes: call.whole ? MAX_WHOLE_BYTES : undefined,
  }).then((exchange) => exchange.status >= 200 && exchange.status < 300 ? exchange : refused(settings, exchange));
}

async function refused(settings: UpstreamSettings, exchange: HttpExchange): Promise<never> {
  const { status } = exchange;
  const { text } = await exchange.text(MAX_ERROR_BYTES);
  throw toUpstreamError(settings.upstream, { status, body: text, header: (name) => exchange.header(name) });
}

/** The models of a `{"data":[{"id"}]}` list (OpenAI, Anthropic). @throws {ProviderError} */
export async function readModelList(settings: UpstreamSettings, call: UpstreamCall): Promise<readonly ModelEntry[]> {
  const { upstream } = settings;
  const exchange = await sendUpstream(settings, call);
  const { text, cut } = await exchange.text(MAX_LIST_BYTES);
  if (cut) throw brokenReply(upstream, `its list of models is longer than ${MAX_LIST_BYTES} bytes`);
  const list = listOf(text);
  if (list === undefined) throw brokenReply(upstream, "it is no list of models");
  return list.flatMap((model) => {
    const id = isRecord(model) ? stringOf(model["id"]) : undefined;
    if (!isRecord(model) || id === undefined) return [];
    const created = countOf(model["created"]) ?? secondsOf(model["created_at"]);
    const owned_by = stringOf(model["owned_by"]) ?? upstream.name;
    return [{ id, object: "model" as const, created, owned_by, context_length: windowOf(model) }];
  });
}

/** Names of the context window in the lists of OpenRouter, vLLM and SGLang, Groq, Mistral, LM Studio, Anthropic, llama.cpp. */
function windowOf(model: JsonRecord): number | undefined {
  const { loaded_context_length: loaded, meta } = model;
  const own = [loaded, model["max_model_len"], model["context_length"], model["context_window"]];
  const wider = [model["max_context_length"], model["max_input_tokens"]];
  const inner = isRecord(meta) ? [meta["n_ctx"], meta["n_ctx_train"]] : [];
  return [...own, ...inner, ...wider].map(countOf).find((count) => count !== undefined && count > 0);
}

function listOf(text: string): readonly unknown[] | undefined {
  try {
    const parsed: unknown = JSON.parse(text);
    return isRecord(parsed) && Array.isArray(parsed["data"]) ? parsed["data"] : undefined;
  } catch {
    return undefined;
  }
}

function secondsOf(date: unknown): number {
  const milliseconds = typeof date === "string" ? Date.parse(date) : Number.NaN;
  return Number.isFinite(milliseconds) && milliseconds > 0 ? Math.floor(milliseconds / 1000) : 0;
}
