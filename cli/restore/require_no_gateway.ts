import { GATEWAY_LEASES, type LeaseBody } from "../../lib/cluster/cluster_records.ts";
import type { PostgresDatabase } from "../../lib/storage/postgres/postgres_database.ts";
import { quoteName } from "../../lib/storage/postgres/statement_text.ts";
import { CommandError } from "../command.ts";

/** Database, and the configuration of the gateways that may use it. */
export interface SharedDatabase {
  readonly database: PostgresDatabase;
  /** `[storage] schema` */
  readonly schema: string;
  /** `[cluster] lease_secs` */
  readonly leaseSeconds: number;
}

/**
 * Refuses to work on the records of a cluster while a gateway may use them. A lease that is damaged counts for two leases from its last
 * change: a gateway that lives writes it again.
 * @param work what cannot be done, for example "hold work"
 * @throws {CommandError} a gateway has a lease: it would go on with its work
 */
export async function requireNoGateway(
  work: string,
  { database, schema, leaseSeconds }: SharedDatabase,
): Promise<void> {
  const rows = await database.query(
    `SELECT key, body, updated_at, (extract(epoch FROM clock_timestamp()) * 1000)::int8 AS now
     FROM ${quoteName(schema)}.records WHERE collection = $1 ORDER BY key`,
    [GATEWAY_LEASES.name],
  );
  for (const { key, body, updated_at: updatedAt, now } of rows) {
    const lease = leaseOf(String(body));
    const leftMs = (lease?.until ?? Number(updatedAt) + 2_000 * leaseSeconds) - Number(now);
    if (leftMs <= 0) continue;
    const place = lease === undefined ? "" : ` on ${lease.about.host} (process ${lease.about.pid})`;
    throw new CommandError(
      `Cannot ${work}: the gateway ${String(key)}${place} uses the database; stop it, or wait ${
        Math.ceil(leftMs / 1_000)
      } s if it is gone`,
    );
  }
}

function leaseOf(body: string): LeaseBody | undefined {
  try {
    return GATEWAY_LEASES.parse(JSON.parse(body));
  } catch {
    return undefined;
  }
}
