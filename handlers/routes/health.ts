import * as v from "valibot";
import { type GatewayState, healthSchema, statusSchema } from "../../lib/base/records/gateway_status.ts";
import type { Route, RouteParts, RouteReply } from "../route.ts";
import { jsonReply, type Reply, sendReply } from "../wire/reply.ts";

const STATUS: Record<GatewayState, number> = { ok: 200, degraded: 200, draining: 503 };

/** GET /health: tells whether the gateway works, whatever state its providers are in. The JSON is written by hand, because probes are frequent. */
export const healthRoute = defineFacts({
  method: "GET",
  path: "/health",
  access: "public",
  needs: ["facts"],
  summary:
    "Whether the gateway works: ok, degraded (storage or log cannot be written, records are damaged, or the lease in a cluster is lost) or draining (503)",
  reply: { status: 200, type: "application/json", schema: healthSchema },
  otherReplies: [{
    status: 503,
    type: "application/json",
    schema: healthSchema,
    description: "The gateway is shutting down, or somebody has drained it",
  }],
  handle({ facts }) {
    const { status, version, uptime_seconds, reason, halted } = facts.health();
    const why = reason === undefined ? "" : `,"reason":${JSON.stringify(reason)}`;
    const halt = halted === undefined ? "" : `,"halted":"${halted}"`;
    const body = `{"status":"${status}","version":"${version}","uptime_seconds":${uptime_seconds}${why}${halt}}`;
    return { status: STATUS[status], body, type: "application/json" };
  },
});

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

/** GET /v1/status: the state of the gateway, for an administrator. */
export const statusRoute = defineFacts({
  method: "GET",
  path: "/v1/status",
  access: "admin",
  needs: ["facts"],
  summary: "Which provider is in use and why, containment, changes of the configuration, and damaged records",
  reply: { status: 200, type: "application/json", schema: statusSchema },
  handle: async ({ facts }) => jsonReply(200, await facts.status()),
});

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

/** A route whose handler asks nothing of its request. */
type FactsRoute<Need extends keyof RouteParts, Path extends string, Success extends RouteReply> =
  & Omit<Route, "method" | "path" | "reply" | "handler" | "needs">
  & { readonly method: "GET"; readonly path: Path; readonly reply: Success; readonly needs: readonly Need[] }
  & { handle(parts: Pick<RouteParts, Need>): Reply | Promise<Reply> };

/** Makes the route of a handler that asks nothing of its request: nothing is read, and nothing made, for it. */
function defineFacts<const Need extends keyof RouteParts, const Path extends string, const Success extends RouteReply>(
  form: FactsRoute<Need, Path, Success>,
): FactsRoute<Need, Path, Success> & Pick<Route, "handler"> {
  return {
    ...form,
    handler(_request, context) {
      const reply = form.handle(context.parts);
      return reply instanceof Promise ? reply.then((facts) => sendReply(context, facts)) : sendReply(context, reply);
    },
  };
}
