import * as v from "valibot";
import { about, choice, environmentName, httpUrl, integer, modelAliases, text, texts } from "./value.ts";

const keys = {
  model: about("Name of the model as the provider knows it. Empty: the provider's default", text("")),
  base_url: about("Address of the API, such as `http://127.0.0.1:11434/v1`. Empty: the vendor's own", httpUrl()),
  api_key_env: about("Environment variable that holds the key. Empty: the vendor's usual one", environmentName()),
  api_key_file: about("File that holds the key and nothing else", text("")),
  timeout_secs: about("Seconds until the first byte of a reply, and between two bytes", integer(120, 1, 3600)),
  silence_secs: about(
    "Seconds in which a reply may say nothing though bytes of it come, such as comments that keep a connection open. 0: ten times `timeout_secs`",
    integer(0, 0, 86_400),
  ),
  max_retries: about("Further attempts before the first byte of a reply", integer(2, 0, 10)),
  fallback: about(
    "Other providers as `name` or `name/model`, tried in order when this one fails before its first byte",
    texts([]),
  ),
  vision: about(
    "Whether the models see pictures in results of tools. `auto`: those that are known by name to see",
    choice(["auto", "on", "off"], "auto"),
  ),
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
  kind: about(
    "Vendor or protocol. `auto` takes a key of the environment, else a local model server, else the offline assistant; `none` runs no agent",
    choice(["auto", ...PROVIDER_KINDS, "none"], "auto"),
  ),
  ...keys,
  local_users: about(
    "Users of this machine whose model servers `auto` takes, beside the gateway's own user and root",
    texts(["ollama"]),
  ),
  aliases: about(
    'Models by other names, such as `"claude-*" = "default"`, for clients that ask for names of their own; `*` at the end stands for any rest',
    modelAliases(),
  ),
});

/** `[providers.<name>]`: further providers, chosen by `name/model`. */
export const namedProviderSchema = v.strictObject({
  kind: about("Vendor or protocol", choice(PROVIDER_KINDS, "openai_compatible")),
  ...keys,
});
