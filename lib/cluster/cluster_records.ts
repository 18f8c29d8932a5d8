import * as v from "valibot";

// Records of a cluster. Every body carries its version `v`.

/** Collection with a record for each gateway, whose version is the gateway's fence. Its body never changes. */
export const GATEWAY_FENCES = "gateway_fences";

/** Collection of the leases, by gateway id. */
export const GATEWAY_LEASES = "gateway_leases";

/** Collection of the claims, by run id, in the order in which the runs were accepted. There is one for each open run. */
export const RUN_CLAIMS = "run_claims";

/** Collection of the runs that work in a conversation now, by conversation id. */
export const CONVERSATION_HOLDS = "conversation_holds";

/** Collection of what the owner of a run has to know, by run id. Notifications are faster, and may be lost. */
export const RUN_SIGNALS = "run_signals";

const leaseSchema = v.object({
  v: v.literal(1),
  fence: v.number(),
  /** End by the database's clock, in ms since the epoch. */
  until: v.number(),
  /** For people: where the gateway runs, its version, the time of its start in ISO 8601. */
  about: v.object({ host: v.string(), pid: v.number(), version: v.string(), started_at: v.string() }),
});
/** Lease of a gateway. */
export type LeaseBody = v.InferOutput<typeof leaseSchema>;

/** Parses a lease. @throws {v.ValiError} for a body that no version wrote */
export function parseLease(body: unknown): LeaseBody {
  return v.parse(leaseSchema, body);
}

const claimSchema = v.object({
  v: v.literal(1),
  /** Gateway that owns the run; null: none has claimed it yet. */
  gateway: v.nullable(v.string()),
  fence: v.number(),
  conversation_id: v.nullable(v.string()),
  /** Run that started this one as a sub-agent. */
  parent_id: v.nullable(v.string()),
});
/** Claim of a run. */
export type ClaimBody = v.InferOutput<typeof claimSchema>;

/** Parses a claim. @throws {v.ValiError} for a body that no version wrote */
export function parseClaim(body: unknown): ClaimBody {
  return v.parse(claimSchema, body);
}

const holdSchema = v.object({ v: v.literal(1), run_id: v.string(), gateway: v.string(), fence: v.number() });
/** The run that works in a conversation, with the gateway that owns the run. */
export type HoldBody = v.InferOutput<typeof holdSchema>;

/** Parses the hold of a conversation. @throws {v.ValiError} for a body that no version wrote */
export function parseHold(body: unknown): HoldBody {
  return v.parse(holdSchema, body);
}
