import type { Clock } from "../base/clock.ts";
import type { OpenedList } from "../base/opened_list.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Metrics } from "../base/telemetry/metrics.ts";
import type { Config } from "../config/config.ts";
import { createDocuments } from "../storage/documents.ts";
import type { Store } from "../storage/store.ts";
import { createExchangeQueues } from "../system/net/http_exchange.ts";
import { createProviderClients } from "../system/net/provider_client.ts";
import { type AgentProviders, createAgentProviders } from "./agent_providers.ts";
import { createLiveProviders, type LiveProviders } from "./live_providers.ts";
import { createOfflineProvider } from "./offline/offline.ts";
import type { OwnProviders } from "./own_providers.ts";
import type { Providers } from "./provider.ts";
import {
  type Commit,
  loadProviderMemory,
  type ProviderMemory,
  type TrustedServer,
} from "./discovery/provider_memory.ts";
import { createProviderMetrics } from "./retry.ts";

/** Options of `createProviderServices`. */
export interface ProviderServicesOptions {
  /** Machine of a gateway in a cluster, whose local servers are its own. Default: the gateway is alone */
  readonly machine?: string | undefined;
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** The newest configuration. */
  readonly config: () => Config;
  /** False: no provider is opened. */
  readonly hasAgent: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Called with each secret that is read, so that the redactor knows it. */
  readonly onSecret: (secret: string, name?: string) => void;
  /** Tells whether an origin is this gateway, which must not become its own provider. */
  readonly isOwn: (origin: string) => boolean;
  /** Providers of the program that mounts the gateway, beside the configured ones. Default: none */
  readonly own?: OwnProviders | undefined;
  /** Used in place of the configured providers. Default: none */
  readonly fixed?: Providers | undefined;
  /** Text of each command's `--help` by its name, for the offline assistant. Default: none */
  readonly help?: (() => Promise<ReadonlyMap<string, string>>) | undefined;
  /** Tells whether the gateway has a tool that is off, for the offline assistant. Default: it has none */
  readonly isToolOff?: ((name: string) => boolean) | undefined;
  /** Origins where `kind = "auto"` looks for local model servers; false: nowhere. Default: the usual ports on loopback */
  readonly localOrigins?: readonly string[] | false | undefined;
  readonly opened: OpenedList;
}

/** Models of a gateway. */
export interface ProviderServices {
  /** Models that answer. Undefined without an agent */
  readonly live: OpenProviders | undefined;
  /**
   * Trusts a model server of this machine, and looks for it soon.
   * @param commit makes the transaction that stores the trust
   * @throws {HttpError} see trustServer
   */
  trust(address: string, commit: (server: TrustedServer) => Commit): Promise<TrustedServer>;
}

/** Models that answer: those of the gateway and those of the configured agents. */
export interface OpenProviders {
  readonly providers: LiveProviders;
  /** Providers of `[agents.<name>]`. */
  readonly agents: AgentProviders;
  /**
   * Opens what another configuration names. The returned function puts it to use.
   * @param options.always also where nothing changed: keys are read again
   * @throws {ConfigError} see LiveProviders
   */
  prepare(config: Config, options: { readonly always: boolean }): Promise<() => void>;
}

/** Loads the memory of models, and opens the configured providers where there is an agent. */
export async function createProviderServices(options: ProviderServicesOptions): Promise<ProviderServices> {
  const { store, log, machine } = options;
  const memory = await loadProviderMemory({ store, log, machine });
  const live = options.hasAgent ? await openProviders(options, memory) : undefined;
  return {
    live,
    async trust(address, commit) {
      const { trustServer } = await import("./discovery/server_owner.ts");
      const server = await trustServer(address, { memory, commit });
      log.warn(`The model server at ${server.origin} is trusted from now on`, { uid: server.uid });
      live?.providers.lookSoon();
      return server;
    },
  };
}

async function openProviders(options: ProviderServicesOptions, memory: ProviderMemory): Promise<OpenProviders> {
  const { clock, random, log, metrics, config, env, onSecret, opened } = options;
  const observer = createProviderMetrics(metrics);
  const rememberAgents = async ({ agents }: Config) => {
    if (Object.values(agents).some(({ provider }) => provider !== "")) await memory.remember();
  };
  await rememberAgents(config());
  const queues = createExchangeQueues();
  const providers: LiveProviders = await createLiveProviders({
    config: config(),
    fixed: options.fixed,
    own: options.own,
    env,
    // The assistant asks later, when somebody talks to it
    offline: createOfflineProvider({
      now: clock.now,
      help: options.help,
      isToolOff: options.isToolOff,
      hasModel: () => providers.inUse.name !== "offline",
    }),
    netOf: (proxy) => createProviderClients({ clock, proxy: { ...proxy, environment: (name) => env[name] }, queues }),
    isOwn: options.isOwn,
    localOrigins: options.localOrigins,
    observer,
    documents: createDocuments({ store: options.store }),
    memory,
    onSecret,
    clock,
    random,
    log,
    metrics,
  });
  opened.own(providers, (open) => open.close());
  const { net } = providers;
  const agents = createAgentProviders({ providers, env, net, onSecret, observer, clock, random, log });
  opened.own(agents, (open) => open.close());
  return {
    providers,
    agents,
    async prepare(next, { always }) {
      await rememberAgents(next);
      const useProviders = always || providers.differs(next) ? await providers.prepare(next) : () => {};
      return () => {
        useProviders();
        agents.renew();
      };
    },
  };
}
