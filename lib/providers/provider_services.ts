import type { Kit } from "../base/kit.ts";
import { defineWing, type OpenedList } from "../base/opened_list.ts";
import type { Config } from "../config/config.ts";
import type { Documents } from "../storage/documents.ts";
import type { Store } from "../storage/store.ts";
import { createExchangeQueues } from "../system/net/http_exchange.ts";
import { createProviderClients } from "../system/net/provider_client.ts";
import { type AgentProviders, createAgentProviders } from "./agent_providers.ts";
import { createLiveProviders, type LiveProviders } from "./live_providers.ts";
import { createOfflineProvider } from "./offline/offline.ts";
import { createEmbedder, type RoutedEmbedder } from "./embedder.ts";
import type { OwnProviders } from "./own_providers.ts";
import type { Providers } from "./provider.ts";
import {
  type Commit,
  loadProviderMemory,
  type ProviderMemory,
  type TrustedServer,
} from "./discovery/provider_memory.ts";
import { createProviderMetrics } from "./retry.ts";

/** Needs of `modelsWing`. */
export interface ModelsNeeds {
  readonly kit: Kit;
  readonly config: () => Config;
  readonly storage: { readonly store: Store; readonly documents: Documents };
  /** Learns each secret that is read. */
  readonly telemetry: { readonly redactor: { readonly add: (secret: string, name?: string) => void } };
  readonly program: ModelsProgram;
  /** Tells whether an origin is this gateway, which must not become its own provider. */
  readonly system: { readonly ownAddress: { readonly isOwn: (origin: string) => boolean } };
  /** Vectors of the memories, which begin once the models are there. */
  readonly memory: {
    readonly vectors: { start(embedder: () => RoutedEmbedder | undefined): void; close(): Promise<void> };
  };
  /** Tools of the gateway, of which the offline assistant tells which are off. */
  readonly work: {
    readonly tools: () => { readonly get: (name: string) => { readonly enabled: boolean } | undefined };
  };
  /** Machine of a gateway in a cluster, whose local servers are its own. Undefined: the gateway is alone */
  readonly cluster: { readonly machine: string | undefined };
}

/** Models as the program wants them that starts the gateway. */
export interface ModelsProgram {
  readonly models?: {
    /** False: no provider is opened. Default true */
    readonly agent?: boolean | undefined;
    /** Provider in place of the configured ones. Default: none */
    readonly providers?: Providers | undefined;
    /** Origins where `kind = "auto"` looks for local model servers; false: nowhere. Default: the usual ports on loopback */
    readonly localServers?: readonly string[] | false | undefined;
  } | undefined;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Providers of the program, beside the configured ones. Default: none */
  readonly additions?: { readonly ownProviders?: OwnProviders | undefined } | undefined;
  /** Text of each command's `--help` by its name, for the offline assistant. Default: none */
  readonly about: { readonly help?: (() => Promise<ReadonlyMap<string, string>>) | undefined };
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

/** Models of the gateway. */
export const modelsWing = defineWing({ name: "models", start: startModels });

/** Loads the memory of models, and opens the configured providers where there is an agent. */
async function startModels(needs: ModelsNeeds, opened: OpenedList): Promise<ProviderServices> {
  const { kit: { log }, config, storage: { store }, program, cluster } = needs;
  const memory = await loadProviderMemory({ store, log, machine: cluster.machine });
  const hasAgent = program.models?.agent !== false && config().provider.kind !== "none";
  const live = hasAgent ? await openProviders(needs, { memory, opened }) : undefined;
  const { vectors } = needs.memory;
  if (live !== undefined) vectors.start(createEmbedder({ config, log, providers: live.providers }));
  // They use the models, and so end before them
  opened.own(vectors, (open) => open.close());
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

async function openProviders(
  needs: ModelsNeeds,
  { memory, opened }: { readonly memory: ProviderMemory; readonly opened: OpenedList },
): Promise<OpenProviders> {
  const { kit, config, program, storage: { documents }, system, work } = needs;
  const { clock, random, log } = kit;
  const env = program.environment;
  const onSecret = needs.telemetry.redactor.add;
  const observer = createProviderMetrics(kit.metrics);
  const rememberAgents = async ({ agents }: Config) => {
    if (Object.values(agents).some(({ provider }) => provider !== "")) await memory.remember();
  };
  await rememberAgents(config());
  const queues = createExchangeQueues();
  const providers: LiveProviders = await createLiveProviders({
    kit,
    config: config(),
    fixed: program.models?.providers,
    own: program.additions?.ownProviders,
    env,
    // The assistant asks later, when somebody talks to it
    offline: createOfflineProvider({
      now: clock.now,
      help: program.about.help,
      isToolOff: (name) => work.tools().get(name)?.enabled === false,
      hasModel: () => providers.inUse.name !== "offline",
    }),
    netOf: (proxy) => createProviderClients({ clock, proxy: { ...proxy, environment: (name) => env[name] }, queues }),
    search: { isOwn: system.ownAddress.isOwn, origins: program.models?.localServers },
    observer,
    documents,
    memory,
    onSecret,
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
