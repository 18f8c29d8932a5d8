import type { Config } from "./config.ts";
import type { SecretPlace } from "./schema/value.ts";
import type { KeyPath } from "./toml.ts";

/** A contradiction in `[secrets]`, or in credentials that name a secret. */
interface SecretContradiction {
  readonly path: KeyPath;
  readonly reason: string;
}

const HOST = /^(\*\.)?[^\s/:@?#*]+$|^\[[0-9a-fA-F:.]+\]$/;
const HEADER = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;

/**
 * Finds contradictions of `[secrets]`, of `[http_request.credentials]` and of the settings that name a secret. Reasons never hold a value:
 * a secret may stand there by mistake.
 */
export function* secretChecks(config: Config): Iterable<SecretContradiction> {
  yield* tableChecks(config);
  yield* credentialChecks(config);
  for (const place of secretPlaces(config)) yield* placeChecks(place, config);
}

function* tableChecks({ secrets }: Config): Iterable<SecretContradiction> {
  for (const [name, secret] of Object.entries(secrets)) {
    const path = ["secrets", name];
    const given = [secret.env !== "", secret.file !== "", secret.command.length > 0].filter((is) => is);
    if (given.length !== 1) yield { path, reason: "just one of env, file and command must be given" };
    const { tools, mcp, plugins, hosts } = secret;
    if (tools.length + mcp.length + plugins.length === 0) {
      yield { path, reason: "tools, mcp or plugins must name what may use it" };
    }
    if (tools.length > 0 && hosts.length === 0) {
      yield { path: [...path, "hosts"], reason: "tools need the hosts that it may go to" };
    }
    yield* hostChecks(hosts, path);
  }
}

function* credentialChecks({ secrets, http_request: { credentials } }: Config): Iterable<SecretContradiction> {
  for (const [name, credential] of Object.entries(credentials)) {
    const path = ["http_request", "credentials", name];
    const { secret, value_env, token_url, client_id, client_secret, header } = credential;
    if ([secret, value_env, token_url].filter((text) => text !== "").length !== 1) {
      yield { path, reason: "just one of secret, value_env and token_url must be given" };
    }
    if (!HEADER.test(header)) yield { path: [...path, "header"], reason: "it must be the name of a header" };
    if (token_url !== "" && (client_id === "" || client_secret === "")) {
      yield { path: [...path, "token_url"], reason: "client_id and client_secret are needed too" };
    }
    for (const [key, named] of [["secret", secret], ["client_secret", client_secret]] as const) {
      if (named === "" || Object.hasOwn(secrets, named)) continue;
      yield {
        path: [...path, key],
        reason: "it must be the name of a [secrets.<name>], and there is none of this name",
      };
    }
    yield* hostChecks(credential.hosts, path);
  }
}

/** Kind of program or server of others, as the key of `[secrets.<name>]` that lists those that may have the secret. */
export type SecretChildKind = "mcp" | "plugins";

/** Setting of a program or server of others that names a secret. */
export interface NamedSecret {
  readonly path: KeyPath;
  /** Name of the secret */
  readonly secret: string;
  readonly kind: SecretChildKind;
  /** Name of the server, or id of the plugin */
  readonly child: string;
  /** Address that the value goes to; empty: the child gets it */
  readonly url: string;
}

/** Returns the settings that name a secret. */
export function secretPlaces({ mcp, plugins }: Pick<Config, "mcp" | "plugins">): readonly NamedSecret[] {
  const servers = Object.entries(mcp.servers).flatMap(([child, { env, headers, url, oauth }]) => [
    ...oauth.client_secret === "" ? [] : [clientSecretPlace(child, oauth.client_secret, url)],
    ...placesIn(env, { path: ["mcp", "servers", child, "env"], kind: "mcp", child, url: "" }),
    ...placesIn(headers, { path: ["mcp", "servers", child, "headers"], kind: "mcp", child, url }),
  ]);
  const settings = Object.entries(plugins.config).flatMap(([child, table]) =>
    placesIn(table, { path: ["plugins", "config", child], kind: "plugins", child, url: "" })
  );
  return [...servers, ...settings];
}

function clientSecretPlace(child: string, secret: string, url: string): NamedSecret {
  return { path: ["mcp", "servers", child, "oauth"], secret, kind: "mcp", child, url };
}

function placesIn(
  table: Readonly<Record<string, unknown>>,
  { path, ...of }: Omit<NamedSecret, "secret">,
): readonly NamedSecret[] {
  return Object.entries(table).flatMap(([key, value]) => {
    if (value === null || typeof value !== "object") return [];
    // The schema takes no other table here
    const { secret } = value as SecretPlace;
    return [{ ...of, path: [...path, key], secret }];
  });
}

function* placeChecks(
  { path, secret: name, kind, child, url }: NamedSecret,
  { secrets }: Config,
): Iterable<SecretContradiction> {
  const secret = Object.hasOwn(secrets, name) ? secrets[name] : undefined;
  const here = [...path, path.at(-1) === "oauth" ? "client_secret" : "secret"];
  if (secret === undefined) {
    yield { path: here, reason: "it must be the name of a [secrets.<name>], and there is none of this name" };
    return;
  }
  if (!secret[kind].includes(child)) {
    yield { path: here, reason: `add "${child}" to ${kind} of [secrets.${name}] to allow it` };
  }
  // Which hosts fit is decided where the value is used
  if (url !== "" && secret.hosts.length === 0) {
    yield { path: here, reason: `hosts of [secrets.${name}] must name the host of the server` };
  }
}

function* hostChecks(hosts: readonly string[], path: KeyPath): Iterable<SecretContradiction> {
  for (const [index, host] of hosts.entries()) {
    if (HOST.test(host)) continue;
    yield { path: [...path, "hosts", index], reason: 'it must be the name of a host, such as "api.example.com"' };
  }
}
