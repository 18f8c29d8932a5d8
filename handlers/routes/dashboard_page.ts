import { loadDashboard } from "../../lib/dashboard/dashboard.ts";
import { parseRequestTarget } from "../request_context.ts";
import type { Route } from "../route.ts";
import { textReply } from "../wire/reply.ts";

/**
 * GET /: the dashboard. The page is public and holds no secret; under a mount its relative addresses need the slash at the end.
 * Source: docs/design/processes.md "Dashboard"
 */
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
    const { html, compressed, contentSecurityPolicy } = await loadDashboard({
      pairingRequired,
      program: context.services.programName,
    });
    const accepted = codingsOf(request.headers.get("accept-encoding") ?? "");
    const coding = [...compressed.keys()].find((name) => accepted.has(name));
    const body = coding === undefined ? html : compressed.get(coding) ?? html;
    return textReply(context, 200, body, "text/html; charset=utf-8", {
      ...(coding === undefined ? {} : { "content-encoding": coding }),
      vary: "Origin, Accept-Encoding",
      "content-security-policy": contentSecurityPolicy,
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
      "cache-control": "no-cache",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
    });
  },
};

/** Returns the content codings that a client names and does not rule out by a weight of 0. Source: RFC 9110 section 12.5.3 */
function codingsOf(accepted: string): ReadonlySet<string> {
  const codings = accepted.toLowerCase().split(",").map((part) => part.split(";").map((word) => word.trim()));
  return new Set(
    codings.flatMap(([name = "", ...weights]) => weights.some((w) => /^q=0(?:\.0*)?$/.test(w)) ? [] : [name]),
  );
}
