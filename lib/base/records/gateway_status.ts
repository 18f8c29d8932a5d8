import * as v from "valibot";
import { containmentSchema } from "./approval.ts";
import { haltSchema } from "./halt.ts";

/**
 * HealthReply of a gateway. `draining`: a shutdown began, or somebody drained the gateway. `degraded`: storage, audit or log cannot be
 * written, damaged records are set aside, the lease in the cluster is lost, or the workspace is not that of its other gateways.
 */
const stateSchema = v.picklist(["ok", "degraded", "draining"]);

/** Health of a gateway, as probes read it. */
export const healthSchema = v.object({
  status: stateSchema,
  version: v.string(),
  uptime_seconds: v.number(),
  /** In a cluster: why it is draining, or degraded by the loss of its lease, or claims no run that needs its workspace */
  reason: v.optional(v.string()),
  /** Set while a person has halted all work, or some. It is no reason to send requests elsewhere: a halt counts in the whole cluster */
  halted: v.optional(v.picklist(["all", "partly"])),
});

/** State of the configuration of a running gateway. Times are ISO 8601. Holds names of keys, never their values. */
const configStatusSchema = v.object({
  loaded_at: v.string(),
  /** Keys whose changed value waits for the next start */
  needs_restart: v.array(v.string()),
  /** The last try to load it again; null: there was none */
  last_reload: v.nullable(v.object({
    at: v.string(),
    /** `refused`: nothing was changed by it */
    outcome: v.picklist(["applied", "unchanged", "refused"]),
    /** Why it was refused; null otherwise */
    problem: v.nullable(v.string()),
  })),
});

/** State of a running gateway for an administrator: provider, containment, configuration, damaged records. Times are ISO 8601. */
export const statusSchema = v.object({
  status: stateSchema,
  version: v.string(),
  started_at: v.string(),
  uptime_seconds: v.number(),
  workspace: v.string(),
  /** Workspace as the other gateways of the cluster know it; absent for a gateway alone. `problem`: why this one claims no run that needs it */
  shared_workspace: v.optional(
    v.object({ id: v.string(), is_proven: v.boolean(), problem: v.nullable(v.string()) }),
  ),
  /** This gateway in its cluster; absent for a gateway alone */
  cluster: v.optional(v.object({
    /** Id of this gateway, new at each start */
    gateway: v.string(),
    /** Gateways with a lease at the last look; null: there was none yet */
    gateways: v.nullable(v.number()),
    /** Why this one is draining, or degraded by the loss of its lease, or claims no run that needs its workspace; null for anything else */
    reason: v.nullable(v.string()),
  })),
  /** Work that a person has halted, the oldest first */
  halts: v.array(haltSchema),
  /** Provider of new runs, with the reason for the choice; null without an agent */
  provider: v.nullable(v.object({ name: v.string(), model: v.string(), reason: v.string() })),
  /** How commands of tools are contained */
  containment: containmentSchema,
  /** Damaged records that were set aside since the start, at most 1,000; "postern doctor --repair" removes them */
  unreadable_records: v.array(v.object({ collection: v.string(), key: v.string(), reason: v.string() })),
  config: configStatusSchema,
});

/** Reply of `GET /health`. */
export type HealthReply = v.InferOutput<typeof healthSchema>;
/** Reply of `GET /v1/status`. */
export type StatusReply = v.InferOutput<typeof statusSchema>;
/** See `stateSchema`. */
export type GatewayState = HealthReply["status"];
/** See `configStatusSchema`. */
export type ConfigStatus = StatusReply["config"];
