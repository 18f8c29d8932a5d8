import * as v from "valibot";

const sealedSchema = v.object({ key: v.string(), nonce: v.string(), data: v.string() });

const entrySchema = v.object({
  id: v.string(),
  /** Counts up through a mailbox */
  seq: v.number(),
  from: v.string(),
  /** Bytes the message takes in an answer */
  bytes: v.number(),
  /** Payload, time and sender */
  sealed: sealedSchema,
});
export type MailboxEntry = v.InferOutput<typeof entrySchema>;

const bodySchema = v.object({ v: v.literal(1), entries: v.array(entrySchema) });

const contentSchema = v.object({ payload: v.string(), timestamp: v.string(), sender: v.string() });

/** What of a message is sealed. `timestamp` is ISO 8601. */
export type MailboxContent = v.InferOutput<typeof contentSchema>;

/**
 * A persisted body as the newest form of a mailbox: the one place where older versions are upcast.
 * @throws {v.ValiError} for a body that no version wrote
 */
export function parseMailbox(body: unknown): readonly MailboxEntry[] {
  return v.parse(bodySchema, body).entries;
}

/** The body to persist, in the newest version. */
export function toMailboxBody(entries: readonly MailboxEntry[]): v.InferOutput<typeof bodySchema> {
  return { v: 1, entries: [...entries] };
}

/** @throws {v.ValiError} for a text that no version sealed */
export function parseContent(text: string): MailboxContent {
  return v.parse(contentSchema, JSON.parse(text));
}
