import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { AUDIT_TYPES } from "../../lib/guard/audit/audit_event.ts";
import type { GivenHead } from "../../lib/guard/audit/verify_audit.ts";
import { defineRoute } from "../define_route.ts";
import { choiceQuery, LIMIT_QUERY, listSchema, placedListReply, textQuery, wholeNumber } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

/** Each type of event has further fields. */
const recordSchema = v.looseObject({
  v: v.literal(1),
  seq: v.number(),
  time: v.string(),
  type: v.picklist(AUDIT_TYPES),
  prev: v.string(),
  hash: v.string(),
  chain: v.optional(v.string()),
});

/** Place of a record of a cluster: its key, which begins with its time. */
const CLUSTER_PLACE = /^t\d{15}\.[\w-]{1,80}\.\d{1,15}\.\d{15}$/;

const chainSchema = v.object({
  records: v.number(),
  first_seq: v.nullable(v.number()),
  last_seq: v.nullable(v.number()),
  head: v.nullable(v.object({ seq: v.number(), hash: v.string() })),
});

const reportSchema = v.object({
  ok: v.boolean(),
  ...chainSchema.entries,
  problems: v.array(
    v.object({
      seq: v.number(),
      chain: v.exactOptional(v.string()),
      code: v.picklist(["altered", "missing", "inserted", "moved", "broken", "head"]),
      message: v.string(),
    }),
  ),
  problem_count: v.number(),
  chains: v.exactOptional(
    v.array(
      v.object({
        chain: v.string(),
        state: v.nullable(v.picklist(["open", "closed", "left_off"])),
        ...chainSchema.entries,
      }),
    ),
  ),
});

/** GET /v1/audit: records of decisions, approvals and calls, newest first. */
export const auditRoute = defineRoute({
  method: "GET",
  path: "/v1/audit",
  access: "admin",
  needs: ["audit"],
  summary: "Audit records, newest first",
  query: {
    limit: LIMIT_QUERY,
    after: {
      description: "Only records older than this position, the last_id of the list before",
      schema: { type: "string", pattern: `^[1-9]\\d{0,15}$|${CLUSTER_PLACE.source}` },
      read: (text: string | null) => text === null ? undefined : placeOf(text),
    },
    type: choiceQuery("Only this type of event", AUDIT_TYPES),
    tool: textQuery("Only records of this tool"),
    run_id: textQuery("Only records of this run"),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(recordSchema) },
  async handle({ audit }, { query: { after: before, run_id: runId, ...query } }) {
    const { records, hasMore, last } = await audit.list({ ...query, runId, before });
    return placedListReply(records, { hasMore, lastId: hasMore || records.length > 0 ? last : null });
  },
});

/** Reads the place that a list goes on before. @throws {HttpError} 400 invalid_request */
function placeOf(text: string): string {
  if (CLUSTER_PLACE.test(text)) return text;
  return String(wholeNumber("after", text, Number.MAX_SAFE_INTEGER));
}

const HEAD = /^(?:([\w.-]{1,100}):)?([1-9]\d{0,14}):([0-9a-f]{64})$/;

/** GET /v1/audit/verify: checks whether the audit was changed from outside, and where. */
export const verifyAuditRoute = defineRoute({
  method: "GET",
  path: "/v1/audit/verify",
  access: "admin",
  needs: ["audit"],
  summary: "Check the audit's chain; every record that was altered, deleted, inserted or moved is named",
  query: {
    head: {
      description:
        "A head kept from before, such as <position>:<hash>, in a cluster <chain>:<position>:<hash>: nothing up to it may have been rewritten",
      schema: { type: "string", pattern: HEAD.source },
      read: headOf,
    },
  },
  reply: { status: 200, type: "application/json", schema: reportSchema },
  errors: ["shutting_down", "provider_timeout"],
  async handle({ audit }, { query, signal }) {
    return jsonReply(200, await audit.verify({ ...query, signal }));
  },
});

function headOf(text: string | null): GivenHead | undefined {
  if (text === null) return undefined;
  const [, chain, seq = "", hash = ""] = HEAD.exec(text) ?? [];
  if (hash !== "") return { chain, seq: Number(seq), hash };
  throw refuse(
    "invalid_request",
    'Cannot use this "head": it must be a position, a colon and 64 hexadecimal digits, in a cluster behind the chain and a colon',
    {
      param: "head",
    },
  );
}
