import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { pluginSchema, registryEntrySchema, registryInstallSchema } from "../../lib/base/records/extension_views.ts";
import { defineRoute } from "../define_route.ts";
import { refusing } from "../wire/http_errors.ts";
import { listReply, listSchema, textQuery } from "../wire/lists.ts";
import { emptyReply, jsonReply, type Reply } from "../wire/reply.ts";

/** Bytes of a package, in place of `max_request_bytes`. Source: docs/design/plugins.md "Packages" */
const MAX_PACKAGE_BYTES = 67_108_864;
const TAR = "application/x-tar";
const enableSchema = v.strictObject({
  /** Digest of the content that was looked at */
  digest: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
});

/** GET /v1/plugins: all plugins, installed and found. */
export const pluginsRoute = defineRoute({
  method: "GET",
  path: "/v1/plugins",
  access: "admin",
  strict: true,
  needs: ["plugins"],
  summary: "Plugins, installed and found, and why each is on or off",
  reply: { status: 200, type: "application/json", schema: listSchema(pluginSchema) },
  async handle(parts) {
    const { plugins } = await parts.plugins();
    await plugins.look();
    return listReply(plugins.list());
  },
});

/** GET /v1/plugins/:id: one plugin. */
export const pluginRoute = defineRoute({
  method: "GET",
  path: "/v1/plugins/:id",
  access: "admin",
  strict: true,
  needs: ["plugins"],
  summary: "One plugin",
  reply: { status: 200, type: "application/json", schema: pluginSchema },
  handle: (parts, { params }) =>
    answer(async () => {
      const { plugins } = await parts.plugins();
      await plugins.look();
      return plugins.require(params.id);
    }),
});

/** POST /v1/plugins: installs a package, off; with `serve=true` serves it at once until it is deleted. */
export const installPluginRoute = defineRoute({
  method: "POST",
  path: "/v1/plugins",
  access: "admin",
  strict: true,
  needs: ["plugins"],
  summary: "Install a package, which is off until it is enabled",
  rawBody: { type: TAR, maxBytes: MAX_PACKAGE_BYTES, what: "package" },
  query: {
    serve: {
      description:
        "true: enable it too, in place of every other plugin of its id, until it is deleted or the gateway ends",
      schema: { type: "string" },
      read: readServe,
    },
  },
  reply: { status: 201, type: "application/json", schema: pluginSchema },
  errors: ["conflict"],
  idempotency: "harmless",
  handle: (parts, { query, body, caller }) =>
    answer(async () => {
      const { plugins } = await parts.plugins();
      return query.serve ? await plugins.serve(body, { by: caller }) : await plugins.install(body, { by: caller });
    }, 201),
});

/** POST /v1/plugins/:id/enable: lets the tools of exactly this content be called. */
export const enablePluginRoute = defineRoute({
  method: "POST",
  path: "/v1/plugins/:id/enable",
  access: "admin",
  strict: true,
  needs: ["plugins"],
  summary: "Enable a plugin for the content with this digest, with the capabilities that it asks for",
  body: enableSchema,
  reply: { status: 200, type: "application/json", schema: pluginSchema },
  errors: ["conflict"],
  idempotency: "harmless",
  handle: (parts, { params, body, caller }) =>
    answer(async () => {
      const { plugins } = await parts.plugins();
      return await plugins.enable(params.id, { by: caller, digest: body.digest });
    }),
});

/** POST /v1/plugins/:id/disable: turns the tools of a plugin off. */
export const disablePluginRoute = defineRoute({
  method: "POST",
  path: "/v1/plugins/:id/disable",
  access: "admin",
  strict: true,
  needs: ["plugins"],
  summary: "Disable a plugin",
  reply: { status: 200, type: "application/json", schema: pluginSchema },
  errors: ["conflict", "request_timeout"],
  idempotency: "harmless",
  handle: (parts, { params, caller }) =>
    answer(async () => {
      const { plugins } = await parts.plugins();
      return await plugins.disable(params.id, { by: caller });
    }),
});

/** DELETE /v1/plugins/:id: removes an installed package, or ends the serving of one. */
export const removePluginRoute = defineRoute({
  method: "DELETE",
  path: "/v1/plugins/:id",
  access: "admin",
  strict: true,
  needs: ["plugins"],
  summary: "Remove an installed package",
  query: { serve: textQuery("true: end what POST /v1/plugins?serve=true began, and remove nothing else") },
  reply: { status: 204 },
  errors: ["conflict", "request_timeout"],
  handle: async (parts, { params, query, caller }) => {
    const { plugins } = await parts.plugins();
    const [id, by] = [params.id, caller];
    await refusing(() => query.serve === "true" ? plugins.endServing(id, { by }) : plugins.remove(id, { by }));
    return emptyReply();
  },
});

const installChoiceSchema = v.strictObject({
  id: v.pipe(v.string(), v.maxLength(64)),
  /** Default: the newest one */
  version: v.optional(v.pipe(v.string(), v.maxLength(64))),
});

const trustSchema = v.strictObject({
  id: v.pipe(v.string(), v.maxLength(64)),
  /** Ed25519 public key in base64 */
  key: v.pipe(v.string(), v.maxLength(64)),
});

/** GET /v1/plugin-registry: searches the registry. */
export const searchPluginsRoute = defineRoute({
  method: "GET",
  path: "/v1/plugin-registry",
  access: "admin",
  strict: true,
  needs: ["plugins"],
  summary: "Plugins of the registry whose id or description has all words of a query",
  query: { query: textQuery("Words; none: all plugins") },
  reply: { status: 200, type: "application/json", schema: listSchema(registryEntrySchema) },
  errors: ["conflict", "provider_error"],
  async handle(parts, { query, signal }) {
    const { registry } = await parts.plugins();
    return listReply(await refusing(() => registry.search(query.query ?? "", signal)));
  },
});

/** POST /v1/plugin-registry/install: installs a plugin of the registry, off. */
export const installFromRegistryRoute = defineRoute({
  method: "POST",
  path: "/v1/plugin-registry/install",
  access: "admin",
  strict: true,
  needs: ["plugins"],
  summary: "Install or update a plugin from the registry",
  body: installChoiceSchema,
  reply: {
    status: 200,
    type: "application/json",
    schema: registryInstallSchema,
  },
  errors: ["conflict", "not_found", "provider_error"],
  idempotency: "harmless",
  handle: (parts, { body, caller, signal }) =>
    answer(async () => {
      const { id, version } = body;
      const { registry } = await parts.plugins();
      return await registry.install(id, { by: caller, version, signal });
    }),
});

/** POST /v1/plugin-registry/trust-key: accepts the key of a publisher in place of the pinned one. */
export const trustPluginKeyRoute = defineRoute({
  method: "POST",
  path: "/v1/plugin-registry/trust-key",
  access: "admin",
  strict: true,
  needs: ["plugins"],
  summary: "Accept the key of a plugin's publisher, in place of the one before",
  body: trustSchema,
  reply: { status: 200, type: "application/json", schema: v.object({ id: v.string(), key: v.string() }) },
  idempotency: "harmless",
  handle: (parts, { body, caller }) =>
    answer(async () => {
      const { id, key } = body;
      const { registry } = await parts.plugins();
      await registry.trustKey(id, { key, by: caller });
      return { id, key };
    }),
});

/** Tells whether a plugin is served. @throws {HttpError} 400 invalid_request */
function readServe(text: string | null, name: string): boolean {
  if (text === null || text === "true") return text !== null;
  throw refuse("invalid_request", 'Cannot accept "serve": it is "true", or left out', { param: name });
}

async function answer(work: () => Promise<unknown>, status = 200): Promise<Reply> {
  return jsonReply(status, await refusing(work));
}
