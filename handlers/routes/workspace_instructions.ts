import * as v from "valibot";
import { instructionsSchema } from "../../lib/base/records/extension_views.ts";
import { defineRoute } from "../define_route.ts";
import { jsonReply } from "../wire/reply.ts";

const digest = v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/));

const trustSchema = v.strictObject({
  /** Digest of the content that was looked at */
  digest,
  /** Digest that was trusted when it was looked at; null: none was. Absent: whatever was */
  before: v.optional(v.nullable(digest)),
});

const reply = { status: 200, type: "application/json", schema: instructionsSchema } as const;

/** GET /v1/workspace-instructions: AGENTS.md or its like of the workspace, and whether runs are told of it. */
export const instructionsRoute = defineRoute({
  method: "GET",
  path: "/v1/workspace-instructions",
  access: "admin",
  strict: true,
  needs: ["instructions"],
  summary: "Instructions of the workspace, and what changed since they were trusted",
  reply,
  handle: async (parts) => jsonReply(200, await (await parts.instructions()).show()),
});

/** POST /v1/workspace-instructions/trust: trusts exactly this content. */
export const trustInstructionsRoute = defineRoute({
  method: "POST",
  path: "/v1/workspace-instructions/trust",
  access: "admin",
  strict: true,
  needs: ["instructions"],
  summary: "Trust the instructions of the workspace with the content of this digest",
  body: trustSchema,
  reply,
  errors: ["conflict", "not_found"],
  idempotency: "harmless",
  async handle(parts, { body, caller }) {
    const instructions = await parts.instructions();
    return jsonReply(200, await instructions.trust({ ...body, by: caller }));
  },
});

/** POST /v1/workspace-instructions/untrust: takes the trust back. */
export const untrustInstructionsRoute = defineRoute({
  method: "POST",
  path: "/v1/workspace-instructions/untrust",
  access: "admin",
  strict: true,
  needs: ["instructions"],
  summary: "Take the trust in the instructions of the workspace back",
  reply,
  errors: ["not_found"],
  idempotency: "harmless",
  async handle(parts, { caller }) {
    const instructions = await parts.instructions();
    return jsonReply(200, await instructions.untrust({ by: caller }));
  },
});
