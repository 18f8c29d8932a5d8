import { systemClock } from "../../lib/base/clock.ts";
import { ConfigError, ProviderError } from "../../lib/base/errors.ts";
import { createRedactor } from "../../lib/base/redact.ts";
import { type Config, defaultConfig } from "../../lib/config/config.ts";
import { firstChatModel } from "../../lib/providers/models/model_list.ts";
import { VENDORS } from "../../lib/providers/provider_settings.ts";
import type { CliIo } from "../command.ts";
import type { ProviderChoice } from "../starter_config.ts";
import { printableLine } from "../terminal/terminal_text.ts";
import { ANSWER_MS, openProviders } from "./check_provider.ts";

/** Result of a try. `refused`: the key is wrong or missing; `unreached`: nothing is known, since no list came */
export type TriedProvider =
  | { readonly kind: "answers"; readonly models: readonly string[]; readonly model: string | undefined }
  | { readonly kind: "refused"; readonly reason: string }
  | { readonly kind: "unreached"; readonly reason: string };

/** Vendors by their kinds, for people. */
export const VENDOR_NAMES: Readonly<Record<string, string>> = {
  openai: "OpenAI",
  anthropic: "Anthropic",
  openrouter: "OpenRouter",
};

/** Returns the name of a provider for people: the vendor, else its address. */
export function providerName({ kind, baseUrl }: ProviderChoice): string {
  return VENDOR_NAMES[kind] ?? printableLine(baseUrl ?? kind);
}

const TRIED_KEY = "POSTERN_TRIED_KEY";

/**
 * Asks a provider for its models, which costs nothing. Takes at most 5 s. Never throws; reasons have no key in them.
 * @param key key to try. Default: that of the key file, else of the environment
 */
export async function tryProvider(
  chosen: ProviderChoice,
  { env, key }: { readonly env: CliIo["env"]; readonly key?: string | undefined },
): Promise<TriedProvider> {
  const { kind, baseUrl = "", keyFile = "" } = chosen;
  const base = defaultConfig();
  const { redact, add } = createRedactor(key === undefined ? [] : [key]);
  const provider = {
    ...base.provider,
    // A kind that has been chosen is one of the schema's
    ...{ kind: kind as Config["provider"]["kind"], base_url: baseUrl, max_retries: 0 },
    ...key === undefined ? { api_key_file: keyFile } : { api_key_env: TRIED_KEY },
  };
  const timeout = systemClock.timeoutSignal(ANSWER_MS);
  try {
    const given = key === undefined ? env : { ...env, [TRIED_KEY]: key };
    const providers = await openProviders({ ...base, provider }, given, add);
    try {
      const models = await providers.resolve(undefined).provider.listModels(timeout.signal);
      const model = VENDORS[kind]?.model ?? firstChatModel(models);
      return { kind: "answers", models: models.map(({ id }) => id), model };
    } finally {
      await providers.close();
    }
  } catch (error) {
    if (timeout.signal.aborted) return { kind: "unreached", reason: `no answer within ${ANSWER_MS / 1000} s` };
    if (error instanceof ConfigError) return { kind: "refused", reason: redact(error.message) };
    if (!(error instanceof ProviderError)) throw error;
    if (error.status !== 401 && error.status !== 403) return { kind: "unreached", reason: redact(error.message) };
    return { kind: "refused", reason: `${providerName(chosen)} refuses the key, or wants one (${error.status})` };
  } finally {
    timeout.clear();
  }
}
