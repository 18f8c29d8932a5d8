import type { Config } from "./config.ts";
import type { KeyPath } from "./key_path.ts";

const MASK = "***";
const SECRET_KEYS = [/^gateway\.node_control\.auth_token$/, /^mcp\.servers\..+\.(env|headers)(\.|$)/];
/** Keys that name where a secret is: people put the secret itself there by mistake. */
const NEARLY_SECRET_KEYS =
  /(^|\.)([a-z_]*_(env|file|token|key|secret|password)|url|[a-z_]*_url|http|https|args|provider)$/;
const URL_PASSWORD = /(\b[a-z][a-z0-9+.-]*:\/\/)([^/?#@\s]*)@/gi;
/** As `--api-key value` and `--api-key=value` */
const SECRET_FLAG = /^--?[\w-]*(?:key|token|secret|password)[\w-]*(=|$)/i;
const QUERY_SECRET = /([?&][^=&#\s]*(?:key|token|secret|password|sig)[^=&#\s]*=)[^&#\s]*/gi;
/** Keys of the vendors, read without being named in the configuration. */
const VENDOR_KEYS = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "POSTERN_TOKEN"];

/** Whether an error about this key may not repeat what was written there. */
export function hidesValue(path: KeyPath): boolean {
  const key = path.join(".");
  return NEARLY_SECRET_KEYS.test(key) || SECRET_KEYS.some((pattern) => pattern.test(key));
}

/** A copy to be shown: secret values and the credentials inside addresses are `***`. */
export function maskSecrets<T>(value: T, path: KeyPath = []): T {
  // The copy has the shape of what came in: tables stay tables, text stays text
  if (typeof value === "string") return maskText(value, path) as T;
  if (Array.isArray(value)) {
    if (path.at(-1) === "args") return maskArguments(value) as T;
    return value.map((item, index) => maskSecrets(item, [...path, index])) as T;
  }
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, maskSecrets(item, [...path, key])])) as T;
}

/** The values that are secret under this configuration, for the redactor: tokens of the file and keys of the environment. */
export function knownSecrets(config: Config, env: Readonly<Record<string, string | undefined>>): readonly string[] {
  const names = new Set([...VENDOR_KEYS, ...environmentNames(config)]);
  const servers = Object.values(config.mcp.servers).flatMap((
    server,
  ) => [...Object.values(server.env), ...Object.values(server.headers)]);
  const values = [
    config.gateway.node_control.auth_token,
    ...servers,
    ...passwordsIn(config),
    ...[...names].map((name) => env[name] ?? ""),
  ];
  return values.filter((value) => value !== "");
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
  if (text !== "" && SECRET_KEYS.some((pattern) => pattern.test(path.join(".")))) return MASK;
  return text.replace(URL_PASSWORD, `$1${MASK}@`).replace(QUERY_SECRET, `$1${MASK}`);
}

function environmentNames(value: unknown): string[] {
  if (value === null || typeof value !== "object") return [];
  return Object.entries(value).flatMap(([key, item]) =>
    key.endsWith("_env") && typeof item === "string" && item !== "" ? [item] : environmentNames(item)
  );
}

function passwordsIn(value: unknown): string[] {
  if (typeof value === "string") {
    const password = URL.canParse(value) ? new URL(value).password : "";
    return password === "" ? [] : [password, decode(password)];
  }
  return value !== null && typeof value === "object" ? Object.values(value).flatMap(passwordsIn) : [];
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
