import { mcpRecordSchema } from "../../lib/extensions/extension_views.ts";
import { callerOf } from "../door.ts";
import type { Route } from "../route.ts";
import { listSchema, placedListReply } from "../wire/lists.ts";
import { strictRoute } from "../wire/read_json.ts";

/** GET /v1/mcp-records: servers that left the configuration, and what is kept of them. */
export const mcpRecordsRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/mcp-records",
  access: "admin",
  summary: "MCP servers that left the configuration, and of which something is kept",
  reply: { status: 200, type: "application/json", schema: listSchema(mcpRecordSchema) },
  async handler(_request, context) {
    const kept = await (await context.services.mcpServers()).kept();
    return placedListReply(context, kept, { hasMore: false, lastId: kept.at(-1)?.name ?? null });
  },
});

/** DELETE /v1/mcp-records/:name: forgets a server that left the configuration. */
export const forgetMcpRecordRoute: Route = strictRoute({
  method: "DELETE",
  path: "/v1/mcp-records/:name",
  access: "admin",
  summary: "Forget an MCP server that left the configuration: its accepted tools, its sign-in and its switch",
  reply: { status: 204 },
  errors: ["not_found", "conflict"],
  async handler(_request, context) {
    const name = context.params["name"] ?? "";
    await (await context.services.mcpServers()).forget(name, callerOf(context, "http"));
    return new context.Response(null, { status: 204 });
  },
});
