import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { clusterReplySchema, openRunSchema } from "../../lib/base/records/cluster_view.ts";
import type { ClusterShown } from "../../lib/coordination.ts";
import type { Services } from "../../lib/services.ts";
import { defineRoute } from "../define_route.ts";
import { answerStream, KEEP_ALIVE_MS } from "../wire/event_stream.ts";
import { LIMIT_QUERY, listSchema, placedListReply, textQuery } from "../wire/lists.ts";
import { jsonReply, streamReply } from "../wire/reply.ts";

const MAX_ID_LENGTH = 200;

/** GET /v1/cluster: the gateways that share the database, what they own, and what waits. */
export const clusterRoute = defineRoute({
  method: "GET",
  path: "/v1/cluster",
  access: "admin",
  strict: true,
  needs: ["cluster", "config", "stateReason"],
  summary: "Gateways that share the database, with leases, runs, queue and the state of the database",
  reply: { status: 200, type: "application/json", schema: clusterReplySchema },
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
    schema: listSchema(openRunSchema),
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
