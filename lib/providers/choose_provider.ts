import type { Clock } from "../base/clock.ts";
import type { ProviderClientFactory } from "../system/net/provider_client.ts";
import { firstChatModel } from "./default_model.ts";
import { discoverLocalServers, type LocalServer } from "./discovery.ts";
import { type ProviderSettings, VENDORS } from "./provider_settings.ts";

/** The default provider, and why it is that one. */
export interface ChosenProvider {
  /** Never of the kind `auto` */
  readonly settings: ProviderSettings;
  /** As `Ollama answers at 127.0.0.1:11434` */
  readonly reason: string;
  /** Whether it hangs on which local servers answer, and may be another one later */
  readonly isFound: boolean;
  /** The local server it is; undefined for every other provider */
  readonly server?: LocalServer | undefined;
}

export interface ChooseProviderOptions {
  /** `[provider]` */
  readonly provider: ProviderSettings;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readonly net: ProviderClientFactory;
  /** Where local servers are looked for, beside OLLAMA_HOST; false: nowhere. Default: the usual ports on loopback */
  readonly localOrigins?: readonly string[] | false | undefined;
  /** Whether an origin is this gateway itself. Default: none is */
  readonly isOwn?: ((origin: string) => boolean) | undefined;
}

const NOT_SOUGHT = "no API key is set, and local servers are not looked for";
const KINDS_BY_KEY = ["openai", "anthropic", "openrouter"];

/**
 * What `[provider]` says; for `auto` the server at `base_url` where one is given, else the first of a key in OPENAI_API_KEY,
 * ANTHROPIC_API_KEY, OPENROUTER_API_KEY, a local server, the offline provider (DESIGN.md section 6). Never throws.
 */
export async function chooseProvider(options: ChooseProviderOptions): Promise<ChosenProvider> {
  const { provider, env } = options;
  const told = (kind: string, reason: string) => ({ settings: { ...provider, kind }, reason, isFound: false });
  if (provider.kind !== "auto") return told(provider.kind, "the configuration names it");
  if (provider.base_url !== "") return told("openai_compatible", "the configuration names its address");
  for (const kind of KINDS_BY_KEY) {
    const name = VENDORS[kind]?.keyEnv ?? "";
    if ((env[name]?.trim() ?? "") !== "") return told(kind, `${name} is set`);
  }
  const [server] = await findLocalServers(options);
  const chosen = chooseLocal(provider, server);
  // Where nobody looks, nothing comes and goes
  return options.localOrigins === false ? { ...chosen, reason: NOT_SOUGHT, isFound: false } : chosen;
}

/** As `discoverLocalServers`, with the options of a choice. */
export function findLocalServers(
  { localOrigins, ...options }: Omit<ChooseProviderOptions, "provider">,
): Promise<readonly LocalServer[]> {
  if (localOrigins === false) return Promise.resolve([]);
  return discoverLocalServers({ ...options, origins: localOrigins });
}

/**
 * The provider that a local server is, or the offline one without.
 * @param preferred a model to go on with where the server still has it and the configuration names none
 */
export function chooseLocal(
  provider: ProviderSettings,
  server: LocalServer | undefined,
  preferred = "",
): ChosenProvider {
  if (server === undefined) {
    const reason = "no API key and no local server was found";
    return { settings: { ...provider, kind: "offline" }, reason, isFound: true };
  }
  const { kind, baseUrl, models, software } = server;
  const kept = models.includes(preferred) ? preferred : undefined;
  const model = provider.model || (kept ?? firstChatModel(models.map((id) => ({ id }))) ?? "");
  return {
    settings: { ...provider, kind, base_url: baseUrl, model },
    reason: `${software} answers at ${new URL(baseUrl).host}`,
    isFound: true,
    server,
  };
}
