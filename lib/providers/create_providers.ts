import { ConfigError } from "../base/errors.ts";
import { canonicalDigest } from "../base/json.ts";
import type { Clock } from "../base/clock.ts";
import type { Kit } from "../base/kit.ts";
import type { ModelEntry } from "../base/records/provider_event.ts";
import type { Documents } from "../storage/documents.ts";
import type { ProviderClientFactory } from "../system/net/provider_client.ts";
import { chooseProvider, type ChosenProvider } from "./choose_provider.ts";
import { createModelList, firstChatModel, withListedModels } from "./models/model_list.ts";
import { admission, type LocalSearch, type LocalServer } from "./discovery/local_servers.ts";
import type { OpenedProvider } from "./open_provider.ts";
import type { OwnProviders } from "./own_providers.ts";
import type { Provider, Providers } from "./provider.ts";
import { type Attempt, createProviderMetrics, type RetryOptions, type StreamObserver, withRetries } from "./retry.ts";
import { createProviderMemory, type ProviderMemory } from "./discovery/provider_memory.ts";
import type { ProviderSettings } from "./provider_settings.ts";
import { createModelNames, type ModelNames, type ProviderEntry } from "./models/model_names.ts";

/** The configuration of providers and the services that providers use. */
export interface CreateProvidersOptions {
  readonly kit: Pick<Kit, "clock" | "random" | "log" | "metrics">;
  readonly config: {
    /** `[provider]`; kind also `auto` and `none` */
    readonly provider: ProviderSettings;
    /** `[providers.<name>]` */
    readonly providers: Readonly<Record<string, ProviderSettings>>;
  };
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Providers of the program that mounts the gateway. Default: none */
  readonly own?: OwnProviders | undefined;
  /** Counts requests and tokens. Default: the metrics, registered here */
  readonly observer?: StreamObserver;
  /** The built-in provider */
  readonly offline: Provider;
  readonly net: ProviderClientFactory;
  /** Keeps the last model lists beyond a restart. Default: they are not kept */
  readonly documents?: Documents;
  /** Receives every key, so that it is redacted everywhere */
  readonly onSecret?: (secret: string, name?: string) => void;
  /** Where `auto` looks for local servers */
  readonly search: LocalSearch;
  /** Memory that the data directory keeps of earlier models. Default: nothing is remembered, and nothing is kept */
  readonly memory?: ProviderMemory;
  /** The choice of somebody who watches the local servers. Default: the choice is made now, and nobody watches */
  readonly watched?: {
    readonly chosen: ChosenProvider;
    /** Runs when a request names a model whose local server is gone */
    readonly onLost: () => void;
  };
}

const OFFLINE_MODEL = "assistant";
const FIRST_LIST_MS = 2_000;
/** For the lists that the error of an unknown model names */
const NAMES_MS = 2_000;

/**
 * Creates the configured providers, each with its retries and fallbacks. chooseProvider decides what `auto` is. With `none` every
 * `resolve` throws ProviderError. Source: docs/design/providers.md "Choosing a provider"
 * @throws {ConfigError} a key or address that is missing or unreadable, a fallback that is not configured
 */
export async function createProviders(options: CreateProvidersOptions): Promise<Providers> {
  const { kit, config: { provider, providers }, watched } = options;
  const { clock } = kit;
  const chosen = watched?.chosen ?? await chooseProvider({ ...options, provider, clock });
  const bases = new Map<string, Base>();
  const missing: ModelNames["missing"] = (...asked) => names.missing(...asked);
  const open = async (name: string, settings: ProviderSettings, table: string, server?: LocalServer) =>
    void bases.set(name, await createBase(name, settings, { table, server, missing, options }));
  for (const [name, own] of options.own ?? []) {
    const { settings } = own;
    bases.set(name, { provider: own.open(kit), settings, model: settings.model, table: `providers.${name}` });
  }
  const { kind } = chosen.settings;
  if (kind !== "none" && !bases.has(kind)) await open(kind, chosen.settings, "provider", chosen.server);
  for (const [name, settings] of Object.entries(providers)) await open(name, settings, `providers.${name}`);

  const entries = new Map<string, ProviderEntry>();
  const inUse = { name: chosen.settings.kind, reason: chosen.reason };
  // Clients that look for names of their own find those that stand for a model; a pattern is no name
  const aliases = Object.keys(provider.aliases ?? {}).filter((name) => !name.endsWith("*")).map(toAlias);
  const listAll = async (signal: AbortSignal) => [...await listed(entries, names, signal), ...aliases];
  const retry: RetryOptions = {
    clock,
    random: kit.random,
    log: kit.log,
    observer: options.observer ?? createProviderMetrics(kit.metrics),
    modelNames: () => within(NAMES_MS, clock, async (signal) => (await listAll(signal)).map(({ id }) => id)),
  };
  for (const [name, base] of bases) {
    entries.set(
      name,
      toEntry(name, base, { ...options, bases, retry }),
    );
  }
  const standard = entries.get(inUse.name);
  const names = createModelNames({
    entries,
    standard,
    inUse,
    isGuess: provider.kind === "auto",
    isFound: chosen.isFound,
    server: chosen.server,
    memory: options.memory ?? createProviderMemory(),
    onLost: watched?.onLost,
    aliases: provider.aliases,
  });
  if (standard !== undefined && standard.model === "") standard.model = await firstListed(standard, clock);
  return {
    inUse: { ...inUse, model: standard?.model ?? "" },
    resolve: names.resolve,
    listModels: listAll,
    async close() {
      await Promise.all([...entries.values()].map(({ provider }) => provider.close()));
    },
  };
}

interface Base extends OpenedProvider {
  readonly settings: ProviderSettings;
  readonly table: string;
}

async function createBase(
  name: string,
  settings: ProviderSettings,
  { table, server, missing, options }: {
    readonly table: string;
    readonly server: LocalServer | undefined;
    readonly missing: ModelNames["missing"];
    readonly options: CreateProvidersOptions;
  },
): Promise<Base> {
  if (settings.kind === "offline") {
    const provider = { ...options.offline, name };
    return { provider, settings, table, model: settings.model || OFFLINE_MODEL };
  }
  const { openProvider } = await import("./open_provider.ts");
  const { kit: { clock, random }, search: { ownerOf } } = options;
  const net: ProviderClientFactory = server === undefined
    ? options.net
    : (client) => options.net({ ...client, admit: admission(ownerOf, client.origin) });
  // Ollama refuses a name that it does not have; others answer with whatever is loaded
  const layers = server === undefined || server.kind === "ollama"
    ? []
    : [withListedModels({ models: server.models, unknown: missing })];
  return { ...await openProvider(name, settings, { ...options, clock, random, net, table, layers }), settings, table };
}

interface EntryParts extends Pick<CreateProvidersOptions, "kit" | "documents" | "offline"> {
  readonly bases: ReadonlyMap<string, Base>;
  readonly retry: RetryOptions;
}

function toEntry(name: string, base: Base, parts: EntryParts): ProviderEntry {
  const { provider, settings } = base;
  const attempt: Attempt = { provider, model: undefined, maxRetries: settings.max_retries };
  const fallbacks = settings.fallback.map((wanted) => toFallback(wanted, { ...parts, base }));
  const alone = withRetries([attempt], parts.retry);
  return {
    provider: fallbacks.length === 0 ? alone : withRetries([attempt, ...fallbacks], parts.retry),
    alone,
    model: base.model,
    isOffline: settings.kind === "offline",
    models: createModelList(alone, {
      ...parts.kit,
      documents: parts.documents,
      key: `models/${name}/${canonicalDigest([settings.kind, settings.base_url])}`,
    }),
  };
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

function firstListed(entry: ProviderEntry, clock: Clock): Promise<string> {
  return within(FIRST_LIST_MS, clock, async (signal) => firstChatModel(await entry.models.read(signal)) ?? "");
}

async function listed(
  entries: ReadonlyMap<string, ProviderEntry>,
  names: ModelNames,
  signal: AbortSignal,
): Promise<readonly ModelEntry[]> {
  const lists = await Promise.all(
    [...entries].map(async ([name, { models }]) =>
      (await models.read(signal)).map((model) => ({ ...model, id: names.idOf(name, model.id) }))
    ),
  );
  return lists.flat();
}

function toAlias(id: string): ModelEntry {
  return { id, object: "model", created: 0, owned_by: "postern" };
}

async function within<T>(ms: number, clock: Clock, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const timeout = clock.timeoutSignal(ms);
  try {
    return await work(timeout.signal);
  } finally {
    timeout.clear();
  }
}
