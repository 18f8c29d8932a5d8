import * as v from "valibot";
import type { DeepReadonly } from "../base/json.ts";
import {
  agentSchema,
  budgetSchema,
  channelSchema,
  conversationsSchema,
  cronSchema,
  delegateAgentSchema,
  memorySchema,
  queryClassificationSchema,
  routeSchema,
  runsSchema,
  skillsSchema,
  sopsSchema,
} from "./schema/agent.ts";
import { hardwareSchema, pluginsSchema, runtimeSchema } from "./schema/extension.ts";
import { clusterSchema, gatewaySchema, loggingSchema, storageSchema } from "./schema/gateway.ts";
import { notifyRuleSchema } from "./schema/notify.ts";
import { namedProviderSchema, providerSchema } from "./schema/provider.ts";
import {
  autonomySchema,
  mcpOfferSchema,
  mcpServerSchema,
  securitySchema,
  switches,
  toolSchema,
} from "./schema/security.ts";
import { about, httpUrl, named, text } from "./schema/value.ts";
import {
  browserSchema,
  httpRequestSchema,
  proxySchema,
  secretSchema,
  urlAccessSchema,
  webFetchSchema,
  webSearchSchema,
} from "./schema/web.ts";

const routesSchema = v.optional(v.pipe(v.array(routeSchema), v.maxLength(1000)), []);

/** The whole of `postern.toml` (docs/design/configuration.md "Validation"): every key, its bounds and its default. */
export const configSchema = v.strictObject({
  data_dir: about(
    "Folder of records, keys and logs. Empty: `$XDG_DATA_HOME/postern`, which is `~/.local/share/postern` by default",
    text(""),
  ),
  workspace: about("Folder that the agent works in. Empty: the one that the gateway is started in", text("")),
  ...switches,
  gateway: about(
    "Where the gateway listens, who may come in, and the bounds of a request",
    v.optional(gatewaySchema, {}),
  ),
  provider: about("The default model", v.optional(providerSchema, {})),
  providers: about(
    "Further providers by a name of your choice; a request asks for `<name>/<model>`",
    named(namedProviderSchema),
  ),
  agent: about("Bounds of one run of the agent", v.optional(agentSchema, {})),
  runs: about("Queue and retention of runs", v.optional(runsSchema, {})),
  budget: about("Limits of tokens", v.optional(budgetSchema, {})),
  proxy: about("Proxies for requests to model providers, of tools and to reply addresses", v.optional(proxySchema, {})),
  autonomy: about("What the agent may do by itself", v.optional(autonomySchema, {})),
  tools: about(
    "Access of tools of nodes as you classify it, by the tool's name",
    v.optional(v.record(v.pipe(v.string(), v.nonEmpty(), v.maxLength(256)), toolSchema), {}),
  ),
  security: about("Files, commands and git", v.optional(securitySchema, {})),
  mcp: about(
    "MCP servers",
    v.optional(
      v.strictObject({
        client_metadata_url: about(
          "Address of the document that says who Postern is to authorization servers (Client ID Metadata Document): https with a path. Empty: none",
          httpUrl(),
        ),
        servers: about(
          "Servers by a name of your choice: a program by `command`, or a server by `url`",
          named(mcpServerSchema),
        ),
        server: about("The gateway as a server of MCP, at `/mcp`", v.optional(mcpOfferSchema, {})),
      }),
      {},
    ),
  ),
  url_access: about("Addresses that tools may reach, git remotes included", v.optional(urlAccessSchema, {})),
  secrets: about(
    "Values that tools may use and the model may not see, by a name of your choice",
    named(secretSchema),
  ),
  http_request: about("Requests of the agent to HTTP servers", v.optional(httpRequestSchema, {})),
  web_fetch: about("Pages of the web as text", v.optional(webFetchSchema, {})),
  web_search: about("Searches of the web", v.optional(webSearchSchema, {})),
  browser: about(
    "A browser for the agent (`browser`), and addresses that it opens in yours (`browser_open`)",
    v.optional(browserSchema, {}),
  ),
  cron: about("Schedules", v.optional(cronSchema, {})),
  agents: about("Agents for `delegate`, by a name of your choice", named(delegateAgentSchema)),
  model_routes: about("Models by a hint", routesSchema),
  embedding_routes: about("Embedding models by a hint", routesSchema),
  query_classification: about(
    "Rules that choose a model route by the query",
    v.optional(queryClassificationSchema, {}),
  ),
  channels: about("Other systems that send messages to `POST /v1/webhook/<name>`", named(channelSchema)),
  notify: about(
    "Who is told when something waits for a person, or has ended",
    v.optional(v.pipe(v.array(notifyRuleSchema), v.maxLength(100)), []),
  ),
  runtime: about("What WASM tools may use", v.optional(runtimeSchema, {})),
  plugins: about("Plugins", v.optional(pluginsSchema, {})),
  skills: about("Skills", v.optional(skillsSchema, {})),
  sops: about("Procedures", v.optional(sopsSchema, {})),
  hardware: about("Boards that are reached over the GDB remote protocol", v.optional(hardwareSchema, {})),
  storage: about("Where records are kept", v.optional(storageSchema, {})),
  cluster: about("Gateways that share a PostgreSQL database", v.optional(clusterSchema, {})),
  logging: about("Log lines on stderr, or in the log file of the daemon", v.optional(loggingSchema, {})),
  memory: about("How memories are found", v.optional(memorySchema, {})),
  conversations: about("How long conversations are kept", v.optional(conversationsSchema, {})),
});

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
