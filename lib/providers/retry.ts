import { CancelError, cancelError } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { ProviderError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { ProviderEvent } from "../base/records/provider_event.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Provider, ProviderCallOptions, ProviderRequest } from "./provider.ts";

/** One place to ask. */
export interface Attempt {
  readonly provider: Provider;
  /** Model at this provider; undefined: the request's own */
  readonly model: string | undefined;
  /** Further attempts after the first */
  readonly maxRetries: number;
}

/** What is counted of a stream. */
export interface StreamObserver {
  /** An attempt gave its first events, `ms` after it began */
  onFirstEvents(provider: string, ms: number): void;
  /** An attempt ended: with `finish`, with an error, or because it was left or cancelled (both undefined) */
  onEnd(
    provider: string,
    end: { readonly finish?: FinishEvent | undefined; readonly error?: ProviderError | undefined },
  ): void;
}

export type FinishEvent = Extract<ProviderEvent, { type: "finish" }>;

export interface RetryOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly observer: StreamObserver;
}

const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 8_000;
/** A longer Retry-After is told to the client rather than waited for */
const MAX_RETRY_AFTER_SECONDS = 30;

/**
 * A provider that asks again, and then asks the others, as long as no event was given: never after the first byte.
 *
 * Pauses double from 0.5 s to 8 s, shortened by up to half at random; a Retry-After up to 30 s is kept instead. Only what may pass
 * by itself is tried again; the next provider is asked for every error but those that lie in the request (`provider_rejected`).
 * Each retry and each change of provider is a `notice` at the head of the stream.
 * @param attempts the provider itself, then its fallbacks
 */
export function withRetries(attempts: readonly [Attempt, ...Attempt[]], options: RetryOptions): Provider {
  const [{ provider }] = attempts;
  return {
    name: provider.name,
    stream: (request, call) => ({
      [Symbol.asyncIterator]: () => new RetryIterator(attempts, { request, call, options }),
    }),
    listModels: (signal) => provider.listModels(signal),
    close: () => provider.close(),
  };
}

type Result = IteratorResult<readonly ProviderEvent[], undefined>;
const DONE: Result = { done: true, value: undefined };

interface RetryCall {
  readonly request: ProviderRequest;
  readonly call: ProviderCallOptions;
  readonly options: RetryOptions;
}

class RetryIterator implements AsyncIterator<readonly ProviderEvent[], undefined> {
  #inner: AsyncIterator<readonly ProviderEvent[]> | undefined;
  #provider = "";
  #begun = false;
  #ended = false;
  /** The running attempt was counted; true while there is none */
  #counted = true;
  readonly #attempts: readonly Attempt[];
  readonly #call: RetryCall;

  constructor(attempts: readonly Attempt[], call: RetryCall) {
    this.#attempts = attempts;
    this.#call = call;
  }

  next(): Promise<Result> {
    if (this.#ended) return Promise.resolve(DONE);
    return this.#begun ? this.#step() : this.#first();
  }

  async return(): Promise<Result> {
    this.#ended = true;
    this.#observe({});
    await this.#inner?.return?.();
    return DONE;
  }

  async #first(): Promise<Result> {
    this.#begun = true;
    const notices: ProviderEvent[] = [];
    let place = 0;
    for (const attempt of this.#attempts) {
      const next = this.#attempts[++place];
      try {
        const result = await this.#tryProvider(attempt, notices);
        return notices.length === 0 || result.done ? result : { done: false, value: [...notices, ...result.value] };
      } catch (error) {
        if (next === undefined || !(error instanceof ProviderError) || error.code === "provider_rejected") throw error;
        this.#report(notices, "provider_fallback", `${error.message}; asking provider "${next.provider.name}" instead`);
      }
    }
    return DONE;
  }

  async #tryProvider({ provider, model, maxRetries }: Attempt, notices: ProviderEvent[]): Promise<Result> {
    const { request, call, options } = this.#call;
    const asked = model === undefined ? request : { ...request, model };
    this.#provider = provider.name;
    for (let retry = 0;; retry++) {
      const start = options.clock.monotonic();
      this.#ended = false;
      this.#counted = false;
      this.#inner = provider.stream(asked, call)[Symbol.asyncIterator]();
      try {
        const result = await this.#step();
        options.observer.onFirstEvents(provider.name, options.clock.monotonic() - start);
        return result;
      } catch (error) {
        const pause = error instanceof ProviderError && retry < maxRetries ? this.#pauseOf(error, retry) : undefined;
        if (pause === undefined || !(error instanceof ProviderError)) throw error;
        this.#report(notices, "provider_retry", `${error.message}; asking again after ${pause} ms`);
        await options.clock.sleep(pause, call.signal);
      }
    }
  }

  async #step(): Promise<Result> {
    // Set before the first step of each attempt
    const inner = this.#inner as AsyncIterator<readonly ProviderEvent[], undefined>;
    try {
      const result = await inner.next();
      if (result.done) {
        this.#ended = true;
        this.#observe({});
        return DONE;
      }
      const last = result.value.at(-1);
      if (last?.type === "finish") this.#observe({ finish: last });
      return result;
    } catch (error) {
      this.#ended = true;
      this.#observe({ error: error instanceof ProviderError ? error : undefined });
      const { signal } = this.#call.call;
      throw signal.aborted && !(error instanceof CancelError) ? cancelError(signal) : error;
    }
  }

  /** Counts the running attempt, once. */
  #observe(end: { readonly finish?: FinishEvent; readonly error?: ProviderError | undefined }): void {
    if (this.#counted) return;
    this.#counted = true;
    this.#call.options.observer.onEnd(this.#provider, end);
  }

  #pauseOf(error: ProviderError, retry: number): number | undefined {
    if (!error.retryable) return undefined;
    const { retryAfterSeconds } = error;
    if (retryAfterSeconds !== undefined) {
      return retryAfterSeconds <= MAX_RETRY_AFTER_SECONDS ? retryAfterSeconds * 1000 : undefined;
    }
    const [byte = 0] = this.#call.options.random.bytes(1);
    return Math.round(Math.min(FIRST_PAUSE_MS * 2 ** retry, MAX_PAUSE_MS) * (1 - byte / 512));
  }

  #report(notices: ProviderEvent[], code: string, message: string): void {
    notices.push({ type: "notice", code, message });
    const { call, options } = this.#call;
    options.log.warn(message, { code, ...(call.requestId === undefined ? {} : { request_id: call.requestId }) });
  }
}
