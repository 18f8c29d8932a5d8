import { ProviderError } from "../base/errors.ts";
import type { ModelEntry } from "../base/records/model.ts";
import type { Provider, ProviderCallOptions, ProviderRequest } from "./provider.ts";

export interface ListedModelsOptions {
  /** Models the server had when it was found. */
  readonly models: readonly string[];
  /** The error for a name that the server does not list, with the names that it does. */
  readonly unknown: (wanted: string, listed: readonly string[]) => ProviderError;
}

/**
 * A provider that takes the model names it lists and no others: llama.cpp, LM Studio and SGLang answer with the model that is
 * loaded, whatever the request names. The list is read again for a name that is not in it. A server that does not list its models
 * then decides by itself.
 */
export function withListedModels(provider: Provider, { models, unknown }: ListedModelsOptions): Provider {
  let listed = new Set(models);
  const check = async (model: string, signal: AbortSignal) => {
    let entries: readonly ModelEntry[];
    try {
      entries = await provider.listModels(signal);
    } catch (error) {
      if (error instanceof ProviderError) return;
      throw error;
    }
    listed = new Set(entries.map(({ id }) => id));
    if (!listed.has(model)) throw unknown(model, [...listed]);
  };
  async function* checked(request: ProviderRequest, options: ProviderCallOptions) {
    await check(request.model, options.signal);
    yield* provider.stream(request, options);
  }
  return {
    ...provider,
    stream: (request, options) =>
      request.model === "" || listed.has(request.model) ? provider.stream(request, options) : checked(request, options),
  };
}
