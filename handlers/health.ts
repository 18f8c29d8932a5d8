import * as v from "valibot";
import type { GatewayState } from "../lib/gateway.ts";
import type { Route } from "./route.ts";
import { textReply } from "./wire/reply.ts";

const healthSchema = v.object({
  status: v.picklist(["ok", "degraded", "draining"]),
  version: v.string(),
  uptime_seconds: v.number(),
});

const STATUS: Record<GatewayState, number> = { ok: 200, degraded: 200, draining: 503 };

/** GET /health: whether the gateway works; a provider's state never changes it. Written by hand: probes come by the thousand. */
export const healthRoute: Route = {
  method: "GET",
  path: "/health",
  access: "public",
  summary:
    "Whether the gateway works: ok, degraded (storage or log cannot be written, or records are damaged) or draining (503)",
  reply: { status: 200, type: "application/json", schema: healthSchema },
  otherReplies: [{ status: 503, type: "application/json", schema: healthSchema, description: "It is shutting down" }],
  handler(_request, context) {
    const { version, startedAt, clock } = context.services;
    const state = context.services.state();
    const uptimeSeconds = Math.max(0, Math.floor((clock.now() - startedAt) / 1000));
    const body = `{"status":"${state}","version":"${version}","uptime_seconds":${uptimeSeconds}}`;
    return textReply(context, STATUS[state], body, "application/json");
  },
};

/** GET /health/live: the process answers. */
export const liveRoute: Route = {
  method: "GET",
  path: "/health/live",
  access: "public",
  summary: "Whether the process answers",
  reply: { status: 200, type: "application/json", schema: v.object({ ok: v.literal(true) }) },
  handler: (_request, context) => textReply(context, 200, '{"ok":true}', "application/json"),
};
