import { isRecord } from "../../lib/base/json.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { ConfigError, ProviderError } from "../../lib/base/errors.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { createLogger } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { createRedactor } from "../../lib/base/redact.ts";
import { type Config, defaultConfig } from "../../lib/config/config.ts";
import { firstChatModel } from "../../lib/providers/models/model_list.ts";
import { createProviders } from "../../lib/providers/create_providers.ts";
import { createOfflineProvider } from "../../lib/providers/offline/offline.ts";
import type { Providers } from "../../lib/providers/provider.ts";
import { createProviderMemory } from "../../lib/providers/discovery/provider_memory.ts";
import { VENDORS } from "../../lib/providers/provider_settings.ts";
import { createServerOwners } from "../../lib/providers/discovery/server_owner.ts";
import { createGatewayClient } from "../../lib/system/net/gateway_client.ts";
import { createProviderClients } from "../../lib/system/net/provider_client.ts";
import type { CliIo } from "../command.ts";
import type { ProviderChoice } from "../starter_config.ts";
import { printableLine } from "../terminal/terminal_text.ts";
import { type Check, failure, type Finding, fine, type Installation, warning } from "./finding.ts";

const NAME = "provider";
/** Time for each provider to list its models, in ms. All are asked at once */
const ANSWER_MS = 5_000;
/** Kinds of provider whose servers list every model by the name that a request uses */
const LISTED_KINDS = ["ollama", "openai_compatible"];

/** Checks that each configured provider has its settings and lists its models, which costs nothing. Never shows keys. */
export const providerCheck: Check = {
  name: NAME,
  async run(installation) {
    const { loaded: { config }, context, addSecret } = installation;
    if (config.provider.kind === "none") {
      return fine(NAME, 'There is no agent: provider.kind is "none", and chats are answered with 503');
    }
    let providers: Providers;
    try {
      providers = await openProviders(config, context.io.env, addSecret);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      return await withoutSettings(error, installation);
    }
    try {
      const named = Object.keys(config.providers);
      return await Promise.all([
        checkDefault(providers, installation),
        ...named.map((name) => probe(providers, { name: `${NAME} ${name}`, wanted: `${name}/` })),
      ]);
    } finally {
      await providers.close();
    }
  },
};

/** Makes the providers of a configuration as a gateway would. @throws {ConfigError} as createProviders */
function openProviders(
  config: Config,
  env: CliIo["env"],
  onSecret: (secret: string) => void,
): Promise<Providers> {
  return createProviders({
    kit: {
      clock: systemClock,
      random: createSystemRandom(),
      log: createLogger({ level: "error", now: systemClock.now, sink: () => {}, redact: (text) => text }),
      metrics: createMetrics(),
    },
    config,
    env,
    search: {
      ownerOf: createServerOwners({
        localUsers: () => config.provider.local_users,
        memory: createProviderMemory(),
      }),
    },
    offline: createOfflineProvider({ now: systemClock.now }),
    net: createProviderClients({
      clock: systemClock,
      proxy: { ...config.proxy, environment: (name) => env[name] },
    }),
    onSecret,
  });
}

/** Judges settings from which no provider can be made. A running gateway may have got a key that this terminal lacks. */
async function withoutSettings({ message, code }: ConfigError, { running, loaded }: Installation): Promise<Finding> {
  const served = await servedBy(running);
  if (served !== undefined) return fine(NAME, `${served}; from this terminal it could not start: ${message}`);
  const keyName = VENDORS[loaded.config.provider.kind]?.keyEnv ?? "OPENAI_API_KEY";
  const fix = code === "provider_key_missing"
    ? `export ${loaded.config.provider.api_key_env || keyName}=..., or name a file in provider.api_key_file`
    : "correct it, then postern config check";
  return failure(NAME, message, fix);
}

/** Describes the provider of the running gateway. Undefined for the offline assistant, and for a provider that lists no models. */
async function servedBy(running: Installation["running"]): Promise<string | undefined> {
  const provider = running?.status?.provider ?? undefined;
  if (running === undefined || provider === undefined || provider.name === "offline") return undefined;
  const client = createGatewayClient({ ...running.record, clock: systemClock, timeoutMs: ANSWER_MS });
  const reply = await client.request({ method: "GET", path: "/v1/models" }).catch(() => undefined);
  const models = isRecord(reply?.body) ? reply.body["data"] : undefined;
  if (!Array.isArray(models) || models.length === 0) return undefined;
  return `The running gateway uses ${provider.name}, since ${provider.reason}, with ${models.length} models`;
}

async function checkDefault(providers: Providers, { loaded: { config }, running }: Installation): Promise<Finding> {
  const { inUse } = providers;
  if (inUse.name === "offline") {
    const why = `The built-in offline assistant, since ${inUse.reason}`;
    if (config.provider.kind === "offline") return fine(NAME, why);
    const served = await servedBy(running);
    if (served !== undefined) return fine(NAME, served);
    return warning(NAME, why, "export OPENAI_API_KEY=..., start a local model server, or postern init");
  }
  const { model } = config.provider;
  const mustList = model !== "" && LISTED_KINDS.includes(inUse.name) ? model : undefined;
  return await probe(providers, {
    name: NAME,
    wanted: undefined,
    shown: `${inUse.name}, since ${inUse.reason},`,
    mustList,
  });
}

/** Provider to ask, and the words of the finding. */
interface Probed {
  /** Name of the finding */
  readonly name: string;
  /** Model name that leads to the provider. Undefined: the default provider */
  readonly wanted: string | undefined;
  /** Subject of the finding's sentence. Default: the provider's name */
  readonly shown?: string;
  /** Model that has to be in the list */
  readonly mustList?: string | undefined;
}

async function probe(providers: Providers, { name, wanted, shown, mustList }: Probed): Promise<Finding> {
  const { provider, model } = providers.resolve(wanted);
  const timeout = systemClock.timeoutSignal(ANSWER_MS);
  try {
    const ids = (await provider.listModels(timeout.signal)).map(({ id }) => id);
    const count = `${ids.length} ${ids.length === 1 ? "model" : "models"}`;
    const answers = `${shown ?? provider.name} answers with ${count}`;
    if (ids.length === 0) return warning(name, answers, "load a model into the server");
    if (mustList !== undefined && !ids.includes(mustList) && !ids.includes(`${mustList}:latest`)) {
      return failure(name, `${answers}, and "${mustList}" is not among them`, "postern models");
    }
    const used = model === "" ? answers : `${answers}; in use: ${model}`;
    if (model === "" || await provider.takesTools?.(model, timeout.signal) !== false) return fine(name, used);
    return warning(name, `${used}, ${NO_TOOLS}`, "load a model whose template has tools");
  } catch (error) {
    if (timeout.signal.aborted) {
      return failure(name, `${shown ?? provider.name} does not answer within ${ANSWER_MS / 1000} s`, TO_REACH);
    }
    if (!(error instanceof ProviderError)) throw error;
    return failure(name, error.message, TO_REACH);
  } finally {
    timeout.clear();
  }
}

const NO_TOOLS = "whose chat template knows no tools: it is shown none, and invents what they would say";
const TO_REACH = "check the address, the key and the network, then postern models";

/** Vendors by their kinds, for people. */
export const VENDOR_NAMES: Readonly<Record<string, string>> = {
  openai: "OpenAI",
  anthropic: "Anthropic",
  openrouter: "OpenRouter",
};

/** Returns the name of a chosen provider for people: the vendor, else its address. */
export function providerName({ kind, baseUrl }: ProviderChoice): string {
  return VENDOR_NAMES[kind] ?? printableLine(baseUrl ?? kind);
}

/** Result of a try: the models with the one that is used by itself, why the key counts for nothing, or why nothing is known. */
export type TriedProvider =
  | { readonly models: readonly string[]; readonly usual: string | undefined }
  | { readonly refused: string }
  | { readonly unreached: string };

const TRIED_KEY = "POSTERN_TRIED_KEY";

/**
 * Asks a chosen provider for its models, which costs nothing. Takes at most 5 s. Reasons have no key in them.
 * @param key key to try. Default: that of the key file, else of the environment
 */
export async function tryProvider(chosen: ProviderChoice, env: CliIo["env"], key?: string): Promise<TriedProvider> {
  const base = defaultConfig();
  const { redact, add } = createRedactor(key === undefined ? [] : [key]);
  const provider = {
    ...base.provider,
    // A kind that has been chosen is one of the schema's
    ...{ kind: chosen.kind as Config["provider"]["kind"], base_url: chosen.baseUrl ?? "", max_retries: 0 },
    ...key === undefined ? { api_key_file: chosen.keyFile ?? "" } : { api_key_env: TRIED_KEY },
  };
  const timeout = systemClock.timeoutSignal(ANSWER_MS);
  try {
    const providers = await openProviders({ ...base, provider }, { ...env, [TRIED_KEY]: key }, add);
    try {
      const models = await providers.resolve(undefined).provider.listModels(timeout.signal);
      return { models: models.map(({ id }) => id), usual: VENDORS[chosen.kind]?.model ?? firstChatModel(models) };
    } finally {
      await providers.close();
    }
  } catch (error) {
    if (timeout.signal.aborted) return { unreached: `no answer within ${ANSWER_MS / 1000} s` };
    if (error instanceof ConfigError) return { refused: redact(error.message) };
    if (!(error instanceof ProviderError)) throw error;
    if (error.status !== 401) return { unreached: redact(error.message) };
    return { refused: `${providerName(chosen)} refuses the key, or wants one (401)` };
  } finally {
    timeout.clear();
  }
}
