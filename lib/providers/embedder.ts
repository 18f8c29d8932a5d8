import type { Logger } from "../base/telemetry/log.ts";
import type { Config } from "../config/config.ts";
import { routeOf } from "./models/routing.ts";
import type { Provider, Providers } from "./provider.ts";

/** The embedding model of a configuration. */
export interface RoutedEmbedder {
  /** Name of the model, with that of its provider */
  readonly model: string;
  /** @throws {ProviderError}; {CancelError} */
  embed(texts: readonly string[], signal: AbortSignal): Promise<readonly Float32Array[]>;
}

/** Options of `createEmbedder`. */
export interface EmbedderOptions {
  readonly config: () => Pick<Config, "memory" | "embedding_routes">;
  readonly providers: Pick<Providers, "resolve">;
  readonly log: Logger;
}

/**
 * Creates the function that returns the model of `[memory] embedding_route`, by the newest configuration. Undefined when no route is
 * named, and when its provider is not in use or has no embeddings, which the log says once.
 */
export function createEmbedder({ config, providers, log }: EmbedderOptions): () => RoutedEmbedder | undefined {
  let told = "";
  return () => {
    const { memory: { embedding_route: hint }, embedding_routes: routes } = config();
    const route = hint === "" ? undefined : routeOf(routes, hint);
    if (route === undefined) return undefined;
    const model = `${route.provider}/${route.model}`;
    const found = resolveIfThere(providers, model);
    const embed = found?.provider.name === route.provider ? found.provider.embed : undefined;
    if (found !== undefined && embed !== undefined) {
      return { model, embed: (texts, signal) => embed({ model: found.model, texts }, signal) };
    }
    if (told !== model) log.warn(`Memories are found by words alone: "${model}" of the route "${hint}" cannot embed`);
    told = model;
    return undefined;
  };
}

function resolveIfThere(
  providers: Pick<Providers, "resolve">,
  model: string,
): { readonly provider: Provider; readonly model: string } | undefined {
  try {
    return providers.resolve(model);
  } catch {
    // The provider is not in use
    return undefined;
  }
}
