import * as v from "valibot";
import type { DeepReadonly } from "../json.ts";

/** Clusters as `/v1/cluster` and `postern cluster` show them. Times are ISO 8601. */

/** Gateway of the cluster. */
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

/** Facts about a PostgreSQL server that decide what a cluster over it can promise. */
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

/** State of a cluster at one moment. */
const statusEntries = {
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
  /** Null for a database that is none of PostgreSQL, as in tests */
  database: v.nullable(databaseSchema),
} as const;

/** Heartbeats and notes of the gateway that answers. */
const ownSchema = v.object({
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
});

/** Reply of `GET /v1/cluster`. */
export const clusterReplySchema = v.object({
  /** null: the gateway is alone */
  cluster: v.nullable(v.object({ ...statusEntries, own: ownSchema })),
  /** Why it is alone */
  reason: v.optional(v.string()),
});

/** An open run with the gateway that owns it. */
export const openRunSchema = v.object({
  id: v.string(),
  object: v.literal("open_run"),
  /** null: it waits for a gateway */
  gateway: v.nullable(v.string()),
  conversation_id: v.nullable(v.string()),
  /** Workspace that its tools need; null: it may work anywhere */
  workspace: v.nullable(v.string()),
  parent_id: v.nullable(v.string()),
});

/** Reply of `GET /v1/cluster`. */
export type ClusterReply = DeepReadonly<v.InferOutput<typeof clusterReplySchema>>;
/** State of a cluster with what the gateway that answers says of itself. */
export type ShownCluster = NonNullable<ClusterReply["cluster"]>;
/** State of a cluster at one moment. */
export type ClusterStatus = Omit<ShownCluster, "own">;
/** See `gatewaySchema`. */
export type GatewayStatus = ClusterStatus["gateways"][number];
/** Workspace without a gateway, for which runs wait. */
export type StrandedWorkspace = ClusterStatus["queue"]["workspaces_without_gateway"][number];
/** See `databaseSchema`. */
export type PostgresFacts = DeepReadonly<v.InferOutput<typeof databaseSchema>>;
/** An open run with the gateway that owns it. */
export type OwnedRunView = Omit<DeepReadonly<v.InferOutput<typeof openRunSchema>>, "object">;
