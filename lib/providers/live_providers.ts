import { isDeepStrictEqual } from "node:util";
import { lazily } from "../base/lazily.ts";
import type { Config } from "../config/config.ts";
import { isListening } from "../system/net/is_listening.ts";
import type { ProviderClientFactory } from "../system/net/provider_client.ts";
import { chooseLocal, chooseProvider, type ChosenProvider, findLocalServers, sayRefused } from "./choose_provider.ts";
import { createProviders, type CreateProvidersOptions } from "./create_providers.ts";
import type { LocalServer } from "./discovery/local_servers.ts";
import type { Providers } from "./provider.ts";
import { createProviderMemory, type ProviderMemory } from "./discovery/provider_memory.ts";
import type { StreamObserver } from "./retry.ts";
import { withRouting } from "./models/routing.ts";
import type { OwnerOf, ServerOwnersOptions } from "./discovery/server_owner.ts";
import { type ServersWatch, watchServers } from "./discovery/watch_servers.ts";

const PARTS = [
  "provider",
  "providers",
  "proxy",
  "model_routes",
  "embedding_routes",
  "query_classification",
] as const;

/** The part of a configuration that says which models answer. */
export type ProvidersConfig = Pick<Config, typeof PARTS[number]>;

/** The first configuration, and the services that providers use. */
export interface LiveProvidersOptions
  extends Omit<CreateProvidersOptions, "provider" | "providers" | "net" | "chosen" | "ownerOf"> {
  readonly config: ProvidersConfig;
  readonly observer: StreamObserver;
  /** In place of the configured ones: only their routes follow the configuration. Default: none */
  readonly fixed?: Providers | undefined;
  /** HTTP clients under a `[proxy]` */
  readonly netOf: (proxy: Config["proxy"]) => ProviderClientFactory;
  /** Tells whether an origin is this gateway itself, which must not become its own provider */
  readonly isOwn?: (origin: string) => boolean;
  /** Where owners of local servers are read from. Default: this machine */
  readonly owners?: Pick<ServerOwnersOptions, "sockets" | "users" | "ownUid"> | undefined;
}

/** Providers that may be replaced while the gateway runs. A model that was resolved before stays usable to the end of its run. */
export interface LiveProviders extends Providers {
  /** HTTP clients of the newest configuration */
  readonly net: ProviderClientFactory;
  /** Tells whether a configuration names other providers than the one in use */
  differs(config: ProvidersConfig): boolean;
  /**
   * Opens the providers of another configuration, with their keys read anew. The function that it returns puts them to use.
   * @throws {ConfigError} a key or address that is missing or unreadable, a fallback that is not configured
   */
  prepare(config: ProvidersConfig): Promise<() => void>;
  /** Looks for local servers soon, where they are watched: a change about them is known */
  lookSoon(): void;
}

/**
 * Creates the configured providers with their routes.
 *
 * While the choice of `kind = "auto"` depends on which local servers answer, these are watched: each 30 s, and at once when the one in
 * use cannot be reached. New runs use a server that came, or the next one after a server that went.
 * @throws {ConfigError} as createProviders
 */
export async function createLiveProviders(options: LiveProvidersOptions): Promise<LiveProviders> {
  const { clock, log } = options;
  const memory = options.memory ?? createProviderMemory();
  /** All of them to the end: a run that waits for a person for a day goes on with what it began with. An idle one holds no connection */
  const opened: Opened[] = [];
  let watch: ServersWatch | undefined;
  let closed = false;

  const observer: StreamObserver = {
    onFirstEvents: options.observer.onFirstEvents,
    onEnd(provider, end) {
      options.observer.onEnd(provider, end);
      const { error } = end;
      // A server that answers, in whatever way, is there
      const isLost = error !== undefined && error.status === undefined && provider === current.providers.inUse.name;
      if (isLost) watch?.lookSoon();
    },
  };
  // Loaded once a server listens: mostly none does
  const loadOwners = lazily(() => import("./discovery/server_owner.ts"));
  const ownerOfIn = ({ provider }: ProvidersConfig): OwnerOf => async (origin) => {
    const { createServerOwners } = await loadOwners();
    return await createServerOwners({ ...options.owners, memory, localUsers: () => provider.local_users })(origin);
  };
  const trustedOrigins = () => memory.trusted().map(({ origin }) => origin);
  let toldRefused: readonly string[] = [];
  const tellRefused = ({ refused = [] }: ChosenProvider) => {
    const said = refused.map(sayRefused);
    for (const sentence of said.filter((one) => !toldRefused.includes(one))) {
      log.warn(`${sentence.charAt(0).toUpperCase()}${sentence.slice(1)}`);
    }
    toldRefused = said;
  };
  const open = async (config: ProvidersConfig, known?: ChosenProvider): Promise<Opened> => {
    const { provider, providers } = config;
    const net = options.netOf(config.proxy);
    if (options.fixed !== undefined) {
      return { config, net, chosen: undefined, providers: withRouting(options.fixed, config) };
    }
    const ownerOf = ownerOfIn(config);
    const chosen = known ?? await chooseProvider({ ...options, provider, net, ownerOf, trusted: trustedOrigins() });
    tellRefused(chosen);
    await rememberReal(memory, chosen, providers);
    // A server that comes and goes is opened once
    const before = opened.find((one) =>
      one.config === config && one.chosen !== undefined && isSame(one.chosen, chosen)
    );
    if (before !== undefined) return before;
    const onLost = () => watch?.lookSoon();
    const created = await createProviders({
      ...options,
      provider,
      providers,
      net,
      observer,
      chosen,
      memory,
      ownerOf,
      onLost,
    });
    return { config, net, chosen, providers: withRouting(created, config) };
  };
  const use = (next: Opened) => {
    if (!opened.includes(next)) opened.push(next);
    current = next;
    watchWhereFound();
  };
  const watchWhereFound = () => {
    if (current.chosen?.isFound) watch ??= watchServers({ clock, look });
    else {
      watch?.stop();
      watch = undefined;
    }
  };

  let missedOnce = false;
  const look = async () => {
    const before = current;
    const { config: { provider }, net, chosen: known } = before;
    if (known === undefined) return;
    const { settings } = known;
    const found = await findLocalServers({
      ...options,
      net,
      ownerOf: ownerOfIn(before.config),
      trusted: trustedOrigins(),
    });
    const { servers, refused } = found;
    const same = servers.find(({ baseUrl }) => baseUrl === settings.base_url);
    const isGone = settings.kind !== "offline" && same === undefined;
    const isForeign = isGone && refused.some(({ origin }) => settings.base_url.startsWith(`${origin}/`));
    // One that is busy may answer the next time
    const isPatient = isGone && !isForeign && !missedOnce && await listens(settings.base_url);
    missedOnce = isPatient;
    if (isPatient || closed || current !== before) return;
    const chosen = chooseLocal(provider, found, settings);
    tellRefused(chosen);
    if (isSame(chosen, known)) {
      if (same !== undefined) await memory.remember(same);
      return;
    }
    try {
      const next = await open(before.config, chosen);
      if (closed || current !== before) {
        if (!opened.includes(next)) await next.providers.close();
        return;
      }
      use(next);
      tell({ gone: isGone ? settings.base_url : undefined, servers });
    } catch (error) {
      log.error("A change of the local model servers could not be followed", { error });
    }
  };
  const listens = async (baseUrl: string) => {
    const timeout = clock.timeoutSignal(LISTENING_MS);
    try {
      return await isListening(new URL(baseUrl).origin, timeout.signal);
    } finally {
      timeout.clear();
    }
  };
  const tell = (
    { gone, servers }: { readonly gone: string | undefined; readonly servers: readonly LocalServer[] },
  ) => {
    const { name, model, reason } = current.providers.inUse;
    const fields = {
      provider: name,
      model,
      reason,
      found: servers.map(({ software, baseUrl }) => `${software} ${baseUrl}`),
    };
    const now = `new runs use ${name}/${model}`;
    if (gone !== undefined) log.warn(`No model server answers at ${gone} any more: ${now}`, fields);
    else log.info(`${reason}: ${now}`, fields);
  };

  let current = await open(options.config);
  use(current);
  // Without a banner, as of a daemon, the log alone says whose server it is
  if (current.chosen?.server !== undefined) tell({ gone: undefined, servers: [current.chosen.server] });
  return {
    get inUse() {
      return current.providers.inUse;
    },
    get route() {
      return current.providers.route;
    },
    net: (client) => current.net(client),
    resolve: (model) => current.providers.resolve(model),
    listModels: (signal) => current.providers.listModels(signal),
    differs: (config) => PARTS.some((part) => !isDeepStrictEqual(config[part], current.config[part])),
    async prepare(config) {
      const next = await open(config);
      return () => use(next);
    },
    lookSoon: () => watch?.lookSoon(),
    async close() {
      closed = true;
      watch?.stop();
      await Promise.all(opened.map(({ providers }) => providers.close()));
    },
  };
}

const LISTENING_MS = 2_000;

/** Remembers that a real provider was there. From then on the offline assistant no longer answers for every name. */
async function rememberReal(
  memory: ProviderMemory,
  { settings, server }: ChosenProvider,
  named: ProvidersConfig["providers"],
): Promise<void> {
  const kinds = [settings.kind, ...Object.values(named).map(({ kind }) => kind)];
  if (server !== undefined || kinds.some((kind) => kind !== "offline" && kind !== "none")) {
    await memory.remember(server);
  }
}

interface Opened {
  readonly config: ProvidersConfig;
  readonly net: ProviderClientFactory;
  /** undefined: they were given */
  readonly chosen: ChosenProvider | undefined;
  readonly providers: Providers;
}

function isSame({ settings: a, ...one }: ChosenProvider, { settings: b, ...other }: ChosenProvider): boolean {
  return a.kind === b.kind && a.base_url === b.base_url && a.model === b.model &&
    one.server?.owner === other.server?.owner;
}
