import * as v from "valibot";
import { storedObject } from "../base/records/stored_object.ts";
import { Collection, parseMark } from "../storage/read_records.ts";

// Records of a cluster. Every body carries its version `v`.

/** Collection with a record for each gateway, whose version is the gateway's fence. Its body says whether nobody has that fence. */
export const GATEWAY_FENCES = new Collection("gateway_fences", parseMark, { replaced: "its version is what it says" });

/** Collection of what the owner of a run has to know, by run id. Notifications are faster, and may be lost. */
export const RUN_SIGNALS = new Collection("run_signals", parseMark, { replaced: "its version is what it says" });

/** Most gateways of one cluster. */
export const MAX_GATEWAYS = 1_000;

/** Longest text of a record: an id, a name, a digest or a time. */
const MAX_TEXT = 1_000;
/** Entries of a map in a record: some for each gateway there can be. */
const MAX_ENTRIES = 10_000;
const textSchema = v.pipe(v.string(), v.maxLength(MAX_TEXT));
const countSchema = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
const mapOf = <T extends v.GenericSchema>(values: T) =>
  v.pipe(v.record(textSchema, values), v.check((map) => Object.keys(map).length <= MAX_ENTRIES));

const dutySchema = v.object({ v: v.literal(1), gateway: textSchema, fence: countSchema });

/** Collection of the work that one gateway does at a time, by its name. A record is there while the work is done. */
export const CLUSTER_DUTIES = new Collection("cluster_duties", dutySchema, {
  replaced: "a gateway that takes a duty says all about it",
});

const leaseSchema = v.object({
  v: v.literal(1),
  fence: countSchema,
  /** End by the database's clock, in ms since the epoch. */
  until: v.number(),
  /** For people: where the gateway runs, its version, the time of its start in ISO 8601. */
  about: v.object({
    host: textSchema,
    pid: v.number(),
    version: textSchema,
    started_at: textSchema,
    /** Address of the gateway for the others. Absent: they cannot reach it */
    advertise_url: v.optional(v.pipe(v.string(), v.maxLength(2_048))),
    /** Digests of the keys for encrypted records that the gateway has. Absent: it has none */
    storage_keys: v.optional(v.pipe(v.array(textSchema), v.maxLength(100))),
    /** Settings that all gateways are to share, in ms. Absent: a gateway of an earlier version */
    lease_ms: v.optional(v.number()),
    workspace_wait_ms: v.optional(v.number()),
  }),
  /** How far the gateway is with a drain. Absent: nobody has drained it. */
  drain: v.optional(v.picklist(["draining", "drained"])),
});
/** Lease of a gateway. */
export type LeaseBody = v.InferOutput<typeof leaseSchema>;

/** Collection of the leases, by gateway id. */
export const GATEWAY_LEASES = new Collection("gateway_leases", leaseSchema, {
  replaced: "written by its gateway alone",
});

const claimSchema = storedObject({
  v: v.literal(1),
  /** Gateway that owns the run; null: none has claimed it yet. In the store also what `waiterOf` gives, which is read as null. */
  gateway: v.nullable(textSchema),
  fence: countSchema,
  conversation_id: v.nullable(textSchema),
  /** Run that started this one as a sub-agent. */
  parent_id: v.nullable(textSchema),
  /** Workspace whose gateways alone may go on with the run. Absent: any gateway may */
  workspace: v.optional(textSchema),
  /** Time since which the workspace has no gateway, by the database's clock in ms since the epoch. Absent: it has one */
  waiting_since: v.optional(v.number()),
});
/** Claim of a run. */
export type ClaimBody = v.InferOutput<typeof claimSchema>;

/** Parses a claim. @throws {v.ValiError} for a body that no version wrote */
function parseClaim(body: unknown): ClaimBody {
  const claim = v.parse(claimSchema, body);
  return claim.gateway?.startsWith(WAITER) === true ? { ...claim, gateway: null } : claim;
}

/** Collection of the claims, by run id, in the order in which the runs were accepted. There is one for each open run. */
export const RUN_CLAIMS = new Collection("run_claims", parseClaim);

/** Begin of the names that stand in claims in place of a gateway, while the workspace has none. No id of a gateway begins so. */
const WAITER = "@";

/** Returns the name in claims of runs, and in marks of work, that wait for a gateway of their workspace, by which the index finds them apart from all others. */
export function waiterOf(workspace: string): string {
  return `${WAITER}${workspace}`;
}

const holdSchema = storedObject({ v: v.literal(1), run_id: textSchema, gateway: textSchema, fence: countSchema });
/** The run that works in a conversation, with the gateway that owns the run. */
export type HoldBody = v.InferOutput<typeof holdSchema>;

/** Collection of the runs that work in a conversation now, by conversation id. */
export const CONVERSATION_HOLDS = new Collection("conversation_holds", holdSchema);

const drainSchema = storedObject({
  /** Time by the database's clock, ISO 8601. */
  requested_at: textSchema,
  /** Door that the drain was asked for at, with the id of the token. */
  by: storedObject({ via: textSchema, token_id: v.nullable(textSchema) }),
});
/** Wish of a person that a gateway lets go of its work. */
export type DrainRequest = v.InferOutput<typeof drainSchema>;

const drainsSchema = storedObject({ v: v.literal(1), gateways: mapOf(drainSchema) });
/** Drained gateways by their ids. */
export type DrainsBody = v.InferOutput<typeof drainsSchema>;

/** Collection with one record: the gateways that somebody has drained. */
export const CLUSTER_DRAINS = new Collection("cluster_drains", drainsSchema);

const placeSchema = storedObject({
  host: textSchema,
  /** Real path of the workspace on that host. */
  folder: textSchema,
  /** Data directory of the gateway. */
  data_dir: textSchema,
});
/** Place of a gateway, for people. */
export type GatewayPlace = v.InferOutput<typeof placeSchema>;

const workspaceSchema = storedObject({
  v: v.literal(1),
  /** Digest of the id that the folder of the workspace keeps. Absent: the next gateway that is let in says which folder it is */
  folder_digest: v.optional(textSchema),
  /** Place of the gateway that was let in last. Absent: a gateway of an earlier version was */
  last_gateway: v.optional(placeSchema),
});
/** Record of a workspace, apart from its version. */
export type WorkspaceBody = v.InferOutput<typeof workspaceSchema>;

/** Collection with a record for each workspace, whose version counts the gateways that were let in. */
export const WORKSPACES = new Collection("workspaces", workspaceSchema);

/** Returns a place whose texts a record takes. */
export function toPlace({ host, folder, data_dir }: GatewayPlace): GatewayPlace {
  const short = (text: string) => text.slice(0, MAX_TEXT).toWellFormed();
  return { host: short(host), folder: short(folder), data_dir: short(data_dir) };
}

const memberSchema = v.object({
  v: v.literal(1),
  /** Fence of the gateway. The record counts while the gateway has it. */
  fence: countSchema,
  /** Digest of the gateway's proof file. */
  digest: textSchema,
  /** False while the gateway has not proven that it has the workspace. */
  is_member: v.boolean(),
  /** Files of gateways that want to come in, as this one has seen them, by gateway: the digest, or `!` and the digest for one not found. */
  seen: mapOf(textSchema),
  /** Where the gateway runs, for people. */
  host: textSchema,
  /** Process of the gateway, and the machine that numbers it. Null: unknown */
  process: v.nullable(v.object({ machine: textSchema, pid: v.number() })),
});
/** Gateway of a workspace. */
export type MemberBody = v.InferOutput<typeof memberSchema>;

/** Collection of the gateways of each workspace, by workspace and gateway: `office/gw_...`. */
export const WORKSPACE_MEMBERS = new Collection("workspace_members", memberSchema, {
  replaced: "written by its gateway alone",
});

const workMarkSchema = storedObject({
  v: v.literal(1),
  gateway: v.optional(v.nullable(textSchema), null),
  fence: v.optional(countSchema, 0),
  /** Workspace whose gateways alone may do the work. Absent: any gateway may */
  workspace: v.optional(textSchema),
  /** Time since which the workspace has no gateway, by the database's clock in ms since the epoch. `gateway` is then that of `waiterOf` */
  waiting_since: v.optional(v.number()),
});
/** Mark of an open execution or delivery, which names its owner. That of a gateway alone names none. */
export type WorkMark = v.InferOutput<typeof workMarkSchema>;

/** Parses the mark of open work. @throws {v.ValiError} for a body that no version wrote */
export function parseWorkMark(body: unknown): WorkMark {
  return v.parse(workMarkSchema, body);
}

const lockSchema = v.object({
  v: v.literal(1),
  gateway: textSchema,
  fence: countSchema,
  /** Number of the change that has the lock, among those of its gateway. Absent: a gateway of an earlier version has written it */
  change: v.optional(countSchema),
});
/** Lock of a file: it counts while the gateway has its fence. */
export type LockBody = v.InferOutput<typeof lockSchema>;

/** Collection of the locks of files that gateways of one workspace change, by workspace and digest of the path. */
export const FILE_LOCKS = new Collection("file_locks", lockSchema, {
  replaced: "a gateway that takes a lock says all about it",
});
