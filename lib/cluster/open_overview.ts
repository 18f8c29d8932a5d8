import { SILENT } from "../base/telemetry/log.ts";
import type { PostgresDatabase } from "../storage/postgres/postgres_database.ts";
import { RecordQueries } from "../storage/postgres/record_queries.ts";
import { quoteName } from "../storage/postgres/statement_text.ts";
import type { WhereField } from "../storage/indexed_fields.ts";
import { createUnreadableRecords, type Store } from "../storage/store.ts";
import { ClusterOverview } from "./cluster_status.ts";
import { GatewayDrains } from "./gateway_drains.ts";
import { Leases } from "./leases.ts";
import { marginOf } from "./ownership.ts";
import type { ClusterNote } from "./cluster_news.ts";
import { openPostgresCluster, type PostgresClusterOptions } from "./postgres_cluster.ts";
import { WorkspaceFolders } from "./workspace_folders.ts";

/** Options of `openOverview`. */
export interface OpenOverviewOptions extends Omit<PostgresClusterOptions, "log" | "database"> {
  /** Database, which whoever opened it closes */
  readonly database: PostgresDatabase;
  /** Collection of the runs, and the function that returns from a record when the run was accepted, ISO 8601. */
  readonly runs: { readonly collection: string; readonly acceptedAt: (body: unknown) => string };
}

/** An overview with connections of its own. */
export interface OpenedOverview {
  readonly overview: ClusterOverview;
  readonly leases: Pick<Leases, "list">;
  /** Records of the cluster, to read. */
  readonly store: Pick<Store, "get" | "scan" | "unreadable">;
  close(): Promise<void>;
}

/**
 * Opens the overview of a cluster for a command, which is no member of it: no tables are made, and nothing is written but what a person asks
 * for.
 * @returns undefined when no gateway has used the schema yet
 */
export async function openOverview(options: OpenOverviewOptions): Promise<OpenedOverview | undefined> {
  const { database, schema, leaseMs, runs } = options;
  const [tables] = await database.query("SELECT to_regclass($1) IS NOT NULL AS are_there", [
    `${quoteName(schema)}.records`,
  ]);
  if (tables?.["are_there"] !== true) return undefined;
  const cluster = openPostgresCluster({ ...options, log: SILENT });
  const queries = new RecordQueries(database, schema);
  const leases = new Leases(cluster.leases, { leaseMs, marginMs: marginOf(leaseMs) });
  const store = {
    get: queries.get.bind(queries),
    scan: queries.scan.bind(queries),
    count: (collection: string, which: string | WhereField = "") => queries.count(collection, which),
    batch: cluster.leases.store.batch,
    unreadable: createUnreadableRecords(),
  };
  const sent: Promise<void>[] = [];
  // A gateway that hears nothing looks once a second
  const tell = (kind: ClusterNote["kind"]) => (id: string) =>
    void sent.push(cluster.wire.send([{ kind, id, seq: 0 }]).catch(() => {}));
  return {
    leases,
    store,
    overview: new ClusterOverview({
      ...{ store, leases, id: undefined, drains: new GatewayDrains({ store, leases, tell: tell("drain") }) },
      folders: new WorkspaceFolders({ store, leases, tell: tell("workspace") }),
      facts: cluster.facts,
      async acceptedAt(runId) {
        const stored = await queries.get(runs.collection, runId);
        return stored === undefined ? undefined : runs.acceptedAt(stored.body);
      },
    }),
    async close() {
      await Promise.all(sent);
      await cluster.close?.();
    },
  };
}
