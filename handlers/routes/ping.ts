import * as v from "valibot";
import { defineRoute } from "../define_route.ts";
import { jsonReply } from "../wire/reply.ts";

/** Any JSON: `message` is echoed where there is one, else the whole body. */
const bodySchema = v.union([
  v.array(v.unknown()),
  v.looseObject({ message: v.optional(v.unknown()) }),
  v.string(),
  v.number(),
  v.boolean(),
  v.null(),
]);

/** POST /v1/ping: tells whether a token works, and echoes the body. */
export const pingRoute = defineRoute({
  method: "POST",
  path: "/v1/ping",
  access: "chat",
  steady: "echo",
  needs: [],
  summary: "Echo: message, else the JSON body itself, or null without one",
  body: bodySchema,
  bodyOptional: true,
  // Checking would remove `null` fields
  read: (json: unknown) => json,
  reply: { status: 200, type: "application/json", schema: v.object({ ok: v.literal(true), echo: v.unknown() }) },
  idempotency: "harmless",
  handle: (_parts, { body }) => jsonReply(200, { ok: true, echo: echoOf(body) }),
});

function echoOf(body: unknown): unknown {
  if (body === undefined) return null;
  const message = body !== null && typeof body === "object" && "message" in body ? body.message : undefined;
  return message ?? body;
}
