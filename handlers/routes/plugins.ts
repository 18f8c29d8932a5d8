import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { pluginSchema, registryEntrySchema, registryInstallSchema } from "../../lib/extensions/extension_views.ts";
import { callerOf } from "../door.ts";
import type { RequestContext, Route } from "../route.ts";
import { refusing } from "../wire/http_errors.ts";
import { listReply, listSchema, textQuery } from "../wire/lists.ts";
import { readJson, strictRoute } from "../wire/read_json.ts";
import { jsonReply } from "../wire/reply.ts";

/** Bytes of a package, in place of `max_request_bytes`. Source: docs/design/plugins.md "Packages" */
const MAX_PACKAGE_BYTES = 67_108_864;
const TAR = "application/x-tar";
const enableSchema = v.strictObject({
  /** Digest of the content that was looked at */
  digest: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
});

/** GET /v1/plugins: all plugins, installed and found. */
export const pluginsRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/plugins",
  access: "admin",
  summary: "Plugins, installed and found, and why each is on or off",
  reply: { status: 200, type: "application/json", schema: listSchema(pluginSchema) },
  async handler(_request, context) {
    const { plugins } = await context.services.plugins();
    await plugins.look();
    return listReply(context, plugins.list());
  },
});

/** GET /v1/plugins/:id: one plugin. */
export const pluginRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/plugins/:id",
  access: "admin",
  summary: "One plugin",
  reply: { status: 200, type: "application/json", schema: pluginSchema },
  handler: (_request, context) =>
    answer(context, async () => {
      const { plugins } = await context.services.plugins();
      await plugins.look();
      return plugins.require(idOf(context));
    }),
});

/** POST /v1/plugins: installs a package, off; with `serve=true` serves it at once until it is deleted. */
export const installPluginRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/plugins",
  access: "admin",
  summary: "Install a package, which is off until it is enabled",
  rawBody: { type: TAR, maxBytes: MAX_PACKAGE_BYTES },
  query: {
    serve: textQuery(
      "true: enable it too, in place of every other plugin of its id, until it is deleted or the gateway ends",
    ),
  },
  reply: { status: 201, type: "application/json", schema: pluginSchema },
  errors: ["conflict"],
  idempotency: "harmless",
  handler: (request, context) =>
    answer(context, async () => {
      requireTar(request);
      const serve = context.query.get("serve");
      if (serve !== null && serve !== "true") {
        throw refuse("invalid_request", 'Cannot accept "serve": it is "true", or left out', { param: "serve" });
      }
      const bytes = await context.body();
      const { plugins } = await context.services.plugins();
      const by = callerOf(context, "http");
      return serve === null ? await plugins.install(bytes, { by }) : await plugins.serve(bytes, { by });
    }, 201),
});

/** POST /v1/plugins/:id/enable: lets the tools of exactly this content be called. */
export const enablePluginRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/plugins/:id/enable",
  access: "admin",
  summary: "Enable a plugin for the content with this digest, with the capabilities that it asks for",
  body: enableSchema,
  reply: { status: 200, type: "application/json", schema: pluginSchema },
  errors: ["conflict"],
  idempotency: "harmless",
  handler: (request, context) =>
    answer(context, async () => {
      const { digest } = await readJson(request, context, enableSchema);
      const { plugins } = await context.services.plugins();
      return await plugins.enable(idOf(context), { by: callerOf(context, "http"), digest });
    }),
});

/** POST /v1/plugins/:id/disable: turns the tools of a plugin off. */
export const disablePluginRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/plugins/:id/disable",
  access: "admin",
  summary: "Disable a plugin",
  reply: { status: 200, type: "application/json", schema: pluginSchema },
  errors: ["conflict", "request_timeout"],
  idempotency: "harmless",
  handler: (_request, context) =>
    answer(context, async () => {
      const { plugins } = await context.services.plugins();
      return await plugins.disable(idOf(context), { by: callerOf(context, "http") });
    }),
});

/** DELETE /v1/plugins/:id: removes an installed package, or ends the serving of one. */
export const removePluginRoute: Route = strictRoute({
  method: "DELETE",
  path: "/v1/plugins/:id",
  access: "admin",
  summary: "Remove an installed package",
  query: { serve: textQuery("true: end what POST /v1/plugins?serve=true began, and remove nothing else") },
  reply: { status: 204 },
  errors: ["conflict", "request_timeout"],
  handler: async (_request, context) => {
    const { plugins } = await context.services.plugins();
    const [id, by] = [idOf(context), callerOf(context, "http")];
    const isServing = context.query.get("serve") === "true";
    await refusing(() => isServing ? plugins.endServing(id, { by }) : plugins.remove(id, { by }));
    return new context.Response(null, { status: 204 });
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
export const searchPluginsRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/plugin-registry",
  access: "admin",
  summary: "Plugins of the registry whose id or description has all words of a query",
  query: { query: textQuery("Words; none: all plugins") },
  reply: { status: 200, type: "application/json", schema: listSchema(registryEntrySchema) },
  errors: ["conflict", "provider_error"],
  async handler(_request, context) {
    const { registry } = await context.services.plugins();
    return listReply(context, await refusing(() => registry.search(context.query.get("query") ?? "", context.signal)));
  },
});

/** POST /v1/plugin-registry/install: installs a plugin of the registry, off. */
export const installFromRegistryRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/plugin-registry/install",
  access: "admin",
  summary: "Install or update a plugin from the registry",
  body: installChoiceSchema,
  reply: {
    status: 200,
    type: "application/json",
    schema: registryInstallSchema,
  },
  errors: ["conflict", "not_found", "provider_error"],
  idempotency: "harmless",
  handler: (request, context) =>
    answer(context, async () => {
      const { id, version } = await readJson(request, context, installChoiceSchema);
      const { registry } = await context.services.plugins();
      return await registry.install(id, { by: callerOf(context, "http"), version, signal: context.signal });
    }),
});

/** POST /v1/plugin-registry/trust-key: accepts the key of a publisher in place of the pinned one. */
export const trustPluginKeyRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/plugin-registry/trust-key",
  access: "admin",
  summary: "Accept the key of a plugin's publisher, in place of the one before",
  body: trustSchema,
  reply: { status: 200, type: "application/json", schema: v.object({ id: v.string(), key: v.string() }) },
  idempotency: "harmless",
  handler: (request, context) =>
    answer(context, async () => {
      const { id, key } = await readJson(request, context, trustSchema);
      const { registry } = await context.services.plugins();
      await registry.trustKey(id, { key, by: callerOf(context, "http") });
      return { id, key };
    }),
});

function idOf({ params }: RequestContext): string {
  return params["id"] ?? "";
}

function requireTar(request: Request): void {
  if (request.headers.get("content-type")?.split(";")[0]?.trim().toLowerCase() === TAR) return;
  throw refuse("unsupported_media_type", `Cannot read the request body: send the package as ${TAR}`);
}

async function answer(context: RequestContext, work: () => Promise<unknown>, status = 200): Promise<Response> {
  return jsonReply(context, status, await refusing(work));
}
