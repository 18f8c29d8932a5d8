import { ProviderError } from "../base/errors.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Config } from "../config/config.ts";
import { resolveHint, routeOf } from "./models/routing.ts";
import type { Embeddings, Providers, ResolvedModel } from "./provider.ts";

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
    const found = resolveIfThere(() => resolveHint(providers, routes, hint));
    const embed = found?.provider.embed;
    if (found !== undefined && embed !== undefined) {
      return {
        model,
        async embed(texts, signal) {
          const { vectors } = await embed({ model: found.model, input: texts }, signal);
          return vectors.map((vector) => toDirection(vector, found));
        },
      };
    }
    if (told !== model) log.warn(`Memories are found by words alone: "${model}" of the route "${hint}" cannot embed`);
    told = model;
    return undefined;
  };
}

/** Returns a vector as it is compared with others. @throws {ProviderError} all of it is zero, so that it points nowhere */
function toDirection(vector: Embeddings["vectors"][number], { provider: { name } }: ResolvedModel): Float32Array {
  const direction = Float32Array.from(vector);
  if (direction.some((number) => number !== 0)) return direction;
  throw new ProviderError("provider_error", `Cannot use an embedding of "${name}": all of it is zero`, {
    provider: name,
  });
}

function resolveIfThere(resolve: () => ResolvedModel): ResolvedModel | undefined {
  try {
    return resolve();
  } catch {
    // The provider is not in use
    return undefined;
  }
}
