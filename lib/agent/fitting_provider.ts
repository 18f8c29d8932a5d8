import { ProviderError } from "../base/errors.ts";
import type { ProviderEvent } from "../base/records/provider_event.ts";
import type { Provider, ProviderCallOptions, ProviderRequest } from "../providers/provider.ts";
import { fitRequest, requestTokens, trimNotice } from "./fit_request.ts";

/**
 * What a refusal says of the model's window, by the measure requests are fitted with; 0 when it is not about that.
 * @param tokens those of the refused request, by that measure
 */
export type WindowLesson = (error: ProviderError, tokens: number) => number;

/**
 * A provider that is asked once more, with a request that fits, when it refuses one as too long for its window: where nobody names
 * the window, the refusal is the provider's word on it. A second refusal is the reader's to see.
 */
export function createFittingProvider(
  provider: Provider,
  { learn, fixed }: {
    readonly learn: WindowLesson;
    /** How many of a request's first messages are never cut, asked when a request was refused */
    readonly fixed: () => number;
  },
): Provider {
  return {
    name: provider.name,
    stream: (request, call) => ({
      [Symbol.asyncIterator]: () => new FittingIterator(provider, { request, call, learn, fixed }),
    }),
    listModels: (signal) => provider.listModels(signal),
    close: () => provider.close(),
  };
}

type Result = IteratorResult<readonly ProviderEvent[], undefined>;

interface FittingCall {
  readonly request: ProviderRequest;
  readonly call: ProviderCallOptions;
  readonly learn: WindowLesson;
  readonly fixed: () => number;
}

/** Stands in the way of the first array alone: all others are handed on as they come. */
class FittingIterator implements AsyncIterator<readonly ProviderEvent[], undefined> {
  #inner: AsyncIterator<readonly ProviderEvent[]>;
  #begun = false;
  readonly #provider: Provider;
  readonly #call: FittingCall;

  constructor(provider: Provider, call: FittingCall) {
    this.#provider = provider;
    this.#call = call;
    this.#inner = this.#ask(call.request);
  }

  next(): Promise<Result> {
    // Any result after the first ends or goes on as the provider's does
    if (this.#begun) return this.#inner.next() as Promise<Result>;
    this.#begun = true;
    return this.#first();
  }

  async return(): Promise<Result> {
    await this.#inner.return?.();
    return { done: true, value: undefined };
  }

  #ask(request: ProviderRequest): AsyncIterator<readonly ProviderEvent[]> {
    return this.#provider.stream(request, this.#call.call)[Symbol.asyncIterator]();
  }

  async #first(): Promise<Result> {
    try {
      return await this.#inner.next() as Result;
    } catch (error) {
      const { request, learn, fixed } = this.#call;
      const window = error instanceof ProviderError ? learn(error, requestTokens(request)) : 0;
      if (window === 0) throw error;
      const fitted = fitRequest(request, window, fixed());
      if (fitted.shortened + fitted.dropped === 0) throw error;
      this.#inner = this.#ask(fitted.request);
      const result = await this.#inner.next() as Result;
      return result.done ? result : { done: false, value: [trimNotice(fitted), ...result.value] };
    }
  }
}
