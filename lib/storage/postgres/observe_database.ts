import { DURATION_BUCKETS_SECONDS, type Metrics } from "../../base/telemetry/metrics.ts";
import type { PostgresDatabase } from "./postgres_database.ts";

/** Registers the metrics of the pool and of its statements. A scrape asks the database for nothing. */
export function observeDatabase(metrics: Metrics, database: Pick<PostgresDatabase, "pool" | "onStatement">): void {
  metrics.gaugeOf(
    "postern_database_pool_in_use",
    "Connections of the pool that run a statement",
    () => database.pool().inUse,
  );
  metrics.gaugeOf(
    "postern_database_pool_idle",
    "Open connections of the pool without work",
    () => database.pool().idle,
  );
  metrics.gaugeOf(
    "postern_database_pool_waiting",
    "Work that waits for a connection of the pool",
    () => database.pool().waiting,
  );
  const statements = metrics.histogram(
    "postern_database_statement_duration_seconds",
    "Time until the database answered a statement of the pool",
    { buckets: DURATION_BUCKETS_SECONDS },
  ).with();
  database.onStatement((ms) => statements.observe(ms / 1_000));
}
