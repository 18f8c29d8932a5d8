import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { createScriptedProvider, createScriptedProviders, type Script } from "../../fixtures/scripted_provider.ts";
import { type Clock, systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import type { ClusterDatabase } from "../../lib/cluster/join_cluster.ts";
import { openPostgresCluster } from "../../lib/cluster/postgres_cluster.ts";
import { createServices } from "../../lib/gateway.ts";
import type { GatewayServices } from "../../lib/services.ts";
import type { PostgresDatabase } from "../../lib/storage/postgres/postgres_database.ts";
import type { Store } from "../../lib/storage/store.ts";
import { toConfig } from "./config_edits.ts";
import { openTestDatabase, openTestStore } from "./postgres_stores.ts";

/** Milliseconds of a lease in tests over PostgreSQL. */
export const LEASE_MS = 1_000;

/** Way of one gateway to a database of PostgreSQL. */
export interface PostgresLink {
  readonly database: PostgresDatabase;
  readonly store: Store;
  readonly cluster: ClusterDatabase;
  close(): Promise<void>;
}

/** Opens the connections of one gateway. `directUrl` is the address past a pooler, `url` by default. */
export async function openLink(url: string, schema: string, directUrl?: string): Promise<PostgresLink> {
  const database = await openTestDatabase(url, { directUrl });
  const store = await openTestStore(database, schema);
  const cluster = openPostgresCluster({
    ...{ database, schema, leaseMs: LEASE_MS, clock: systemClock, random: createSystemRandom(), log: SILENT },
  });
  return {
    database,
    store,
    cluster,
    async close() {
      await cluster.close?.();
      await store.close();
    },
  };
}

/** Starts a whole gateway of its own data directory over a link, without a socket. Gateways of neighbouring folders share a workspace. */
export function startMember(
  link: PostgresLink,
  folder: string,
  script: Script,
  { config = {}, clock = systemClock }: {
    readonly config?: Readonly<Record<string, unknown>>;
    readonly clock?: Clock;
  } = {},
): Promise<GatewayServices> {
  const workspaceRoot = join(dirname(folder), "work");
  mkdirSync(workspaceRoot, { recursive: true });
  return createServices({
    config: toConfig({
      storage: { driver: "memory" },
      cluster: { lease_secs: LEASE_MS / 1_000, workspace_id: "shared" },
      ...config,
    }),
    folders: { dataDir: join(folder, "data"), workspaceRoot, home: folder },
    environment: {},
    about: { version: "0.0.0-test" },
    log: { sink: () => {} },
    kit: { clock },
    cluster: { database: link },
    models: { providers: createScriptedProviders(createScriptedProvider(script, { clock })) },
  });
}
