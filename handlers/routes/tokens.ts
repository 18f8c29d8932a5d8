import * as v from "valibot";
import { TOKEN_LIMITS } from "../../lib/access/stored_token.ts";
import type { Identity } from "../../lib/access/identity.ts";
import { refuse } from "../../lib/base/errors.ts";
import { type Caller, hasScope, SCOPES } from "../../lib/base/records/caller.ts";
import { tokenSchema } from "../../lib/base/records/token.ts";
import { defineRoute } from "../define_route.ts";
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
export const pairRoute = defineRoute({
  method: "POST",
  path: "/pair",
  access: "pairing_code",
  strict: true,
  needs: ["pairing"],
  summary:
    "Exchange the pairing code in the header X-Pairing-Code for a token; the body says how it is named and when it ends",
  body: pairSchema,
  bodyOptional: true,
  maxBodyBytes: 4096,
  reply: { status: 200, type: "application/json", schema: pairedSchema },
  idempotency: "refused",
  // Without a code the body is not read
  async before({ pairing }, { head, address }) {
    if (head.headers.get("x-pairing-code") === null) await pairing.redeem(null, { address });
  },
  async handle({ pairing }, { body, address, head }) {
    const { label, ttl_seconds: ttlSeconds, idle_ttl_seconds: idleTtlSeconds } = body ?? {};
    const { token, record } = await pairing.redeem(head.headers.get("x-pairing-code"), {
      ...(label === undefined ? {} : { label }),
      ttlSeconds,
      idleTtlSeconds,
      address,
    });
    const { id: token_id, scopes, expires_at, idle_ttl_seconds } = record;
    return jsonReply(200, { paired: true, token, token_id, scopes, expires_at, idle_ttl_seconds }, {
      "cache-control": "no-store",
    });
  },
});

/** POST /v1/pairing-code: makes a pairing code, for `postern pair`. */
export const pairingCodeRoute = defineRoute({
  method: "POST",
  path: "/v1/pairing-code",
  access: "admin",
  strict: true,
  needs: ["pairing"],
  summary: "Make a pairing code; an earlier one is void",
  reply: { status: 200, type: "application/json", schema: v.object({ code: v.string(), expires_in: v.number() }) },
  idempotency: "refused",
  async handle(parts, { caller }) {
    const { code, expiresInSeconds } = await parts.pairing.createCode(caller);
    return jsonReply(200, { code, expires_in: expiresInSeconds }, { "cache-control": "no-store" });
  },
});

const scopesSchema = v.array(v.picklist(SCOPES));

const createSchema = v.strictObject({
  /** Default: chat */
  scopes: v.optional(v.pipe(scopesSchema, v.minLength(1), v.maxLength(SCOPES.length))),
  ...termsFields,
  /** true: completions with this token go to the model without the agent's own tools. Default false */
  plain: v.optional(v.boolean()),
  /** Patterns of the tools that it may call, such as `read_*`, for the scope tools alone. Default: all */
  tools: v.optional(v.array(v.pipe(v.string(), v.maxLength(129)))),
});

/** GET /v1/tokens: records of tokens, never the tokens themselves. */
export const listTokensRoute = defineRoute({
  method: "GET",
  path: "/v1/tokens",
  access: "admin",
  strict: true,
  needs: ["tokens"],
  summary: "Tokens, newest first",
  reply: { status: 200, type: "application/json", schema: listSchema(tokenSchema) },
  async handle(parts) {
    const tokens = [...(await parts.tokens.list())].sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
    return listReply(tokens);
  },
});

/** GET /v1/tokens/:id: the record of one token. */
export const tokenRoute = defineRoute({
  method: "GET",
  path: "/v1/tokens/:id",
  access: "admin",
  strict: true,
  needs: ["tokens"],
  summary: "One token's record",
  reply: { status: 200, type: "application/json", schema: tokenSchema },
  async handle({ tokens }, { params }) {
    const record = (await tokens.list()).find(({ id }) => id === params.id);
    if (record === undefined) throw unknownToken();
    return jsonReply(200, record);
  },
});

/** POST /v1/tokens: makes a token. No later reply shows the token again. */
export const createTokenRoute = defineRoute({
  method: "POST",
  path: "/v1/tokens",
  access: "admin",
  strict: true,
  needs: ["tokens"],
  summary: "Make a token with a subset of the own scopes; without scopes it gets chat",
  body: createSchema,
  bodyOptional: true,
  reply: { status: 201, type: "application/json", schema: v.object({ token: v.string(), ...tokenSchema.entries }) },
  idempotency: "refused",
  async handle(parts, { body, caller }) {
    const { scopes = ["chat"], label = "", ttl_seconds: ttlSeconds, idle_ttl_seconds: idleTtlSeconds, plain, tools } =
      body ?? {};
    checkSubset(caller, scopes);
    const terms = { label, ttlSeconds, idleTtlSeconds, plain, tools };
    const { token, record } = await parts.tokens.issue({
      scopes: [...new Set(scopes)],
      ...terms,
      by: caller,
    });
    return jsonReply(201, { token, ...record }, { "cache-control": "no-store" });
  },
});

/** DELETE /v1/tokens/:id: the token stops working at once. */
export const revokeTokenRoute = defineRoute({
  method: "DELETE",
  path: "/v1/tokens/:id",
  access: "admin",
  strict: true,
  needs: ["tokens"],
  summary: "Revoke one token",
  reply: { status: 200, type: "application/json", schema: v.object({ id: v.string(), deleted: v.literal(true) }) },
  async handle({ tokens }, { params: { id }, caller }) {
    if (!(await tokens.revoke(id, caller))) throw unknownToken();
    return jsonReply(200, { id, deleted: true });
  },
});

/** DELETE /v1/tokens: revokes every token but those of the environment and of the control file. */
export const revokeAllTokensRoute = defineRoute({
  method: "DELETE",
  path: "/v1/tokens",
  access: "admin",
  strict: true,
  needs: ["tokens"],
  summary: "Revoke every token",
  reply: { status: 200, type: "application/json", schema: v.object({ deleted: v.number() }) },
  async handle(parts, { caller }) {
    return jsonReply(200, { deleted: await parts.tokens.revokeAll(caller) });
  },
});

function checkSubset(caller: Caller, scopes: readonly (typeof SCOPES)[number][]): void {
  const missing = scopes.find((scope) => !hasScope(caller.scopes, scope));
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
export const wsTicketRoute = defineRoute({
  method: "POST",
  path: "/v1/ws-ticket",
  access: "chat",
  strict: true,
  needs: ["tickets"],
  summary: "Single-use ticket for /ws/chat?ticket=",
  reply: { status: 200, type: "application/json", schema: v.object({ ticket: v.string(), expires_in: v.number() }) },
  idempotency: "refused",
  async handle(parts, { identity }) {
    // A route with `access: "chat"` always has an identity
    const { ticket, expiresInSeconds } = await parts.tickets.issue(identity as Identity);
    return jsonReply(200, { ticket, expires_in: expiresInSeconds }, { "cache-control": "no-store" });
  },
});
