import type { Clock } from "../../base/clock.ts";
import { COOKIE_JARS } from "../../memory/browser_records.ts";
import type { Conversation, OpenedConversation } from "../../base/records/conversation.ts";
import type { Message } from "../../base/records/message.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { COMMAND_FOLDERS } from "../../memory/command_folders.ts";
import { type ReadRecord, tryEntry } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { RUNS } from "../journal/run_records.ts";
import {
  type ConversationRecord,
  CONVERSATIONS,
  conversationStream,
  isUnbegun,
  parseConversationEntry,
  readConversationEnds,
} from "./conversation_records.ts";

/** A message of a conversation; `seq` counts from 1 in the order in which messages were said. */
export interface SaidMessage {
  readonly seq: number;
  readonly runId: string;
  readonly message: Message;
  /** Why what the run said last is not whole; undefined: it is, or the run said more */
  readonly cut: string | undefined;
}

/** The stored conversations, for people to read and to forget. */
export interface StoredConversations {
  /** Returns conversations, the newest first. @param options.after id of the last one seen. @param options.limit 1-1000 */
  list(
    options: { readonly after?: string | undefined; readonly limit: number },
  ): Promise<{ readonly conversations: readonly Conversation[]; readonly hasMore: boolean }>;
  /** Returns a conversation. One whose first reply is at work has no messages yet. */
  open(id: string): Promise<OpenedConversation | undefined>;
  /** Returns messages of a conversation after `afterSeq`, in their order. @param options.limit 1-1000 */
  messages(
    id: string,
    options: { readonly afterSeq: number; readonly limit: number },
  ): Promise<readonly SaidMessage[]>;
  /** Names a conversation. `at_work`: nothing was done, since a run at work writes the record at its end. */
  rename(id: string, title: string): Promise<Conversation | "unknown" | "at_work">;
  /** Forgets a conversation with its messages; its runs stay. `at_work`: nothing was done, since a run of it is at work. */
  delete(id: string): Promise<"deleted" | "unknown" | "at_work">;
  /** Forgets all conversations but those with a run at work. @returns how many of each */
  deleteAll(): Promise<{ readonly deleted: number; readonly atWork: number }>;
  /**
   * Forgets conversations that were last changed before a time, but none with a run at work. Times are ISO 8601. @returns how many
   * @param unbegunBefore time for branches whose first run a crash has cut off for good. Default: the same
   */
  forgetBefore(updatedBefore: string, unbegunBefore?: string): Promise<number>;
}

const NEWEST_FIRST = { order: "created", reverse: true } as const;

/**
 * Returns the stored conversations of a store.
 * @param options.runIn the run of this conversation that is at work or waits for its slot
 */
export function createStoredConversations(
  { store, runIn, unheld = () => [] }: StoredConversationsOptions,
): StoredConversations {
  const isAtWork = async (id: string) => await runIn(id) !== undefined;
  const remove = async (id: string) =>
    !await isAtWork(id) &&
    await store.batch([
      ...unheld(id),
      ...conversationRemoval(id),
      ...await uploadsRemoval(id, store),
    ]);
  return {
    async list({ after, limit }) {
      const conversations: Conversation[] = [];
      for await (const found of CONVERSATIONS.all(store, { ...NEWEST_FIRST, after })) {
        if (conversations.length === limit) return { conversations, hasMore: true };
        conversations.push(toConversation(found));
      }
      return { conversations, hasMore: false };
    },
    async open(id) {
      const runId = await runIn(id);
      const ends = await readConversationEnds(id, store);
      // The end of a run and its messages are one write. A run that ended since the look has said what it says
      if (ends !== undefined) {
        const isSaid = runId === undefined || ends.lastRun === runId;
        return { ...toConversation({ key: id, value: ends.record }), run_id: isSaid ? null : runId };
      }
      const run = runId === undefined ? undefined : (await RUNS.read(store, runId))?.value.run;
      if (run === undefined) return undefined;
      const { created_at: time } = run;
      const told = { title: null, created_at: time, updated_at: time, message_count: 0 };
      return { id, object: "conversation", ...told, run_id: run.id };
    },
    async messages(id, options) {
      const page = await store.read(conversationStream(id), options);
      return page.flatMap((stored) => {
        const found = tryEntry(store, conversationStream(id), stored, parseConversationEntry);
        return found === undefined
          ? []
          : [{ seq: stored.seq, runId: found.run_id, message: found.message, cut: found.cut }];
      });
    },
    async rename(id, title) {
      for (;;) {
        const stored = await CONVERSATIONS.read(store, id);
        if (stored === undefined) return "unknown";
        if (await isAtWork(id)) return "at_work";
        const body = { ...stored.value, title };
        // A record of another version was changed meanwhile, and is read again
        if (await store.batch([CONVERSATIONS.putOver(id, stored.version, body)])) {
          return toConversation({ key: id, value: body });
        }
      }
    },
    async delete(id) {
      // Looks for the record without parsing it: a conversation that cannot be read can be forgotten too
      if (await CONVERSATIONS.versionOf(store, id) === 0) return "unknown";
      return await remove(id) ? "deleted" : "at_work";
    },
    async deleteAll() {
      let deleted = 0;
      let atWork = 0;
      for await (const key of CONVERSATIONS.keys(store)) {
        if (await remove(key)) deleted++;
        else atWork++;
      }
      return { deleted, atWork };
    },
    forgetBefore: (...before) => forgetBefore({ store, runIn, unheld }, ...before),
  };
}

interface StoredConversationsOptions {
  readonly store: Store;
  readonly runIn: (id: string) => string | undefined | Promise<string | undefined>;
  /** Returns the precondition that no gateway of a cluster works in a conversation. Default: the gateway is alone, and asks nothing */
  readonly unheld?: ((id: string) => readonly Write[]) | undefined;
}

async function forgetBefore(
  { store, runIn, unheld = () => [] }: StoredConversationsOptions,
  updatedBefore: string,
  unbegunBefore = updatedBefore,
): Promise<number> {
  let forgotten = 0;
  for await (const { key, version, value } of CONVERSATIONS.all(store)) {
    const isLost = isUnbegun(value) && !await isReviewed(key, store);
    if (value.updated_at >= (isLost ? unbegunBefore : updatedBefore) || await runIn(key) !== undefined) continue;
    // A message that was added since the read keeps the conversation
    const isGone = await store.batch([
      ...unheld(key),
      CONVERSATIONS.putOver(key, version, value),
      ...conversationRemoval(key),
      ...await uploadsRemoval(key, store),
    ]);
    if (isGone) forgotten++;
  }
  return forgotten;
}

/** Returns the writes that forget the files of a conversation. Loaded with the first conversation that is forgotten. */
async function uploadsRemoval(id: string, store: Store): Promise<readonly Write[]> {
  const { conversationUploadsRemoval } = await import("../../memory/uploads.ts");
  return await conversationUploadsRemoval(id, store);
}

/** Tells whether a run of a conversation waits for a person, who may let it go on there. */
async function isReviewed(id: string, store: Store): Promise<boolean> {
  const where = { field: "run.status", value: "needs_review" };
  for await (const { value } of RUNS.all(store, { order: "created", where })) {
    if (value.run.conversation_id === id) return true;
  }
  return false;
}

/** Returns the writes that forget a conversation, with all that its tools keep. */
export function conversationRemoval(id: string): readonly Write[] {
  return [
    CONVERSATIONS.remove(id),
    { op: "drop", stream: conversationStream(id) },
    COOKIE_JARS.remove(id),
    COMMAND_FOLDERS.remove(id),
  ];
}

function toConversation({ key, value }: Omit<ReadRecord<ConversationRecord>, "version">): Conversation {
  const { title = null, created_at, updated_at, messages } = value;
  return { id: key, object: "conversation", title, created_at, updated_at, message_count: messages };
}

const DAY_MS = 24 * 60 * 60 * 1000;

/**
 * Forgets old conversations now and once a day, by `[conversations] retention_days`, and branches that a crash left without a word after a
 * day. A failure is logged.
 * @param options.days 0: no other is forgotten
 * @returns a function that ends this
 */
export function keepConversations(
  stored: StoredConversations,
  { clock, log, days }: { readonly clock: Clock; readonly log: Logger; readonly days: () => number },
): () => void {
  const forget = async () => {
    const before = (age: number) => new Date(clock.now() - age * DAY_MS).toISOString();
    try {
      const forgotten = await stored.forgetBefore(days() === 0 ? "" : before(days()), before(1));
      if (forgotten > 0) log.info("Old conversations were forgotten", { conversations: forgotten });
    } catch (error) {
      log.error("Old conversations could not be forgotten", { error });
    }
  };
  void forget();
  const timer = clock.every(DAY_MS, () => void forget());
  return () => timer.clear();
}
