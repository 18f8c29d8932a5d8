import * as v from "valibot";
import type { Identity } from "../lib/access/identity.ts";
import type { Route } from "./route.ts";
import { strictRoute } from "./strict_route.ts";
import { jsonReply } from "./wire/reply.ts";

/** POST /v1/ws-ticket: a single-use ticket with the token's scopes, for browsers, whose WebSocket cannot send a header. */
export const wsTicketRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/ws-ticket",
  access: "chat",
  summary: "Single-use ticket for /ws/chat?ticket=",
  reply: { status: 200, type: "application/json", schema: v.object({ ticket: v.string(), expires_in: v.number() }) },
  idempotency: "refused",
  handler(_request, context) {
    // The route's access makes sure of an identity
    const { ticket, expiresInSeconds } = context.services.tickets.issue(context.identity as Identity);
    return jsonReply(context, 200, { ticket, expires_in: expiresInSeconds }, { "cache-control": "no-store" });
  },
});
