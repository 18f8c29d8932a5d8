import type { Clock } from "../base/clock.ts";
import type { ProviderClientFactory } from "../system/net/provider_client.ts";
import { firstChatModel } from "./models/model_list.ts";
import { isLoopbackName } from "../system/net/address.ts";
import {
  discoverLocalServers,
  type FoundServers,
  type LocalSearch,
  type LocalServer,
  type RefusedServer,
} from "./discovery/local_servers.ts";
import type { OwnProviders } from "./own_providers.ts";
import { type ProviderSettings, VENDORS } from "./provider_settings.ts";

/** The default provider, and why it is that one. */
export interface ChosenProvider {
  /** Never of the kind `auto` */
  readonly settings: ProviderSettings;
  /** As `Ollama answers at 127.0.0.1:11434` */
  readonly reason: string;
  /** True when the choice depends on which local servers answer: another provider may be chosen later */
  readonly isFound: boolean;
  /** The local server behind the provider. Undefined for every other provider */
  readonly server?: LocalServer | undefined;
  /** Servers that were found and may not be used. Default: none */
  readonly refused?: readonly RefusedServer[] | undefined;
}

/** The facts that a choice of the default provider needs. */
export interface ChooseProviderOptions {
  /** `[provider]` */
  readonly provider: ProviderSettings;
  /** Providers of the program that mounts the gateway. Default: none */
  readonly own?: OwnProviders | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readonly net: ProviderClientFactory;
  readonly search: LocalSearch;
}

const NOT_SOUGHT = "no API key is set, and local servers are not looked for";
const KINDS_BY_KEY = ["openai", "anthropic", "openrouter"];

/**
 * Chooses the default provider: the kind of `[provider]`. For `auto` it is the server at `base_url` where one is given, else the first
 * of a provider of the program that mounts the gateway, a key in OPENAI_API_KEY, ANTHROPIC_API_KEY, OPENROUTER_API_KEY, a local server,
 * the offline provider. Never throws.
 * Source: docs/design/providers.md "Choosing a provider"
 */
export async function chooseProvider(options: ChooseProviderOptions): Promise<ChosenProvider> {
  const { provider, env, clock, net, search } = options;
  const told = (kind: string, reason: string) => ({ settings: { ...provider, kind }, reason, isFound: false });
  if (provider.kind !== "auto") return told(provider.kind, "the configuration names it");
  if (provider.base_url !== "") return told("openai_compatible", "the configuration names its address");
  const [own] = options.own?.values() ?? [];
  if (own !== undefined) return { settings: own.settings, reason: "the program gives it", isFound: false };
  for (const kind of KINDS_BY_KEY) {
    const name = VENDORS[kind]?.keyEnv ?? "";
    if ((env[name]?.trim() ?? "") !== "") return told(kind, `${name} is set`);
  }
  const chosen = chooseLocal(provider, await discoverLocalServers({ ...search, env, clock, net }));
  // Without a search for local servers the choice never changes
  return search.origins === false ? { ...chosen, reason: NOT_SOUGHT, isFound: false } : chosen;
}

/**
 * Makes the provider of the local server to use, or the offline one where there is none.
 * @param current address and model in use: they stay as long as the server still has the model and the configuration names none
 */
export function chooseLocal(
  provider: ProviderSettings,
  { servers, refused }: FoundServers,
  current?: Pick<ProviderSettings, "base_url" | "model">,
): ChosenProvider {
  const server = servers.find(({ baseUrl }) => baseUrl === current?.base_url) ?? servers[0];
  if (server === undefined) {
    const reason = ["no API key and no local server was found", ...refused.slice(0, MAX_REASONS).map(sayRefused)].join(
      "; ",
    );
    return { settings: { ...provider, kind: "offline" }, reason, isFound: true, refused };
  }
  const { kind, baseUrl, models, software, owner } = server;
  const kept = current !== undefined && models.includes(current.model) ? current.model : undefined;
  const model = provider.model || (kept ?? firstChatModel(models.map((id) => ({ id }))) ?? "");
  return {
    settings: { ...provider, kind, base_url: baseUrl, model },
    reason: `${software} answers at ${new URL(baseUrl).host}, ${owner}`,
    isFound: true,
    server,
    refused,
  };
}

const MAX_REASONS = 3;

/** Says why a server that listens is not used, and what would change that. */
export function sayRefused({ origin, reason }: RefusedServer): string {
  const { host, hostname } = new URL(origin);
  const way = isLoopbackName(hostname) ? `; to use it: postern models trust ${host}` : "";
  return `the server at ${host} is not used: ${reason}${way}`;
}
