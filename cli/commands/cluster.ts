import { systemClock } from "../../lib/base/clock.ts";
import { strandedWords } from "../../lib/cluster/cluster_status.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT } from "../command.ts";
import { type ClusterView, reachCluster, type ReachedCluster } from "../reach_cluster.ts";
import { printableLine, toDefinitions, toTable } from "../terminal/terminal_text.ts";

const ID = {
  type: "positional",
  required: true,
  description: "Id of the gateway, from postern cluster status",
} as const;
/** Runs that one list shows. */
const MAX_SHOWN = 100;
/** Pause between two looks at a gateway that is drained, and the longest time for them. Milliseconds */
const LOOK_MS = 500;
const WAIT_MS = 60 * 60 * 1_000;

/** Command `postern cluster status` */
export const clusterStatusCommand = defineCliCommand({
  args: {},
  example: "postern cluster status",
  run: (context) =>
    withCluster(context, async (cluster) => {
      const status = await cluster.status();
      if ("reason" in status) return context.print({ cluster: null, reason: status.reason }, status.reason);
      context.print({ cluster: status }, statusText(status, context.io.columns));
    }),
});

/** Command `postern cluster runs` */
export const clusterRunsCommand = defineCliCommand({
  args: {
    gateway: {
      type: "string",
      valueHint: "id",
      description: 'Only the runs of this gateway; "none": only those that wait for one (default: all)',
    },
  },
  example: "postern cluster runs --gateway none",
  run: (context, { gateway }) =>
    withCluster(context, async (cluster) => {
      const { runs, hasMore } = await cluster.runs({ gateway, limit: MAX_SHOWN });
      const rows = runs.map(({ id, gateway, conversation_id, workspace }) => [
        id,
        gateway ?? "waits",
        conversation_id ?? "",
        workspace ?? "",
      ]);
      const head = ["RUN", "GATEWAY", "CONVERSATION", "WORKSPACE"];
      context.print(runs, rows.length === 0 ? noRuns(gateway) : toTable(head, rows, context.io.columns));
      if (hasMore) context.say(`These are ${MAX_SHOWN} at most; there are more.`);
    }),
});

/** Command `postern cluster drain <id>` */
export const clusterDrainCommand = defineCliCommand({
  args: {
    id: ID,
    wait: { type: "boolean", description: "Wait until the gateway has ended its work and handed the rest on" },
    force: {
      type: "boolean",
      description: "Drain also the last gateway that takes work: new requests are then refused",
    },
  },
  example: "postern cluster drain gw_0123456789 --wait",
  run: (context, { id, wait = false, force = false }) =>
    withCluster(context, async (cluster) => {
      const { repeated } = await cluster.drain(id, { force });
      if (!wait) {
        const asked = repeated ? "was asked before to end its work" : "ends its work and hands the rest on";
        return context.print(
          { gateway: id, state: "draining", repeated },
          `${id} ${asked}; postern cluster status shows it`,
        );
      }
      const state = await untilDrained(cluster, id);
      const message = state === "drained"
        ? `${id} is drained: it takes no work until its process is started again`
        : `${id} has ended`;
      context.print({ gateway: id, state, repeated }, message);
    }),
});

/** Command `postern cluster forget-folder <workspace>` */
export const clusterForgetFolderCommand = defineCliCommand({
  args: {
    workspace: {
      type: "positional",
      required: true,
      description: "The workspace_id of its gateways, none of which may run",
    },
  },
  example: "postern cluster forget-folder office",
  run: (context, { workspace }) =>
    withCluster(context, async (cluster) => {
      const { forgotten } = await cluster.forgetFolder(workspace);
      const next = `the next gateway that starts with workspace_id = "${workspace}" says it`;
      context.print(
        { workspace, forgotten },
        forgotten
          ? `It is forgotten which folder the workspace ${workspace} is: ${next}`
          : `Nobody knows which folder the workspace ${workspace} is: ${next}`,
      );
    }),
});

async function withCluster(context: CommandContext, use: (cluster: ReachedCluster) => Promise<void>): Promise<number> {
  const cluster = await reachCluster(context);
  try {
    await use(cluster);
  } finally {
    await cluster.close();
  }
  return EXIT.ok;
}

async function untilDrained(cluster: ReachedCluster, id: string): Promise<"drained" | "gone"> {
  for (const end = systemClock.monotonic() + WAIT_MS; systemClock.monotonic() < end;) {
    const status = await cluster.status();
    if ("reason" in status) throw new CommandError(status.reason);
    const state = status.gateways.find((gateway) => gateway.id === id)?.state ?? "gone";
    if (state === "drained" || state === "gone") return state;
    await systemClock.sleep(LOOK_MS);
  }
  throw new CommandError(
    `${id} has not ended its work within an hour: postern cluster runs --gateway ${id} shows what is left`,
  );
}

function statusText(status: ClusterView, columns: number | undefined): string {
  const { gateways, queue } = status;
  const rows = gateways.map((
    { id, this: isThis, state, lease_left_ms: left, runs, host, pid, version, started_at },
  ) => [
    isThis ? `${id} *` : id,
    state,
    left === null ? "" : seconds(left),
    String(runs),
    host === null ? "" : `${host}:${pid ?? ""}`,
    version ?? "",
    started_at ?? "",
  ]);
  const head = ["GATEWAY", "STATE", "LEASE", "RUNS", "HOST:PROCESS", "VERSION", "STARTED"];
  const facts = [
    ["Queue", queueText(queue)],
    ...workspaceRows(status),
    ...drainRows(status),
    ...databaseRows(status),
    ...ownRows(status),
  ].map(([name = "", value = ""]) => [printableLine(name), printableLine(value)] as const);
  const table = rows.length === 0 ? "No gateway has a lease" : toTable(head, rows, columns);
  return `${table}\n\n${toDefinitions(facts, columns)}`;
}

function noRuns(gateway: string | undefined): string {
  if (gateway === undefined) return "No run is open";
  return gateway === "none" ? "No run waits for a gateway" : `${gateway} owns no open run`;
}

function queueText(
  { open, waiting, waiting_for_workspace: bound, lag_ms: lag, workspaces_without_gateway: stranded }:
    ClusterView["queue"],
): string {
  if (open === 0) return "no open run";
  const where = bound === 0 ? "" : `, ${bound} of them for a workspace`;
  const waits = waiting === 0
    ? "none waits for a gateway"
    : `${waiting} ${waiting === 1 ? "waits" : "wait"} for a gateway${where}, the oldest for ${seconds(lag ?? 0)}`;
  const lost = stranded.reduce((sum, { runs }) => sum + runs, 0);
  const strays = lost === 0 ? "" : `; ${lost} ${lost === 1 ? "waits" : "wait"} for a workspace without a gateway`;
  return `${open} open ${open === 1 ? "run" : "runs"}, ${waits}${strays}`;
}

function workspaceRows({ queue: { workspaces_without_gateway: stranded } }: ClusterView): string[][] {
  return stranded.map((workspace) => {
    const { which, wait, start } = strandedWords(workspace);
    const wayOut = `${start}, or cancel what postern cluster runs --gateway none names`;
    return ["Workspace", `${which} has no gateway, and ${wait}: ${wayOut}`];
  });
}

function drainRows({ gateways }: ClusterView): string[][] {
  return gateways.flatMap(({ id, drain }) =>
    drain === null ? [] : [["Drain", `${id}, since ${drain.requested_at}, asked for by ${drain.via}`]]
  );
}

function databaseRows({ database }: ClusterView): string[][] {
  if (database === null) return [];
  const { server_version, role, timeline, standbys, connections, max_connections, replication_window: window } =
    database;
  const followers = standbys === 1 ? "1 standby" : `${standbys} standbys`;
  const place = `PostgreSQL ${server_version}, ${role}, ${
    timeline === null ? "" : `timeline ${timeline}, `
  }${followers}`;
  return [
    ["Database", `${place}, ${connections} of ${max_connections} connections`],
    ["Failover", window ?? "loses nothing that was answered"],
  ];
}

function ownRows({ own }: ClusterView): string[][] {
  if (own === null) return [];
  const { id, round_trip_ms: took, failed_heartbeats: failed, lost_leases: lost, lease_left_ms: left, notes, reason } =
    own;
  const lease = left === 0 ? "the lease is lost" : `may act for ${seconds(left)}`;
  const beat = `${lease}, the last heartbeat took ${took ?? "?"} ms, ${failed} failed, ${lost} leases lost`;
  return [
    ["* " + id, `${beat}; notes: ${notes.sent} sent, ${notes.heard} heard, ${notes.unsent} not sent`],
    // A gateway of an earlier version gives none
    ...(reason ?? null) === null ? [] : [["Why", `${id}: ${reason}`]],
  ];
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}
