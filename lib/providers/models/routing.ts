import { ProviderError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import type { Providers, ResolvedModel } from "../provider.ts";

/** A model under a hint, which is a name for what the model is good for. */
export interface ModelRoute {
  readonly hint: string;
  /** Name of a configured provider */
  readonly provider: string;
  /** As the provider knows it */
  readonly model: string;
}

/** Hint of a query, and the rule that gave it. */
export interface Classification {
  readonly hint: string;
  readonly priority: number;
  /** The rule's word that was found; null for a rule of lengths alone */
  readonly matched: string | null;
}

type RoutingConfig = Pick<Config, "model_routes" | "embedding_routes" | "query_classification">;

/** `model: "hint:<name>"` asks for the route of this hint. */
export const HINT_PREFIX = "hint:";

/** Returns whether a configuration has a route of either kind. */
export function hasRoutes(config: RoutingConfig): boolean {
  return config.model_routes.length + config.embedding_routes.length > 0;
}

/** Returns the route of a hint. Undefined for an unknown hint. */
export function routeOf(routes: readonly ModelRoute[], hint: string): ModelRoute | undefined {
  return routes.find((route) => route.hint === hint);
}

/**
 * Returns the hint of a query by `[query_classification]`: the hint of the matching rule with the highest priority, and of the first
 * among equals.
 *
 * A rule matches when the query's length is within its bounds and one of its keywords (without case) or patterns (as they are)
 * is in the query, also inside a word; a rule without any matches by length alone. Off: undefined.
 */
export function classifyQuery(
  { enabled, rules }: RoutingConfig["query_classification"],
  query: string,
): Classification | undefined {
  if (!enabled) return undefined;
  const lower = query.toLowerCase();
  let best: Classification | undefined;
  for (const { hint, priority, keywords, patterns, min_length, max_length } of rules) {
    if (best !== undefined && priority <= best.priority) continue;
    if (query.length < min_length || (max_length > 0 && query.length > max_length)) continue;
    const matched = keywords.find((keyword) => lower.includes(keyword.toLowerCase())) ??
      patterns.find((pattern) => query.includes(pattern));
    if (matched === undefined && keywords.length + patterns.length > 0) continue;
    best = { hint, priority, matched: matched ?? null };
  }
  return best;
}

/**
 * Adds the routes of a configuration to providers: `resolve` takes `hint:<name>`, `route` the query of a request that names no
 * model. Returns the same object without `[[model_routes]]`: every name is then the name of a model.
 *
 * Both throw ProviderError `model_not_found` for a hint without a route, and for a route whose provider is not in use.
 */
export function withRouting(providers: Providers, config: RoutingConfig): Providers {
  const { model_routes: routes, query_classification: classification } = config;
  if (routes.length === 0) return providers;
  const resolve = (model?: string) =>
    model?.startsWith(HINT_PREFIX)
      ? resolveHint(providers, routes, model.slice(HINT_PREFIX.length))
      : providers.resolve(model);
  if (!classification.enabled) return { ...providers, resolve };
  return {
    ...providers,
    resolve,
    route(query) {
      const hint = classifyQuery(classification, query)?.hint;
      return hint === undefined ? undefined : resolveHint(providers, routes, hint);
    },
  };
}

/**
 * Returns the model that a hint names among routes. A provider that is not in use has no other one in its place.
 * @throws {ProviderError} `model_not_found`
 */
export function resolveHint(
  providers: Pick<Providers, "resolve">,
  routes: readonly ModelRoute[],
  hint: string,
): ResolvedModel {
  const route = routeOf(routes, hint);
  if (route === undefined) {
    const known = routes.map((one) => one.hint).join(", ");
    throw notFound(hint, `there is no such route; ${known === "" ? "there are none" : `the hints are ${known}`}`);
  }
  const resolved = resolveIfThere(providers, `${route.provider}/${route.model}`);
  if (resolved?.provider.name === route.provider) return resolved;
  throw notFound(hint, `its provider "${route.provider}" is not in use; configure [providers.${route.provider}]`);
}

function resolveIfThere(providers: Pick<Providers, "resolve">, model: string): ResolvedModel | undefined {
  try {
    return providers.resolve(model);
  } catch (error) {
    if (error instanceof ProviderError && error.code === "model_not_found") return undefined;
    throw error;
  }
}

function notFound(hint: string, reason: string): ProviderError {
  const shown = JSON.stringify(hint.slice(0, 128));
  return new ProviderError("model_not_found", `Cannot use the model hint ${shown}: ${reason}`, {
    provider: "none",
    status: 404,
    param: "model",
  });
}
