import * as v from "valibot";
import type { AuditHead } from "../../lib/guard/audit/audit_chain.ts";
import { AUDIT_TYPES } from "../../lib/guard/audit/audit_event.ts";
import type { RequestContext, Route } from "../route.ts";
import { httpError } from "../wire/http_errors.ts";
import {
  choiceOf,
  choiceQuery,
  LIMIT_QUERY,
  limitOf,
  listSchema,
  placedListReply,
  textQuery,
  wholeNumber,
} from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

/** Each type of event has further fields. */
const recordSchema = v.looseObject({
  v: v.literal(1),
  seq: v.number(),
  time: v.string(),
  type: v.picklist(AUDIT_TYPES),
  prev: v.string(),
  hash: v.string(),
});

const reportSchema = v.object({
  ok: v.boolean(),
  records: v.number(),
  first_seq: v.nullable(v.number()),
  last_seq: v.nullable(v.number()),
  head: v.nullable(v.object({ seq: v.number(), hash: v.string() })),
  problems: v.array(
    v.object({
      seq: v.number(),
      code: v.picklist(["altered", "missing", "inserted", "moved", "broken", "head"]),
      message: v.string(),
    }),
  ),
  problem_count: v.number(),
});

/** GET /v1/audit: records of decisions, approvals and calls, newest first. */
export const auditRoute: Route = {
  method: "GET",
  path: "/v1/audit",
  access: "admin",
  summary: "Audit records, newest first",
  query: {
    limit: LIMIT_QUERY,
    after: {
      description: "Only records older than this position, the last_id of the list before",
      schema: { type: "integer", minimum: 1, maximum: Number.MAX_SAFE_INTEGER },
    },
    type: choiceQuery("Only this type of event", AUDIT_TYPES),
    tool: textQuery("Only records of this tool"),
    run_id: textQuery("Only records of this run"),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(recordSchema) },
  async handler(_request, context) {
    const { query, services } = context;
    const after = query.get("after");
    const part = await services.audit.list({
      limit: limitOf(context),
      type: choiceOf(context, "type", AUDIT_TYPES),
      tool: query.get("tool") ?? undefined,
      runId: query.get("run_id") ?? undefined,
      before: after === null ? undefined : wholeNumber("after", after, Number.MAX_SAFE_INTEGER),
    });
    const { records, hasMore, lastSeq } = part;
    return placedListReply(context, records, {
      hasMore,
      lastId: hasMore || records.length > 0 ? String(lastSeq) : null,
    });
  },
};

const HEAD = /^([1-9]\d{0,14}):([0-9a-f]{64})$/;

/** GET /v1/audit/verify: checks whether the audit was changed from outside, and where. */
export const verifyAuditRoute: Route = {
  method: "GET",
  path: "/v1/audit/verify",
  access: "admin",
  summary: "Check the audit's chain; every record that was altered, deleted, inserted or moved is named",
  query: {
    head: {
      description: "A head kept from before, as <position>:<hash>: nothing up to it may have been rewritten",
      schema: { type: "string", pattern: HEAD.source },
    },
  },
  reply: { status: 200, type: "application/json", schema: reportSchema },
  errors: ["shutting_down", "provider_timeout"],
  async handler(_request, context) {
    const head = headOf(context);
    return jsonReply(context, 200, await context.services.audit.verify({ head, signal: context.signal }));
  },
};

function headOf({ query }: RequestContext): AuditHead | undefined {
  const text = query.get("head");
  if (text === null) return undefined;
  const [, seq = "", hash = ""] = HEAD.exec(text) ?? [];
  if (hash !== "") return { seq: Number(seq), hash };
  throw httpError(
    "invalid_request",
    'Cannot use this "head": it must be a position, a colon and 64 hexadecimal digits',
    {
      param: "head",
    },
  );
}
