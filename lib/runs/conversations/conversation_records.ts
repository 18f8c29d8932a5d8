import * as v from "valibot";
import { storedObject } from "../../base/records/stored_object.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import { type Actor, type Caller, hasScope, mayReach } from "../../base/records/caller.ts";
import { messageSchema } from "../../base/records/message.ts";
import { Collection, tryEntry } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";

/** Form of a conversation's id. */
export const CONVERSATION_ID = /^[A-Za-z0-9._:-]{1,128}$/;

/** Tells whether a request begins a conversation: it gets an id of its own, under which nothing is stored yet. */
export function beginsConversation({ conversationId }: { readonly conversationId?: string | undefined }): boolean {
  return conversationId === "new";
}

/** Owner of a conversation in its record. A channel owns the messages that it delivers, whichever token carries them. */
export const conversationOwnerSchema = storedObject({
  via: v.picklist(["channel", "token"]),
  /** Token of the owner; null when pairing was off. */
  token_id: v.nullable(v.string()),
});
/** Owner of a conversation: the channel or the token that began it. */
export type ConversationOwner = v.InferOutput<typeof conversationOwnerSchema>;

const conversationRecordSchema = storedObject({
  v: v.literal(1),
  created_at: v.string(),
  updated_at: v.string(),
  /** Number of its messages, which is the length of its stream */
  messages: v.pipe(v.number(), v.integer(), v.minValue(0)),
  /** Number of its first messages that a branch has from another conversation; absent: none */
  copied: v.optional(v.number()),
  /** Owner of the conversation. Absent from records of older versions. */
  owner: v.optional(conversationOwnerSchema),
  /** Name that a person gave the conversation, else the beginning of its first question. Absent from records of older versions */
  title: v.optional(v.string()),
  /** Origins of outside content that its runs have read; absent: none */
  taint: v.optional(v.array(v.string())),
  /** Run after which another one has begun to go on here, and has said nothing yet; absent: none */
  continued: v.optional(v.string()),
  /** The run that has begun to, and when. Absent from records of older versions */
  continued_by: v.optional(storedObject({ run_id: v.string(), at: v.string() })),
  /** Summary of the first `covers` messages for the model. The messages stay in the stream. */
  summary: v.optional(storedObject({ text: v.string(), covers: v.number(), made_at: v.string() })),
});

/** Stream `conversation/<id>`: one record for each message, in the order they were said. */
const conversationEntrySchema = v.object({
  v: v.literal(1),
  run_id: v.string(),
  message: messageSchema,
  /** Why the last message of the run is not all that it would have said: the code of its error, or `length`. Absent: it is */
  cut: v.optional(v.string()),
});

/** Record of a conversation. */
export type ConversationRecord = v.InferOutput<typeof conversationRecordSchema>;

/** Collection of the conversations, by id. */
export const CONVERSATIONS = new Collection("conversations", conversationRecordSchema, {
  onDamage: { drops: conversationStream },
});

/** Parses one message of a conversation. @throws {v.ValiError} for a body that no version wrote */
export function parseConversationEntry(body: unknown): v.InferOutput<typeof conversationEntrySchema> {
  return v.parse(conversationEntrySchema, body);
}

/** Place in a conversation: behind all that a run has said in it. */
export interface ConversationPlace {
  readonly conversationId: string;
  readonly runId: string;
}

/** Tells whether nothing was said in a conversation: it is a branch whose first run is at work, or failed, or was cut off by a crash. */
export function isUnbegun({ copied = 0, messages }: ConversationRecord): boolean {
  return copied > 0 && copied >= messages;
}

/** Refuses to go on in a branch that goes with its first run. @param param field that names it. @throws {HttpError} 409 conflict */
export function refuseUnbegun(record: ConversationRecord, param: string): void {
  if (!isUnbegun(record)) return;
  const why = "its first response is at work, or has failed";
  throw refuse("conflict", `Cannot go on in this conversation: ${why}; wait for its end`, { param });
}

/** A conversation with the run that said its first message, and the one that said its last. What a branch has copied is not counted. */
export interface ConversationEnds {
  readonly record: ConversationRecord;
  readonly firstRun: string | undefined;
  readonly lastRun: string | undefined;
}

/** Returns a conversation with its ends; undefined where nothing is recorded under an id. */
export async function readConversationEnds(id: string, store: Store): Promise<ConversationEnds | undefined> {
  const record = (await CONVERSATIONS.read(store, id))?.value;
  if (record === undefined) return undefined;
  const stream = conversationStream(id);
  const runAfter = async (afterSeq: number) => {
    const [entry] = await store.read(stream, { afterSeq, limit: 1 });
    return entry && tryEntry(store, stream, entry, parseConversationEntry)?.run_id;
  };
  const { copied = 0, messages } = record;
  const [firstRun, lastRun] = await Promise.all([runAfter(copied), runAfter(Math.max(copied, messages - 1))]);
  return { record, firstRun, lastRun };
}

/** Newest messages of a conversation whose runs are looked at. */
const MAX_LAST = 100;

/** Returns the runs that said the last 100 messages of a conversation, the newest first. */
export async function lastRuns(
  id: string,
  { messages }: Pick<ConversationRecord, "messages">,
  store: Store,
): Promise<readonly string[]> {
  const stream = conversationStream(id);
  const page = await store.read(stream, { afterSeq: Math.max(0, messages - MAX_LAST), limit: MAX_LAST });
  const runs = page.flatMap((stored) => tryEntry(store, stream, stored, parseConversationEntry)?.run_id ?? []);
  return [...new Set(runs.toReversed())];
}

/** Returns the name of the stream with the messages of a conversation. */
export function conversationStream(id: string): string {
  return `conversation/${id}`;
}

/** A conversation that somebody wants to go on with. */
export interface ClaimedConversation {
  /** Undefined for a conversation that older versions recorded, without an owner. null: nothing is recorded under this id */
  readonly owner: ConversationOwner | undefined | null;
  /** Tells whether a channel records, or would record, messages under the id of this conversation. */
  readonly isChannel: boolean;
}

/** Returns the owner that a caller becomes of the conversation it begins. */
export function ownerFor(caller: Actor): ConversationOwner {
  return { via: caller.via === "channel" ? "channel" : "token", token_id: caller.tokenId };
}

/**
 * Checks that a caller may go on with a conversation: one that its own token began, or any with the scope `runs`.
 *
 * A channel's message may always go on with its channel's conversation. Nobody else may begin one under a channel's id: what was said
 * in it would reach the channel's sender.
 * @throws {HttpError} 403 insufficient_scope
 */
export function checkConversation(
  caller: Pick<Caller, "via" | "tokenId" | "scopes">,
  { owner, isChannel }: ClaimedConversation,
): void {
  if (caller.via === "channel" || hasScope(caller.scopes, "runs")) return;
  if (isChannel || owner?.via === "channel") throw refused("it belongs to a channel");
  if (owner === null) return;
  if (owner === undefined) throw refused("nobody knows who began it");
  if (!mayReach(caller, { tokenId: owner.token_id })) throw refused("another token began it");
}

function refused(reason: string): HttpError {
  return refuse(
    "insufficient_scope",
    `Cannot continue this conversation: ${reason}, and your token lacks the scope "runs"; use "new" or an id of your own`,
    { param: "conversation_id" },
  );
}
