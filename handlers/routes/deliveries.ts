import * as v from "valibot";
import {
  DELIVERY_ACTIONS,
  DELIVERY_ID_SCHEMA,
  DELIVERY_STATUSES,
  type DeliveryRecord,
} from "../../lib/automation/channels/delivery_record.ts";
import { defineRoute } from "../define_route.ts";
import { choiceQuery, LIMIT_QUERY, listReply, listSchema, textQuery } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

const deliverySchema = v.object({
  /** Id of the run whose reply is delivered, or of a message of `[[notify]]`, `ntf_...` */
  id: v.string(),
  object: v.literal("delivery"),
  /** For a message: `notify:` and the name of its rule */
  channel: v.string(),
  /** Event that a message tells of; null for a reply */
  event: v.nullable(v.string()),
  /** Title of a message; null for a reply */
  title: v.nullable(v.string()),
  sender: v.nullable(v.string()),
  message_id: v.nullable(v.string()),
  status: v.picklist(DELIVERY_STATUSES),
  accepted_at: v.string(),
  ended_at: v.nullable(v.string()),
  attempts: v.number(),
  next_attempt_at: v.nullable(v.string()),
  last_error: v.nullable(v.string()),
  released_at: v.nullable(v.string()),
});

/** GET /v1/deliveries: replies of channels on their way to a `reply_url`, and their outcomes. */
export const deliveriesRoute = defineRoute({
  method: "GET",
  path: "/v1/deliveries",
  access: "runs",
  needs: ["deliveries"],
  summary: "Replies of channels on their way to their reply_url, and messages of [[notify]], newest first",
  query: {
    status: choiceQuery("Only those in this state", DELIVERY_STATUSES),
    limit: LIMIT_QUERY,
    after: textQuery("Only those accepted before the one with this id"),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(deliverySchema) },
  async handle(parts, { query }) {
    const { deliveries, hasMore } = await parts.deliveries.page(query);
    return listReply(deliveries.map(toDelivery), hasMore);
  },
});

const resolveSchema = v.object({
  /** `release` sends a held or failed one, with all its attempts; `drop` gives up a held one */
  action: v.picklist(DELIVERY_ACTIONS),
});

/** POST /v1/deliveries/:id/resolve: a person's decision about a delivery that a restore held, or that failed. */
export const resolveDeliveryRoute = defineRoute({
  method: "POST",
  path: "/v1/deliveries/:id/resolve",
  access: "runs",
  needs: ["deliveries"],
  params: { id: DELIVERY_ID_SCHEMA },
  errors: ["not_found", "conflict", "overloaded"],
  summary: "Send a delivery that is held or failed, or drop one that is held; any other is 409",
  body: resolveSchema,
  reply: { status: 200, type: "application/json", schema: deliverySchema },
  idempotency: "honoured",
  async handle({ deliveries }, { params, body }) {
    return jsonReply(200, toDelivery(await deliveries.resolve(params.id, body.action)));
  },
});

/** POST /v1/notify/:name/test: sends a message of a test by a rule of `[[notify]]`, once. */
export const testNotifyRoute = defineRoute({
  method: "POST",
  path: "/v1/notify/:name/test",
  access: "admin",
  strict: true,
  needs: ["deliveries"],
  errors: ["not_found"],
  summary: "Send a message of a test by a rule of [[notify]], once, and say whether it was taken",
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({ delivered: v.boolean(), reason: v.nullable(v.string()) }),
  },
  idempotency: "harmless",
  async handle({ deliveries }, { params, signal }) {
    const reason = await deliveries.test(params.name, signal);
    return jsonReply(200, { delivered: reason === null, reason });
  },
});

function toDelivery({ v: _, run_id, released_at, alert, ...rest }: DeliveryRecord) {
  const { event = null, title = null } = alert ?? {};
  return { id: run_id, object: "delivery", ...rest, event, title, released_at: released_at ?? null };
}
