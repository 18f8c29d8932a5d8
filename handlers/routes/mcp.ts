import * as v from "valibot";
import { defineRoute, type RouteInput } from "../define_route.ts";
import type { Route, RouteParts } from "../route.ts";
import type { Reply } from "../wire/reply.ts";

const ERRORS = [
  "not_found",
  "method_not_allowed",
  "conflict",
  "overloaded",
  "shutting_down",
  "halted",
  "not_implemented",
  406,
] as const;
const SESSION_HEADERS = {
  "mcp-session-id": { description: "Session of a client of revision 2025-11-25 or before", schema: { type: "string" } },
  "mcp-protocol-version": { description: "Revision of the protocol", schema: { type: "string" } },
} as const;

/** A message of JSON-RPC. The SDK checks the rest of it. */
const messageSchema = v.looseObject({ jsonrpc: v.literal("2.0") });

/**
 * POST /mcp: one message of a client of MCP (streamable HTTP), in both eras of the protocol.
 * Source: docs/design/mcp.md "Server"
 */
export const mcpRoute = defineRoute({
  method: "POST",
  path: "/mcp",
  access: "tools",
  needs: ["mcp"],
  summary: "One message of an MCP client: the tools of this gateway for other agents",
  body: messageSchema,
  headers: SESSION_HEADERS,
  reply: { status: 200, type: "text/event-stream", description: "Messages of JSON-RPC, the answer last" },
  otherReplies: [
    { status: 200, type: "application/json", description: "The answer" },
    { status: 202, description: "A notification or an answer was taken" },
  ],
  errors: ERRORS,
  idempotency: "refused",
  // The SDK checks the message, and says what is wrong in its own form
  read: (json) => json,
  handle: (parts, request) => answer(parts, request, "POST"),
});

/** GET /mcp: messages of the gateway to a client with a session, as they come. */
export const mcpStreamRoute = defineRoute({
  method: "GET",
  path: "/mcp",
  access: "tools",
  needs: ["mcp"],
  summary: "Notifications to an MCP client with a session",
  headers: SESSION_HEADERS,
  reply: { status: 200, type: "text/event-stream" },
  errors: ERRORS,
  handle: (parts, request) => answer(parts, request, "GET"),
});

/** DELETE /mcp: ends a session. */
export const endMcpSessionRoute = defineRoute({
  method: "DELETE",
  path: "/mcp",
  access: "tools",
  needs: ["mcp"],
  summary: "End the session of an MCP client",
  headers: SESSION_HEADERS,
  reply: { status: 200 },
  errors: ERRORS,
  handle: (parts, request) => answer(parts, request, "DELETE"),
});

async function answer(
  { mcp }: Pick<RouteParts, "mcp">,
  { identity, requestId, signal, body, head: { url, headers } }: RouteInput,
  method: Route["method"],
): Promise<Reply> {
  // The door asks for a scope, so the router has an identity
  if (identity === null) throw new TypeError("A request to /mcp has no identity");
  const endpoint = await mcp();
  const gatewayUrl = new URL(url).href.replace(/\/mcp(?:\?.*)?$/, "");
  return toReply(
    await endpoint.answer({ http: { method, url, headers }, body, identity, requestId, gatewayUrl, signal }),
  );
}

/** Returns the response of the SDK as a plain reply. */
function toReply({ status, body, headers }: Response): Reply {
  const { "content-type": type = null, ...others } = Object.fromEntries(headers);
  return { status, body, type, headers: others };
}
