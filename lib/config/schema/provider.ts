import * as v from "valibot";
import { choice, environmentName, httpUrl, integer, text, texts } from "./value.ts";

const keys = {
  /** Model name as the provider knows it; empty: the provider's own default */
  model: text(""),
  /** Address of the API, as `http://127.0.0.1:11434/v1`; empty: the vendor's own */
  base_url: httpUrl(),
  /** Environment variable that holds the key; empty: the vendor's usual one */
  api_key_env: environmentName(),
  /** File that holds the key and nothing else */
  api_key_file: text(""),
  /** Seconds until the first byte, and between two bytes */
  timeout_secs: integer(120, 1, 3600),
  /** Further attempts before the first byte */
  max_retries: integer(2, 0, 10),
  /** Names of other providers, tried in order when this one fails before its first byte */
  fallback: texts([]),
};

/** Provider kinds that name a vendor or a protocol. */
export const PROVIDER_KINDS = ["openai", "anthropic", "openrouter", "ollama", "openai_compatible", "offline"] as const;

/** Reserved name: a model `plain/<id>` is the model `<id>` in plain mode. No table may have it. */
export const PLAIN_PROVIDER = "plain";

/**
 * `[provider]`: the default model. `auto` looks for a key, then a local server, then takes `offline`; `none`: no agent.
 * Source: docs/design/providers.md "Choosing a provider"
 */
export const providerSchema = v.strictObject({
  kind: choice(["auto", ...PROVIDER_KINDS, "none"], "auto"),
  ...keys,
  /** Users whose model servers `auto` takes, beside the gateway's own and root: names of this machine */
  local_users: texts(["ollama"]),
});

/** `[providers.<name>]`: further providers, chosen by `name/model`. */
export const namedProviderSchema = v.strictObject({ kind: choice(PROVIDER_KINDS, "openai_compatible"), ...keys });
