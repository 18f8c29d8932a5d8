import type { PostgresFacts } from "../base/records/cluster_view.ts";
import { sqlStateOf } from "../storage/postgres/database_errors.ts";
import type { PostgresSession } from "../storage/postgres/postgres_session.ts";

/** Reads the facts, which changes nothing. A second statement is needed where the server does not tell its timeline to the user. */
export async function readPostgresFacts(session: PostgresSession): Promise<PostgresFacts> {
  const [row = {}] = await session.query(factsText(TIMELINE)).catch((error: unknown) => {
    if (!NOT_TOLD.includes(sqlStateOf(error) ?? "")) throw error;
    return session.query(factsText("NULL"));
  });
  const names = String(row["names"] ?? "").trim();
  const commits = String(row["commits"]);
  const standbys = Number(row["standbys"]);
  return {
    server_version: String(row["version"]),
    timeline: row["timeline"] == null ? null : Number.parseInt(String(row["timeline"]), 16),
    role: row["standby"] === true ? "standby" : "primary",
    standbys,
    synchronous_standby_names: names,
    replication_window: windowOf({ names, commits, standbys }),
    max_connections: Number(row["most"]),
    connections: Number(row["connections"]),
  };
}

/** States of SQLSTATE by which an engine says that it does not tell its timeline: no right, no such function, not supported. */
const NOT_TOLD = ["42501", "42883", "0A000"];
/** The first 8 characters of a WAL file's name are the timeline; on a standby the function refuses. */
const TIMELINE = "CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END";

const factsText = (timeline: string) => `
  SELECT current_setting('server_version') AS version, pg_is_in_recovery() AS standby, ${timeline} AS timeline,
    current_setting('synchronous_standby_names') AS names, current_setting('synchronous_commit') AS commits,
    (SELECT count(*) FROM pg_stat_replication)::int AS standbys,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' OR backend_type IS NULL)::int AS connections,
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most`;

/** Settings of `synchronous_commit` by which a commit waits for the disk of a synchronous standby. */
const WAITS = ["on", "remote_apply"];

function windowOf(
  { names, commits, standbys }: { readonly names: string; readonly commits: string; readonly standbys: number },
): string | null {
  if (names === "") {
    const lost = "a failover may lose what was committed just before: synchronous_standby_names is empty";
    return standbys === 0 ? `no standby follows; ${lost}` : lost;
  }
  if (WAITS.includes(commits)) return null;
  return `a failover may lose what was committed just before: synchronous_commit is "${commits}"`;
}
