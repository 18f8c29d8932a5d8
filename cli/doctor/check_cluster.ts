import { systemClock } from "../../lib/base/clock.ts";
import { listSome } from "../../lib/base/text.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import type { ClusterStatus, GatewayStatus, PostgresFacts } from "../../lib/base/records/cluster_view.ts";
import { strandedWords } from "../../lib/cluster/cluster_status.ts";
import type { GatewayView } from "../../lib/cluster/leases.ts";
import type { Config } from "../../lib/config/config.ts";
import { openConfiguredDatabase } from "../../lib/storage/open_configured_postgres.ts";
import { findSchema } from "../../lib/storage/postgres/migrate_schema.ts";
import { DatabaseAwayError, sqlStateOf } from "../../lib/storage/postgres/database_errors.ts";
import type { PostgresDatabase } from "../../lib/storage/postgres/postgres_database.ts";
import { openClusterOverview } from "../cluster_database.ts";
import { checkLinks, checkToken, type LinkCheckOptions } from "./check_links.ts";
import { checkWorkspace } from "./check_workspace.ts";
import { failure, type Finding, fine, warning } from "./finding.ts";

/** Connections that a gateway has beside its pool: for the lease, for notes, and one while it starts. */
const OWN_CONNECTIONS = 3;
/** Time for which a run may wait for a gateway before somebody should look. Milliseconds */
const LONG_WAIT_MS = 60_000;
/** State of SQLSTATE by which the server refuses a user something. */
const NO_RIGHT = "42501";
/** Times that two connections are asked for their sessions. */
const PROBES = 5;
/** Gateways that a finding names. */
const SHOWN = 5;

/**
 * Checks what gateways that share a PostgreSQL need: their leases, connections past a pooler and in number, and standbys. Changes nothing.
 * @returns nothing when the database cannot be reached or the user may not read it, which is the finding of another check
 */
export async function checkCluster(
  name: string,
  options: LinkCheckOptions & {
    /** Absolute path of the folder that the agent works in. */
    readonly workspace: string;
  },
): Promise<readonly Finding[]> {
  const { config, environment } = options;
  let database: PostgresDatabase | undefined;
  try {
    const { storage } = config;
    database = await openConfiguredDatabase({ storage, environment, clock: systemClock, random: createSystemRandom() });
    // No cluster uses a schema that records are copied into; the check of the database tells of it
    if ((await findSchema(database, storage.schema)).hasUnfinishedMove) return [];
    const [pooler, opened] = await Promise.all([
      poolerProblems(name, database, config),
      openClusterOverview(database, config),
    ]);
    const early = [...pooler, ...checkToken(name, options)];
    if (opened === undefined) return early;
    try {
      const [status, views] = await Promise.all([opened.overview.status(), opened.leases.list()]);
      const problems = [
        ...early,
        ...leaseProblems(name, status),
        ...settingProblems(name, views, config),
        ...await checkLinks(name, opened, options),
        // A gateway that runs here has found out, and says so itself
        ...options.isRunning ? [] : await checkWorkspace(name, opened, options),
        ...queueProblems(name, status),
        ...status.database === null ? [] : serverProblems(name, status.database, { status, config }),
        ...await timeoutProblems(name, database),
      ];
      return problems.length > 0 ? problems : [fine(name, summaryOf(status))];
    } finally {
      await opened.close();
    }
  } catch (error) {
    if (error instanceof DatabaseAwayError || sqlStateOf(error) === NO_RIGHT) return [];
    throw error;
  } finally {
    await database?.close();
  }
}

function summaryOf({ gateways, queue }: ClusterStatus): string {
  const count = gateways.length === 1 ? "1 gateway has" : `${gateways.length} gateways have`;
  const waiting = `${queue.waiting} ${queue.waiting === 1 ? "waits" : "wait"} for a gateway`;
  return `${gateways.length === 0 ? "No gateway has" : count} a lease; ${countOf(queue.open, "open run")}, ${waiting}`;
}

function leaseProblems(name: string, { gateways }: ClusterStatus): readonly Finding[] {
  const problems: Finding[] = [];
  const late = gateways.filter(({ state }) => state === "late");
  if (late.length > 0) {
    const message = `The lease of ${namesOf(late)} has run out, and no other gateway has taken over`;
    problems.push(warning(name, message, toStart(gateways, "it takes over after one lease")));
  }
  const gone = gateways.filter(({ state }) => state === "gone");
  if (gone.length > 0) {
    const message = `Runs of ${namesOf(gone)}, which is gone, wait for a gateway`;
    const how = "with the workspace that the runs need, see postern cluster runs --gateway none";
    problems.push(warning(name, message, toStart(gateways, how)));
  }
  const drained = gateways.filter(({ state }) => state === "drained");
  if (drained.length > 0) {
    problems.push(
      warning(name, `${namesOf(drained)} is drained and takes no work`, "start its process again, or end it"),
    );
  }
  const versions = new Map(gateways.flatMap((gateway) => gateway.version === null ? [] : [[gateway.version, gateway]]));
  if (versions.size > 1) {
    const each = [...versions].map(([version, { id }]) => `${version} (${id})`).join(", ");
    problems.push(
      warning(name, `Gateways run different versions: ${each}`, "bring all to the newest, one after the other"),
    );
  }
  const known = gateways.filter(({ host }) => host !== null);
  const unlinked = known.filter(({ advertise_url: url }) => url === null);
  if (unlinked.length > 0 && unlinked.length < known.length) {
    const message = `${
      namesOf(unlinked)
    } has no cluster.advertise_url, and others have one: readers elsewhere get its turns late`;
    problems.push(warning(name, message, "set cluster.advertise_url and cluster.token_env at each gateway"));
  }
  return problems;
}

/** Finds gateways that have other values than this configuration of settings that all are to share. */
function settingProblems(name: string, views: readonly GatewayView[], { cluster }: Config): readonly Finding[] {
  const found: Finding[] = [];
  for (
    const { key, own, of } of [
      // A gateway that does not say how long its lease is may have more left than this one's
      {
        key: "lease_secs",
        own: cluster.lease_secs,
        of: ({ about, leftMs }: GatewayView) =>
          about.lease_ms ?? (leftMs > cluster.lease_secs * 1_000 ? leftMs : undefined),
      },
      {
        key: "workspace_wait_secs",
        own: cluster.workspace_wait_secs,
        of: ({ about }: GatewayView) => about.workspace_wait_ms,
      },
    ] as const
  ) {
    const different = views.filter((view) => (of(view) ?? own * 1_000) !== own * 1_000);
    if (different.length === 0) continue;
    const values = [...new Set(different.map((view) => `${Math.ceil((of(view) ?? 0) / 1_000)} s`))];
    const message = `${
      namesOf(different.map(({ id, about: { host, pid } }) => ({ id, host, pid })))
    } has another cluster.${key} (${listSome(values, SHOWN)}) than this configuration (${own} s)`;
    found.push(warning(name, message, `give all gateways the same cluster.${key}, and restart those that had another`));
  }
  return found;
}

/** Says that a gateway is to be started. Where none lives, the database may have come back from a dump, whose open work is held first. */
function toStart(gateways: readonly GatewayStatus[], how: string): string {
  const isNobodyThere = gateways.every(({ state }) => state === "late" || state === "gone");
  const start = `start a gateway: ${how}`;
  return isNobodyThere ? `after pg_restore: postern storage hold, before a gateway starts; else ${start}` : start;
}

function countOf(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

function queueProblems(name: string, { queue, gateways }: ClusterStatus): readonly Finding[] {
  const { waiting, lag_ms: lag, waiting_for_workspace: bound, workspaces_without_gateway: stranded } = queue;
  const left = stranded.map((workspace) => {
    const { which, wait, start } = strandedWords(workspace);
    const fix = `${start}, or cancel the runs that postern cluster runs --gateway none names`;
    return warning(name, `${wait} for the workspace ${which}, which has no gateway`, fix);
  });
  if (lag === null || lag < LONG_WAIT_MS) return left;
  const where = bound === 0 ? "" : `; ${bound} need the workspace of certain gateways`;
  const wait = waiting === 1 ? "waits" : "wait";
  const message = `${countOf(waiting, "run")} ${wait} for a gateway, the oldest for ${
    Math.round(lag / 1_000)
  } s${where}`;
  const more = "postern cluster runs --gateway none; start more gateways, or raise runs.max_concurrent";
  const isSomebodyThere = gateways.some(({ state }) => state !== "late" && state !== "gone");
  return [...left, warning(name, message, isSomebodyThere ? more : toStart(gateways, "it claims them"))];
}

function serverProblems(
  name: string,
  facts: PostgresFacts,
  { status: { gateways }, config: { storage } }: { readonly status: ClusterStatus; readonly config: Config },
): readonly Finding[] {
  const problems: Finding[] = [];
  if (facts.role === "standby") {
    const fix = "give the gateways an address that follows the primary, such as a virtual address or a proxy";
    problems.push(failure(name, "The address leads to a standby, which takes no writes", fix));
  }
  if (facts.replication_window !== null && facts.standbys > 0) {
    const followers = facts.standbys === 1 ? "1 standby follows" : `${facts.standbys} standbys follow`;
    const fix = "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; synchronous_commit = on";
    problems.push(warning(name, `${followers}, and ${facts.replication_window}`, fix));
  }
  const counted = Math.max(1, gateways.filter(({ host }) => host !== null).length);
  // Behind a pooler the pool's connections are the pooler's
  const each = OWN_CONNECTIONS + (storage.direct_url_env === "" ? storage.pool_size : 0);
  if (counted * each > facts.max_connections) {
    const message =
      `${countOf(counted, "gateway")} may open ${
        counted * each
      } connections (storage.pool_size ${storage.pool_size}), ` +
      `and the server takes ${facts.max_connections}`;
    problems.push(warning(name, message, "lower storage.pool_size, raise max_connections, or put PgBouncer between"));
  }
  return problems;
}

/** Checks that connections of their own are past a pooler, and at the server that the address means. */
async function poolerProblems(
  name: string,
  database: PostgresDatabase,
  { storage }: Config,
): Promise<readonly Finding[]> {
  const [first, second] = await Promise.all([database.dedicated(), database.dedicated()]);
  try {
    if (await shareSession(first, second)) {
      const key = storage.direct_url_env === ""
        ? "storage.direct_url_env names no address past it"
        : "storage.direct_url_env leads to it too";
      const message =
        `The address leads to a pooler in transaction mode, and ${key}: notes between gateways do not arrive`;
      return [failure(name, message, "set storage.direct_url_env to a variable with the address of the server itself")];
    }
    const which = "SELECT pg_postmaster_start_time()::text || ' ' || current_database() AS place";
    const [[pooled], [direct]] = await Promise.all([database.query(which), first.query(which)]);
    if (pooled?.["place"] === direct?.["place"]) return [];
    const message = "The address and storage.direct_url_env lead to different databases";
    return [failure(name, message, "name the same database of the same server in both")];
  } finally {
    await Promise.all([first.close(), second.close()]);
  }
}

/**
 * Tells whether two connections share sessions of the server, as a pooler in transaction mode lets them: one has another session than before, or
 * that of the other. Asks several times, since the sessions of a pooler may be in use by others at one moment.
 */
async function shareSession(
  first: Pick<PostgresDatabase, "query">,
  second: Pick<PostgresDatabase, "query">,
): Promise<boolean> {
  const sessions = new Set<unknown>();
  for (let tries = 0; tries < PROBES; tries++) {
    const found = new Set<unknown>();
    for (const connection of [first, second]) {
      const [row] = await connection.query("SELECT pg_backend_pid() AS session");
      found.add(row?.["session"]);
      sessions.add(row?.["session"]);
    }
    if (found.size < 2 || sessions.size > 2) return true;
  }
  return false;
}

/** Checks that the server does not end the connection on which notes arrive, which rests for long. */
async function timeoutProblems(name: string, database: PostgresDatabase): Promise<readonly Finding[]> {
  const [row] = await database.query(
    "SELECT setting::int8 AS ms FROM pg_settings WHERE name = 'idle_session_timeout'",
  );
  const ms = Number(row?.["ms"] ?? 0);
  if (ms === 0) return [];
  const message = `The server ends connections that rest for ${
    ms / 1_000
  } s (idle_session_timeout): notes between gateways come late then`;
  return [warning(name, message, "ALTER ROLE ... SET idle_session_timeout = 0 for the user of the gateways")];
}

function namesOf(gateways: readonly Pick<GatewayStatus, "id" | "host" | "pid">[]): string {
  const names = gateways.slice(0, SHOWN).map(({ id, host, pid }) =>
    host === null ? id : `${id} (${host}:${pid ?? "?"})`
  );
  const more = gateways.length - names.length;
  return `${names.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}
