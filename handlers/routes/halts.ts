import * as v from "valibot";
import { HALT_KINDS, HALT_NAME, haltSchema } from "../../lib/base/records/gateway_status.ts";
import { defineRoute } from "../define_route.ts";
import { listReply, listSchema, textQuery } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

/** GET /v1/halts: what a person has halted. */
export const haltsRoute = defineRoute({
  method: "GET",
  path: "/v1/halts",
  access: "approve",
  strict: true,
  needs: ["halts"],
  summary: "Work that is halted, the oldest halt first",
  reply: { status: 200, type: "application/json", schema: listSchema(haltSchema) },
  handle: ({ halts }) => listReply(halts.list()),
});

const bodySchema = v.pipe(
  v.strictObject({
    kind: v.picklist(HALT_KINDS),
    /** Name of the tool, or id of the run */
    name: v.optional(v.pipe(v.string(), v.regex(HALT_NAME))),
  }),
  v.forward(
    v.check(
      ({ kind, name }) => (kind === "tool" || kind === "run") === (name !== undefined),
      "name the tool or the run, and nothing for the other kinds",
    ),
    ["name"],
  ),
);

/** POST /v1/halts: halts work at every gateway of the database, at once. */
export const haltRoute = defineRoute({
  method: "POST",
  path: "/v1/halts",
  access: "approve",
  strict: true,
  needs: ["halts"],
  summary: "Halt all work, or some: nothing of it begins any more, and what is at work is stopped",
  body: bodySchema,
  reply: { status: 200, type: "application/json", schema: haltSchema },
  errors: ["conflict", "storage_unavailable"],
  idempotency: "harmless",
  handle: async ({ halts }, { body: { kind, name = null }, caller }) =>
    jsonReply(200, await halts.halt({ kind, name }, caller)),
});

/** DELETE /v1/halts: lets halted work go on. */
export const resumeRoute = defineRoute({
  method: "DELETE",
  path: "/v1/halts",
  access: "admin",
  strict: true,
  needs: ["halts"],
  summary: "Let halted work go on",
  query: { id: textQuery("Only this halt, as tool:shell. Default: all") },
  reply: { status: 200, type: "application/json", schema: v.object({ resumed: v.array(v.string()) }) },
  errors: ["storage_unavailable"],
  handle: async ({ halts }, { query, caller }) =>
    jsonReply(200, { resumed: [...await halts.resume(query.id, caller)] }),
});
