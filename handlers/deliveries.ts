import * as v from "valibot";
import { DELIVERY_STATUSES, type DeliveryRecord } from "../lib/automation/channels/delivery_record.ts";
import type { Route } from "./route.ts";
import { choiceOf, choiceQuery, LIMIT_QUERY, pageOf, textQuery } from "./wire/list_query.ts";
import { listReply, listSchema } from "./wire/list_reply.ts";

const deliverySchema = v.object({
  /** That of the run */
  id: v.string(),
  object: v.literal("delivery"),
  channel: v.string(),
  sender: v.nullable(v.string()),
  message_id: v.nullable(v.string()),
  status: v.picklist(DELIVERY_STATUSES),
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
    status: choiceQuery("Only those in this state", DELIVERY_STATUSES),
    limit: LIMIT_QUERY,
    after: textQuery("Only those accepted before the one with this id"),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(deliverySchema) },
  async handler(_request, context) {
    const { deliveries, hasMore } = await context.services.deliveries.page({
      ...pageOf(context),
      status: choiceOf(context, "status", DELIVERY_STATUSES),
    });
    return listReply(context, deliveries.map(toDelivery), hasMore);
  },
};

function toDelivery({ v: _, run_id, ...rest }: DeliveryRecord) {
  return { id: run_id, object: "delivery", ...rest };
}
