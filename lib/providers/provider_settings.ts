import { readFile } from "node:fs/promises";
import { ConfigError } from "../base/errors.ts";
import { withoutEnd } from "../base/text.ts";

/** `[provider]` or `[providers.<name>]` of the configuration, with its defaults filled in. */
export interface ProviderSettings {
  /** Models by other names; of `[provider]` alone. Default: none */
  readonly aliases?: Readonly<Record<string, string>> | undefined;
  readonly kind: string;
  readonly model: string;
  readonly base_url: string;
  readonly api_key_env: string;
  readonly api_key_file: string;
  readonly timeout_secs: number;
  /** 0: ten times `timeout_secs` */
  readonly silence_secs: number;
  readonly max_retries: number;
  readonly fallback: readonly string[];
  /** Decides whether models are shown pictures of tool results; `auto`: by their names */
  readonly vision: "auto" | "on" | "off";
}

/** Usual settings of a kind of provider. */
export interface Vendor {
  /** Address of the vendor's own API; undefined: `base_url` is required */
  readonly baseUrl: string | undefined;
  /** Variable the vendor's users keep their key in; undefined: no key unless one is named */
  readonly keyEnv: string | undefined;
  /** Default model; undefined: the first that the server lists */
  readonly model: string | undefined;
}

/** Usual settings of the kinds that are reached over HTTP. */
export const VENDORS: Readonly<Record<string, Vendor>> = {
  openai: { baseUrl: "https://api.openai.com/v1", keyEnv: "OPENAI_API_KEY", model: "gpt-5-mini" },
  anthropic: { baseUrl: "https://api.anthropic.com/v1", keyEnv: "ANTHROPIC_API_KEY", model: "claude-sonnet-4-5" },
  openrouter: { baseUrl: "https://openrouter.ai/api/v1", keyEnv: "OPENROUTER_API_KEY", model: "openrouter/auto" },
  ollama: { baseUrl: "http://127.0.0.1:11434/v1", keyEnv: undefined, model: undefined },
  openai_compatible: { baseUrl: undefined, keyEnv: undefined, model: undefined },
};

/** A key and where it came from. */
export interface ProviderKey {
  readonly key: string | undefined;
  /** As `the environment variable "OPENAI_API_KEY"`; undefined without a key */
  readonly source: string | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads the key of a provider: `api_key_file`, else `api_key_env`, else the vendor's usual variable.
 * @param table key path of the settings, such as `provider` or `providers.work`
 * @throws {ConfigError} a file that cannot be read, a named variable that is not set, a vendor's own API without a key
 */
export async function readProviderKey(
  settings: ProviderSettings,
  table: string,
  env: Environment,
): Promise<ProviderKey> {
  if (settings.api_key_file !== "") {
    const source = `the file "${settings.api_key_file}"`;
    return { key: await readKeyFile(settings.api_key_file, table), source };
  }
  const usual = VENDORS[settings.kind]?.keyEnv;
  const name = settings.api_key_env === "" ? usual : settings.api_key_env;
  if (name === undefined) return { key: undefined, source: undefined };
  const key = env[name]?.trim();
  if (key !== undefined && key !== "") return { key, source: `the environment variable "${name}"` };
  if (settings.api_key_env === "" && settings.base_url !== "") return { key: undefined, source: undefined };
  throw new ConfigError(
    "provider_key_missing",
    `Cannot use [${table}]: the environment variable "${name}" is not set`,
    {
      key: `${table}.api_key_env`,
    },
  );
}

/** Reads origin and path of the API. A bare address gets the usual path `/v1`. @throws {ConfigError} no address, or none that can be read */
export function readProviderAddress(
  settings: ProviderSettings,
  table: string,
  env: Environment,
): { readonly origin: string; readonly basePath: string } {
  const fromEnvironment = settings.kind === "ollama" ? ollamaAddress(env["OLLAMA_HOST"]) : undefined;
  const address = settings.base_url || (fromEnvironment ?? VENDORS[settings.kind]?.baseUrl);
  if (address === undefined) {
    throw new ConfigError(
      "provider_address_missing",
      `Cannot use [${table}]: kind "${settings.kind}" needs "base_url"`,
      {
        key: `${table}.base_url`,
      },
    );
  }
  const url = URL.parse(address);
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== "") {
    const problem = url !== null && url.username !== "" ? "it holds a user name" : "it is no http(s) address";
    throw new ConfigError("provider_address_invalid", `Cannot use "base_url" of [${table}]: ${problem}`, {
      key: `${table}.base_url`,
    });
  }
  const path = withoutEnd(url.pathname, "/");
  return { origin: url.origin, basePath: path === "" ? "/v1" : path };
}

/** Returns the address in OLLAMA_HOST (`host`, `host:port`, or a URL; `0.0.0.0` means this machine). Undefined when it names none. */
export function ollamaAddress(host: string | undefined): string | undefined {
  const value = host?.trim() ?? "";
  if (value === "") return undefined;
  const url = URL.parse(value.includes("://") ? value : `http://${value}`);
  if (url === null) return undefined;
  if (url.port === "" && !value.includes("://")) url.port = "11434";
  if (url.hostname === "0.0.0.0" || url.hostname === "[::]") url.hostname = "127.0.0.1";
  return withoutEnd(url.href, "/");
}

async function readKeyFile(path: string, table: string): Promise<string> {
  const options = { key: `${table}.api_key_file` };
  const text = await readFile(path, "utf8").catch((cause: unknown) => {
    const message = `Cannot read "api_key_file" of [${table}]: the file "${path}" cannot be opened`;
    throw new ConfigError("provider_key_unreadable", message, { ...options, cause });
  });
  const key = text.trim();
  if (key !== "" && !/[^!-~]/.test(key)) return key;
  const message = `Cannot read "api_key_file" of [${table}]: the file "${path}" does not hold one key and nothing else`;
  throw new ConfigError("provider_key_unreadable", message, options);
}
