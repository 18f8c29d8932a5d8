import { isDeepStrictEqual } from "node:util";
import { lazily } from "../base/lazily.ts";
import type { ModelEntry } from "../base/records/provider_event.ts";
import { asSentence } from "../base/text.ts";
import type { Config } from "../config/config.ts";
import { isListening } from "../system/net/tcp.ts";
import type { ProviderClientFactory } from "../system/net/provider_client.ts";
import { chooseLocal, chooseProvider, type ChosenProvider, sayRefused } from "./choose_provider.ts";
import { createProviders, type CreateProvidersOptions } from "./create_providers.ts";
import {
  discoverLocalServers,
  type FoundServers,
  type LocalSearch,
  type LocalServer,
} from "./discovery/local_servers.ts";
import type { Providers, ResolvedModel } from "./provider.ts";
import { createProviderMemory, type ProviderMemory } from "./discovery/provider_memory.ts";
import type { StreamObserver } from "./retry.ts";
import { withRouting } from "./models/routing.ts";
import type { OwnerOf, ServerOwnersOptions } from "./discovery/server_owner.ts";
import { ServersWatch } from "./discovery/watch_servers.ts";

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
export interface LiveProvidersOptions extends Omit<CreateProvidersOptions, "net" | "search" | "watched"> {
  readonly config: ProvidersConfig;
  readonly observer: StreamObserver;
  /** In place of the configured ones: only their routes follow the configuration. Default: none */
  readonly fixed?: Providers | undefined;
  /** HTTP clients under a `[proxy]` */
  readonly netOf: (proxy: Config["proxy"]) => ProviderClientFactory;
  /** This gateway itself must not become its own provider */
  readonly search: Pick<LocalSearch, "origins" | "isOwn">;
  /** Where owners of local servers are read from. Default: this machine */
  readonly owners?: Pick<ServerOwnersOptions, "sockets" | "users" | "ownUid"> | undefined;
}

/**
 * Creates the configured providers with their routes.
 *
 * While the choice of `kind = "auto"` depends on which local servers answer, these are watched: each 30 s, and at once when the one in
 * use cannot be reached. New runs use a server that came, or the next one after a server that went.
 * @throws {ConfigError} as createProviders
 */
export async function createLiveProviders(options: LiveProvidersOptions): Promise<LiveProviders> {
  const providers = new LiveProviders(options);
  await providers.start();
  return providers;
}

/** Providers that may be replaced while the gateway runs. A model that was resolved before stays usable to the end of its run. */
export class LiveProviders implements Providers {
  /** Providers that stay to the end: a run that waits for a person for a day goes on with the providers that it began with. Idle ones hold no connection */
  readonly #opened: Opened[] = [];
  #current: Opened | undefined;
  #watch: ServersWatch | undefined;
  #toldRefused: readonly string[] = [];
  /** True after a look that did not find the server in use, which still listened */
  #missedOnce = false;
  #closed = false;
  // Loaded once a server listens: mostly none does
  readonly #loadOwners = lazily(() => import("./discovery/server_owner.ts"));
  readonly #memory: ProviderMemory;
  readonly #options: LiveProvidersOptions;

  constructor(options: LiveProvidersOptions) {
    this.#options = options;
    this.#memory = options.memory ?? createProviderMemory();
  }

  async start(): Promise<void> {
    const first = await this.#open(this.#options.config);
    this.#use(first);
    // Without a banner, as of a daemon, the log alone says whose server it is
    if (first.chosen?.server !== undefined) this.#tell({ gone: undefined, servers: [first.chosen.server] });
  }

  get inUse(): Providers["inUse"] {
    return this.#inUse.providers.inUse;
  }

  get route(): Providers["route"] {
    return this.#inUse.providers.route;
  }

  /** HTTP clients of the newest configuration */
  readonly net: ProviderClientFactory = (client) => this.#inUse.net(client);

  /** Looks for local servers soon, where they are watched: a change about them is known */
  readonly lookSoon = (): void => this.#watch?.lookSoon();

  resolve(model: string | undefined): ResolvedModel {
    return this.#inUse.providers.resolve(model);
  }

  listModels(signal: AbortSignal): Promise<readonly ModelEntry[]> {
    return this.#inUse.providers.listModels(signal);
  }

  /** Tells whether a configuration names other providers than the one in use */
  differs(config: ProvidersConfig): boolean {
    return PARTS.some((part) => !isDeepStrictEqual(config[part], this.#inUse.config[part]));
  }

  /**
   * Opens the providers of another configuration, with their keys read again. The function that it returns puts them to use.
   * @throws {ConfigError} a key or address that is missing or unreadable, a fallback that is not configured
   */
  async prepare(config: ProvidersConfig): Promise<() => void> {
    const next = await this.#open(config);
    return () => this.#use(next);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#watch?.stop();
    await Promise.all(this.#opened.map(({ providers }) => providers.close()));
  }

  get #inUse(): Opened {
    return this.#current as Opened; // set by `start`, before anybody gets this object
  }

  async #open(config: ProvidersConfig, known?: ChosenProvider): Promise<Opened> {
    const { provider, providers } = config;
    const options = this.#options;
    const net = options.netOf(config.proxy);
    if (options.fixed !== undefined) {
      return { config, net, chosen: undefined, providers: withRouting(options.fixed, config) };
    }
    const search = this.#searchOf(config);
    const { clock } = options.kit;
    const chosen = known ?? await chooseProvider({ ...options, provider, clock, net, search });
    this.#tellRefused(chosen);
    await rememberReal(this.#memory, chosen, providers);
    // A server that comes and goes is opened once
    const before = this.#opened.find((one) =>
      one.config === config && one.chosen !== undefined && isSame(one.chosen, chosen)
    );
    if (before !== undefined) return before;
    const created = await createProviders({
      ...options,
      config,
      net,
      observer: this.#observer(),
      memory: this.#memory,
      search,
      watched: { chosen, onLost: this.lookSoon },
    });
    return { config, net, chosen, providers: withRouting(created, config) };
  }

  #use(next: Opened): void {
    if (!this.#opened.includes(next)) this.#opened.push(next);
    this.#current = next;
    // A reload may take its configuration over after the end
    if (next.chosen?.isFound && !this.#closed) {
      this.#watch ??= new ServersWatch({ clock: this.#options.kit.clock, look: () => this.#look() });
      return;
    }
    this.#watch?.stop();
    this.#watch = undefined;
  }

  /** Returns the observer of the options, which also looks for servers when the one in use cannot be reached. */
  #observer(): StreamObserver {
    const { observer } = this.#options;
    return {
      onFirstEvents: observer.onFirstEvents,
      onEnd: (provider, end) => {
        observer.onEnd(provider, end);
        const { error } = end;
        // A server that answers, in whatever way, is there
        const isLost = error !== undefined && error.status === undefined && provider === this.inUse.name;
        if (isLost) this.lookSoon();
      },
    };
  }

  #ownerOfIn({ provider }: ProvidersConfig): OwnerOf {
    return async (origin) => {
      const { createServerOwners } = await this.#loadOwners();
      const localUsers = () => provider.local_users;
      return await createServerOwners({ ...this.#options.owners, memory: this.#memory, localUsers })(origin);
    };
  }

  /** Returns the search under a configuration, which also looks at the servers that a person trusted. */
  #searchOf(config: ProvidersConfig): LocalSearch {
    const trusted = this.#memory.trusted().map(({ origin }) => origin);
    return { ...this.#options.search, ownerOf: this.#ownerOfIn(config), trusted };
  }

  /** Looks which local servers answer, and uses another one when the choice changes. Never throws. */
  async #look(): Promise<void> {
    const before = this.#inUse;
    const { config, net, chosen: known } = before;
    if (known === undefined) return;
    const { settings } = known;
    const { env, kit: { clock } } = this.#options;
    const found = await discoverLocalServers({ ...this.#searchOf(config), env, clock, net });
    const same = found.servers.find(({ baseUrl }) => baseUrl === settings.base_url);
    const isGone = settings.kind !== "offline" && same === undefined;
    if (await this.#isPatient(isGone, settings.base_url, found) || this.#closed || this.#inUse !== before) return;
    const chosen = chooseLocal(config.provider, found, settings);
    this.#tellRefused(chosen);
    if (isSame(chosen, known)) {
      if (same !== undefined) await this.#memory.remember(same);
      return;
    }
    await this.#follow(before, chosen, { gone: isGone ? settings.base_url : undefined, servers: found.servers });
  }

  /** Returns whether to wait once more for a server that is gone: one that is busy may answer the next time. */
  async #isPatient(isGone: boolean, baseUrl: string, { refused }: FoundServers): Promise<boolean> {
    const isForeign = isGone && refused.some(({ origin }) => baseUrl.startsWith(`${origin}/`));
    this.#missedOnce = isGone && !isForeign && !this.#missedOnce && await this.#listens(baseUrl);
    return this.#missedOnce;
  }

  async #follow(before: Opened, chosen: ChosenProvider, news: ServerNews): Promise<void> {
    try {
      const next = await this.#open(before.config, chosen);
      if (this.#closed || this.#inUse !== before) {
        if (!this.#opened.includes(next)) await next.providers.close();
        return;
      }
      this.#use(next);
      this.#tell(news);
    } catch (error) {
      this.#options.kit.log.error("A change of the local model servers could not be followed", { error });
    }
  }

  async #listens(baseUrl: string): Promise<boolean> {
    const timeout = this.#options.kit.clock.timeoutSignal(LISTENING_MS);
    try {
      return await isListening(new URL(baseUrl).origin, timeout.signal);
    } finally {
      timeout.clear();
    }
  }

  /** Warns of servers that may not be used, once of each. */
  #tellRefused({ refused = [] }: ChosenProvider): void {
    const said = refused.map(sayRefused);
    for (const sentence of said.filter((one) => !this.#toldRefused.includes(one))) {
      this.#options.kit.log.warn(asSentence(sentence));
    }
    this.#toldRefused = said;
  }

  #tell({ gone, servers }: ServerNews): void {
    const { log } = this.#options.kit;
    const { name, model, reason } = this.inUse;
    const found = servers.map(({ software, baseUrl }) => `${software} ${baseUrl}`);
    const fields = { provider: name, model, reason, found };
    const now = `new runs use ${name}/${model}`;
    if (gone !== undefined) log.warn(`No model server answers at ${gone} any more: ${now}`, fields);
    else log.info(`${reason}: ${now}`, fields);
  }
}

/** A change of the local servers, for the log. */
interface ServerNews {
  /** Address of the server that was in use and is gone. Undefined when another one came */
  readonly gone: string | undefined;
  readonly servers: readonly LocalServer[];
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
  /** Undefined when the providers were given in the options */
  readonly chosen: ChosenProvider | undefined;
  readonly providers: Providers;
}

function isSame({ settings: a, ...one }: ChosenProvider, { settings: b, ...other }: ChosenProvider): boolean {
  return a.kind === b.kind && a.base_url === b.base_url && a.model === b.model &&
    one.server?.owner === other.server?.owner;
}
