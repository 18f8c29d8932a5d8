import { realpath } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import process from "node:process";
import type { TokenNews } from "./access/token_sharing.ts";
import { CancelError } from "./base/cancel.ts";
import type { Kit } from "./base/kit.ts";
import type { OpenedList } from "./base/opened_list.ts";
import type { GatewayLinkSettings } from "./cluster/gateway_links.ts";
import type { Cluster } from "./cluster/join_cluster.ts";
import type { Config } from "./config/config.ts";
import type { Coordination, DrainedWork } from "./coordination.ts";
import { createStoredRuns } from "./runs/journal/stored_runs.ts";
import type { ServicesOptions, StorageSharing } from "./services.ts";
import type { Store } from "./storage/store.ts";

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

/**
 * Joins the gateways that share the database, and makes what a gateway among them has beside the services of one alone.
 * @throws {ConfigError} `config_environment`, and what `joinCluster` throws
 */
export async function openCluster(
  needs: ClusterNeeds,
  { opened, shared }: { readonly opened: OpenedList; readonly shared: StorageSharing },
): Promise<Coordination> {
  const { program, config, local: { random, log }, storage: { store, keys } } = needs;
  const { folders: { dataDir, workspaceRoot }, about: { version }, signal } = program;
  const { lease_secs, advertise_url, workspace_id } = config().cluster;
  const leaseMs = lease_secs * 1_000;
  const database = await openSharedDatabase(needs, shared);
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
  const [{ DayBudget }, { SharedWindows }, { SharedCalls }] = await Promise.all([
    import("./runs/supervisor/day_budget.ts"),
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
    id: cluster.id,
    clock: cluster.clock,
    lease: cluster.lease,
    links: cluster.links,
    ownership: cluster.ownership,
    shown: cluster,
    membership: () => cluster.ownership.membership(),
    gateways: cluster.gateways,
    advertiseUrl: advertise_url === "" ? undefined : advertise_url,
    alone: cluster.alone,
    fileLocks: cluster.fileLocks,
    async openChain(parts) {
      const { GatewayChain } = await import("./guard/audit/gateway_chain.ts");
      return new GatewayChain({ ...parts, cluster });
    },
    async openApprovalNews(parts) {
      const { SharedApprovalNews } = await import("./guard/approval_news.ts");
      return new SharedApprovalNews({ ...parts, bus: cluster.bus });
    },
    watchHalts: (look, opened) => watchHalts(needs, { cluster, look, opened }),
    async openSharing(parts) {
      const { TokenSharing } = await import("./access/token_sharing.ts");
      return new TokenSharing({ ...parts, news: tokenNews(cluster) });
    },
    async openTickets(parts) {
      const { SharedTickets } = await import("./access/shared_tickets.ts");
      return new SharedTickets({ ...parts, gateway: cluster.id });
    },
    work: cluster.work,
    async shareSchedules(parts) {
      const { shareSchedules } = await import("./automation/cron/shared_schedules.ts");
      return shareSchedules({ ...parts, bus: cluster.bus, workspace: () => cluster.ownership.workspace() });
    },
    // Others may make work, or leave some
    mayHaveWork: () => true,
    ownDocuments: () => ({ get: () => Promise.resolve(undefined), set: () => Promise.resolve() }),
    async shareNodes(parts) {
      const { SharedNodes } = await import("./extensions/nodes/shared_nodes.ts");
      return parts.opened.own(new SharedNodes({ ...parts, cluster }), (open) => open.close());
    },
    watchDrain: (work) => watchDrain(cluster, work),
    watchPrograms: (marker) => watchPrograms(needs, { cluster, marker, opened }),
    toRuns: (parts) => new ClusterRuns({ ...parts, cluster }),
    toDayBudget: (parts) =>
      new DayBudget(parts, { keepsSlice: true, bus: cluster.bus, history: () => cluster.ownership.history() }),
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
  { program: { cluster: { linkFetch } = {} }, config, local: { environment } }: ClusterNeeds,
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

/** Opens what the gateways of a database need of it beside the store. */
async function openSharedDatabase(
  { config, local: { clock, random, log, metrics } }: ClusterNeeds,
  shared: StorageSharing,
) {
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
function tokenNews({ bus }: Pick<Cluster, "bus">): TokenNews {
  return {
    tell: () => bus.tell("tokens", "all"),
    onChange: (listener) => bus.onNote(({ kind }) => void (kind === "tokens" && listener())),
  };
}

/** Looks at what is halted after a note, and once a second in case one was lost. @returns a function that tells of a change */
async function watchHalts(
  { local: { log } }: Pick<ClusterNeeds, "local">,
  { cluster: { bus, clock }, look, opened }: {
    readonly cluster: Pick<Cluster, "bus" | "clock">;
    readonly look: () => Promise<void>;
    readonly opened: OpenedList;
  },
): Promise<() => void> {
  const [{ Poller }, { POLL_MS }] = await Promise.all([
    import("./base/poller.ts"),
    import("./cluster/cluster_news.ts"),
  ]);
  const poller = new Poller(look, (error) => {
    log.warn("Nobody knows here what is halted, so calls wait for the database", { error });
  });
  const stopListening = bus.onNote(({ kind }) => void (kind === "halt" && poller.look()));
  poller.start(clock, POLL_MS);
  opened.own(poller, async (open) => {
    stopListening();
    await open.stop();
  });
  return () => bus.tell("halt", "all");
}

/** Waits for the drain of this gateway, see `DrainWatch`. */
async function watchDrain(cluster: Cluster, { letGo, record, log, opened }: DrainedWork): Promise<void> {
  const { DrainWatch, DRAINED } = await import("./cluster/drain_watch.ts");
  const watch = new DrainWatch({
    ...{ ...cluster, log },
    record: (asked) => record(cluster.id, asked),
    letGo: () => letGo(DRAINED),
  });
  watch.start();
  opened.own(watch, (open) => open.stop());
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
  const { Watchdog } = await import("./system/process/watchdog.ts");
  const watchdog = opened.own(new Watchdog({ marker, env: program.environment, log }), (open) => open.stop());
  cluster.onBeat((leftMs) => watchdog.beat(leftMs));
}
