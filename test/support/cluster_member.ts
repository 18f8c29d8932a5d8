import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { createScriptedProvider, createScriptedProviders, type Script } from "../../fixtures/scripted_provider.ts";
import { createServices } from "../../lib/gateway.ts";
import type { GatewayServices } from "../../lib/services.ts";
import { type DatabaseLink, LEASE_MS, type SharedDatabase } from "./clustered.ts";
import { toConfig } from "./config_edits.ts";

/** A whole gateway of a cluster, without a socket. */
export interface ClusterMember {
  readonly services: GatewayServices;
  readonly link: DatabaseLink;
}

/** Starts a whole gateway of its own data directory, in a workspace that all share, over a shared database, without a socket. */
export async function startMember(
  database: SharedDatabase,
  folder: string,
  { script = [], environment = {}, config = {} }: {
    readonly script?: Script;
    readonly environment?: Readonly<Record<string, string>>;
    /** Sections beside those that every member has. */
    readonly config?: Parameters<typeof toConfig>[0];
  } = {},
): Promise<ClusterMember> {
  const link = database.link();
  const { clock } = database;
  const workspaceRoot = join(dirname(folder), "work");
  mkdirSync(workspaceRoot, { recursive: true });
  const services = await createServices({
    config: toConfig({
      storage: { driver: "memory" },
      cluster: { lease_secs: LEASE_MS / 1_000, workspace_id: "shared" },
      autonomy: { level: "supervised" },
      security: { write_file: { enabled: true } },
      ...config,
    }),
    folders: { dataDir: join(folder, "data"), workspaceRoot, home: folder },
    environment,
    about: { version: "0.0.0-test" },
    log: { sink: () => {} },
    kit: { clock },
    cluster: { database: link },
    models: { providers: createScriptedProviders(createScriptedProvider(script, { clock })) },
  });
  return { services, link };
}

/** Ends a member, while the clock of its database goes on. */
export async function endMember(database: SharedDatabase, { services }: ClusterMember): Promise<void> {
  const drained = services.drain(0);
  await database.clock.advance(5_000);
  await drained;
  await services.close();
}
