import { loadDashboard } from "../lib/dashboard/dashboard.ts";
import { parseRequestTarget } from "./request_target.ts";
import type { Route } from "./route.ts";
import { textReply } from "./wire/reply.ts";

/** GET /: the dashboard (DESIGN.md section 9). The page is public and holds no secret; under a mount its relative addresses need the slash at the end. */
export const dashboardRoute: Route = {
  method: "GET",
  path: "/",
  access: "public",
  summary: "Dashboard",
  reply: { status: 200, type: "text/html" },
  otherReplies: [{ status: 308, description: "Under a mount: to the same path with a slash at its end" }],
  async handler(request, context) {
    const { path } = parseRequestTarget(request.url);
    if (!path.endsWith("/")) {
      return textReply(context, 308, null, "text/plain", { location: `${path.slice(path.lastIndexOf("/") + 1)}/` });
    }
    const { require_pairing: pairingRequired } = context.services.config().gateway;
    const { html, contentSecurityPolicy } = await loadDashboard({ pairingRequired });
    return textReply(context, 200, html, "text/html; charset=utf-8", {
      "content-security-policy": contentSecurityPolicy,
      "cache-control": "no-cache",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
    });
  },
};
