import type { Script } from "../../fixtures/scripted_provider.ts";
import type { Clock } from "../../lib/base/clock.ts";
import { type HttpError, refuse } from "../../lib/base/errors.ts";
import { createOpenedList, type OpenedList } from "../../lib/base/opened_list.ts";
import type { LogRecord } from "../../lib/base/telemetry/log.ts";
import { createLogger, type Logger } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { createLocalWire, type NewsWire } from "../../lib/cluster/cluster_news.ts";
import { type Cluster, type ClusterDatabase, joinCluster } from "../../lib/cluster/join_cluster.ts";
import { createStoredRuns } from "../../lib/runs/journal/stored_runs.ts";
import type { ProofFiles } from "../../lib/cluster/workspace_proof.ts";
import { DayBudget } from "../../lib/runs/supervisor/day_budget.ts";
import { ClusterRuns } from "../../lib/runs/supervisor/cluster_runs.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import type { Store, Write } from "../../lib/storage/store.ts";
import { createFakeClock, type FakeClock } from "./fake_clock.ts";
import { createSeededRandom } from "./seeded_random.ts";
import { type Supervised, supervised, type SupervisedOptions } from "./supervised.ts";

/** Milliseconds of a lease in tests. */
export const LEASE_MS = 1_000;

/** A database in memory that several gateways of one process share, each through a link of its own. */
export interface SharedDatabase {
  readonly clock: FakeClock;
  readonly store: Store;
  /** Number of notes that were sent. */
  readonly notes: () => number;
  /** Receives the name of each operation, its first argument and the way it came by, before its result is handed on. */
  onResult: (operation: string, first: unknown, link?: DatabaseLink) => Promise<void>;
  /** Name of the history that the database goes on with. */
  history: string;
  /** True: the database is down for all. */
  isAway: boolean;
  /** True: no note arrives. */
  isMute: boolean;
  link(): DatabaseLink;
  /** Returns the files of gateways in a folder, by its name. */
  proofFiles(folder: string): ProofFiles;
}

/** Lets the time of a database pass until something has happened. */
export async function passing<T>({ clock }: Pick<SharedDatabase, "clock">, work: Promise<T>): Promise<T> {
  let isOver = false;
  const over = work.finally(() => isOver = true);
  while (!isOver) await clock.advance(10);
  return await over;
}

/** Way of one gateway to the database. */
export interface DatabaseLink {
  readonly store: Store;
  readonly cluster: ClusterDatabase;
  /** True: this gateway does not reach the database. */
  isCut: boolean;
  /** Runs in place of each batch of this gateway, which `make` makes. Default: it is made */
  onBatch: (writes: readonly Write[], make: () => Promise<boolean>) => Promise<boolean>;
}

/** A supervisor that is a member of a cluster. */
export interface ClusteredGateway extends Supervised {
  readonly link: DatabaseLink;
  readonly cluster: Cluster;
  readonly clusterLog: readonly LogRecord[];
  /** Gives the lease back, as a shutdown does. */
  close(): Promise<void>;
}

/** Options of `joinGateway`. */
export interface ClusteredOptions extends SupervisedOptions {
  /** Id of the workspace. Default: none, and no run is bound to one */
  readonly workspace?: string | undefined;
  /** Milliseconds that a run waits for its workspace. Default: a day */
  readonly workspaceWaitMs?: number | undefined;
  /** Name of its folder. Default: the id, so that gateways of one workspace have one folder */
  readonly folder?: string;
}

/** Creates a database that stands still until its clock is moved. */
export function createSharedDatabase(): SharedDatabase {
  const clock = createFakeClock();
  const store = createMemoryStore();
  const wire = createLocalWire();
  let sent = 0;
  const folders = new Map<string, Map<string, string>>();
  const database: SharedDatabase = {
    clock,
    store,
    notes: () => sent,
    onResult: async () => {},
    history: "first",
    isAway: false,
    isMute: false,
    proofFiles(folder) {
      const files = folders.get(folder) ?? new Map<string, string>();
      folders.set(folder, files);
      return {
        async write(gateway, content) {
          files.set(gateway, content);
          return content;
        },
        read: async (gateway) => files.get(gateway),
        remove: async (gateway) => void files.delete(gateway),
        tidy: async () => {},
        folderId: async () => files.get("folder_id"),
        async nameFolder(id) {
          const named = files.get("folder_id") ?? id;
          files.set("folder_id", named);
          return named;
        },
        keepFolderId: async (id) => void (files.has("folder_id") || files.set("folder_id", id)),
      };
    },
    link() {
      const link: DatabaseLink = {
        store: linkedStore(store, { database, link: () => link }),
        cluster: {
          leases: {
            store: linkedStore(store, { database, link: () => link }),
            async now() {
              if (link.isCut || database.isAway) throw awayError();
              return clock.now();
            },
            history: () => database.history,
          },
          wire: linkedWire(),
        },
        isCut: false,
        onBatch: (_, make) => make(),
      };
      const isOff = () => link.isCut || database.isAway || database.isMute;
      function linkedWire(): NewsWire {
        return {
          async send(notes) {
            if (isOff()) return;
            sent += notes.length;
            await wire.send(notes);
          },
          listen: (hear) => wire.listen((note) => void (isOff() || hear(note))),
        };
      }
      return link;
    },
  };
  return database;
}

/** A member of a cluster without runs. */
export interface ClusterLink {
  readonly link: DatabaseLink;
  readonly cluster: Cluster;
  readonly clusterLog: readonly LogRecord[];
  readonly log: Logger;
  /** Membership for a supervisor. */
  readonly member: NonNullable<SupervisedOptions["cluster"]>;
  /** Gives the lease back, as a shutdown does. */
  close(): Promise<void>;
}

/** Joins the cluster. @param own clock of the machine. Default: the database's; @param link default: a new one */
export async function joinLink(
  database: SharedDatabase,
  {
    seed,
    own: clock = database.clock,
    link = database.link(),
    workspace,
    folder = workspace ?? "",
    workspaceWaitMs,
  }: {
    readonly seed: number;
    readonly own?: Clock;
    readonly link?: DatabaseLink;
    readonly workspace?: string | undefined;
    readonly folder?: string;
    readonly workspaceWaitMs?: number | undefined;
  },
): Promise<ClusterLink> {
  const opened: OpenedList = createOpenedList();
  const clusterLog: LogRecord[] = [];
  const log = createLogger({
    now: clock.now,
    level: "info",
    redact: (text) => text,
    sink: (record) => void clusterLog.push(record),
  });
  const cluster = await joinCluster({
    store: link.store,
    database: link.cluster,
    leaseMs: LEASE_MS,
    about: { host: "test", pid: seed, version: "0.0.0-test" },
    acceptedAt: async (runId) => (await createStoredRuns({ store: link.store }).get(runId))?.created_at,
    kit: { clock, random: createSeededRandom(1_000 + seed), log, metrics: createMetrics() },
    opened,
    workspaceWaitMs,
    workspace: workspace === undefined ? undefined : {
      ...{ id: workspace, files: database.proofFiles(folder) },
      ...{ folder: `/home/${folder}`, dataDir: `/data/${seed}` },
    },
  });
  return {
    link,
    cluster,
    clusterLog,
    log,
    member: {
      ownership: cluster.ownership,
      toRuns: (parts) => new ClusterRuns({ ...parts, cluster }),
      toDayBudget: (parts) =>
        new DayBudget(parts, { keepsSlice: true, bus: cluster.bus, history: () => cluster.ownership.history() }),
    },
    close: () => opened.close(),
  };
}

/** Joins a gateway with a scripted model and fake tools, and lets it claim. */
export async function joinGateway(
  database: SharedDatabase,
  script: Script,
  { seed = 1, workspace, folder = workspace ?? "", workspaceWaitMs, ...options }: ClusteredOptions = {},
): Promise<ClusteredGateway> {
  const { clock } = database;
  const { link, cluster, clusterLog, log, member, close } = await joinLink(database, {
    ...{ seed, workspace, folder, workspaceWaitMs },
  });
  const gateway = supervised(script, { ...options, clock, store: link.store, seed, log, cluster: member });
  await gateway.runs.recover();
  return { ...gateway, link, cluster, clusterLog, close };
}

function linkedStore(
  store: Store,
  { database, link }: {
    readonly database: Pick<SharedDatabase, "onResult" | "isAway">;
    readonly link: () => DatabaseLink;
  },
): Store {
  return new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      const call = (...given: unknown[]): unknown => {
        if ((link().isCut || database.isAway) && name !== "healthy") return Promise.reject(awayError());
        const result: unknown = Reflect.apply(value, target, given);
        if (!(result instanceof Promise)) return result;
        return result.then(async (found: unknown) => {
          await database.onResult(String(name), given[0], link());
          return found;
        });
      };
      if (name !== "batch") return call;
      // The call is that of the store
      return (writes: readonly Write[]) => link().onBatch(writes, () => call(writes) as Promise<boolean>);
    },
  });
}

/** Returns the error of a database that is down. */
export function awayError(): HttpError {
  return refuse("storage_unavailable", "Cannot reach the database");
}
