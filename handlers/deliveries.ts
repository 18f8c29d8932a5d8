import * as v from "valibot";
import type { DeliveryRecord } from "../lib/automation/channels/delivery_record.ts";
import type { RequestContext, Route } from "./route.ts";
import { httpError } from "./wire/error_codes.ts";
import { LIMIT_QUERY, limitOf } from "./wire/list_query.ts";
import { listReply, listSchema } from "./wire/list_reply.ts";

const STATUSES = ["waiting", "delivered", "failed"] as const;

const deliverySchema = v.object({
  /** That of the run */
  id: v.string(),
  object: v.literal("delivery"),
  channel: v.string(),
  sender: v.nullable(v.string()),
  message_id: v.nullable(v.string()),
  status: v.picklist(STATUSES),
  accepted_at: v.string(),
  ended_at: v.nullable(v.string()),
  attempts: v.number(),
  next_attempt_at: v.nullable(v.string()),
  last_error: v.nullable(v.string()),
});

/** GET /v1/deliveries: replies of channels on their way to a `reply_url`, and what became of them. */
export const deliveriesRoute: Route = {
  method: "GET",
  path: "/v1/deliveries",
  access: "runs",
  summary: "Replies of channels on their way to their reply_url, newest first",
  query: {
    status: `Only those that are ${STATUSES.join(", ")}`,
    limit: LIMIT_QUERY,
    after: "Only those accepted before the one with this id",
  },
  reply: { status: 200, type: "application/json", schema: listSchema(deliverySchema) },
  async handler(_request, context) {
    const { deliveries, hasMore } = await context.services.deliveries.page({
      status: statusOf(context),
      limit: limitOf(context),
      after: context.query.get("after") ?? undefined,
    });
    return listReply(context, deliveries.map(toDelivery), { hasMore, lastId: deliveries.at(-1)?.run_id ?? null });
  },
};

function statusOf({ query }: RequestContext): DeliveryRecord["status"] | undefined {
  const text = query.get("status");
  if (text === null) return undefined;
  const status = STATUSES.find((known) => known === text);
  if (status !== undefined) return status;
  throw httpError("invalid_request", `Cannot list by this status: use one of ${STATUSES.join(", ")}`, {
    param: "status",
  });
}

function toDelivery({ v: _, run_id, ...rest }: DeliveryRecord) {
  return { id: run_id, object: "delivery", ...rest };
}
