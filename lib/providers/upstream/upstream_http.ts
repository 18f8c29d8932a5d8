import { ProviderError } from "../../base/errors.ts";
import { isRecord } from "../../base/json.ts";
import type { ModelEntry, ProviderEvent } from "../../base/records/provider_event.ts";
import type { HttpExchange } from "../../system/net/http_exchange.ts";
import type { ProviderClient } from "../../system/net/provider_client.ts";
import { countOf, type JsonRecord, stringOf } from "./json_reading.ts";
import { brokenReply, toUpstreamError, type Upstream } from "./upstream_error.ts";
import { EventStreamDecoder } from "../../system/net/event_stream_decoder.ts";

/** Settings and services of a provider over HTTP. */
export interface UpstreamSettings {
  readonly upstream: Upstream;
  readonly client: ProviderClient;
  /** Path before the format's own, such as `/v1`; no slash at the end */
  readonly basePath: string;
  /** Longest silence of the upstream, milliseconds */
  readonly timeoutMs: number;
  /** Longest time in which nothing is said, though bytes come, milliseconds */
  readonly silenceMs: number;
  /** A new unique id, such as `call_...` */
  readonly nextId: () => string;
  /** Receives the head of each good reply. Default: nothing is called */
  readonly onReply?: ((exchange: HttpExchange) => void) | undefined;
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
  /** Receives the refusal of a server that replied; gives the reply in its place, or throws it. Default: it is thrown */
  readonly onRefusal?: ((error: ProviderError) => Promise<HttpExchange>) | undefined;
}

/** Factor of the timeout for a reply in one piece: the upstream is silent until the model has spoken its last word. */
const WHOLE_PATIENCE = 5;
/** Longest reply that comes whole, asked for or in place of a stream, and longest event of a stream */
export const MAX_WHOLE_BYTES = 32 * 1024 * 1024;
const MAX_ERROR_BYTES = 65_536;
const MAX_LIST_BYTES = 8 * 1024 * 1024;

/** Sends a request and gives its reply when the status is good. @throws {ProviderError} by `toUpstreamError`; {CancelError} */
export function sendUpstream(settings: UpstreamSettings, call: UpstreamCall): Promise<HttpExchange> {
  const { timeoutMs, silenceMs } = settings;
  const wholeMs = timeoutMs * WHOLE_PATIENCE;
  return settings.client.send({
    method: call.body === undefined ? "GET" : "POST",
    path: `${settings.basePath}${call.path}`,
    headers: call.headers,
    body: call.body === undefined ? undefined : wellFormed(call.body),
    signal: call.signal,
    timeoutMs: call.whole ? wholeMs : timeoutMs,
    silenceMs: call.whole ? Math.max(silenceMs, wholeMs) : silenceMs,
    wholeBytes: call.whole ? MAX_WHOLE_BYTES : undefined,
  }).then((exchange) => {
    if (exchange.status < 200 || exchange.status >= 300) return refused(settings, call, exchange);
    settings.onReply?.(exchange);
    return exchange;
  });
}

/** Returns the JSON with U+FFFD in the place of half characters, as a cut reply leaves them: vendors refuse the whole request for one. */
function wellFormed(json: string): string {
  if (!json.includes("\\ud")) return json;
  return json.replaceAll(/\\(?:(ud[89a-f][0-9a-f]{2})|.)/g, (whole, half) => half === undefined ? whole : "\\ufffd");
}

async function refused(
  settings: UpstreamSettings,
  { onRefusal }: UpstreamCall,
  exchange: HttpExchange,
): Promise<HttpExchange> {
  const { status } = exchange;
  const { text } = await exchange.text(MAX_ERROR_BYTES);
  const error = toUpstreamError(settings.upstream, { status, body: text, header: (name) => exchange.header(name) });
  if (onRefusal !== undefined) return onRefusal(error);
  throw error;
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

/** Decoder of one turn: takes the data of a vendor's stream events, gives provider events. */
export interface TurnDecoder {
  /**
   * Adds the events of one stream event to `out`; what was added before an error stays valid.
   * @returns whether `finish` was added: nothing after it is of interest
   * @throws {ProviderError} an error that the upstream reports, or data that is not of its format
   */
  push(data: string, out: ProviderEvent[]): boolean;
  /**
   * Ends a stream that has no end mark.
   * @param rest an event that was not closed; undefined when nothing is left
   * @throws {ProviderError} when the reply is incomplete
   */
  end(rest: string | undefined, out: ProviderEvent[]): void;
  /**
   * Returns whether all of the reply was said: `yes`, or `soon` when the usage may follow. The stream may then end anywhere. Cheap: asked
   * after each read
   */
  complete(): "no" | "soon" | "yes";
  /** Decodes a whole reply that came as plain JSON in place of a stream. @throws {ProviderError} as `push` */
  whole(body: string, out: ProviderEvent[]): void;
}

/** The request of a turn, and the decoder of its reply. */
export interface TurnStreamOptions {
  readonly upstream: { readonly name: string };
  /** Sends the request; the reply's status is good. Called once, by the first `next()` */
  readonly open: () => Promise<HttpExchange>;
  readonly decoder: TurnDecoder;
  /** The reply was asked for in one piece: one that is no stream is read to its end. Default false */
  readonly whole?: boolean | undefined;
}

const STREAM_LIMITS = { maxBytes: MAX_WHOLE_BYTES };
/** Time for what follows the finish reason: the usage, and the end of the stream */
const AFTER_FINISH_MS = 1_000;
const BRACE = 0x7b;

type Result = IteratorResult<readonly ProviderEvent[], undefined>;
const DONE: Result = { done: true, value: undefined };
const ENDED = Promise.resolve(DONE);

/**
 * Streams a turn as arrays of events, one for each network read. A bare iterator, since each level of generators costs more than
 * decoding does. Leaving early breaks the upstream request off at once. Events that came before an error are given first.
 */
export class TurnStream implements AsyncIterableIterator<readonly ProviderEvent[], undefined> {
  #exchange: HttpExchange | undefined;
  #failure: unknown;
  #failed = false;
  #done = false;
  /** "yes" when a chunk was understood, "told" when the reader knows it */
  #begun: "no" | "yes" | "told" = "no";
  readonly #options: TurnStreamOptions;
  /** Decoder, from the first bytes of a stream on: a reply in one piece needs none */
  #stream: EventStreamDecoder | undefined;

  constructor(options: TurnStreamOptions) {
    this.#options = options;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<Result> {
    if (this.#failed) this.#throw();
    if (this.#done) return DONE;
    const events: ProviderEvent[] = [];
    try {
      let exchange = this.#exchange;
      if (exchange === undefined) {
        exchange = this.#exchange = await this.#options.open();
        const reading = this.#readHead(exchange, events);
        if (reading !== undefined) await reading;
      }
      while (!this.#done && events.length === 0) {
        // Once, for a first chunk without events: the reader gets an empty array
        if (this.#begun === "yes") {
          this.#begun = "told";
          return { done: false, value: events };
        }
        const bytes = await exchange.read();
        if (bytes === undefined) this.#end(events);
        else this.#decode(bytes, events);
      }
    } catch (error) {
      this.#exchange?.release();
      this.#failed = true;
      this.#failure = error instanceof RangeError ? tooLarge(this.#options.upstream, error.message, error) : error;
      if (events.length === 0) this.#throw();
    }
    if (events.length === 0) return DONE;
    this.#begun = "told";
    return { done: false, value: events };
  }

  return(): Promise<Result> {
    this.#done = true;
    this.#exchange?.release();
    return ENDED;
  }

  #throw(): never {
    this.#failed = false;
    this.#done = true;
    throw this.#failure;
  }

  /** Reads a reply that is no event stream. Returns undefined when there is nothing to wait for, so that nobody waits for a microtask */
  #readHead(exchange: HttpExchange, events: ProviderEvent[]): Promise<void> | undefined {
    const type = exchange.header("content-type") ?? "";
    if (type.startsWith("text/event-stream")) return undefined;
    if (type.startsWith("text/html")) throw brokenReply(this.#options.upstream, "it is a web page");
    if (!this.#options.whole) return this.#readUnasked(exchange, events);
    const all = exchange.whole(MAX_WHOLE_BYTES);
    if (all instanceof Promise) return all.then((bytes) => this.#whole(undefined, bytes, events));
    this.#whole(undefined, all, events);
    return undefined;
  }

  async #readUnasked(exchange: HttpExchange, events: ProviderEvent[]): Promise<void> {
    const first = await exchange.read();
    if (first === undefined || isObject(first)) this.#whole(first, await exchange.whole(MAX_WHOLE_BYTES), events);
    else this.#decode(first, events);
  }

  #whole(first: Uint8Array | undefined, rest: Uint8Array | undefined, events: ProviderEvent[]): void {
    const { upstream, decoder } = this.#options;
    if (rest === undefined) throw tooLarge(upstream, `it is longer than ${MAX_WHOLE_BYTES} bytes`);
    const bytes = first === undefined ? rest : Buffer.concat([first, rest]);
    if (isObject(bytes)) {
      decoder.whole(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8"), events);
      this.#done = true;
      return;
    }
    // A stream under another name
    this.#decode(bytes, events);
    if (!this.#done) this.#end(events);
  }

  #decode(bytes: Uint8Array, events: ProviderEvent[]): void {
    const { decoder } = this.#options;
    for (const data of (this.#stream ??= new EventStreamDecoder(STREAM_LIMITS)).push(bytes)) {
      const isEnd = decoder.push(data, events);
      if (this.#begun === "no") this.#begun = "yes";
      if (isEnd) return this.#close();
    }
    if (events.some(isSaid)) this.#exchange?.said();
    const complete = decoder.complete();
    if (complete === "no") return;
    if (complete === "soon") return this.#exchange?.hurry(AFTER_FINISH_MS);
    this.#end(events);
    this.#close();
  }

  /** Lets the rest of the body go. */
  #close(): void {
    this.#done = true;
    this.#exchange?.drain();
  }

  #end(events: ProviderEvent[]): void {
    this.#options.decoder.end(this.#stream?.end(), events);
    this.#done = true;
  }
}

function isSaid({ type }: ProviderEvent): boolean {
  return type !== "notice" && type !== "reply_fields";
}

/** Returns the error of a reply beyond the bound of its size: it came, and was paid, so that nobody asks again. */
function tooLarge({ name: provider }: { readonly name: string }, problem: string, cause?: unknown): ProviderError {
  return new ProviderError("provider_error", `Cannot read the reply of provider "${provider}": ${problem}`, {
    provider,
    cause,
  });
}

/** Returns whether the first byte that is no white space opens a JSON object. */
function isObject(bytes: Uint8Array): boolean {
  return bytes.find((byte) => byte > 32) === BRACE;
}
