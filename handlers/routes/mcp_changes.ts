import * as v from "valibot";
import { callerOf } from "../door.ts";
import type { Route } from "../route.ts";
import { readJson, strictRoute } from "../wire/read_json.ts";

const changeSchema = v.strictObject({
  /** Change that the command line made in the configuration */
  action: v.picklist(["added", "imported", "removed"]),
  /** Package with its exact version, or address of the server; null for another program */
  source: v.nullable(v.pipe(v.string(), v.maxLength(2048))),
  /** Digest of the package, as its registry names it; null where there is none */
  integrity: v.nullable(v.pipe(v.string(), v.maxLength(256))),
});

/** POST /v1/mcp-servers/:name/changes: records in the audit what `postern mcp add`, `import` or `remove` changes in the configuration. */
export const mcpChangeRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/mcp-servers/:name/changes",
  access: "admin",
  summary: "Record in the audit that the command line entered an MCP server into the configuration, or took it out",
  body: changeSchema,
  reply: { status: 204 },
  idempotency: "harmless",
  async handler(request, context) {
    const { action, source, integrity } = await readJson(request, context, changeSchema);
    const { via, tokenId } = callerOf(context, "http");
    const server = (context.params["name"] ?? "").slice(0, 128);
    const by = { via, token_id: tokenId };
    await context.services.audit.append({ type: "mcp_server", action, server, source, integrity, by });
    return new context.Response(null, { status: 204 });
  },
});
