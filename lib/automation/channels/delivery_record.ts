import * as v from "valibot";
import type { JsonSchema } from "../../base/json.ts";
import { storedObject } from "../../base/records/stored_object.ts";
import { Collection, parseMark } from "../../storage/read_records.ts";
import type { Write } from "../../storage/store.ts";

/**
 * States of a delivery. `held`: it waited in a backup that was restored, and may have been delivered since, so that a person decides.
 * `dropped`: a person decided that a held one is not sent.
 */
export const DELIVERY_STATUSES = ["waiting", "delivered", "failed", "held", "dropped"] as const;

/** Decisions of a person about a delivery that is held or failed: `release` sends it, `drop` gives up one that is held. */
export const DELIVERY_ACTIONS = ["release", "drop"] as const;
/** A decision about a delivery. */
export type DeliveryAction = (typeof DELIVERY_ACTIONS)[number];

/** Form of the id of a delivery: that of its run, or that of a message of `[[notify]]`. */
export const DELIVERY_ID_SCHEMA: JsonSchema = { type: "string", pattern: "^(run|ntf)_[0-9a-z]{1,64}$" };

/** Collection `deliveries`, by run id: the reply that an accepted message was promised, or a message of `[[notify]]` by an id of its own. */
const deliveryRecordSchema = storedObject({
  v: v.literal(1),
  run_id: v.string(),
  channel: v.string(),
  sender: v.nullable(v.string()),
  message_id: v.nullable(v.string()),
  /** `waiting` for the run's end, or for the next attempt */
  status: v.picklist(DELIVERY_STATUSES),
  /** ISO 8601 */
  accepted_at: v.string(),
  attempts: v.number(),
  /** ISO 8601; null before the first attempt and after the last */
  next_attempt_at: v.nullable(v.string()),
  /** Why the last attempt failed */
  last_error: v.nullable(v.string()),
  /** ISO 8601; when it was delivered or given up */
  ended_at: v.nullable(v.string()),
  /** ISO 8601; when a person released it: its time starts over then. Absent where nobody did */
  released_at: v.optional(v.string()),
  /** Message of a rule of `[[notify]]`, which `channel` names. Absent: the reply of a run to its channel */
  alert: v.optional(storedObject({
    event: v.string(),
    title: v.string(),
    text: v.string(),
    /** Fragment of the page of the dashboard that shows more, such as `runs/run_1` */
    page: v.string(),
    /** Approval that it tells of; it is not told any more once that is settled */
    approval_id: v.nullable(v.string()),
    /** False: no link answers the approval, since its person would not see all of it */
    may_link: v.boolean(),
  })),
});
/** A delivery as the store keeps it. */
export type DeliveryRecord = v.InferOutput<typeof deliveryRecordSchema>;

/** Message of a rule of `[[notify]]` on its way. */
export type AlertRecord = DeliveryRecord & { readonly alert: NonNullable<DeliveryRecord["alert"]> };

/** Tells whether a delivery is a message of `[[notify]]`. */
export function isAlert(record: DeliveryRecord): record is AlertRecord {
  return record.alert !== undefined;
}

/** Start of the channel of a message of `[[notify]]`, before the name of its rule. No channel has a colon in its name. */
export const NOTIFY = "notify:";

/** Collection of the run ids of deliveries that wait, so that a start need not read all. */
export const OPEN_DELIVERIES = new Collection("open_deliveries", parseMark, { onDamage: { becomes: { v: 1 } } });
/** Collection of the deliveries, by run id. */
export const DELIVERIES = new Collection("deliveries", deliveryRecordSchema, {
  onDamage: { removes: ["deliveries", OPEN_DELIVERIES.name] },
});

/**
 * Returns the writes that belong into the transaction that accepts the message.
 * @param mark the write that marks the delivery as open. Default: without an owner
 */
export function promiseOf(record: DeliveryRecord, mark: Write = openMark(record.run_id)): readonly Write[] {
  return [DELIVERIES.insert(record.run_id, record), mark];
}

/** Returns the write that marks a delivery as open, without an owner. */
export function openMark(runId: string): Write {
  return OPEN_DELIVERIES.insert(runId, { v: 1 });
}

/** Returns the writes that record a change of a delivery. A delivery that has ended is removed from the open ones. */
export function changeOf(record: DeliveryRecord): readonly Write[] {
  const put = DELIVERIES.put(record.run_id, record);
  return record.status === "waiting" ? [put] : [put, OPEN_DELIVERIES.remove(record.run_id)];
}
