import * as v from "valibot";
import { hasScope, SCOPES } from "../lib/base/records/caller.ts";
import type { RequestContext, Route } from "./route.ts";
import { httpError } from "./wire/error_codes.ts";
import { listReply, listSchema } from "./wire/list_reply.ts";
import { readJson } from "./wire/read_json.ts";
import { jsonReply } from "./wire/reply.ts";

const scopesSchema = v.array(v.picklist(SCOPES));

const tokenSchema = v.object({
  id: v.string(),
  label: v.string(),
  scopes: scopesSchema,
  created_at: v.string(),
  expires_at: v.nullable(v.string()),
  last_used_at: v.nullable(v.string()),
});

const TEN_YEARS_SECONDS = 10 * 366 * 24 * 60 * 60;

const createSchema = v.object({
  /** Default: chat */
  scopes: v.optional(v.pipe(scopesSchema, v.minLength(1), v.maxLength(SCOPES.length))),
  label: v.optional(v.pipe(v.string(), v.maxLength(100))),
  /** Default: the token does not expire */
  ttl_seconds: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(TEN_YEARS_SECONDS))),
});

/** GET /v1/tokens: records, never the tokens themselves. */
export const listTokensRoute: Route = {
  method: "GET",
  path: "/v1/tokens",
  access: "admin",
  summary: "Tokens, newest first",
  reply: { status: 200, type: "application/json", schema: listSchema(tokenSchema) },
  async handler(_request, context) {
    const tokens = [...(await context.services.tokens.list())].sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
    return listReply(context, tokens);
  },
};

/** GET /v1/tokens/:id */
export const tokenRoute: Route = {
  method: "GET",
  path: "/v1/tokens/:id",
  access: "admin",
  summary: "One token's record",
  reply: { status: 200, type: "application/json", schema: tokenSchema },
  async handler(_request, context) {
    const record = (await context.services.tokens.list()).find(({ id }) => id === context.params["id"]);
    if (record === undefined) throw unknownToken();
    return jsonReply(context, 200, record);
  },
};

/** POST /v1/tokens: the only reply that shows the token. */
export const createTokenRoute: Route = {
  method: "POST",
  path: "/v1/tokens",
  access: "admin",
  summary: "Make a token with a subset of the own scopes; without scopes it gets chat",
  body: createSchema,
  bodyOptional: true,
  reply: { status: 201, type: "application/json", schema: v.object({ token: v.string(), ...tokenSchema.entries }) },
  idempotency: "refused",
  async handler(request, context) {
    const { scopes = ["chat"], label = "", ttl_seconds: ttlSeconds } =
      (await readJson(request, context, createSchema, { optional: true })) ?? {};
    checkSubset(context, scopes);
    const { token, record } = await context.services.tokens.issue({ scopes: [...new Set(scopes)], label, ttlSeconds });
    return jsonReply(context, 201, { token, ...record }, { "cache-control": "no-store" });
  },
};

/** DELETE /v1/tokens/:id: the token stops working at once. */
export const revokeTokenRoute: Route = {
  method: "DELETE",
  path: "/v1/tokens/:id",
  access: "admin",
  summary: "Revoke one token",
  reply: { status: 200, type: "application/json", schema: v.object({ id: v.string(), deleted: v.literal(true) }) },
  async handler(_request, context) {
    const id = context.params["id"] ?? "";
    if (!(await context.services.tokens.revoke(id))) throw unknownToken();
    return jsonReply(context, 200, { id, deleted: true });
  },
};

/** DELETE /v1/tokens: those of the environment and the control file stay. */
export const revokeAllTokensRoute: Route = {
  method: "DELETE",
  path: "/v1/tokens",
  access: "admin",
  summary: "Revoke every token",
  reply: { status: 200, type: "application/json", schema: v.object({ deleted: v.number() }) },
  async handler(_request, context) {
    return jsonReply(context, 200, { deleted: await context.services.tokens.revokeAll() });
  },
};

function checkSubset({ identity }: RequestContext, scopes: readonly (typeof SCOPES)[number][]): void {
  const missing = scopes.find((scope) => !hasScope(identity?.scopes ?? [], scope));
  if (missing === undefined) return;
  throw httpError("insufficient_scope", `Cannot make a token with the scope "${missing}": your own token lacks it`, {
    param: "scopes",
  });
}

function unknownToken() {
  return httpError("not_found", "Cannot find a token with this id: see /v1/tokens for those that exist");
}
