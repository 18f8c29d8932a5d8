import { realpath } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import process from "node:process";
import type { SharedWindows } from "./access/shared_windows.ts";
import type { AccessCluster } from "./access/token_sharing.ts";
import { CancelError } from "./base/cancel.ts";
import type { Kit } from "./base/kit.ts";
import type { OpenedList } from "./base/opened_list.ts";
import type { GatewayLinkSettings } from "./cluster/gateway_links.ts";
import type { Cluster } from "./cluster/join_cluster.ts";
import type { Config } from "./config/config.ts";
import type { TaintWorkspace } from "./guard/tainted_files.ts";
import { createStoredRuns } from "./runs/journal/stored_runs.ts";
import type { ClusterMember } from "./runs/supervisor/supervisor.ts";
import type { ServicesOptions, StorageSharing } from "./services.ts";
import type { Store } from "./storage/store.ts";
import type { SharedCalls } from "./tools/runtime/shared_calls.ts";

/** Parts of a gateway that its membership in a cluster is made of. */
export interface ClusterNeeds {
  readonly program: ServicesOptions;
  readonly config: () => Config;
  /** Kit with the clock of this machine. */
  readonly local: Kit;
  readonly storage: {
    readonly store: Store;
    /** Keys for encrypted records that this gateway has */
    readonly keys: { readonly ids: readonly string[] };
    readonly shared: StorageSharing | undefined;
  };
}

/** Membership of a gateway in a cluster, with what it has beside the services of a gateway alone. */
export interface OpenedCluster extends Cluster, ClusterMember {
  readonly access: AccessCluster;
  /** Has the programs that carry a marker killed when the heartbeats stop. */
  readonly watchPrograms: (marker: string) => Promise<void>;
  readonly sharedWindows: SharedWindows;
  readonly sharedCalls: SharedCalls;
  /** Aborted when the gateway closes */
  readonly closing: AbortSignal;
  /** Id of this machine, by its data directory */
  readonly machine: string;
  readonly taintWorkspace: TaintWorkspace;
  /** Absolute paths that no tool reads or writes */
  readonly ownPaths: readonly string[];
}

/**
 * Joins the gateways that share the database, and makes what a gateway among them has beside the services of one alone.
 * @returns undefined for a database of this gateway alone
 * @throws {ConfigError} `config_environment`, and what `joinCluster` throws
 */
export async function openCluster(needs: ClusterNeeds, opened: OpenedList): Promise<OpenedCluster | undefined> {
  const { program, config, local: { random, log }, storage: { store, keys } } = needs;
  const { dataDir, workspaceRoot, version, signal } = program;
  const { lease_secs, advertise_url, workspace_id } = config().cluster;
  const leaseMs = lease_secs * 1_000;
  const database = await openSharedDatabase(needs);
  if (database === undefined) return undefined;
  const [{ joinCluster }, { loadMachineId, loadWorkspaceId }, { createProofFiles, PROOF_FOLDER }, { ClusterRuns }] =
    await Promise.all(
      [
        import("./cluster/join_cluster.ts"),
        import("./cluster/workspace_id.ts"),
        import("./cluster/workspace_proof.ts"),
        import("./runs/supervisor/cluster_runs.ts"),
      ],
    );
  const id = await loadWorkspaceId({ dataDir, workspaceRoot, random, configured: workspace_id });
  const workspace = {
    ...{ id, files: createProofFiles(workspaceRoot), dataDir },
    folder: await realpath(workspaceRoot).catch(() => workspaceRoot),
  };
  const cluster = await joinCluster({
    ...{ store, database, leaseMs, kit: needs.local, opened, workspace, signal },
    about: {
      ...{ host: hostname(), pid: process.pid, version },
      ...(advertise_url === "" ? {} : { advertise_url }),
      ...(keys.ids.length === 0 ? {} : { storage_keys: [...keys.ids] }),
    },
    workspaceWaitMs: config().cluster.workspace_wait_secs * 1_000,
    link: await linkSettings(needs, opened),
    acceptedAt: async (runId) => (await createStoredRuns({ store }).get(runId))?.created_at,
  });
  const [{ createSlicedDayBudget }, { SharedWindows }, { SharedCalls }] = await Promise.all([
    import("./runs/supervisor/sliced_day_budget.ts"),
    import("./access/shared_windows.ts"),
    import("./tools/runtime/shared_calls.ts"),
  ]);
  const sharedWindows = new SharedWindows({
    ...{ store, clock: cluster.clock, log, gateway: cluster.id },
    gateways: async () => (await cluster.gateways()).length,
  });
  opened.own(sharedWindows, (open) => open.close());
  const closing = opened.own(new AbortController(), (open) => open.abort(new CancelError("shutdown"))).signal;
  return {
    ...cluster,
    access: accessAmong(cluster),
    watchPrograms: (marker) => watchPrograms(needs, { cluster, marker, opened }),
    toRuns: (parts) => new ClusterRuns({ ...parts, cluster }),
    toDayBudget: (parts) => createSlicedDayBudget({ ...parts, news: cluster.ownership }),
    sharedWindows,
    sharedCalls: new SharedCalls({ clock: cluster.clock, log, closing }),
    closing,
    machine: await loadMachineId({ dataDir, random }),
    taintWorkspace: { id, isShared: workspace_id !== "" },
    ownPaths: [join(workspaceRoot, PROOF_FOLDER)],
  };
}

/** Returns the settings of the links to the other gateways. @throws {ConfigError} `config_environment` */
async function linkSettings(
  { program: { linkFetch }, config, local: { environment } }: ClusterNeeds,
  opened: OpenedList,
): Promise<GatewayLinkSettings> {
  const { token_env, insecure } = config().cluster;
  const { checkClusterToken } = await import("./cluster/gateway_links.ts");
  const token = token_env === "" ? undefined : checkClusterToken(environment(token_env), token_env);
  if (linkFetch !== undefined) return { token, insecure, fetch: linkFetch };
  const { createDirectFetch } = await import("./system/net/direct_fetch.ts");
  const direct = opened.own(createDirectFetch(), (open) => open.close());
  return { token, insecure, fetch: direct.fetch };
}

/** Opens what the gateways of a database need of it beside the store. Undefined for a database of this gateway alone. */
async function openSharedDatabase(
  { config, local: { clock, random, log, metrics }, storage: { shared } }: ClusterNeeds,
) {
  if (shared === undefined) return undefined;
  if ("given" in shared) return shared.given;
  const database = shared.opened;
  const [{ openPostgresCluster }, { observeDatabase }] = await Promise.all([
    import("./cluster/postgres_cluster.ts"),
    import("./storage/postgres/observe_database.ts"),
  ]);
  observeDatabase(metrics, database);
  const { storage: { schema }, cluster: { lease_secs } } = config();
  return openPostgresCluster({ database, schema, leaseMs: lease_secs * 1_000, clock, random, log });
}

/** Returns the ways to the other gateways that tokens, codes and tickets need. */
function accessAmong({ id, ownership }: Pick<Cluster, "id" | "ownership">): AccessCluster {
  return {
    gateway: id,
    tell: () => ownership.tell("tokens", "all"),
    onChange: (listener) => ownership.onNote(({ kind }) => void (kind === "tokens" && listener())),
  };
}

/** Has the programs of this gateway killed when its heartbeats stop, since others may go on with its runs then. */
async function watchPrograms(
  { program, local: { log } }: ClusterNeeds,
  { cluster, marker, opened }: {
    readonly cluster: Pick<Cluster, "onBeat">;
    readonly marker: string;
    readonly opened: OpenedList;
  },
): Promise<void> {
  const { startWatchdog } = await import("./system/process/watchdog.ts");
  const watchdog = opened.own(startWatchdog({ marker, env: program.environment, log }), (open) => open.stop());
  cluster.onBeat((leftMs) => watchdog.beat(leftMs));
}
