import { CancelError, cancelError } from "../base/cancel.ts";
import { Backoff, type Clock } from "../base/clock.ts";
import { ProviderError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { ProviderEvent } from "../base/records/provider_event.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { firstChatModel } from "./models/model_list.ts";
import { withNames } from "./models/model_names.ts";
import type { Embeddings, EmbedRequest, Provider, ProviderCallOptions, ProviderRequest } from "./provider.ts";
import { DURATION_BUCKETS_SECONDS, type Metrics } from "../base/telemetry/metrics.ts";

/** A provider to ask, with a model and a number of retries. */
export interface Attempt {
  readonly provider: Provider;
  /** Model at this provider; undefined: the request's own; empty: the first that the provider lists */
  readonly model: string | undefined;
  /** Further attempts after the first */
  readonly maxRetries: number;
}

/** Observes streams, for the metrics and the watch over servers. */
export interface StreamObserver {
  /** An attempt gave its first events, `ms` after it began */
  onFirstEvents(provider: string, ms: number): void;
  /** An attempt ended: with `finish`, with an error, or because it was left or cancelled (both undefined) */
  onEnd(
    provider: string,
    end: { readonly finish?: FinishEvent | undefined; readonly error?: ProviderError | undefined },
  ): void;
}

/** The last event of a turn that was complete. */
export type FinishEvent = Extract<ProviderEvent, { type: "finish" }>;

/** Services that retries use. */
export interface RetryOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly observer: StreamObserver;
  /** Names of models that would work, for the error of one that does not. Default: the error names none */
  readonly modelNames?: (() => Promise<readonly string[]>) | undefined;
}

const PAUSES = { firstMs: 500, mostMs: 8_000 } as const;
/** Longest Retry-After that is waited for. The client gets a longer one instead */
const MAX_RETRY_AFTER_SECONDS = 30;

/**
 * Returns a provider that asks again, and then asks the others, as long as it has given no event: never after the first byte.
 *
 * Pauses double from 0.5 s to 8 s, shortened by up to half at random; a Retry-After up to 30 s is kept instead. Only what may pass
 * by itself is tried again; the next provider is asked for every error but those that lie in the request (`provider_rejected`).
 * Each retry and each change of provider is a `notice` at the head of the stream; that of a change names the `model` that answers.
 * @param attempts the provider itself, then its fallbacks
 */
export function withRetries(attempts: readonly [Attempt, ...Attempt[]], options: RetryOptions): Provider {
  const [{ provider }] = attempts;
  return {
    name: provider.name,
    stream: (request, call) => new RetryStream(attempts, { request, call, options }),
    listModels: (signal) => provider.listModels(signal),
    embed: provider.embed && ((request, signal) => counted(provider, { request, signal, observer: options.observer })),
    // Each attempt is sent the same tools
    toolsAreFree: attempts.every(({ provider }) => provider.toolsAreFree === true),
    // A fallback that does not see is told in words; so it is for every attempt by itself
    sees: provider.sees,
    takesTools: provider.takesTools,
    close: () => provider.close(),
  };
}

interface EmbedCall {
  readonly request: EmbedRequest;
  readonly signal: AbortSignal;
  readonly observer: StreamObserver;
}

/** Asks for vectors once, and counts it: whoever asks decides whether to ask again. */
async function counted(
  { name, embed }: Provider,
  { request, signal, observer }: EmbedCall,
): Promise<Embeddings> {
  try {
    const reply = await (embed as NonNullable<Provider["embed"]>)(request, signal); // the caller has seen that it is there
    const { tokens: prompt_tokens = 0 } = reply;
    const usage = { prompt_tokens, completion_tokens: 0, total_tokens: prompt_tokens };
    observer.onEnd(name, { finish: { type: "finish", finish_reason: "stop", usage } });
    return reply;
  } catch (error) {
    observer.onEnd(name, { error: error instanceof ProviderError ? error : undefined });
    throw error;
  }
}

type Result = IteratorResult<readonly ProviderEvent[], undefined>;
const DONE: Result = { done: true, value: undefined };
const ENDED = Promise.resolve(DONE);

interface RetryCall {
  readonly request: ProviderRequest;
  readonly call: ProviderCallOptions;
  readonly options: RetryOptions;
}

class RetryStream implements AsyncIterableIterator<readonly ProviderEvent[], undefined> {
  #inner: AsyncIterator<readonly ProviderEvent[]> | undefined;
  /** Place of the running attempt among the attempts */
  #place = 0;
  /** Model at that attempt's provider; undefined: the request's own */
  #model: string | undefined = undefined;
  #retries = 0;
  #backoff: Backoff | undefined = undefined;
  #startedAt = 0;
  /** Events were given to the reader: from here on nothing is tried again */
  #given = false;
  #ended = false;
  /** True when the running attempt was counted, and while there is none */
  #counted = true;
  #notices: ProviderEvent[] | undefined;
  #attempt: Attempt;
  readonly #attempts: readonly [Attempt, ...Attempt[]];
  readonly #call: RetryCall;

  constructor(attempts: readonly [Attempt, ...Attempt[]], call: RetryCall) {
    this.#attempt = attempts[0];
    this.#attempts = attempts;
    this.#call = call;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<Result> {
    while (!this.#ended) {
      try {
        const result = await (this.#inner ?? this.#begin()).next();
        if (result.done) return this.#end();
        // Each result that does not end has a value
        return this.#give(result as { readonly done: false; readonly value: readonly ProviderEvent[] });
      } catch (error) {
        await this.#goOn(error);
      }
    }
    return DONE;
  }

  return(): Promise<Result> {
    this.#end();
    // The end of an iterator has no value
    return (this.#inner?.return?.() as Promise<Result> | undefined) ?? ENDED;
  }

  #begin(): AsyncIterator<readonly ProviderEvent[]> {
    const { request, call, options } = this.#call;
    const { provider } = this.#attempt;
    const model = this.#model;
    this.#startedAt = options.clock.monotonic();
    this.#counted = false;
    const stream = provider.stream(model === undefined ? request : { ...request, model }, call);
    return (this.#inner = stream[Symbol.asyncIterator]());
  }

  #give(result: { readonly done: false; readonly value: readonly ProviderEvent[] }): Result {
    const { observer, clock } = this.#call.options;
    const last = result.value.at(-1);
    if (!this.#given) {
      this.#given = true;
      observer.onFirstEvents(this.#attempt.provider.name, clock.monotonic() - this.#startedAt);
    }
    if (last?.type === "finish") this.#observe({ finish: last });
    if (this.#place === 0 && this.#notices === undefined) return result;
    if (this.#notices !== undefined) this.#call.call.onAgain?.(false);
    const value = [...this.#notices ?? [], ...result.value];
    // Parts of the turn that go back to a vendor are kept under the name of the provider that answered
    if (last?.type === "finish") value.splice(-1, 1, { provider: this.#attempt.provider.name, ...last });
    this.#notices = undefined;
    return { done: false, value };
  }

  #end(): Result {
    this.#ended = true;
    this.#observe({});
    return DONE;
  }

  /** After a failed attempt: waits for the next try, or chooses the next provider. @throws the error when there is neither */
  async #goOn(error: unknown): Promise<void> {
    const { call: { signal }, options } = this.#call;
    const failure = error instanceof ProviderError ? error : undefined;
    this.#observe({ error: failure });
    this.#inner = undefined;
    const pause = failure === undefined || this.#given ? undefined : this.#pauseOf(failure);
    this.#ended = true;
    if (pause !== undefined && failure !== undefined && !signal.aborted) {
      await this.#countAgain(failure);
      this.#retries++;
      this.#report("provider_retry", `${failure.message}; asking again after ${pause} ms`);
      await options.clock.sleep(pause, signal);
      this.#ended = false;
      return;
    }
    const next = this.#attempts[this.#place + 1];
    const isFinal = this.#given || signal.aborted || failure?.code === "provider_rejected";
    if (next === undefined || failure === undefined || isFinal) {
      if (failure?.code === "model_not_found" && !this.#given) throw await this.#withNames(failure);
      throw signal.aborted && !(error instanceof CancelError) ? cancelError(signal) : error;
    }
    await this.#countAgain(failure);
    const { name } = next.provider;
    this.#model = next.model === "" ? await firstModel(next.provider, signal) : next.model;
    this.#ended = false;
    this.#place++;
    this.#attempt = next;
    this.#retries = 0;
    this.#backoff = undefined;
    const model = `${name}/${this.#model ?? this.#call.request.model}`;
    this.#report("provider_fallback", `${failure.message}; asking provider "${name}" instead`, model);
  }

  async #withNames(failure: ProviderError): Promise<ProviderError> {
    const { modelNames } = this.#call.options;
    return modelNames === undefined ? failure : withNames(failure, await modelNames());
  }

  async #countAgain(failure: ProviderError): Promise<void> {
    const { beforeAgain } = this.#call.call;
    if (beforeAgain !== undefined && mayHaveBeenServed(failure)) await beforeAgain();
  }

  /** Counts the running attempt, once. */
  #observe(end: { readonly finish?: FinishEvent; readonly error?: ProviderError | undefined }): void {
    if (this.#counted) return;
    this.#counted = true;
    this.#call.options.observer.onEnd(this.#attempt.provider.name, end);
  }

  /** @returns undefined when this provider is not to be asked again */
  #pauseOf({ retryable, retryAfterSeconds }: ProviderError): number | undefined {
    if (!retryable || this.#retries >= this.#attempt.maxRetries) return undefined;
    const pauseMs = (this.#backoff ??= new Backoff(PAUSES, this.#call.options.random)).next();
    if (retryAfterSeconds === undefined) return pauseMs;
    return retryAfterSeconds <= MAX_RETRY_AFTER_SECONDS ? retryAfterSeconds * 1000 : undefined;
  }

  #report(code: string, message: string, model?: string): void {
    (this.#notices ??= []).push({ type: "notice", code, message, ...(model === undefined ? {} : { model }) });
    const { call, options } = this.#call;
    call.onAgain?.(true);
    options.log.warn(message, { code, ...(call.requestId === undefined ? {} : { request_id: call.requestId }) });
  }
}

/** Returns the first model that a provider lists. Empty when the list cannot be read: the attempt then fails by itself. */
async function firstModel(provider: Provider, signal: AbortSignal): Promise<string> {
  try {
    return firstChatModel(await provider.listModels(signal)) ?? "";
  } catch {
    return "";
  }
}

/** Codes of errors that come before the request has left. */
const UNSENT: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "ERR_FOREIGN_SERVER",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/**
 * Returns whether a provider may have worked for a request that it never answered, and charges for it: the request was sent, and then
 * no reply came or the connection broke. A reply with an error status says that nothing was made.
 */
export function mayHaveBeenServed({ status, cause }: ProviderError): boolean {
  if (status !== undefined) return false;
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  return !UNSENT.has(code);
}

/**
 * Counts provider requests, tokens and the time to the first event. Registers its metrics: once a registry.
 * Source: docs/design/observability.md "Metrics"
 */
export function createProviderMetrics(metrics: Metrics): StreamObserver {
  const requests = metrics.counter(
    "postern_provider_requests_total",
    "Requests to model providers; status is the upstream's, an error code without one, or cancelled",
    ["provider", "status"],
  );
  const tokens = metrics.counter("postern_provider_tokens_total", "Tokens as the providers report them", [
    "provider",
    "kind",
  ]);
  const firstToken = metrics.histogram(
    "postern_provider_time_to_first_token_seconds",
    "Time from sending a request to its first event",
    { labels: ["provider"], buckets: DURATION_BUCKETS_SECONDS },
  );
  return {
    onFirstEvents: (provider, ms) => firstToken.with(provider).observe(ms / 1000),
    onEnd(provider, { finish, error }) {
      const status = finish !== undefined
        ? "200"
        : error === undefined
        ? "cancelled"
        : String(error.status ?? error.code);
      requests.with(provider, status).add();
      if (finish?.usage === undefined) return;
      tokens.with(provider, "prompt").add(finish.usage.prompt_tokens);
      tokens.with(provider, "completion").add(finish.usage.completion_tokens);
    },
  };
}
