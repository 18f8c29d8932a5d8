import * as v from "valibot";
import type { Route } from "./route.ts";
import { readJsonValue } from "./wire/read_json.ts";
import { jsonReply } from "./wire/reply.ts";

/** Any JSON: `message` is echoed where there is one, else the whole body. */
const bodySchema = v.union([
  v.array(v.unknown()),
  v.looseObject({ message: v.optional(v.unknown()) }),
  v.string(),
  v.number(),
  v.boolean(),
  v.null(),
]);

/** POST /v1/ping: whether a token works, and what the gateway read. */
export const pingRoute: Route = {
  method: "POST",
  path: "/v1/ping",
  access: "chat",
  summary: "Echo: message, else the JSON body itself, or null without one",
  body: bodySchema,
  bodyOptional: true,
  reply: { status: 200, type: "application/json", schema: v.object({ ok: v.literal(true), echo: v.unknown() }) },
  idempotency: "harmless",
  async handler(request, context) {
    // Any JSON fits the schema, and the echo is to show it as it was sent
    const body = await readJsonValue(request, context, { optional: true });
    return jsonReply(context, 200, { ok: true, echo: echoOf(body) });
  },
};

function echoOf(body: unknown): unknown {
  if (body === undefined) return null;
  const message = body !== null && typeof body === "object" && "message" in body ? body.message : undefined;
  return message ?? body;
}
