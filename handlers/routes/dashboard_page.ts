import { loadDashboard } from "../../lib/dashboard/dashboard.ts";
import { defineRoute } from "../define_route.ts";

/**
 * GET /: the dashboard. The page is public and holds no secret. Under a mount it is the same with and without a slash at the end: a
 * redirect would go round with servers that take the slash away.
 * Source: docs/design/processes.md "Dashboard"
 */
export const dashboardRoute = defineRoute({
  method: "GET",
  path: "/",
  access: "public",
  needs: ["config", "programName"],
  summary: "Dashboard",
  reply: { status: 200, type: "text/html" },
  async handle({ config, programName }, { head }) {
    const { require_pairing: pairingRequired } = config().gateway;
    const { html, compressed, contentSecurityPolicy } = await loadDashboard({
      pairingRequired,
      program: programName,
    });
    const accepted = codingsOf(head.headers.get("accept-encoding") ?? "");
    const coding = [...compressed.keys()].find((name) => accepted.has(name));
    const body = coding === undefined ? html : compressed.get(coding) ?? html;
    const headers = {
      ...(coding === undefined ? {} : { "content-encoding": coding }),
      vary: "Origin, Accept-Encoding",
      "content-security-policy": contentSecurityPolicy,
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
      "cache-control": "no-cache",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
    };
    return { status: 200, body, type: "text/html; charset=utf-8", headers };
  },
});

/** Returns the content codings that a client names and does not rule out by a weight of 0. Source: RFC 9110 section 12.5.3 */
function codingsOf(accepted: string): ReadonlySet<string> {
  const codings = accepted.toLowerCase().split(",").map((part) => part.split(";").map((word) => word.trim()));
  return new Set(
    codings.flatMap(([name = "", ...weights]) => weights.some((w) => /^q=0(?:\.0*)?$/.test(w)) ? [] : [name]),
  );
}
