import * as v from "valibot";
import { containmentSchema } from "../lib/base/records/approval.ts";
import type { Route } from "./route.ts";
import { jsonReply } from "./wire/reply.ts";

/** What an administrator asks of a running gateway: what answers, and by which configuration. Times are ISO 8601. */
const statusSchema = v.object({
  status: v.picklist(["ok", "degraded", "draining"]),
  version: v.string(),
  started_at: v.string(),
  uptime_seconds: v.number(),
  workspace: v.string(),
  /** The one for new runs, and why it is that one; null: there is no agent */
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

/** What `GET /v1/status` answers. */
export type StatusReply = v.InferOutput<typeof statusSchema>;

/** GET /v1/status */
export const statusRoute: Route = {
  method: "GET",
  path: "/v1/status",
  access: "admin",
  summary: "Which provider is in use and why, containment, changes of the configuration, and damaged records",
  reply: { status: 200, type: "application/json", schema: statusSchema },
  async handler(_request, context) {
    const { services } = context;
    const { version, startedAt, clock, workspaceRoot, agent } = services;
    return jsonReply(context, 200, {
      status: services.state(),
      version,
      started_at: new Date(startedAt).toISOString(),
      uptime_seconds: Math.max(0, Math.floor((clock.now() - startedAt) / 1000)),
      workspace: workspaceRoot,
      provider: agent?.providers.inUse ?? null,
      containment: await services.containment(),
      unreadable_records: services.store.unreadable.list(),
      config: services.configStatus(),
    });
  },
};
