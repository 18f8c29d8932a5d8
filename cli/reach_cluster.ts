import { systemClock } from "../lib/base/clock.ts";
import { createSystemRandom } from "../lib/base/random.ts";
import type { OwnedRunView, ShownCluster } from "../lib/base/records/cluster_view.ts";
import type { LoadedConfig } from "../lib/config/load_config.ts";
import { readControlFile } from "../lib/host/control_file.ts";
import { DatabaseAwayError } from "../lib/storage/postgres/database_errors.ts";
import { createGatewayClient } from "../lib/system/net/gateway_client.ts";
import { openClusterOverview } from "./cluster_database.ts";
import { type CommandContext, CommandError } from "./command.ts";
import { type CallRoute, callsBy, expectSuccess, probeGateway } from "./reach_gateway.ts";

/** State of a cluster as a command shows it. `own` is null when no gateway of this data directory runs. */
export type ClusterView = Omit<ShownCluster, "own"> & {
  readonly own: ShownCluster["own"] | null;
};

/** Open runs with their owners. */
export interface ClusterRunsView {
  readonly runs: readonly OwnedRunView[];
  readonly hasMore: boolean;
}

/** A cluster that a command looks at: by the gateway of the data directory or, while none runs, straight in the database. */
export interface ReachedCluster {
  /** Returns the state of the cluster, or the reason why there is none. */
  status(): Promise<ClusterView | { readonly reason: string }>;
  runs(query: { readonly gateway: string | undefined; readonly limit: number }): Promise<ClusterRunsView>;
  /** @returns true when somebody had asked for it before */
  drain(gateway: string, options: { readonly force: boolean }): Promise<{ readonly repeated: boolean }>;
  /** @returns false when it was not known which folder the workspace is */
  forgetFolder(workspace: string): Promise<{ readonly forgotten: boolean }>;
  close(): Promise<void>;
}

/** Reaches the cluster that `[storage]` names. A command joins no cluster by it. @throws {CommandError} {ConfigError} */
export async function reachCluster(context: CommandContext): Promise<ReachedCluster> {
  const loaded = await context.loadConfig();
  const record = await readControlFile(loaded.dataDir);
  // Commands may use the token of a gateway on the loopback interface alone
  if (record !== undefined && record.token !== "" && await probeGateway(record) !== "silent") {
    const client = createGatewayClient({ ...record, clock: systemClock });
    return byGateway(callsBy(async (request) => expectSuccess(await client.request(request))));
  }
  return await byDatabase(context, loaded);
}

function byGateway(call: CallRoute): ReachedCluster {
  return {
    async status() {
      const { cluster, reason = "" } = await call("GET /v1/cluster");
      return cluster ?? { reason };
    },
    async runs({ gateway, limit }) {
      const page = await call("GET /v1/cluster/runs", { query: { limit, gateway } });
      return { runs: page.data, hasMore: page.has_more };
    },
    drain: (id, body) => call("POST /v1/cluster/gateways/:id/drain", { params: { id }, body }),
    forgetFolder: (id) => call("POST /v1/cluster/workspaces/:id/forget-folder", { params: { id } }),
    close: () => Promise.resolve(),
  };
}

async function byDatabase({ io }: CommandContext, { config }: LoadedConfig): Promise<ReachedCluster> {
  const { storage } = config;
  if (storage.driver !== "postgres") return noCluster(`storage.driver is "${storage.driver}" and not "postgres"`);
  const { openConfiguredDatabase, refusalOf } = await import("../lib/storage/open_configured_postgres.ts");
  const basics = { clock: systemClock, random: createSystemRandom() };
  const database = await openConfiguredDatabase({ storage, environment: (name) => io.env[name], ...basics });
  try {
    const { schema } = storage;
    const opened = await openClusterOverview(database, config);
    if (opened === undefined) {
      await database.close();
      return noCluster(`no gateway has used the schema "${schema}" of ${database.name} yet`);
    }
    const { overview } = opened;
    return {
      status: async () => ({ ...await overview.status(), own: null }),
      runs: (query) => overview.runs({ ...query, after: undefined }),
      async drain(gateway, { force }) {
        const { isRepeated } = await overview.drain(gateway, { by: { via: "cli", tokenId: null }, force });
        return { repeated: isRepeated };
      },
      async forgetFolder(workspace) {
        const { isForgotten } = await overview.forgetFolder(workspace, { by: { via: "cli", tokenId: null } });
        return { forgotten: isForgotten };
      },
      async close() {
        await opened.close();
        await database.close();
      },
    };
  } catch (error) {
    await database.close();
    throw error instanceof DatabaseAwayError ? refusalOf(error, storage) : error;
  }
}

function noCluster(why: string): ReachedCluster {
  const reason = `There is no cluster: ${why}`;
  const none = () => Promise.reject(new CommandError(reason));
  const close = () => Promise.resolve();
  return { status: () => Promise.resolve({ reason }), runs: none, drain: none, forgetFolder: none, close };
}
