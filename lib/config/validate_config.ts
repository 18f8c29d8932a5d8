import * as v from "valibot";
import { isNodeId, parseLinkAddress } from "./schema/gateway.ts";
import { BUILT_IN_FORBIDDEN_PATHS } from "../base/built_in_forbidden_paths.ts";
import { publicRangeProblem } from "../base/special_addresses.ts";
import { isTimezone } from "../base/zoned_time.ts";
import { type Config, configSchema, freeze } from "./config.ts";
import { type KeyPath, type RawTable, USE_SINGLE_QUOTES } from "./toml.ts";
import { mergeLayers, normalizeLayer } from "./layers.ts";
import { expectationAt, isTable, listsForTables, nearestKey, unknownKeys } from "./schema_keys.ts";
import { PLAIN_PROVIDER, PROVIDER_KINDS } from "./schema/provider.ts";
import { notifyChecks } from "./schema/notify.ts";
import { joinRules, ruleChecks } from "./rule_checks.ts";
import { secretChecks } from "./secret_checks.ts";
import { switches } from "./schema/security.ts";
import { hidesValue } from "./secrets.ts";

/** Something wrong with the value at `path`; `reason` goes on after `Cannot use "key" (place): `. Holds no secret. */
export interface ValidationFinding {
  readonly path: KeyPath;
  readonly reason: string;
}

/** Result of a validation: the configuration, or everything that is wrong. */
export type Validation = { readonly config: Config } | { readonly findings: readonly ValidationFinding[] };

const MAX_SHOWN_CHARACTERS = 60;
/** Each address is compared with each range. */
const MAX_PUBLIC_RANGES = 100;

/**
 * The one validator for file, command line and boot: joins the layers (later ones win), fills in defaults, and finds
 * everything that is wrong at once.
 * @param ownProviders names of providers that a program gives beside the configuration
 */
export function validateConfig(layers: readonly RawTable[], ownProviders: readonly string[] = []): Validation {
  const normalized = layers.map(normalizeLayer);
  const tables = normalized.map((layer) => layer.table);
  const rules = joinRules(tables);
  const raw = mergeLayers(rules === undefined ? tables : [...tables, { autonomy: { rules } }]);
  const conflicts = normalized.flatMap((layer) => layer.conflicts).map((path) => ({
    path,
    reason: `${path.at(-1)} has another value at top level; keep one of the two`,
  }));
  const result = v.safeParse(configSchema, raw);
  const lists = listsForTables(raw).map((path) => ({ path, reason: "it must be a table, not a list" }));
  const unknown = [
    ...lists,
    ...unknownKeys(raw).map((path) => ({ path, reason: unknownKey(path) })),
    ...eatenBackslashes(raw, []),
  ];
  if (!result.success) return { findings: [...conflicts, ...unknown, ...result.issues.flatMap(toFindings)] };
  const config = complete(result.output, layers);
  const findings = [...conflicts, ...unknown, ...crossChecks(config, ownProviders)];
  return findings.length > 0 ? { findings } : { config };
}

function complete(output: v.InferOutput<typeof configSchema>, layers: readonly RawTable[]): Config {
  const { security, autonomy } = output;
  for (const name of Object.keys(switches) as (keyof typeof switches)[]) output[name] = security[name];
  autonomy.forbidden_paths = [...new Set([...BUILT_IN_FORBIDDEN_PATHS, ...autonomy.forbidden_paths])];
  return freeze({ ...output, given: [...new Set(layers.flatMap(givenKeys))] });
}

function givenKeys(layer: RawTable): readonly string[] {
  const { security } = layer;
  const inner = isTable(security) ? Object.keys(security).map((key) => `security.${key}`) : [];
  return [...Object.keys(layer), ...inner];
}

function toFindings(issue: v.BaseIssue<unknown>): readonly ValidationFinding[] {
  const path = (issue.path ?? []).map((item) => item.key as string | number);
  // Valibot names the first unknown key of a table only; unknownKeys finds all
  if (issue.type === "strict_object" && issue.expected === "never") return [];
  if (issue.type === "strict_object" && issue.received === "undefined") return [{ path, reason: "it must be given" }];
  // A name of the user's choice that does not fit its pattern: the issue's origin is the key, not the value
  if (issue.path?.at(-1)?.origin === "key") return [{ path, reason: "a name here is 1-64 of a-z, 0-9, _ and -" }];
  if (issue.type === "max_length") return [{ path, reason: `it may be ${issue.expected?.slice(2)} long at most` }];
  return [{ path, reason: `it must be ${expectationAt(path)}${shown(path, issue.input)}` }];
}

/** Finds Windows paths in double quotes whose backslash began an escape, as that of "C:\temp" gives a tab. */
function* eatenBackslashes(value: unknown, path: KeyPath): Iterable<ValidationFinding> {
  if (typeof value === "string") {
    const reason = `a backslash in double quotes begins an escape; ${USE_SINGLE_QUOTES}`;
    if (/^[A-Za-z]:[\b\t\n\f\r]/.test(value)) yield { path, reason };
  } else if (isTable(value)) {
    for (const [key, item] of Object.entries(value)) yield* eatenBackslashes(item, [...path, key]);
  } else if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) yield* eatenBackslashes(item, [...path, index]);
  }
}

function unknownKey(path: KeyPath): string {
  const key = nearestKey(path);
  return `there is no such key${key === undefined ? "" : `; did you mean "${key}"?`}`;
}

function shown(path: KeyPath, value: unknown): string {
  if (hidesValue(path)) return "";
  if (typeof value === "string") return value.length <= MAX_SHOWN_CHARACTERS ? `, not ${JSON.stringify(value)}` : "";
  if (typeof value === "number" || typeof value === "boolean") return `, not ${value}`;
  if (Array.isArray(value)) return ", not a list";
  return value instanceof Date ? ", not a date" : ", not a table";
}

/** A contradiction between values that are each valid alone. `reason` goes on after `Cannot use "key" (place): `. */
export interface Contradiction {
  readonly path: KeyPath;
  readonly reason: string;
}

/** Returns the contradictions between values that are each within their bounds. @param ownProviders see validateConfig */
export function crossChecks(config: Config, ownProviders: readonly string[] = []): readonly Contradiction[] {
  const checks = [
    gatewayChecks,
    providerChecks,
    routeChecks,
    memoryChecks,
    extensionChecks,
    webChecks,
    secretChecks,
    syntaxChecks,
    networkChecks,
    ruleChecks,
    systemChecks,
    clusterChecks,
    notifyChecks,
  ];
  return checks.flatMap((check) => [...check(config, ownProviders)]);
}

function* gatewayChecks({ gateway }: Config): Iterable<Contradiction> {
  const { websocket, node_control: nodes } = gateway;
  for (const [index, origin] of gateway.cors_origins.entries()) {
    if (origin === "*" || (URL.canParse(origin) && new URL(origin).origin === origin)) continue;
    yield {
      path: ["gateway", "cors_origins", index],
      reason: 'it must be "*" or an origin, such as "https://app.example.com" without a path',
    };
  }
  if (gateway.cors_origins.includes("*") && !gateway.require_pairing) {
    yield {
      path: ["gateway", "cors_origins"],
      reason: '"*" without pairing lets every web page in; name the origins or set gateway.require_pairing = true',
    };
  }
  if (websocket.pong_timeout_secs < websocket.heartbeat_secs) {
    yield {
      path: ["gateway", "websocket", "pong_timeout_secs"],
      reason: `it must not be below heartbeat_secs (${websocket.heartbeat_secs})`,
    };
  }
  if (nodes.auth_token !== "" && nodes.auth_token_env !== "") {
    yield { path: ["gateway", "node_control", "auth_token"], reason: "auth_token_env is set too; keep one of the two" };
  }
  if (nodes.enabled && nodes.auth_token === "" && nodes.auth_token_env === "") {
    yield { path: ["gateway", "node_control", "enabled"], reason: "node control needs auth_token_env (or auth_token)" };
  }
  for (const [index, id] of nodes.allowed_node_ids.entries()) {
    if (isNodeId(id)) continue;
    yield {
      path: ["gateway", "node_control", "allowed_node_ids", index],
      reason: 'it must be lower-case letters and digits with single "_" or "-" between them, at most 24 characters',
    };
  }
}

function* providerChecks(config: Config, own: readonly string[]): Iterable<Contradiction> {
  const tables = [
    { path: ["provider"], provider: config.provider },
    ...Object.entries(config.providers).map(([name, provider]) => ({ path: ["providers", name], provider })),
  ];
  if (Object.hasOwn(config.providers, PLAIN_PROVIDER)) {
    yield {
      path: ["providers", PLAIN_PROVIDER],
      reason:
        `the name is reserved: the model "${PLAIN_PROVIDER}/<id>" is <id> without the agent's own tools; take another name`,
    };
  }
  for (const { path, provider } of tables) {
    if (provider.kind === "openai_compatible" && provider.base_url === "") {
      yield {
        path: [...path, "base_url"],
        reason: 'kind = "openai_compatible" needs the address of the API, such as "http://127.0.0.1:8000/v1"',
      };
    }
    if (provider.api_key_env !== "" && provider.api_key_file !== "") {
      yield { path: [...path, "api_key_file"], reason: "api_key_env is set too; keep one of the two" };
    }
    for (const [index, name] of provider.fallback.entries()) {
      const first = name.split("/", 1)[0] ?? name;
      if (isProvider(first, config, own)) continue;
      yield { path: [...path, "fallback", index], reason: `there is no [providers.${first}]` };
    }
  }
}

function* routeChecks(config: Config, own: readonly string[]): Iterable<Contradiction> {
  const { query_classification: { enabled, rules } } = config;
  for (const table of ["model_routes", "embedding_routes"] as const) {
    const hints = config[table].map(({ hint }) => hint);
    for (const [index, { hint, provider }] of config[table].entries()) {
      if (!isProvider(provider, config, own)) {
        const reason = provider.includes("://")
          ? 'it is an address; name a [providers.<name>] here whose "base_url" it is'
          : `there is no [providers.${provider}]`;
        yield { path: [table, index, "provider"], reason };
      }
      if (hints.indexOf(hint) < index) yield { path: [table, index, "hint"], reason: "another route has it already" };
    }
  }
  for (const [index, { hint }] of enabled ? rules.entries() : []) {
    if (config.model_routes.some((route) => route.hint === hint)) continue;
    const path = ["query_classification", "rules", index, "hint"];
    yield { path, reason: "no route in [[model_routes]] has it" };
  }
}

function* memoryChecks({ memory, embedding_routes: routes, providers }: Config): Iterable<Contradiction> {
  const { embedding_route: hint } = memory;
  const path = ["memory", "embedding_route"];
  if (hint === "") return;
  const route = routes.find((one) => one.hint === hint);
  if (route === undefined) {
    const known = routes.map((one) => JSON.stringify(one.hint)).join(", ");
    const has = known === "" ? "there are no [[embedding_routes]]" : `the hints of [[embedding_routes]] are ${known}`;
    yield { path, reason: has };
    return;
  }
  const kind = Object.hasOwn(providers, route.provider) ? providers[route.provider]?.kind : route.provider;
  if (kind === "anthropic" || kind === "offline") {
    yield { path, reason: `the provider "${route.provider}" of this route has no embeddings` };
  }
}

function isProvider(name: string, config: Config, own: readonly string[]): boolean {
  return Object.hasOwn(config.providers, name) || PROVIDER_KINDS.some((kind) => kind === name) || own.includes(name);
}

function* extensionChecks(config: Config): Iterable<Contradiction> {
  for (const [name, agent] of Object.entries(config.agents)) {
    const index = agent.allowed_tools.indexOf("delegate");
    if (index >= 0) {
      yield { path: ["agents", name, "allowed_tools", index], reason: "a sub-agent may not delegate; take it out" };
    }
  }
  for (const [name, server] of Object.entries(config.mcp.servers)) {
    if ((server.command === "") === (server.url === "")) {
      yield { path: ["mcp", "servers", name], reason: "it must have either command or url" };
    } else if (server.url !== "" && !/^https?:\/\/[^\s/]/.test(server.url)) {
      yield { path: ["mcp", "servers", name, "url"], reason: "it must be an http or https address" };
    }
    for (const [key, reason] of oauthProblems(server)) yield { path: ["mcp", "servers", name, "oauth", key], reason };
  }
  const { client_metadata_url: document } = config.mcp;
  if (document !== "" && !/^https:\/\/[^/]+\/./.test(document)) {
    yield { path: ["mcp", "client_metadata_url"], reason: "it must be an https address with a path" };
  }
}

/** Finds contradictions in the sign-in to a server, each with its key. */
function* oauthProblems({ url, oauth }: Config["mcp"]["servers"][string]): Iterable<readonly [string, string]> {
  const { client_id, client_secret, client_secret_env, issuer, grant, scopes } = oauth;
  const isGiven = client_id !== "" || client_secret !== "" || client_secret_env !== "" || issuer !== "" ||
    scopes.length > 0 || grant !== "authorization_code";
  if (isGiven && url === "") yield ["grant", "only a server by url has a sign-in; give a program its secrets in env"];
  const hasSecret = client_secret !== "" || client_secret_env !== "";
  if (client_secret !== "" && client_secret_env !== "") {
    yield ["client_secret_env", "client_secret is set too; keep one of the two"];
  }
  if (client_id === "" && (hasSecret || grant === "client_credentials")) {
    yield ["client_id", "a client with a secret, or without a person, needs its client_id"];
  }
  if (client_secret_env !== "" && issuer === "") {
    yield [
      "issuer",
      "client_secret_env needs the issuer that the secret is for; otherwise the server could name another",
    ];
  }
}

function* webChecks({ url_access: { public_ranges: ranges }, web_search: search }: Config): Iterable<Contradiction> {
  if (search.enabled && search.provider === "searxng" && search.base_url === "") {
    const reason = 'provider = "searxng" needs the address of your instance, such as "http://127.0.0.1:8888"';
    yield { path: ["web_search", "base_url"], reason };
  }
  if (ranges.length > MAX_PUBLIC_RANGES) {
    yield { path: ["url_access", "public_ranges"], reason: `it may be ${MAX_PUBLIC_RANGES} long at most` };
    return;
  }
  for (const [index, range] of ranges.entries()) {
    const reason = publicRangeProblem(range);
    if (reason !== undefined) yield { path: ["url_access", "public_ranges", index], reason };
  }
}

function* syntaxChecks({ security: { shell, allowed_commands: allowed, process } }: Config): Iterable<Contradiction> {
  if (shell.syntax === "plain") {
    const reason = '"*" needs [security.shell] syntax = "contained"; name the commands, or set that';
    for (
      const [list, path] of [[allowed, ["security"]], [process.allowed_commands, ["security", "process"]]] as const
    ) {
      if (list.includes("*")) yield { path: [...path, "allowed_commands"], reason };
    }
  } else if (shell.sandbox === "off") {
    yield {
      path: ["security", "shell", "syntax"],
      reason:
        '"contained" needs the sandbox, and [security.shell] sandbox is "off"; set sandbox = "auto", or syntax = "plain"',
    };
  }
}

function* networkChecks({ security: { shell }, url_access: access }: Config): Iterable<Contradiction> {
  if (shell.network !== "allowlist") return;
  const path = ["security", "shell", "network"];
  if (access.domain_allowlist.length === 0) {
    yield {
      path,
      reason:
        '"allowlist" needs [url_access] domain_allowlist, which is empty; name the hosts there, or set network = "none"',
    };
  }
  if (shell.sandbox === "off") {
    yield {
      path,
      reason:
        '"allowlist" needs the sandbox, and [security.shell] sandbox is "off"; set sandbox = "auto", or network = "none"',
    };
  }
}

function* clusterChecks({ cluster }: Config): Iterable<Contradiction> {
  const { advertise_url, token_env, insecure } = cluster;
  if (advertise_url === "") return;
  const address = parseLinkAddress(advertise_url, { insecure });
  if ("problem" in address) yield { path: ["cluster", "advertise_url"], reason: address.problem };
  if (token_env === "") {
    yield { path: ["cluster", "token_env"], reason: "advertise_url needs it: no gateway is let in without the token" };
  }
}

function* systemChecks(config: Config): Iterable<Contradiction> {
  const { driver, url, url_env, url_file } = config.storage;
  const given = [url, url_env, url_file].filter((text) => text !== "").length;
  if (driver === "postgres" && given !== 1) {
    yield { path: ["storage", "url"], reason: 'driver = "postgres" needs just one of url, url_env and url_file' };
  }
  if (driver === "postgres" && url !== "" && !/^postgres(ql)?:\/\//.test(url)) {
    yield { path: ["storage", "url"], reason: 'driver = "postgres" needs a postgres:// address' };
  }
  if (config.cron.timezone !== "" && !isTimezone(config.cron.timezone)) {
    yield { path: ["cron", "timezone"], reason: 'it must be an IANA time zone, such as "Europe/Zurich"' };
  }
}
