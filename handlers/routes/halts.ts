import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { HALT_ID, HALT_KINDS, HALT_NAME, haltSchema } from "../../lib/base/records/gateway_status.ts";
import { defineRoute } from "../define_route.ts";
import { listReply, listSchema } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

const bodySchema = v.pipe(
  v.strictObject({
    kind: v.picklist(HALT_KINDS),
    /** With `tool` its name, with `run` its id */
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

/** GET /v1/halts: what a person has halted. */
export const haltsRoute = defineRoute({
  method: "GET",
  path: "/v1/halts",
  access: "approve",
  strict: true,
  needs: ["halts"],
  summary: "Work that is halted, the oldest halt first",
  reply: { status: 200, type: "application/json", schema: listSchema(haltSchema) },
  handle: ({ halts }) => Promise.resolve(listReply(halts.list())),
});

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
  async handle({ halts }, { body: { kind, name = null }, caller }) {
    const { halt } = await halts.halt({ kind, name }, caller);
    return jsonReply(200, halt);
  },
});

const resumedSchema = v.object({ resumed: v.array(v.string()) });

/** DELETE /v1/halts: lets all halted work go on. */
export const resumeAllRoute = defineRoute({
  method: "DELETE",
  path: "/v1/halts",
  access: "admin",
  strict: true,
  needs: ["halts"],
  summary: "Let all halted work go on",
  reply: { status: 200, type: "application/json", schema: resumedSchema },
  errors: ["storage_unavailable"],
  handle: async ({ halts }, { caller }) => jsonReply(200, { resumed: [...await halts.resume(undefined, caller)] }),
});

/** DELETE /v1/halts/:id: lifts one halt. */
export const resumeRoute = defineRoute({
  method: "DELETE",
  path: "/v1/halts/:id",
  access: "admin",
  strict: true,
  needs: ["halts"],
  params: { id: { type: "string", pattern: HALT_ID.source } },
  summary: "Lift one halt",
  reply: { status: 200, type: "application/json", schema: resumedSchema },
  errors: ["not_found", "storage_unavailable"],
  async handle({ halts }, { params: { id }, caller }) {
    const resumed = await halts.resume(id, caller);
    if (resumed.length === 0) {
      throw refuse(
        "not_found",
        `Cannot resume "${id}": it is not halted; GET /v1/halts and postern status show what is`,
      );
    }
    return jsonReply(200, { resumed: [...resumed] });
  },
});
