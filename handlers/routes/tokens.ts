import * as v from "valibot";
import { TOKEN_LIMITS } from "../../lib/access/stored_token.ts";
import type { Identity } from "../../lib/access/identity.ts";
import { refuse } from "../../lib/base/errors.ts";
import { hasScope, SCOPES } from "../../lib/base/records/caller.ts";
import type { RequestContext, Route } from "../route.ts";
import { readJson, strictRoute } from "../wire/read_json.ts";
import { callerOf } from "../door.ts";
import { listReply, listSchema } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

const seconds = v.optional(
  v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(TOKEN_LIMITS.ttlSeconds)),
);

/** Fields that say how a new token is named and when it ends. */
export const termsFields = {
  label: v.optional(v.pipe(v.string(), v.maxLength(100))),
  /** Lifetime of the token in seconds. Default: the token does not expire */
  ttl_seconds: seconds,
  /** Seconds without a use after which the token ends. Default: it does not end from disuse */
  idle_ttl_seconds: seconds,
} as const;

const pairedSchema = v.object({
  paired: v.literal(true),
  token: v.string(),
  token_id: v.string(),
  scopes: v.array(v.picklist(SCOPES)),
  expires_at: v.nullable(v.string()),
  idle_ttl_seconds: v.nullable(v.number()),
});

const pairSchema = v.strictObject(termsFields);

/** POST /pair: exchanges the pairing code of the header X-Pairing-Code for a token (docs/design/access.md "Pairing"). */
export const pairRoute: Route = strictRoute({
  method: "POST",
  path: "/pair",
  access: "pairing_code",
  summary:
    "Exchange the pairing code in the header X-Pairing-Code for a token; the body says how it is named and when it ends",
  body: pairSchema,
  bodyOptional: true,
  maxBodyBytes: 4096,
  reply: { status: 200, type: "application/json", schema: pairedSchema },
  idempotency: "refused",
  async handler(request, context) {
    const code = request.headers.get("x-pairing-code");
    // Without a code the body is not read
    const body = code === null ? undefined : await readJson(request, context, pairSchema, { optional: true });
    const { label, ttl_seconds: ttlSeconds, idle_ttl_seconds: idleTtlSeconds } = body ?? {};
    const { token, record } = await context.services.pairing.redeem(code, {
      ...(label === undefined ? {} : { label }),
      ttlSeconds,
      idleTtlSeconds,
      address: context.remoteAddress,
    });
    const { id: token_id, scopes, expires_at, idle_ttl_seconds } = record;
    return jsonReply(context, 200, { paired: true, token, token_id, scopes, expires_at, idle_ttl_seconds }, {
      "cache-control": "no-store",
    });
  },
});

/** POST /v1/pairing-code: makes a pairing code, for `postern pair`. */
export const pairingCodeRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/pairing-code",
  access: "admin",
  summary: "Make a pairing code; an earlier one is void",
  reply: { status: 200, type: "application/json", schema: v.object({ code: v.string(), expires_in: v.number() }) },
  idempotency: "refused",
  async handler(_request, context) {
    const { code, expiresInSeconds } = await context.services.pairing.createCode(callerOf(context, "http"));
    return jsonReply(context, 200, { code, expires_in: expiresInSeconds }, { "cache-control": "no-store" });
  },
});

const scopesSchema = v.array(v.picklist(SCOPES));

const tokenSchema = v.object({
  id: v.string(),
  label: v.string(),
  scopes: scopesSchema,
  created_at: v.string(),
  expires_at: v.nullable(v.string()),
  /** Seconds without a use after which the token ends; null: it does not end from disuse */
  idle_ttl_seconds: v.nullable(v.number()),
  /** Tells whether completions with this token go to the model without the agent's own tools */
  plain: v.boolean(),
  /** Patterns of the tools that it may call; null: all */
  tools: v.nullable(v.array(v.string())),
  last_used_at: v.nullable(v.string()),
});

const createSchema = v.strictObject({
  /** Default: chat */
  scopes: v.optional(v.pipe(scopesSchema, v.minLength(1), v.maxLength(SCOPES.length))),
  ...termsFields,
  /** true: completions with this token go to the model without the agent's own tools. Default false */
  plain: v.optional(v.boolean()),
  /** Patterns of the tools that it may call, as `read_*`, for the scope tools alone. Default: all */
  tools: v.optional(v.array(v.pipe(v.string(), v.maxLength(129)))),
});

/** GET /v1/tokens: records of tokens, never the tokens themselves. */
export const listTokensRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/tokens",
  access: "admin",
  summary: "Tokens, newest first",
  reply: { status: 200, type: "application/json", schema: listSchema(tokenSchema) },
  async handler(_request, context) {
    const tokens = [...(await context.services.tokens.list())].sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
    return listReply(context, tokens);
  },
});

/** GET /v1/tokens/:id: the record of one token. */
export const tokenRoute: Route = strictRoute({
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
});

/** POST /v1/tokens: makes a token. No later reply shows the token again. */
export const createTokenRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/tokens",
  access: "admin",
  summary: "Make a token with a subset of the own scopes; without scopes it gets chat",
  body: createSchema,
  bodyOptional: true,
  reply: { status: 201, type: "application/json", schema: v.object({ token: v.string(), ...tokenSchema.entries }) },
  idempotency: "refused",
  async handler(request, context) {
    const { scopes = ["chat"], label = "", ttl_seconds: ttlSeconds, idle_ttl_seconds: idleTtlSeconds, plain, tools } =
      (await readJson(request, context, createSchema, { optional: true })) ?? {};
    checkSubset(context, scopes);
    const terms = { label, ttlSeconds, idleTtlSeconds, plain, tools };
    const { token, record } = await context.services.tokens.issue({
      scopes: [...new Set(scopes)],
      ...terms,
      by: callerOf(context, "http"),
    });
    return jsonReply(context, 201, { token, ...record }, { "cache-control": "no-store" });
  },
});

/** DELETE /v1/tokens/:id: the token stops working at once. */
export const revokeTokenRoute: Route = strictRoute({
  method: "DELETE",
  path: "/v1/tokens/:id",
  access: "admin",
  summary: "Revoke one token",
  reply: { status: 200, type: "application/json", schema: v.object({ id: v.string(), deleted: v.literal(true) }) },
  async handler(_request, context) {
    const id = context.params["id"] ?? "";
    if (!(await context.services.tokens.revoke(id, callerOf(context, "http")))) throw unknownToken();
    return jsonReply(context, 200, { id, deleted: true });
  },
});

/** DELETE /v1/tokens: revokes every token but those of the environment and of the control file. */
export const revokeAllTokensRoute: Route = strictRoute({
  method: "DELETE",
  path: "/v1/tokens",
  access: "admin",
  summary: "Revoke every token",
  reply: { status: 200, type: "application/json", schema: v.object({ deleted: v.number() }) },
  async handler(_request, context) {
    return jsonReply(context, 200, { deleted: await context.services.tokens.revokeAll(callerOf(context, "http")) });
  },
});

function checkSubset({ identity }: RequestContext, scopes: readonly (typeof SCOPES)[number][]): void {
  const missing = scopes.find((scope) => !hasScope(identity?.scopes ?? [], scope));
  if (missing === undefined) return;
  throw refuse("insufficient_scope", `Cannot make a token with the scope "${missing}": your own token lacks it`, {
    param: "scopes",
  });
}

function unknownToken() {
  return refuse(
    "not_found",
    'Cannot find a token with this id: "postern token list" and GET /v1/tokens show those that exist',
  );
}

/** POST /v1/ws-ticket: a single-use ticket with the token's scopes, for browsers, whose WebSocket cannot send a header. */
export const wsTicketRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/ws-ticket",
  access: "chat",
  summary: "Single-use ticket for /ws/chat?ticket=",
  reply: { status: 200, type: "application/json", schema: v.object({ ticket: v.string(), expires_in: v.number() }) },
  idempotency: "refused",
  async handler(_request, context) {
    // A route with `access: "chat"` always has an identity
    const { ticket, expiresInSeconds } = await context.services.tickets.issue(context.identity as Identity);
    return jsonReply(context, 200, { ticket, expires_in: expiresInSeconds }, { "cache-control": "no-store" });
  },
});
