import { ConfigError, ProviderError } from "../base/errors.ts";
import type { Config } from "../config/config.ts";
import type { OpenProviderOptions } from "./open_provider.ts";
import type { Provider, Providers, ResolvedModel } from "./provider.ts";
import { type ProviderSettings, VENDORS } from "./provider_settings.ts";
import { type RetryOptions, withRetries } from "./retry.ts";

/** The keys of `[agents.<name>]` that say which model answers for an agent. */
export type AgentProviderSettings = Pick<Config["agents"][string], "provider" | "model" | "api_key_env">;

/** Services that the models of agents use. */
export interface AgentProvidersOptions extends Omit<OpenProviderOptions, "table">, RetryOptions {
  /** Providers for agents without an address of their own */
  readonly providers: Providers;
}

/** The models of the configured agents. */
export interface AgentProviders {
  /**
   * Returns the agent's model and the provider that answers. An agent with an address has a provider of its own, which is opened at
   * its first use and kept. Every other agent has the default provider.
   * @throws {ProviderError} `provider_error` for a key that is missing; {HttpError} as `Providers.resolve`
   */
  of(name: string, settings: AgentProviderSettings): Promise<ResolvedModel>;
  /** Opens each agent's provider again at its next use. Providers that were given out stay usable */
  renew(): void;
  close(): Promise<void>;
}

const TIMEOUT_SECONDS = 120;
const MAX_RETRIES = 2;

/** Creates the models of the configured agents. Opens nothing before the first use. */
export function createAgentProviders(options: AgentProvidersOptions): AgentProviders {
  let opened = new Map<string, Promise<ResolvedModel>>();
  const earlier: (typeof opened)[] = [];
  const open = async (name: string, agent: AgentProviderSettings): Promise<ResolvedModel> => {
    const table = `agents.${name}`;
    try {
      const { openProvider } = await import("./open_provider.ts");
      const { provider, model } = await openProvider(table, toSettings(agent), { ...options, table });
      const attempts = [{ provider, model: undefined, maxRetries: MAX_RETRIES }] as const;
      return { provider: withRetries(attempts, options), model };
    } catch (cause) {
      if (!(cause instanceof ConfigError)) throw cause;
      throw new ProviderError("provider_error", cause.message, { provider: table, cause });
    }
  };
  return {
    async of(name, agent) {
      if (agent.provider === "") return options.providers.resolve(agent.model);
      const place = opened;
      const known = place.get(name) ?? open(name, agent);
      place.set(name, known);
      try {
        return await known;
      } catch (error) {
        // A key that is missing may be there the next time
        place.delete(name);
        throw error;
      }
    },
    renew() {
      earlier.push(opened);
      opened = new Map();
    },
    async close() {
      const providers: Provider[] = [];
      for (const opening of [...earlier, opened].flatMap((place) => [...place.values()])) {
        await opening.then(({ provider }) => void providers.push(provider), () => {});
      }
      await Promise.all(providers.map((provider) => provider.close()));
    },
  };
}

function toSettings({ provider, model, api_key_env }: AgentProviderSettings): ProviderSettings {
  return {
    kind: kindOf(provider),
    model,
    base_url: provider,
    api_key_env,
    api_key_file: "",
    timeout_secs: TIMEOUT_SECONDS,
    silence_secs: 0,
    max_retries: MAX_RETRIES,
    fallback: [],
    vision: "auto",
  };
}

/** Returns the kind of an address: the vendor's for its own API, else the format of chat completions. */
function kindOf(address: string): string {
  const origin = URL.parse(address)?.origin;
  const known = Object.entries(VENDORS).find(([kind, { baseUrl }]) =>
    kind !== "ollama" && baseUrl !== undefined && URL.parse(baseUrl)?.origin === origin
  );
  return known?.[0] ?? "openai_compatible";
}
