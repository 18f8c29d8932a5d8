import * as v from "valibot";
import { HttpError } from "../base/errors.ts";
import { type Caller, hasScope, isSameToken } from "../base/records/caller.ts";

/** Whoever began a conversation, as its record keeps it. A channel owns what it delivers, whichever token carries its messages. */
export const conversationOwnerSchema = v.object({
  via: v.picklist(["channel", "token"]),
  /** null where pairing was off */
  token_id: v.nullable(v.string()),
});
export type ConversationOwner = v.InferOutput<typeof conversationOwnerSchema>;

/** A conversation that somebody wants to go on with. */
export interface ClaimedConversation {
  /** Undefined for a conversation that older versions recorded, without an owner. null: nothing is recorded under this id */
  readonly owner: ConversationOwner | undefined | null;
  /** Tells whether a channel records, or would record, messages under the id of this conversation. */
  readonly isChannel: boolean;
}

/** Returns the owner that a caller becomes of the conversation it begins. */
export function ownerFor(caller: Pick<Caller, "via" | "tokenId">): ConversationOwner {
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
  if (!isSameToken({ tokenId: owner.token_id }, caller)) throw refused("another token began it");
}

function refused(reason: string): HttpError {
  return new HttpError(
    "insufficient_scope",
    `Cannot continue this conversation: ${reason}, and your token lacks the scope "runs"; use "new" or an id of your own`,
    { status: 403, type: "permission_error", param: "conversation_id" },
  );
}
