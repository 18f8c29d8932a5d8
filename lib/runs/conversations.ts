import * as v from "valibot";
import type { Random } from "../base/random.ts";
import { HttpError } from "../base/errors.ts";
import type { Message } from "../base/records/message.ts";
import type { Store, Write } from "../storage/store.ts";
import {
  conversationEntrySchema,
  conversationRecordSchema,
  CONVERSATIONS,
  conversationStream,
} from "./conversation_records.ts";

const ID = /^[A-Za-z0-9._:-]{1,128}$/;
/** The newest part of a conversation that is read for the model; what is older stays stored. */
const MAX_MESSAGES = 1000;
const MAX_BYTES = 16 * 1024 * 1024;
const PAGE = 100;

/** What was said under one conversation id, in order, once (DESIGN.md section 7). */
export interface Conversations {
  /**
   * The id to record under: `new` makes one up, a client may name its own.
   * @throws {HttpError} 400 for an id outside [A-Za-z0-9._:-]{1,128}
   */
  open(id: string): string;
  /** Its newest messages, oldest first, from a user message on: 1,000 messages and 16 MiB at most. Empty for a new one */
  history(id: string): Promise<readonly Message[]>;
  /** The writes that add these messages, to go into one batch with the run's end. Holds as long as no other run of it works */
  writes(
    id: string,
    added: { readonly runId: string; readonly messages: readonly Message[]; readonly time: string },
  ): Promise<readonly Write[]>;
}

export function createConversations(options: { readonly store: Store; readonly random: Random }): Conversations {
  const { store, random } = options;
  const load = async (id: string) => {
    const stored = await store.get(CONVERSATIONS, id);
    return stored === undefined ? undefined : v.parse(conversationRecordSchema, stored.body);
  };
  return {
    open(id) {
      if (id === "new") return random.id("conv_");
      if (ID.test(id)) return id;
      throw new HttpError(
        "invalid_request",
        `Cannot use "${id.slice(0, 128)}" as conversation id: use 1 to 128 letters, digits, ".", "_", ":" or "-"`,
        { status: 400, type: "invalid_request_error", param: "conversation_id" },
      );
    },
    async history(id) {
      const conversation = await load(id);
      if (conversation === undefined) return [];
      const kept: { readonly message: Message; readonly bytes: number }[] = [];
      let bytes = 0;
      let afterSeq = Math.max(0, conversation.messages - MAX_MESSAGES);
      let cut = afterSeq > 0;
      for (;;) {
        const page = await store.read(conversationStream(id), { afterSeq, limit: PAGE });
        for (const { body, seq } of page) {
          const { message } = v.parse(conversationEntrySchema, body);
          const entry = { message, bytes: JSON.stringify(message).length };
          kept.push(entry);
          bytes += entry.bytes;
          afterSeq = seq;
        }
        while (bytes > MAX_BYTES && kept.length > 1) {
          bytes -= kept.shift()?.bytes ?? 0;
          cut = true;
        }
        if (page.length < PAGE) break;
      }
      const messages = kept.map((entry) => entry.message);
      // A history that starts inside a turn could hold results of calls that are not there
      const start = cut ? messages.findIndex((message) => message.role === "user") : 0;
      return start < 0 ? [] : messages.slice(start);
    },
    async writes(id, { runId, messages, time }) {
      const conversation = await load(id);
      const length = conversation?.messages ?? 0;
      const body = {
        v: 1,
        created_at: conversation?.created_at ?? time,
        updated_at: time,
        messages: length + messages.length,
      };
      return [
        { op: "put", collection: CONVERSATIONS, key: id, body },
        {
          op: "append",
          stream: conversationStream(id),
          expectedSeq: length,
          records: messages.map((message) => ({ v: 1, run_id: runId, message })),
        },
      ];
    },
  };
}
