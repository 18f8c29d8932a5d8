import { ConfigError, ProviderError } from "../base/errors.ts";
import { canonicalDigest } from "../base/canonical_json.ts";
import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import type { ModelEntry } from "../base/records/model.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Metrics } from "../base/telemetry/metrics.ts";
import type { Documents } from "../storage/documents.ts";
import type { ProviderClientFactory } from "../system/net/provider_client.ts";
import { chooseProvider, type ChosenProvider } from "./choose_provider.ts";
import { firstChatModel } from "./default_model.ts";
import { createModelList } from "./model_list.ts";
import type { OpenedProvider } from "./open_provider.ts";
import type { Provider, Providers } from "./provider.ts";
import { createProviderMetrics } from "./provider_metrics.ts";
import type { ProviderSettings } from "./provider_settings.ts";
import { type Attempt, type RetryOptions, type StreamObserver, withRetries } from "./retry.ts";

export interface CreateProvidersOptions {
  /** `[provider]`; kind also `auto` and `none` */
  readonly provider: ProviderSettings;
  /** `[providers.<name>]` */
  readonly providers: Readonly<Record<string, ProviderSettings>>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** Who counts what is asked. Default: the metrics, registered here */
  readonly observer?: StreamObserver;
  /** The built-in provider */
  readonly offline: Provider;
  readonly net: ProviderClientFactory;
  /** Keeps the last model lists beyond a restart. Default: they are not kept */
  readonly documents?: Documents;
  /** Told of every key, so that it is redacted everywhere */
  readonly onSecret?: (secret: string) => void;
  /** Where `auto` looks for local servers. Default: the usual ports on loopback */
  readonly localOrigins?: readonly string[];
  /** What was made of `provider`. Default: it is chosen now */
  readonly chosen?: ChosenProvider;
}

const OFFLINE_MODEL = "assistant";
const FIRST_LIST_MS = 2_000;

/**
 * The configured providers, each with its retries and fallbacks; what `auto` is, chooseProvider says. With `none` every `resolve`
 * throws ProviderError. Source: DESIGN.md sections 3, 6 and 7
 * @throws {ConfigError} a key or address that is missing or unreadable, a fallback that is not configured
 */
export async function createProviders(options: CreateProvidersOptions): Promise<Providers> {
  const chosen = options.chosen ?? await chooseProvider(options);
  const bases = new Map<string, Base>();
  const open = async (name: string, settings: ProviderSettings, table: string) =>
    void bases.set(name, await createBase(name, settings, { table, options }));
  if (chosen.settings.kind !== "none") await open(chosen.settings.kind, chosen.settings, "provider");
  for (const [name, settings] of Object.entries(options.providers)) await open(name, settings, `providers.${name}`);

  const retry: RetryOptions = {
    clock: options.clock,
    random: options.random,
    log: options.log,
    observer: options.observer ?? createProviderMetrics(options.metrics),
  };
  const entries = new Map<string, Entry>();
  for (const [name, base] of bases) {
    const attempts: [Attempt, ...Attempt[]] = [
      { provider: base.provider, model: undefined, maxRetries: base.settings.max_retries },
      ...base.settings.fallback.map((wanted) => toFallback(wanted, { base, bases, offline: options.offline })),
    ];
    const provider = withRetries(attempts, retry);
    entries.set(name, {
      provider,
      model: base.model,
      models: createModelList(provider, {
        ...options,
        key: `models/${name}/${canonicalDigest([base.settings.kind, base.settings.base_url])}`,
      }),
    });
  }
  const standard = entries.get(chosen.settings.kind);
  if (standard !== undefined && standard.model === "") standard.model = await firstListed(standard, options.clock);
  return toProviders({ entries, standard, inUse: { name: chosen.settings.kind, reason: chosen.reason } });
}

interface Base extends OpenedProvider {
  readonly settings: ProviderSettings;
  readonly table: string;
}

interface Entry {
  readonly provider: Provider;
  model: string;
  readonly models: ReturnType<typeof createModelList>;
}

async function createBase(
  name: string,
  settings: ProviderSettings,
  { table, options }: { readonly table: string; readonly options: CreateProvidersOptions },
): Promise<Base> {
  if (settings.kind === "offline") {
    const provider = { ...options.offline, name };
    return { provider, settings, table, model: settings.model || OFFLINE_MODEL };
  }
  const { openProvider } = await import("./open_provider.ts");
  return { ...await openProvider(name, settings, { ...options, table }), settings, table };
}

function toFallback(
  wanted: string,
  { base, bases, offline }: {
    readonly base: Base;
    readonly bases: ReadonlyMap<string, Base>;
    readonly offline: Provider;
  },
): Attempt {
  const slash = wanted.indexOf("/");
  const name = slash === -1 ? wanted : wanted.slice(0, slash);
  const model = slash === -1 ? undefined : wanted.slice(slash + 1);
  const found = bases.get(name);
  if (found !== undefined && found !== base) {
    return { provider: found.provider, model: model ?? found.model, maxRetries: found.settings.max_retries };
  }
  if (name === "offline" && found === undefined) {
    return { provider: offline, model: model ?? OFFLINE_MODEL, maxRetries: 0 };
  }
  const problem = found === base ? "it names itself" : `no provider "${name}" is configured`;
  throw new ConfigError("provider_fallback_unknown", `Cannot use "fallback" of [${base.table}]: ${problem}`, {
    key: `${base.table}.fallback`,
  });
}

async function firstListed(entry: Entry, clock: Clock): Promise<string> {
  const timeout = clock.timeoutSignal(FIRST_LIST_MS);
  try {
    return firstChatModel(await entry.models.read(timeout.signal)) ?? "";
  } finally {
    timeout.clear();
  }
}

function toProviders({ entries, standard, inUse }: {
  readonly entries: ReadonlyMap<string, Entry>;
  readonly standard: Entry | undefined;
  readonly inUse: { readonly name: string; readonly reason: string };
}): Providers {
  const listOf = async (name: string, entry: Entry, signal: AbortSignal): Promise<readonly ModelEntry[]> => {
    const models = await entry.models.read(signal);
    const needsPrefix = (id: string) =>
      entry !== standard || (id.includes("/") && entries.has(id.slice(0, id.indexOf("/"))));
    return models.map((model) => (needsPrefix(model.id) ? { ...model, id: `${name}/${model.id}` } : model));
  };
  return {
    inUse: { ...inUse, model: standard?.model ?? "" },
    resolve(wanted = "") {
      const slash = wanted.indexOf("/");
      const named = slash === -1 ? undefined : entries.get(wanted.slice(0, slash));
      if (named !== undefined) return { provider: named.provider, model: wanted.slice(slash + 1) || named.model };
      if (standard !== undefined) return { provider: standard.provider, model: wanted || standard.model };
      throw new ProviderError("provider_error", `Cannot choose a provider: [provider] has the kind "none"`, {
        provider: "none",
      });
    },
    async listModels(signal) {
      const lists = await Promise.all([...entries].map(([name, entry]) => listOf(name, entry, signal)));
      return lists.flat();
    },
    async close() {
      await Promise.all([...entries.values()].map(({ provider }) => provider.close()));
    },
  };
}
