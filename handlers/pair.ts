import * as v from "valibot";
import { SCOPES } from "../lib/base/records/caller.ts";
import type { Route } from "./route.ts";
import { jsonReply } from "./wire/reply.ts";

const pairedSchema = v.object({
  paired: v.literal(true),
  token: v.string(),
  token_id: v.string(),
  scopes: v.array(v.picklist(SCOPES)),
  expires_at: v.nullable(v.string()),
});

/** POST /pair: the pairing code of the header X-Pairing-Code for a token (DESIGN.md section 5). */
export const pairRoute: Route = {
  method: "POST",
  path: "/pair",
  access: "pairing_code",
  summary: "Exchange the pairing code in the header X-Pairing-Code for a token; no body",
  reply: { status: 200, type: "application/json", schema: pairedSchema },
  idempotency: "refused",
  async handler(request, context) {
    const { token, record } = await context.services.pairing.redeem(request.headers.get("x-pairing-code"));
    const { id: token_id, scopes, expires_at } = record;
    return jsonReply(context, 200, { paired: true, token, token_id, scopes, expires_at }, {
      "cache-control": "no-store",
    });
  },
};

/** POST /v1/pairing-code: another code, for `postern pair`. */
export const pairingCodeRoute: Route = {
  method: "POST",
  path: "/v1/pairing-code",
  access: "admin",
  summary: "Make a pairing code; an earlier one is void",
  reply: { status: 200, type: "application/json", schema: v.object({ code: v.string(), expires_in: v.number() }) },
  idempotency: "refused",
  async handler(_request, context) {
    const { code, expiresInSeconds } = await context.services.pairing.createCode();
    return jsonReply(context, 200, { code, expires_in: expiresInSeconds }, { "cache-control": "no-store" });
  },
};
