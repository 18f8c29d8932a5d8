import * as v from "valibot";
import { messageSchema } from "../base/records/message.ts";
import { conversationOwnerSchema } from "./conversation_owner.ts";

/** Form of a conversation's id. */
export const CONVERSATION_ID = /^[A-Za-z0-9._:-]{1,128}$/;

/** Collection `conversations`, by conversation id. */
export const CONVERSATIONS = "conversations";

const conversationRecordSchema = v.object({
  v: v.literal(1),
  created_at: v.string(),
  updated_at: v.string(),
  /** Number of its messages, which is the length of its stream */
  messages: v.pipe(v.number(), v.integer(), v.minValue(0)),
  /** Whoever began it. Absent from records of older versions */
  owner: v.optional(conversationOwnerSchema),
  /** Name that a person gave the conversation, else the beginning of its first question. Absent from records of older versions */
  title: v.optional(v.string()),
  /** What its first `covers` messages were condensed into for the model; they stay in the stream */
  summary: v.optional(v.object({ text: v.string(), covers: v.number(), made_at: v.string() })),
});

/** Stream `conversation/<id>`: one record for each message, in the order they were said. */
const conversationEntrySchema = v.object({ v: v.literal(1), run_id: v.string(), message: messageSchema });

/** @throws {v.ValiError} for a body that no version wrote */
export function parseConversation(body: unknown): v.InferOutput<typeof conversationRecordSchema> {
  return v.parse(conversationRecordSchema, body);
}

/** @throws {v.ValiError} for a body that no version wrote */
export function parseConversationEntry(body: unknown): v.InferOutput<typeof conversationEntrySchema> {
  return v.parse(conversationEntrySchema, body);
}

export function conversationStream(id: string): string {
  return `conversation/${id}`;
}
