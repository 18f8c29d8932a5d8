import type { Route } from "./route.ts";
import { textReply } from "./wire/reply.ts";

/** GET /metrics: Prometheus text 0.0.4 (docs/design/observability.md "Metrics"). */
export const metricsRoute: Route = {
  method: "GET",
  path: "/metrics",
  access: "public",
  summary: "Metrics as Prometheus text",
  reply: { status: 200, type: "text/plain" },
  handler: (_request, context) =>
    textReply(context, 200, context.services.metrics.render(), "text/plain; version=0.0.4; charset=utf-8"),
};
