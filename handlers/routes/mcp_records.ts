import { mcpRecordSchema } from "../../lib/base/records/extension_views.ts";
import { defineRoute } from "../define_route.ts";
import { listSchema, placedListReply } from "../wire/lists.ts";
import { emptyReply } from "../wire/reply.ts";

/** GET /v1/mcp-records: servers that left the configuration, and what is kept of them. */
export const mcpRecordsRoute = defineRoute({
  method: "GET",
  path: "/v1/mcp-records",
  access: "admin",
  strict: true,
  needs: ["mcpServers"],
  summary: "MCP servers that left the configuration, and of which something is kept",
  reply: { status: 200, type: "application/json", schema: listSchema(mcpRecordSchema) },
  async handle(parts) {
    const kept = await (await parts.mcpServers()).kept();
    return placedListReply(kept, { hasMore: false, lastId: kept.at(-1)?.name ?? null });
  },
});

/** DELETE /v1/mcp-records/:name: forgets a server that left the configuration. */
export const forgetMcpRecordRoute = defineRoute({
  method: "DELETE",
  path: "/v1/mcp-records/:name",
  access: "admin",
  strict: true,
  needs: ["mcpServers"],
  summary: "Forget an MCP server that left the configuration: its accepted tools, its sign-in and its switch",
  reply: { status: 204 },
  errors: ["not_found", "conflict"],
  async handle(parts, { params, caller }) {
    const name = params.name;
    await (await parts.mcpServers()).forget(name, caller);
    return emptyReply();
  },
});
