import * as v from "valibot";
import { containmentSchema } from "../../lib/base/records/approval.ts";
import type { ClusterShown } from "../../lib/coordination.ts";
import type { GatewayState, Services } from "../../lib/services.ts";
import type { Route } from "../route.ts";
import { type Reply, sendJson, sendReply, sendText } from "../wire/reply.ts";

const healthSchema = v.object({
  status: v.picklist(["ok", "degraded", "draining"]),
  version: v.string(),
  uptime_seconds: v.number(),
  /** In a cluster: why it is draining, or degraded by the loss of its lease, or claims no run that needs its workspace */
  reason: v.optional(v.string()),
});

const STATUS: Record<GatewayState, number> = { ok: 200, degraded: 200, draining: 503 };

/** GET /health: tells whether the gateway works, whatever state its providers are in. The JSON is written by hand, because probes are frequent. */
export const healthRoute: Route = {
  method: "GET",
  path: "/health",
  access: "public",
  summary:
    "Whether the gateway works: ok, degraded (storage or log cannot be written, records are damaged, or the lease in a cluster is lost) or draining (503)",
  reply: { status: 200, type: "application/json", schema: healthSchema },
  otherReplies: [{
    status: 503,
    type: "application/json",
    schema: healthSchema,
    description: "The gateway is shutting down, or somebody has drained it",
  }],
  handler(_request, context) {
    const { version, startedAt, clock } = context.services;
    const state = context.services.state();
    const uptimeSeconds = Math.max(0, Math.floor((clock.now() - startedAt) / 1000));
    const reason = context.services.cluster.shown && context.services.stateReason();
    const why = reason === undefined ? "" : `,"reason":${JSON.stringify(reason)}`;
    const body = `{"status":"${state}","version":"${version}","uptime_seconds":${uptimeSeconds}${why}}`;
    return sendText(context, STATUS[state], body, "application/json");
  },
};

/** GET /health/live: the process answers. */
export const liveRoute = defineFacts({
  method: "GET",
  path: "/health/live",
  access: "public",
  summary: "Whether the process answers",
  needs: [],
  reply: { status: 200, type: "application/json", schema: v.object({ ok: v.literal(true) }) },
  handle: () => LIVE,
});

const LIVE: Reply = { status: 200, body: '{"ok":true}', type: "application/json" };

/** State of a running gateway for an administrator: provider, containment, configuration, damaged records. Times are ISO 8601. */
const statusSchema = v.object({
  status: v.picklist(["ok", "degraded", "draining"]),
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
  /** Provider of new runs, with the reason for the choice; null without an agent */
  provider: v.nullable(v.object({ name: v.string(), model: v.string(), reason: v.string() })),
  /** How commands of tools are contained */
  containment: containmentSchema,
  /** Damaged records that were set aside since the start, at most 1,000; "postern doctor --repair" removes them */
  unreadable_records: v.array(v.object({ collection: v.string(), key: v.string(), reason: v.string() })),
  config: v.object({
    loaded_at: v.string(),
    /** Keys whose changed value waits for the next start */
    needs_restart: v.array(v.string()),
    last_reload: v.nullable(v.object({
      at: v.string(),
      outcome: v.picklist(["applied", "unchanged", "refused"]),
      problem: v.nullable(v.string()),
    })),
  }),
});

/** Reply of `GET /v1/status`. */
export type StatusReply = v.InferOutput<typeof statusSchema>;

/** GET /v1/status: the state of the gateway, for an administrator. */
export const statusRoute = {
  method: "GET",
  path: "/v1/status",
  access: "admin",
  summary: "Which provider is in use and why, containment, changes of the configuration, and damaged records",
  reply: { status: 200, type: "application/json", schema: statusSchema },
  async handler(_request, context) {
    const { services } = context;
    const { version, startedAt, clock, workspaceRoot, agent, cluster: { shown } } = services;
    const shared = services.sharedWorkspace();
    return sendJson(context, 200, {
      status: services.state(),
      version,
      started_at: new Date(startedAt).toISOString(),
      uptime_seconds: Math.max(0, Math.floor((clock.now() - startedAt) / 1000)),
      workspace: workspaceRoot,
      ...(shown === undefined ? {} : { cluster: inCluster(services, shown) }),
      ...(shared === undefined ? {} : { shared_workspace: { ...shared } }),
      provider: agent?.providers.inUse ?? null,
      containment: await services.containment(),
      unreadable_records: services.store.unreadable.list(),
      config: services.configStatus(),
    });
  },
} as const satisfies Route;

function inCluster({ stateReason }: Services, { id, gatewaysFound }: ClusterShown) {
  return { gateway: id, gateways: gatewaysFound() ?? null, reason: stateReason() ?? null };
}

/** GET /metrics: Prometheus text 0.0.4 (docs/design/observability.md "Metrics"). */
export const metricsRoute = defineFacts({
  method: "GET",
  path: "/metrics",
  access: "public",
  summary: "Metrics as Prometheus text",
  reply: { status: 200, type: "text/plain" },
  needs: ["metrics"],
  handle: ({ metrics }) => ({ status: 200, body: metrics.render(), type: "text/plain; version=0.0.4; charset=utf-8" }),
});

/** Routes by which others see that the gateway works. They answer before the other routes are loaded. */
export const HEALTH_ROUTES = [healthRoute, liveRoute, metricsRoute, statusRoute] as const satisfies readonly Route[];

/** Makes the route of a handler that asks nothing of its request, such as a probe: nothing is read, and nothing made, for it. */
function defineFacts<const Need extends keyof Services>(
  form: Omit<Route, "handler" | "needs"> & {
    readonly needs: readonly Need[];
    handle(parts: Pick<Services, Need>): Reply;
  },
): Route & { handle(parts: Pick<Services, Need>): Reply } {
  return { ...form, handler: (_request, context) => sendReply(context, form.handle(context.services)) };
}
