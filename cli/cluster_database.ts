import { systemClock } from "../lib/base/clock.ts";
import { HttpError } from "../lib/base/errors.ts";
import { createSystemRandom } from "../lib/base/random.ts";
import type { GatewayStatus } from "../lib/base/records/cluster_view.ts";
import type { OpenedOverview } from "../lib/cluster/open_overview.ts";
import type { LoadedConfig } from "../lib/config/load_config.ts";
import { DatabaseAwayError } from "../lib/storage/postgres/database_errors.ts";
import type { PostgresDatabase } from "../lib/storage/postgres/postgres_database.ts";
import { type CommandContext, CommandError } from "./command.ts";

/** Opens the overview of a cluster in the database. Undefined when no gateway has used the schema yet. */
export async function openClusterOverview(
  database: PostgresDatabase,
  { storage: { schema }, cluster: { lease_secs } }: Pick<LoadedConfig["config"], "storage" | "cluster">,
): Promise<OpenedOverview | undefined> {
  const [{ openOverview }, { RUNS }] = await Promise.all([
    import("../lib/cluster/open_overview.ts"),
    import("../lib/runs/journal/run_records.ts"),
  ]);
  return await openOverview({
    ...{ database, schema, leaseMs: lease_secs * 1_000, clock: systemClock, random: createSystemRandom() },
    runs: { collection: RUNS.name, acceptedAt: (body: unknown) => RUNS.parse(body).run.created_at },
  });
}

/** Gateways that one message names. */
const MAX_NAMED = 5;

/**
 * Refuses a command whose data directory has no gateway while its database has gateways: with services of its own, the command would be one
 * more gateway, which takes work for a moment. A database that does not answer is no refusal: whatever comes next says so.
 * @throws {CommandError} which names the gateways
 */
export async function requireNoCluster({ io }: CommandContext, { config, dataDir }: LoadedConfig): Promise<void> {
  const gateways = (await gatewaysOf(config, io.env)).filter(({ state }) => state !== "gone" && state !== "late");
  if (gateways.length === 0) return;
  const named = gateways.slice(0, MAX_NAMED).map(({ id, host, pid }) => host === null ? id : `${id} (${host}:${pid})`);
  const more = gateways.length > MAX_NAMED ? ` and ${gateways.length - MAX_NAMED} more` : "";
  throw new CommandError(
    `Cannot reach a gateway: none runs on the data directory "${dataDir}", and the database has ${
      named.join(", ")
    }${more}; ` +
      "give --data-dir of one on this machine",
  );
}

async function gatewaysOf(
  config: LoadedConfig["config"],
  env: Readonly<Record<string, string | undefined>>,
): Promise<readonly GatewayStatus[]> {
  const { openConfiguredDatabase } = await import("../lib/storage/open_configured_postgres.ts");
  const database = await openConfiguredDatabase({
    ...{ storage: config.storage, environment: (name) => env[name], clock: systemClock, random: createSystemRandom() },
  });
  try {
    const opened = await openClusterOverview(database, config);
    try {
      return (await opened?.overview.status())?.gateways ?? [];
    } finally {
      await opened?.close();
    }
  } catch (error) {
    const isDown = error instanceof DatabaseAwayError ||
      (error instanceof HttpError && error.code === "storage_unavailable");
    if (isDown) return [];
    throw error;
  } finally {
    await database.close();
  }
}
