import * as v from "valibot";
import {
  agentSchema,
  budgetSchema,
  channelSchema,
  conversationsSchema,
  cronSchema,
  delegateAgentSchema,
  queryClassificationSchema,
  routeSchema,
  runsSchema,
  skillsSchema,
  sopsSchema,
} from "./schema/agent.ts";
import { hardwareSchema, pluginsSchema, runtimeSchema } from "./schema/extension.ts";
import { gatewaySchema } from "./schema/gateway.ts";
import { namedProviderSchema, providerSchema } from "./schema/provider.ts";
import { autonomySchema, mcpServerSchema, securitySchema, switches, toolSchema } from "./schema/security.ts";
import { loggingSchema, storageSchema } from "./schema/system.ts";
import { named, text } from "./schema/value.ts";
import {
  browserSchema,
  httpRequestSchema,
  proxySchema,
  urlAccessSchema,
  webFetchSchema,
  webSearchSchema,
} from "./schema/web.ts";

const routesSchema = v.optional(v.pipe(v.array(routeSchema), v.maxLength(1000)), []);

/** The whole of `postern.toml` (docs/design/configuration.md "Validation"): every key, its bounds and its default. */
export const configSchema = v.strictObject({
  /** Empty: `$XDG_DATA_HOME/postern` */
  data_dir: text(""),
  /** The folder the agent works in; empty: the current folder */
  workspace: text(""),
  ...switches,
  gateway: v.optional(gatewaySchema, {}),
  provider: v.optional(providerSchema, {}),
  providers: named(namedProviderSchema),
  agent: v.optional(agentSchema, {}),
  runs: v.optional(runsSchema, {}),
  budget: v.optional(budgetSchema, {}),
  proxy: v.optional(proxySchema, {}),
  autonomy: v.optional(autonomySchema, {}),
  tools: v.optional(v.record(v.pipe(v.string(), v.nonEmpty(), v.maxLength(256)), toolSchema), {}),
  security: v.optional(securitySchema, {}),
  mcp: v.optional(v.strictObject({ servers: named(mcpServerSchema) }), {}),
  url_access: v.optional(urlAccessSchema, {}),
  http_request: v.optional(httpRequestSchema, {}),
  web_fetch: v.optional(webFetchSchema, {}),
  web_search: v.optional(webSearchSchema, {}),
  browser: v.optional(browserSchema, {}),
  cron: v.optional(cronSchema, {}),
  agents: named(delegateAgentSchema),
  model_routes: routesSchema,
  embedding_routes: routesSchema,
  query_classification: v.optional(queryClassificationSchema, {}),
  channels: named(channelSchema),
  runtime: v.optional(runtimeSchema, {}),
  plugins: v.optional(pluginsSchema, {}),
  skills: v.optional(skillsSchema, {}),
  sops: v.optional(sopsSchema, {}),
  hardware: v.optional(hardwareSchema, {}),
  storage: v.optional(storageSchema, {}),
  logging: v.optional(loggingSchema, {}),
  conversations: v.optional(conversationsSchema, {}),
});

type DeepReadonly<T> = T extends readonly (infer Item)[] ? readonly DeepReadonly<Item>[]
  : T extends object ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> }
  : T;

/** An immutable snapshot of the configuration, all defaults filled in. */
export type Config = DeepReadonly<v.InferOutput<typeof configSchema>> & {
  /** Top-level keys and tables, and those of `[security]` as `security.mcp`, that were really given, not defaulted: `url_validation` exists only with a `[url_access]` */
  readonly given: readonly string[];
};

/** The configuration of a machine without a file. */
export function defaultConfig(): Config {
  return freeze({ ...v.parse(configSchema, {}), given: [] });
}

/** Makes a value and everything in it immutable. */
export function freeze<T>(value: T): T {
  if (value === null || typeof value !== "object" || Object.isFrozen(value)) return value;
  Object.freeze(value);
  for (const item of Object.values(value)) freeze(item);
  return value;
}
