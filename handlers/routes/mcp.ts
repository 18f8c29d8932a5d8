import * as v from "valibot";
import type { RequestContext, Route } from "../route.ts";
import { readJsonValue } from "../wire/read_json.ts";

const ERRORS = [
  "not_found",
  "method_not_allowed",
  "conflict",
  "overloaded",
  "shutting_down",
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
export const mcpRoute: Route = {
  method: "POST",
  path: "/mcp",
  access: "tools",
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
  handler: async (request, context) => await answer(request, context, await readJsonValue(request, context)),
};

/** GET /mcp: messages of the gateway to a client with a session, as they come. */
export const mcpStreamRoute: Route = {
  method: "GET",
  path: "/mcp",
  access: "tools",
  summary: "Notifications to an MCP client with a session",
  headers: SESSION_HEADERS,
  reply: { status: 200, type: "text/event-stream" },
  errors: ERRORS,
  handler: (request, context) => answer(request, context, undefined),
};

/** DELETE /mcp: ends a session. */
export const endMcpSessionRoute: Route = {
  method: "DELETE",
  path: "/mcp",
  access: "tools",
  summary: "End the session of an MCP client",
  headers: SESSION_HEADERS,
  reply: { status: 200 },
  errors: ERRORS,
  handler: (request, context) => answer(request, context, undefined),
};

async function answer(request: Request, context: RequestContext, body: unknown): Promise<Response> {
  const { identity, requestId, signal } = context;
  // The door asks for a scope, so the router has an identity
  if (identity === null) throw new TypeError("A request to /mcp has no identity");
  const endpoint = await context.connections.mcp();
  const gatewayUrl = new URL(request.url).href.replace(/\/mcp(?:\?.*)?$/, "");
  return await endpoint.answer({ http: request, body, identity, requestId, gatewayUrl, signal });
}
