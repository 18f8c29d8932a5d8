import * as v from "valibot";
import type { McpOperator } from "../../lib/extensions/mcp/mcp_operator.ts";
import { storedActor } from "../../lib/base/records/caller.ts";
import { type McpServerInfo, mcpServerInfoSchema } from "../../lib/extensions/extension_views.ts";
import { callerOf } from "../door.ts";
import type { RequestContext, Route } from "../route.ts";
import { listSchema, placedListReply } from "../wire/lists.ts";
import { readJson, strictRoute } from "../wire/read_json.ts";
import { jsonReply } from "../wire/reply.ts";

/** Characters of a server's log that a list has: the end of it. */
const MAX_LISTED_LOG = 2_000;

/** Tools that one answer may accept: as many as a server may have. */
const MAX_ACCEPTED = 1_000;

const acceptSchema = v.strictObject({
  /** Digests of the definitions that were looked at */
  digests: v.pipe(
    v.array(v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/))),
    v.minLength(1),
    v.maxLength(MAX_ACCEPTED),
  ),
});

/** GET /v1/mcp-servers: the configured servers. */
export const mcpServersRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/mcp-servers",
  access: "admin",
  summary: "MCP servers of the configuration, with state, tools, last error and log, and why each is off",
  reply: { status: 200, type: "application/json", schema: listSchema(mcpServerInfoSchema) },
  async handler(_request, context) {
    const servers = await (await context.services.mcpServers()).list();
    const shown = servers.map((server) => ({
      ...server,
      log_tail: server.log_tail.slice(-MAX_LISTED_LOG).toWellFormed(),
      changes: server.changes.map((change) => ({ ...change, difference: "" })),
    }));
    return placedListReply(context, shown, { hasMore: false, lastId: shown.at(-1)?.name ?? null });
  },
});

/** GET /v1/mcp-servers/:name: one server. */
export const mcpServerRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/mcp-servers/:name",
  access: "admin",
  summary: "One MCP server",
  reply: { status: 200, type: "application/json", schema: mcpServerInfoSchema },
  handler: (_request, context) => answer(context, (servers, name) => servers.get(name)),
});

/** Parts that all commands to one server share. */
const COMMAND = {
  method: "POST",
  access: "admin",
  reply: { status: 200, type: "application/json", schema: mcpServerInfoSchema },
  idempotency: "harmless",
} as const;

/** POST /v1/mcp-servers/:name/enable: lets a server run that somebody turned off. */
export const enableMcpServerRoute: Route = strictRoute({
  ...COMMAND,
  path: "/v1/mcp-servers/:name/enable",
  summary: "Let a server run that was turned off, where the configuration allows it",
  errors: ["conflict", "request_timeout"],
  handler: (_request, context) => answer(context, (servers, name) => servers.enable(name, callerOf(context, "http"))),
});

/** POST /v1/mcp-servers/:name/disable: ends a server and keeps it from being started. */
export const disableMcpServerRoute: Route = strictRoute({
  ...COMMAND,
  path: "/v1/mcp-servers/:name/disable",
  summary: "End a server and keep it from being started, over restarts too",
  errors: ["request_timeout"],
  handler: (_request, context) => answer(context, (servers, name) => servers.disable(name, callerOf(context, "http"))),
});

/** POST /v1/mcp-servers/:name/accept: offers the tools whose definitions somebody has looked at. */
export const acceptMcpToolsRoute: Route = strictRoute({
  ...COMMAND,
  path: "/v1/mcp-servers/:name/accept",
  summary: "Offer tools of a server that have changed, or are new, by the digests of their definitions",
  body: acceptSchema,
  errors: ["conflict"],
  async handler(request, context) {
    const { digests } = await readJson(request, context, acceptSchema);
    const by = callerOf(context, "http");
    return await answer(context, (servers, name) => servers.accept(name, { digests, by }));
  },
});

/** POST /v1/mcp-servers/:name/restart: starts a server anew. */
export const restartMcpServerRoute: Route = strictRoute({
  ...COMMAND,
  path: "/v1/mcp-servers/:name/restart",
  summary: "Restart a server, and read its tools; a start that fails is in the reply",
  errors: ["conflict", "request_timeout"],
  handler: (_request, context) =>
    answer(
      context,
      (servers, name) => servers.restart(name, { by: callerOf(context, "http"), signal: context.signal }),
    ),
});

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
  ...COMMAND,
  path: "/v1/mcp-servers/:name/changes",
  summary: "Record in the audit that the command line entered an MCP server into the configuration, or took it out",
  body: changeSchema,
  reply: { status: 204 },
  async handler(request, context) {
    const { action, source, integrity } = await readJson(request, context, changeSchema);
    const server = (context.params["name"] ?? "").slice(0, 128);
    const by = storedActor(callerOf(context, "http"));
    await context.services.audit.append({ type: "mcp_server", action, server, source, integrity, by });
    return new context.Response(null, { status: 204 });
  },
});

async function answer(
  context: RequestContext,
  work: (servers: McpOperator, name: string) => Promise<McpServerInfo>,
): Promise<Response> {
  const servers = await context.services.mcpServers();
  return jsonReply(context, 200, await work(servers, context.params["name"] ?? ""));
}
