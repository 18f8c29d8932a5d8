import { readFile, stat } from "node:fs/promises";
import type { Config } from "./config.ts";
import { type KeyPath, toKeyText } from "./toml.ts";

const MASK = "***";
const MAX_KEY_FILE_BYTES = 65_536;
/** Keys that name where a secret is: people put the secret itself there by mistake. */
const NEARLY_SECRET_KEYS =
  /(^|\.)([a-z_]*_(env|file|token|key|secret|password)|secret|url|[a-z_]*_url|http|https|args|provider)$|^secrets\./;
const URL_PASSWORD = /(\b[a-z][a-z0-9+.-]*:\/\/)([^/?#@\s]*)@/gi;
/** As `--api-key value` and `--api-key=value` */
const SECRET_FLAG = /^--?[\w-]*(?:key|token|secret|password)[\w-]*(=|$)/i;
const QUERY_SECRET = /([?&][^=&#\s]*(?:key|token|secret|password|sig)[^=&#\s]*=)[^&#\s]*/gi;
/** Keys that name the variable of a database's address, of which a part alone is secret. */
const DATABASE_ADDRESSES = new Set(["storage.url_env", "storage.direct_url_env"]);
/** Names of environment variables whose value is a secret, whatever it is for: those of the vendors among them. */
const SECRET_NAME =
  /(?:token|secret|passw(?:or)?d|passphrase|credentials?|(?:^|_|api|access|private|secret)key|_pat)$/i;

/** Tells whether an error about this key must leave its value out. */
export function hidesValue(path: KeyPath): boolean {
  const [first, second] = path;
  const isForChild = (first === "mcp" && second === "servers" && path.length > 4) || isPluginSettings(path);
  return isForChild || NEARLY_SECRET_KEYS.test(path.join(".")) || isSecret(path);
}

/** A copy to be shown: secret values and the credentials inside addresses are `***`. */
export function maskSecrets<T>(value: T, path: KeyPath = []): T {
  // The copy has the shape of what came in: tables stay tables, text stays text
  if (typeof value === "string") return maskText(value, path) as T;
  if (Array.isArray(value)) {
    const masksAll = path.at(-1) === "args" || isSecretCommand(path);
    // A list stays a list of the same kind
    return (masksAll ? maskArguments(value) : value.map((item, index) => maskSecrets(item, [...path, index]))) as T;
  }
  if (value === null || typeof value !== "object") return value;
  // A table keeps its keys
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, maskSecrets(item, [...path, key])])) as T;
}

/** Returns the secrets of a configuration, of the environment, and of the files that the configuration names. */
export async function allSecrets(
  config: Config,
  env: Readonly<Record<string, string | undefined>>,
): Promise<readonly string[]> {
  return [...knownSecrets(config, env), ...await secretsOfFiles(config)];
}

/**
 * The values that are secret under this configuration, for the redactor: tokens, headers and credentials of the file, what the
 * environment holds under the names of the file, and under names that say themselves what they hold, such as `GITHUB_TOKEN`.
 */
export function knownSecrets(config: Config, env: Readonly<Record<string, string | undefined>>): readonly string[] {
  const commands = Object.values(config.secrets).flatMap(({ command }) => secretArguments(command));
  const servers = Object.values(config.mcp.servers).flatMap((
    server,
  ) => [...Object.values(server.env), ...Object.values(server.headers), ...secretArguments(server.args)]);
  const settings = Object.values(config.plugins.config).flatMap((table) =>
    Object.entries(table).flatMap(([name, value]) => SECRET_NAME.test(name) ? [value] : [])
  );
  // A table names a secret, which is known by its own place
  const given = [...servers, ...settings].filter((value) => typeof value === "string");
  const values = [config.gateway.node_control.auth_token, ...given, ...commands, ...addressSecrets(config)];
  const named = namedVariables(config).flatMap(({ name, key }) => {
    const value = env[name] ?? "";
    return DATABASE_ADDRESSES.has(key) ? databaseSecrets(value) : [value];
  });
  values.push(...named, ...environmentSecrets(env));
  // Of `Bearer ...` the last word is the secret
  const known = values.flatMap((value) => [value, value.trim(), value.trim().split(/\s/).at(-1) ?? ""]);
  return [...new Set(known)].filter((value) => value !== "");
}

/** Returns all secrets, each with the words that tell a person where it comes from. */
export async function namedSecrets(
  config: Config,
  env: Readonly<Record<string, string | undefined>>,
): Promise<readonly (readonly [secret: string, name: string])[]> {
  return (await allSecrets(config, env)).map((secret) => [secret, sourceOfSecret(secret, env)] as const);
}

/** Says where a secret comes from, for a person: the variable of the environment that holds it, else the configuration. */
function sourceOfSecret(secret: string, env: Readonly<Record<string, string | undefined>>): string {
  const holder = Object.keys(env).find((name) => env[name]?.includes(secret));
  return holder === undefined ? "a secret of the configuration" : `the environment variable "${holder}"`;
}

/** An environment variable, and the key of the configuration that names it. */
export interface NamedVariable {
  readonly name: string;
  readonly key: string;
}

/** Variables that the configuration names. */
export function namedVariables(value: unknown, path: KeyPath = []): readonly NamedVariable[] {
  // Settings of plugins have names of their own
  if (value === null || typeof value !== "object" || isPluginSettings(path)) return [];
  return Object.entries(value).flatMap(([key, item]) => {
    const here = [...path, key];
    const isName = key.endsWith("_env") || (path.length === 2 && path[0] === "secrets" && key === "env");
    if (!isName || typeof item !== "string") return namedVariables(item, here);
    return item === "" || isSecret(here) ? [] : [{ name: item, key: toKeyText(here) }];
  });
}

/** Returns the named variables that are not set. Variables of providers are left out: a provider says itself that it needs its key. */
export function missingVariables(
  { provider: _, providers: __, ...config }: Config,
  env: Readonly<Record<string, string | undefined>>,
): readonly NamedVariable[] {
  return namedVariables(config).filter(({ name }) => (env[name] ?? "") === "");
}

/** A secret of the configuration whose value is not there, with the reason, such as `the variable "TOKEN" is not set`. */
export interface MissingSecret {
  readonly name: string;
  readonly reason: string;
}

/** Finds the secrets that could not be used now. The command of a secret is not run: nobody knows what it does. */
export async function missingSecrets(
  { secrets }: Pick<Config, "secrets">,
  env: Readonly<Record<string, string | undefined>>,
): Promise<readonly MissingSecret[]> {
  const found = await Promise.all(
    Object.entries(secrets).map(async ([name, { env: variable, file }]) => {
      if (variable !== "" && (env[variable]?.trim() ?? "") === "") {
        return [{ name, reason: `the variable "${variable}" is not set` }];
      }
      const isMissing = file !== "" && await readSecretFile(file) === "";
      return isMissing ? [{ name, reason: `the file "${file}" cannot be read or is empty` }] : [];
    }),
  );
  return found.flat();
}

/** Returns the values of variables whose name says that they are secret, and the credentials in addresses. */
export function environmentSecrets(env: Readonly<Record<string, string | undefined>>): readonly string[] {
  return Object.entries(env).flatMap(([name, value = ""]) => [
    ...(SECRET_NAME.test(name) ? [value] : []),
    ...addressSecrets(value),
  ]);
}

/** The keys in the files that a configuration names; a file that cannot be read gives none: whoever needs its key says so. */
export async function secretsOfFiles(config: Config): Promise<readonly string[]> {
  const keys = [config.provider, ...Object.values(config.providers)].map(({ api_key_file }) => api_key_file);
  const paths = [...keys, ...Object.values(config.secrets).map(({ file }) => file)];
  const read = (paths: readonly string[]) => Promise.all(paths.filter((path) => path !== "").map(readSecretFile));
  const [texts, databases] = await Promise.all([read(paths), read([config.storage.url_file])]);
  const secrets = [...texts.flatMap((text) => [text, ...addressSecrets(text)]), ...databases.flatMap(databaseSecrets)];
  return secrets.filter((text) => text !== "");
}

/** Returns the text of a file that holds one secret, without blanks around it. Empty when it cannot be read, or is no file of 64 KiB at most. */
export async function readSecretFile(path: string): Promise<string> {
  try {
    const found = await stat(path);
    return found.isFile() && found.size <= MAX_KEY_FILE_BYTES ? (await readFile(path, "utf8")).trim() : "";
  } catch {
    return "";
  }
}

/** Tells whether a list is the command of a secret, whose arguments may hold a password. */
function isSecretCommand(path: KeyPath): boolean {
  return path.length === 3 && path[0] === "secrets" && path[2] === "command";
}

/** Tells whether a text at this path is a secret. The name of a secret that takes its place is none. */
function isSecret(path: KeyPath): boolean {
  const [first, second, third, fourth] = path;
  if (first === "gateway") return path.join(".") === "gateway.node_control.auth_token";
  if (isPluginSettings(path)) return path.length === 4 && SECRET_NAME.test(String(fourth));
  const isSetting = first === "mcp" && second === "servers" && (fourth === "env" || fourth === "headers");
  return isSetting && third !== undefined && path.length <= 5;
}

function isPluginSettings([first, second]: KeyPath): boolean {
  return first === "plugins" && second === "config";
}

function maskArguments(values: readonly unknown[]): readonly unknown[] {
  return values.map((item, index) => {
    const [before, text] = [String(values[index - 1] ?? ""), String(item)];
    if (SECRET_FLAG.exec(before)?.[1] === "") return MASK;
    const flag = SECRET_FLAG.exec(text);
    return flag?.[1] === "=" ? `${flag[0]}${MASK}` : maskText(text, []);
  });
}

function maskText(text: string, path: KeyPath): string {
  if (text !== "" && isSecret(path)) return MASK;
  return text.replace(URL_PASSWORD, `$1${MASK}@`).replace(QUERY_SECRET, `$1${MASK}`);
}

/** Returns the values that follow `--api-key` or stand in `--api-key=`. */
function secretArguments(values: readonly string[]): string[] {
  return values.flatMap((text, index) => {
    if (SECRET_FLAG.exec(values[index - 1] ?? "")?.[1] === "") return [text];
    const flag = SECRET_FLAG.exec(text);
    return flag?.[1] === "=" ? [text.slice(flag[0].length)] : [];
  });
}

/** Credentials inside the addresses of a value: passwords, user names without one, secrets of the query. */
function addressSecrets(value: unknown): string[] {
  if (typeof value !== "string") {
    return value !== null && typeof value === "object" ? Object.values(value).flatMap(addressSecrets) : [];
  }
  const url = value.includes("://") ? URL.parse(value) : null;
  if (url === null) return [];
  const { username, password, search } = url;
  const queried = [...search.matchAll(QUERY_SECRET)].map(([text, name = ""]) => text.slice(name.length));
  const found = [password, password === "" ? username : "", ...queried];
  return found.filter((secret) => secret !== "").flatMap((secret) => [secret, decode(secret)]);
}

/**
 * Returns the secrets in the address of a database. Host and database are none: messages name them. The address up to them is masked as a whole
 * too, since a short password alone is not.
 */
function databaseSecrets(address: string): string[] {
  const end = address.lastIndexOf("@") + 1;
  return URL.parse(address) === null ? [address] : [address.slice(0, end), ...addressSecrets(address)];
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
