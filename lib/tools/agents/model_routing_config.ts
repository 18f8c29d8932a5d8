import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import { classifyQuery, hasRoutes, routeOf } from "../../providers/models/routing.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { requireOpFields } from "../runtime/parse_input.ts";
import type { ToolResult } from "../runtime/tool_call.ts";

const NEEDED = { resolve_hint: ["hint"], classify_query: ["query"], route_query: ["query"] };

/** `model_routing_config`: shows the configured routes, and the route of a hint or a query (docs/design/tools.md "Agents"). */
export const modelRoutingConfig = defineTool({
  name: "model_routing_config",
  description:
    "Queries the model routing: list_routes, list_embedding_routes, resolve_hint (the model behind a hint), classify_query (the hint " +
    'a query gets), route_query (the model a query goes to). Gives JSON; model "hint:<name>" in a request uses a route',
  access: "read",
  enabled: hasRoutes,
  enabledBy: 'model_routes = [{ hint = "fast", provider = "openai", model = "gpt-5-mini" }]',
  needs: [],
  input: v.strictObject({
    op: v.pipe(
      v.picklist(["list_routes", "list_embedding_routes", "resolve_hint", "classify_query", "route_query"]),
      v.description("What to query"),
    ),
    hint: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(256), v.description("resolve_hint: the hint"))),
    query: v.optional(v.pipe(v.string(), v.minLength(1), v.description("classify_query, route_query: the query"))),
  }),
  check: (input) => requireOpFields("model_routing_config", input, NEEDED),
  async run({ op, hint = "", query = "" }, { config }) {
    switch (op) {
      case "list_routes":
        return shown({ routes: config.model_routes });
      case "list_embedding_routes":
        return shown({ routes: config.embedding_routes });
      case "resolve_hint":
        return shown(resolveHint(config, hint));
      case "classify_query":
        return shown(classifyQuery(config.query_classification, query) ?? noHint(config));
      case "route_query":
        return shown(routeQuery(config, query));
    }
  },
});

function resolveHint(config: Config, asked: string) {
  const hint = asked.replace(/^hint:/, "");
  const model = routeOf(config.model_routes, hint);
  if (model !== undefined) return { ...model, kind: "model" };
  const embedding = routeOf(config.embedding_routes, hint);
  if (embedding !== undefined) return { ...embedding, kind: "embedding" };
  const hints = [...config.model_routes, ...config.embedding_routes].map((route) => route.hint);
  const known = [...new Set(hints)].join(", ");
  throw new ToolError("not_found", `Cannot resolve the hint "${hint}": no route has it; the hints are ${known}`);
}

function routeQuery(config: Config, query: string) {
  const found = classifyQuery(config.query_classification, query);
  if (found === undefined) return { ...noHint(config), provider: null, model: null };
  const route = routeOf(config.model_routes, found.hint);
  if (route !== undefined) return { ...found, provider: route.provider, model: route.model };
  throw new ToolError("not_found", `Cannot route the query: its hint "${found.hint}" has no route in [[model_routes]]`);
}

function noHint({ query_classification: { enabled } }: Config) {
  const reason = enabled ? "no rule matches" : "[query_classification] is off";
  return { hint: null, reason: `${reason}: the default model is used` };
}

function shown(data: unknown): ToolResult {
  return { output: JSON.stringify(data), isError: false, data };
}
