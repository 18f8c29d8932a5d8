import * as v from "valibot";
import { SCOPES } from "../lib/base/records/caller.ts";
import type { Route } from "./route.ts";
import { strictRoute } from "./strict_route.ts";
import { termsFields } from "./tokens.ts";
import { callerOf } from "./wire/caller_of.ts";
import { readJson } from "./wire/read_json.ts";
import { jsonReply } from "./wire/reply.ts";

const pairedSchema = v.object({
  paired: v.literal(true),
  token: v.string(),
  token_id: v.string(),
  scopes: v.array(v.picklist(SCOPES)),
  expires_at: v.nullable(v.string()),
  idle_ttl_seconds: v.nullable(v.number()),
});

const pairSchema = v.strictObject(termsFields);

/** POST /pair: the pairing code of the header X-Pairing-Code for a token (docs/design/access.md "Pairing"). */
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
    // The body of a request without a code is not even read
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

/** POST /v1/pairing-code: another code, for `postern pair`. */
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
