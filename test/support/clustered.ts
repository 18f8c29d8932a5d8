import type { Script } from "../../fixtures/scripted_provider.ts";
import { HttpError } from "../../lib/base/errors.ts";
import { createOpenedList, type OpenedList } from "../../lib/base/opened_list.ts";
import type { LogRecord } from "../../lib/base/telemetry/log.ts";
import { createLogger } from "../../lib/base/telemetry/log.ts";
import { createLocalWire, type NewsWire } from "../../lib/cluster/cluster_news.ts";
import { type Cluster, type ClusterDatabase, joinCluster } from "../../lib/cluster/join_cluster.ts";
import { ClusterRuns } from "../../lib/runs/supervisor/cluster_runs.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import type { Store } from "../../lib/storage/store.ts";
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
  /** Called with the name of each operation and its first argument, before its result is handed on. */
  onResult: (operation: string, first: unknown) => Promise<void>;
  /** True: the database is away for all. */
  isAway: boolean;
  /** True: no note arrives. */
  isMute: boolean;
  link(): DatabaseLink;
}

/** Way of one gateway to the database. */
export interface DatabaseLink {
  readonly store: Store;
  readonly cluster: ClusterDatabase;
  /** True: this gateway does not reach the database. */
  isCut: boolean;
}

/** A supervisor that is a member of a cluster. */
export interface ClusteredGateway extends Supervised {
  readonly link: DatabaseLink;
  readonly cluster: Cluster;
  readonly clusterLog: readonly LogRecord[];
  /** Gives the lease back, as a shutdown does. */
  close(): Promise<void>;
}

/** Creates a database that stands still until its clock is moved. */
export function createSharedDatabase(): SharedDatabase {
  const clock = createFakeClock();
  const store = createMemoryStore();
  const wire = createLocalWire();
  let sent = 0;
  const database: SharedDatabase = {
    clock,
    store,
    notes: () => sent,
    onResult: async () => {},
    isAway: false,
    isMute: false,
    link() {
      const link: DatabaseLink = {
        store: linkedStore(store, database, () => link.isCut || database.isAway),
        cluster: {
          leases: {
            store: linkedStore(store, database, () => link.isCut || database.isAway),
            async now() {
              if (link.isCut || database.isAway) throw away();
              return clock.now();
            },
          },
          wire: linkedWire(),
        },
        isCut: false,
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

/** Joins a gateway with a scripted model and fake tools, and lets it claim. */
export async function joinGateway(
  database: SharedDatabase,
  script: Script,
  { seed = 1, ...options }: SupervisedOptions = {},
): Promise<ClusteredGateway> {
  const { clock } = database;
  const link = database.link();
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
    clock,
    random: createSeededRandom(1_000 + seed),
    log,
    opened,
  });
  const gateway = supervised(script, {
    ...options,
    clock,
    store: link.store,
    seed,
    log,
    cluster: { ownership: cluster.ownership, toRuns: (parts) => new ClusterRuns({ ...parts, cluster }) },
  });
  await gateway.runs.recover();
  return { ...gateway, link, cluster, clusterLog, close: () => opened.close() };
}

function linkedStore(store: Store, database: Pick<SharedDatabase, "onResult">, isOff: () => boolean): Store {
  return new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      return (...given: unknown[]) => {
        if (isOff() && name !== "healthy") return Promise.reject(away());
        const result: unknown = Reflect.apply(value, target, given);
        if (!(result instanceof Promise)) return result;
        return result.then(async (found: unknown) => {
          await database.onResult(String(name), given[0]);
          return found;
        });
      };
    },
  });
}

function away(): HttpError {
  return new HttpError("storage_unavailable", "Cannot reach the database", { status: 503, type: "api_error" });
}
