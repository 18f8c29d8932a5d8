import { ProviderError } from "../base/errors.ts";
import type { ModelEntry } from "../base/records/model.ts";
import type { Provider, ProviderRequest } from "./provider.ts";

/** The model a server is used with when none is named: the first that is not for embeddings; undefined for an empty list. */
export function firstChatModel(models: readonly Pick<ModelEntry, "id">[]): string | undefined {
  return (models.find(({ id }) => !/embed|rerank/i.test(id)) ?? models[0])?.id;
}

/** A provider that answers a request without a model name by the first model it lists, asked for at that time. */
export function withDefaultModel(provider: Provider): Provider {
  return {
    ...provider,
    stream(request, options) {
      if (request.model !== "") return provider.stream(request, options);
      return streamFirst(provider, request, options);
    },
  };
}

async function* streamFirst(provider: Provider, request: ProviderRequest, options: Parameters<Provider["stream"]>[1]) {
  const model = firstChatModel(await provider.listModels(options.signal));
  if (model === undefined) {
    throw new ProviderError("model_not_found", `Cannot choose a model: provider "${provider.name}" lists none`, {
      provider: provider.name,
    });
  }
  yield* provider.stream({ ...request, model }, options);
}
