import * as v from "valibot";
import { containmentSchema } from "./approval.ts";

/**
 * HealthReply of a gateway. `draining`: a shutdown began, or somebody drained the gateway. `degraded`: storage, audit or log cannot be
 * written, damaged records are set aside, the lease in the cluster is lost, or the workspace is not that of its other gateways.
 */
const stateSchema = v.picklist(["ok", "degraded", "draining"]);

/** Kinds of halts, the widest first. */
export const HALT_KINDS = ["all", "network", "writes", "tool", "run"] as const;

/** Form of the name of a tool, or of the id of a run, that a halt names. */
export const HALT_NAME = /^[\w.-]{1,200}$/;
/** Form of the id of a halt: its kind, with the name of a tool or the id of a run behind a colon. */
const HALT_ID = /^(?:all|network|writes|(?:tool|run):[\w.-]{1,200})$/;

/** Halt: work that a person has stopped at once, until a person lets it go on. */
export const haltSchema = v.object({
  /** `all`, `network`, `writes`, `tool:<name>` or `run:<id>` */
  id: v.pipe(v.string(), v.regex(HALT_ID)),
  /**
   * `all`: everything. `network`: calls that reach the network. `writes`: these, and all others that change something outside the agent's
   * own records. `tool`: calls of one tool. `run`: one run
   */
  kind: v.picklist(HALT_KINDS),
  /** Name of the tool, or id of the run; null for the other kinds */
  name: v.nullable(v.pipe(v.string(), v.regex(HALT_NAME))),
  /** ISO 8601 */
  halted_at: v.string(),
  /** Door of the person who halted it, with the id of the token */
  by: v.object({ via: v.string(), token_id: v.nullable(v.string()) }),
});
/** See `haltSchema`. */
export type Halt = v.InferOutput<typeof haltSchema>;

/** Returns what is halted, as a part of a sentence. */
export function haltedPart({ kind, name }: Pick<Halt, "kind" | "name">): string {
  if (kind === "all") return "all work";
  if (kind === "network") return "every call that reaches the network";
  return kind === "writes" ? "every call that changes something" : `the ${kind} "${name}"`;
}

/** Health of a gateway, as probes read it. */
export const healthSchema = v.object({
  status: stateSchema,
  version: v.string(),
  uptime_seconds: v.number(),
  /** In a cluster: why it is draining, or degraded by the loss of its lease, or claims no run that needs its workspace */
  reason: v.optional(v.string()),
  /** Present while a person has halted all work, or some. It is no reason to send requests elsewhere: a halt counts in the whole cluster */
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
  /** Rules of `[[notify]]` that cannot deliver anything now, with the reason */
  notify_problems: v.array(v.object({ name: v.string(), reason: v.string() })),
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
