import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import type { ClusterShown } from "../../lib/coordination.ts";
import type { Services } from "../../lib/services.ts";
import { defineRoute } from "../define_route.ts";
import { answerStream, KEEP_ALIVE_MS } from "../wire/event_stream.ts";
import { LIMIT_QUERY, listSchema, placedListReply, textQuery } from "../wire/lists.ts";
import { jsonReply, streamReply } from "../wire/reply.ts";

const MAX_ID_LENGTH = 200;

const gatewaySchema = v.object({
  id: v.string(),
  /** true: the gateway that answers */
  this: v.boolean(),
  /** late: its lease has run out; gone: runs that it owned wait for another */
  state: v.picklist(["alive", "late", "draining", "drained", "gone"]),
  host: v.nullable(v.string()),
  pid: v.nullable(v.number()),
  version: v.nullable(v.string()),
  /** Address of its direct link to the others */
  advertise_url: v.nullable(v.string()),
  started_at: v.nullable(v.string()),
  /** End of the lease by the database's clock */
  lease_until: v.nullable(v.string()),
  /** Milliseconds until then; negative when it has run out */
  lease_left_ms: v.nullable(v.number()),
  drain: v.nullable(v.object({ requested_at: v.string(), via: v.string(), token_id: v.nullable(v.string()) })),
  /** Open runs that it owns; of one that is gone, those that wait for another */
  runs: v.number(),
  /** The oldest of them, at most 20; GET /v1/cluster/runs has all */
  run_ids: v.array(v.string()),
});

const databaseSchema = v.object({
  server_version: v.string(),
  /** Changes with each promotion of a standby */
  timeline: v.nullable(v.number()),
  role: v.picklist(["primary", "standby"]),
  /** Servers that follow this one now */
  standbys: v.number(),
  synchronous_standby_names: v.string(),
  /** Answered changes that a failover may lose, for people; null: none */
  replication_window: v.nullable(v.string()),
  /** Without those for superusers */
  max_connections: v.number(),
  connections: v.number(),
});

const clusterSchema = v.object({
  /** Time of the database */
  now: v.string(),
  gateways: v.array(gatewaySchema),
  queue: v.object({
    /** Open runs in all */
    open: v.number(),
    /** Runs that no gateway owns */
    waiting: v.number(),
    /** Waiting runs whose tools need the workspace of certain gateways */
    waiting_for_workspace: v.number(),
    /** Milliseconds since the oldest waiting run was accepted */
    lag_ms: v.nullable(v.number()),
    /** Conversations with the most waiting runs, at most 20 */
    by_conversation: v.array(v.object({ conversation_id: v.string(), waiting: v.number() })),
    /** Workspaces that have no gateway, with the runs that wait for one, which `waiting` does not count; at most 20 */
    workspaces_without_gateway: v.array(v.object({
      workspace: v.string(),
      runs: v.number(),
      /** Place of the gateway that had it last; null: nobody knows */
      last_gateway: v.nullable(v.object({ host: v.string(), folder: v.string(), data_dir: v.string() })),
    })),
  }),
  database: v.nullable(databaseSchema),
  /** Heartbeats and notes of the gateway that answers */
  own: v.object({
    id: v.string(),
    /** Milliseconds until the gateway's own deadline; 0 while its lease is lost */
    lease_left_ms: v.number(),
    /** Milliseconds that the database took for the last renewal */
    round_trip_ms: v.nullable(v.number()),
    failed_heartbeats: v.number(),
    /** Times that others fenced it off */
    lost_leases: v.number(),
    notes: v.object({ sent: v.number(), heard: v.number(), unsent: v.number() }),
    /** Why it is draining, has lost its lease, or claims no run that needs its workspace; null for anything else */
    reason: v.nullable(v.string()),
  }),
});

const statusSchema = v.object({
  /** null: the gateway is alone */
  cluster: v.nullable(clusterSchema),
  /** Why it is alone */
  reason: v.optional(v.string()),
});

/** Reply of `GET /v1/cluster`. */
export type ClusterReply = v.InferOutput<typeof statusSchema>;

/** GET /v1/cluster: the gateways that share the database, what they own, and what waits. */
export const clusterRoute = defineRoute({
  method: "GET",
  path: "/v1/cluster",
  access: "admin",
  strict: true,
  needs: ["cluster", "config", "stateReason"],
  summary: "Gateways that share the database, with leases, runs, queue and the state of the database",
  reply: { status: 200, type: "application/json", schema: statusSchema },
  errors: ["storage_unavailable"],
  async handle(parts) {
    const { shown } = parts.cluster;
    if (shown === undefined) return jsonReply(200, { cluster: null, reason: whyAlone(parts) });
    return jsonReply(200, { cluster: { ...await shown.overview.status(), own: ownFigures(shown, parts) } });
  },
});

/** GET /v1/cluster/runs: the open runs with their owners. */
export const clusterRunsRoute = defineRoute({
  method: "GET",
  path: "/v1/cluster/runs",
  access: "admin",
  strict: true,
  needs: ["cluster", "config"],
  summary: "Open runs of the cluster in the order of their ids, and the gateway that owns each",
  query: {
    limit: LIMIT_QUERY,
    after: textQuery("Only those whose id comes after this one, the last_id of the list before"),
    gateway: textQuery('Only the runs of this gateway; "none": only those that wait for one'),
  },
  reply: {
    status: 200,
    type: "application/json",
    schema: listSchema(v.object({
      id: v.string(),
      object: v.literal("open_run"),
      /** null: it waits for a gateway */
      gateway: v.nullable(v.string()),
      conversation_id: v.nullable(v.string()),
      /** Workspace that its tools need; null: it may work anywhere */
      workspace: v.nullable(v.string()),
      parent_id: v.nullable(v.string()),
    })),
  },
  errors: ["not_found", "storage_unavailable"],
  async handle(parts, { query }) {
    const { runs, hasMore, lastId } = await requireCluster(parts).overview.runs(query);
    return placedListReply(runs.map((run) => ({ object: "open_run", ...run })), { hasMore, lastId });
  },
});

const drainBodySchema = v.strictObject({
  /** true: drains also the last gateway that takes work */
  force: v.optional(v.boolean()),
});

/** GET /v1/cluster/link: which gateway answers here, since an address may lead to another one than it is given for. */
export const clusterLinkRoute = defineRoute({
  method: "GET",
  path: "/v1/cluster/link",
  access: "cluster",
  needs: ["kit", "cluster"],
  steady: "link",
  summary: "For other gateways of the cluster: the id of the gateway that answers",
  reply: { status: 200, type: "text/event-stream", description: "The id as JSON: gateway" },
  handle({ kit: { clock }, cluster }) {
    const work = Promise.resolve({ gateway: cluster.id ?? null });
    return streamReply(answerStream({ work, clock, beatMs: KEEP_ALIVE_MS, onLeave: () => {} }));
  },
});

/** POST /v1/cluster/gateways/:id/drain: asks a gateway to end its work, hand its durable runs on, and take no more. */
export const drainGatewayRoute = defineRoute({
  method: "POST",
  path: "/v1/cluster/gateways/:id/drain",
  access: "admin",
  strict: true,
  needs: ["audit", "cluster", "config"],
  summary:
    "Drain a gateway of the cluster: it ends its work, hands durable runs on, and accepts no new work until it is restarted",
  body: drainBodySchema,
  bodyOptional: true,
  reply: {
    status: 202,
    type: "application/json",
    schema: v.object({
      gateway: v.string(),
      requested_at: v.string(),
      /** true: it was asked for before */
      repeated: v.boolean(),
    }),
  },
  errors: ["not_found", "conflict", "storage_unavailable"],
  idempotency: "harmless",
  async handle(parts, { params, body, caller }) {
    const { overview } = requireCluster(parts);
    const { id } = params;
    if (id.length > MAX_ID_LENGTH) throw refuse("not_found", "Cannot find the gateway: no id is as long as this");
    const force = body?.force === true;
    const { append } = parts.audit;
    const { gateway, requested_at, isRepeated } = await overview.drain(id, {
      by: caller,
      force,
      write: (asked, writes) =>
        append({ type: "cluster", action: "drain_asked", gateway: id, force, ...asked }, writes),
    });
    return jsonReply(202, { gateway, requested_at, repeated: isRepeated });
  },
});

/** POST /v1/cluster/workspaces/:id/forget-folder: lets a workspace be another folder, for the next gateway that is let in. */
export const forgetFolderRoute = defineRoute({
  method: "POST",
  path: "/v1/cluster/workspaces/:id/forget-folder",
  access: "admin",
  strict: true,
  needs: ["audit", "cluster", "config"],
  summary:
    "Forget which folder a workspace of the cluster is: the next gateway with its workspace_id says it; refused while a gateway works in it",
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({
      workspace: v.string(),
      requested_at: v.string(),
      /** false: it was not known which folder it is */
      forgotten: v.boolean(),
    }),
  },
  errors: ["not_found", "conflict", "storage_unavailable"],
  idempotency: "harmless",
  async handle(parts, { params, caller }) {
    const { overview } = requireCluster(parts);
    const { id } = params;
    if (id.length > MAX_ID_LENGTH) throw refuse("not_found", "Cannot find the workspace: no id is as long as this");
    const { append } = parts.audit;
    const { workspace, requested_at, isForgotten } = await overview.forgetFolder(id, {
      by: caller,
      write: (asked, writes) =>
        append({ type: "cluster", action: "folder_forgotten", workspace: id, ...asked }, writes),
    });
    return jsonReply(200, { workspace, requested_at, forgotten: isForgotten });
  },
});

function requireCluster(services: Pick<Services, "cluster" | "config">): ClusterShown {
  const { shown } = services.cluster;
  if (shown !== undefined) return shown;
  throw refuse("not_found", `Cannot find a cluster: ${whyAlone(services)}`);
}

function whyAlone({ config }: Pick<Services, "config">): string {
  return `this gateway is alone, since storage.driver is "${config().storage.driver}" and not "postgres"`;
}

function ownFigures({ id, lease, notes }: ClusterShown, { stateReason }: Pick<Services, "stateReason">) {
  const { leftMs, roundTripMs, failures, losses } = lease.heartbeats();
  return {
    id,
    lease_left_ms: Math.round(leftMs),
    round_trip_ms: roundTripMs === undefined ? null : Math.round(roundTripMs * 1_000) / 1_000,
    failed_heartbeats: failures,
    lost_leases: losses,
    notes: notes(),
    reason: stateReason() ?? null,
  };
}
