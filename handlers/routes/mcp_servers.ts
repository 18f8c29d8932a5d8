import * as v from "valibot";
import { storedActor } from "../../lib/base/records/caller.ts";
import { mcpServerInfoSchema } from "../../lib/base/records/extension_views.ts";
import { defineRoute } from "../define_route.ts";
import { listSchema, placedListReply } from "../wire/lists.ts";
import { emptyReply, jsonReply } from "../wire/reply.ts";

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
export const mcpServersRoute = defineRoute({
  method: "GET",
  path: "/v1/mcp-servers",
  access: "admin",
  strict: true,
  needs: ["mcpServers"],
  summary: "MCP servers of the configuration, with state, tools, last error and log, and why each is off",
  reply: { status: 200, type: "application/json", schema: listSchema(mcpServerInfoSchema) },
  async handle(parts) {
    const servers = await (await parts.mcpServers()).list();
    const shown = servers.map((server) => ({
      ...server,
      log_tail: server.log_tail.slice(-MAX_LISTED_LOG).toWellFormed(),
      changes: server.changes.map((change) => ({ ...change, difference: "" })),
    }));
    return placedListReply(shown, { hasMore: false, lastId: shown.at(-1)?.name ?? null });
  },
});

/** GET /v1/mcp-servers/:name: one server. */
export const mcpServerRoute = defineRoute({
  method: "GET",
  path: "/v1/mcp-servers/:name",
  access: "admin",
  strict: true,
  needs: ["mcpServers"],
  summary: "One MCP server",
  reply: { status: 200, type: "application/json", schema: mcpServerInfoSchema },
  handle: async ({ mcpServers }, { params }) => jsonReply(200, await (await mcpServers()).get(params.name)),
});

/** Parts that all commands to one server share. */
const COMMAND = {
  method: "POST",
  access: "admin",
  reply: { status: 200, type: "application/json", schema: mcpServerInfoSchema },
  idempotency: "harmless",
} as const;

/** POST /v1/mcp-servers/:name/enable: lets a server run that somebody turned off. */
export const enableMcpServerRoute = defineRoute({
  strict: true,
  needs: ["mcpServers"],
  ...COMMAND,
  path: "/v1/mcp-servers/:name/enable",
  summary: "Let a server run that was turned off, where the configuration allows it",
  errors: ["conflict", "request_timeout"],
  handle: async ({ mcpServers }, { params, caller }) =>
    jsonReply(200, await (await mcpServers()).enable(params.name, caller)),
});

/** POST /v1/mcp-servers/:name/disable: ends a server and keeps it from being started. */
export const disableMcpServerRoute = defineRoute({
  strict: true,
  needs: ["mcpServers"],
  ...COMMAND,
  path: "/v1/mcp-servers/:name/disable",
  summary: "End a server and keep it from being started, over restarts too",
  errors: ["request_timeout"],
  handle: async ({ mcpServers }, { params, caller }) =>
    jsonReply(200, await (await mcpServers()).disable(params.name, caller)),
});

/** POST /v1/mcp-servers/:name/accept: offers the tools whose definitions somebody has looked at. */
export const acceptMcpToolsRoute = defineRoute({
  strict: true,
  needs: ["mcpServers"],
  ...COMMAND,
  path: "/v1/mcp-servers/:name/accept",
  summary: "Offer tools of a server that have changed, or are new, by the digests of their definitions",
  body: acceptSchema,
  errors: ["conflict"],
  handle: async ({ mcpServers }, { params, body, caller }) =>
    jsonReply(200, await (await mcpServers()).accept(params.name, { digests: body.digests, by: caller })),
});

/** POST /v1/mcp-servers/:name/restart: restarts a server. */
export const restartMcpServerRoute = defineRoute({
  strict: true,
  needs: ["mcpServers"],
  ...COMMAND,
  path: "/v1/mcp-servers/:name/restart",
  summary: "Restart a server, and read its tools; a start that fails is in the reply",
  errors: ["conflict", "request_timeout"],
  handle: async ({ mcpServers }, { params, caller, signal }) =>
    jsonReply(200, await (await mcpServers()).restart(params.name, { by: caller, signal })),
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
export const mcpChangeRoute = defineRoute({
  strict: true,
  needs: ["audit"],
  ...COMMAND,
  path: "/v1/mcp-servers/:name/changes",
  summary: "Record in the audit that the command line entered an MCP server into the configuration, or took it out",
  body: changeSchema,
  reply: { status: 204 },
  async handle({ audit }, { params, body: { action, source, integrity }, caller }) {
    const server = params.name.slice(0, 128);
    await audit.append({ type: "mcp_server", action, server, source, integrity, by: storedActor(caller) });
    return emptyReply();
  },
});
