import * as v from "valibot";
import { DENIED_BY } from "./approval.ts";
import { contentSchema, toolCallSchema } from "./message.ts";

/** A conversation, as `/v1/conversations` shows it. Times are ISO 8601. */
export const conversationSchema = v.object({
  id: v.string(),
  object: v.literal("conversation"),
  /** Name that a person gave, else the beginning of the first message; null when neither is known */
  title: v.nullable(v.string()),
  created_at: v.string(),
  updated_at: v.string(),
  message_count: v.number(),
});

/** A conversation, as `/v1/conversations` shows it. */
export type Conversation = Readonly<v.InferOutput<typeof conversationSchema>>;

/** A conversation with the run whose messages come next. */
export const openedConversationSchema = v.object({
  ...conversationSchema.entries,
  /** Id of the run whose messages come next; null: none is at work in the conversation */
  run_id: v.nullable(v.string()),
});
/** A conversation with the run whose messages come next. */
export type OpenedConversation = Readonly<v.InferOutput<typeof openedConversationSchema>>;

/** A message of a conversation, as `/v1/conversations/:id` shows it. */
export const conversationMessageSchema = v.object({
  /** Position of the message in the conversation, from 1 */
  seq: v.number(),
  run_id: v.string(),
  role: v.picklist(["system", "developer", "user", "assistant", "tool"]),
  content: v.nullable(contentSchema),
  name: v.optional(v.string()),
  /** Names of the files that are its last parts, in their order. Absent: it has none, or nobody knows */
  files: v.optional(v.array(v.string())),
  refusal: v.optional(v.nullable(v.string())),
  tool_calls: v.optional(v.array(toolCallSchema)),
  tool_call_id: v.optional(v.string()),
  /** Only where the call failed */
  is_error: v.optional(v.literal(true)),
  /** Source of the denial of the call. Absent: nobody denied it, or an earlier version stored it */
  denied_by: v.optional(v.picklist(DENIED_BY)),
  /** Why the run has not said all in its last message: the code of its error, such as `cancelled`, or `length`. Absent: it has */
  cut: v.optional(v.string()),
});
/** A message of a conversation, as `/v1/conversations/:id` shows it. */
export type ConversationMessage = v.InferOutput<typeof conversationMessageSchema>;
