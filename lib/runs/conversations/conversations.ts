import { unknownFieldsOf } from "../../base/records/stored_object.ts";
import { slidingWindow } from "../../access/sliding_window.ts";
import type { Random } from "../../base/random.ts";
import { refuse } from "../../base/errors.ts";
import type { Caller } from "../../base/records/caller.ts";
import { type Message, saidIn, summaryMessages } from "../../base/records/message.ts";
import { joinTaints, type Taint, taintField, UNTAINTED } from "../../base/taint.ts";
import { type Patience, patiently, tryEntry } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import {
  beginsConversation,
  checkConversation,
  CONVERSATION_ID,
  type ConversationPlace,
  type ConversationRecord,
  CONVERSATIONS,
  conversationStream,
  isUnbegun,
  ownerFor,
  parseConversationEntry,
  refuseUnbegun,
} from "./conversation_records.ts";
import { RUNS } from "../journal/run_records.ts";
import { conversationRemoval } from "./stored_conversations.ts";

/** Newest messages of a conversation that are read for the model. Older messages stay stored. */
const MAX_MESSAGES = 1000;
const MAX_BYTES = 16 * 1024 * 1024;
const PAGE = 100;
/** Parts of 64 KiB that all branches of one token together may copy in a minute. */
const MAX_COPIED = 1024;
const COPY_BYTES = 64 * 1024;
/** Newest messages of a conversation among which those of a run are looked for. */
const MAX_SEARCHED = 10_000;
const NO_HISTORY: History = { summary: undefined, messages: [], taint: UNTAINTED, firstSeq: 1 };

/** Text that stands for the first messages of a conversation. */
export interface HistorySummary {
  readonly text: string;
  /** Number of messages that the text stands for, from the first on. */
  readonly covers: number;
}

/** The part of a conversation that the model may be sent. */
export interface History {
  /** Summary of the first messages; undefined when nothing was condensed yet. */
  readonly summary: HistorySummary | undefined;
  /** Messages after the summary. */
  readonly messages: readonly Message[];
  /** Outside content that the runs of the conversation have read. */
  readonly taint: Taint;
  /** Place of the first of `messages`, from 1. More than one place after the summary when messages in between were too many. */
  readonly firstSeq: number;
}

/** Messages that were said under one conversation id, in order and once (docs/design/runs.md "Conversations"). */
export interface Conversations {
  /**
   * Returns the id to record under. `new` gives a new id; a client may name its own.
   * @throws {HttpError} 400 for an id outside [A-Za-z0-9._:-]{1,128}
   */
  open(id: string): string;
  /**
   * Checks that a caller may go on with a conversation (see checkConversation). The conversation can change after the check, until its
   * run is at work: `history` checks again.
   * @throws {HttpError} 403 insufficient_scope; 409 conflict for a branch in which nothing was said yet
   */
  check(id: string, caller: ConversationCaller): Promise<void>;
  /**
   * Returns the newest messages of a conversation, the oldest first, from a user message on: 1,000 messages and 16 MiB at most. Empty for
   * a new conversation.
   * @throws {HttpError} 403 insufficient_scope for a caller who may not go on with it
   */
  history(id: string, caller: ConversationCaller): Promise<History>;
  /**
   * Returns the conversation that a run goes on in behind another one. It is that of the other for the first run that asks, as long as nothing
   * follows there: then `giveBack` ends what was taken. Any further run gets a branch, a new conversation that begins with the same history.
   * @param options.runId the run that goes on
   * @param options.isBusy true: a run is at work in the conversation, or waits for it
   * @param options.lostBefore time before which a run was recorded, or is lost to a crash that left the conversation taken
   * @throws as `upTo`
   */
  goOnAfter(
    place: ConversationPlace,
    options: {
      readonly caller: ConversationCaller;
      readonly time: string;
      readonly isBusy: boolean;
      readonly runId: string;
      readonly lostBefore: string;
    },
  ): Promise<string>;
  /**
   * Returns the history up to a place, a summary in it as messages, and the conversation's title.
   * @throws {HttpError} 409 conflict where the run said nothing there that is kept, or too much was said; 403 as `history`
   */
  upTo(
    place: ConversationPlace,
    caller: ConversationCaller,
  ): Promise<Pick<History, "messages" | "taint"> & Pick<ConversationRecord, "title">>;
  /**
   * Gives back what `goOnAfter` gave a run that has said nothing in it: the branch goes, or the next run may go on in its place. What another
   * run has taken since stays that run's.
   */
  giveBack(id: string, by: { readonly place: ConversationPlace; readonly runId: string }): Promise<void>;
  /** Keeps a summary, so that it is made once. The messages stay stored. Does nothing when the conversation changed meanwhile. */
  summarized(id: string, summary: HistorySummary, time: string): Promise<void>;
  /** Returns the writes that add these messages, for one batch with the run's end. Valid while no other run of the conversation works. */
  writes(
    id: string,
    added: {
      readonly runId: string;
      /** True for a conversation that began with the run: nothing is stored under its id. Default false. */
      readonly isNew?: boolean;
      /** Number of the first messages of a new conversation that it has from another one. Default: none */
      readonly copied?: number | undefined;
      readonly caller: ConversationCaller;
      readonly messages: readonly Message[];
      /** Why the run has not said all in the last of them: the code of its error, or `length`. Undefined: it has */
      readonly cut?: string | undefined;
      /** Outside content that the run has read. */
      readonly taint: Taint;
      readonly time: string;
      /** Name of a new conversation. Default: the beginning of its first question */
      readonly title?: string | undefined;
    },
  ): Promise<readonly Write[]>;
  /** Returns the same conversations for a run that waits while the database of the gateways is down. */
  patient(patience: Patience): RunConversations;
}

/** The conversation of a run, as its beginning reads it and its end writes it. */
export type RunConversations = Pick<Conversations, "history" | "summarized" | "writes" | "giveBack">;

/** Caller who goes on with a conversation. */
export type ConversationCaller = Pick<Caller, "via" | "tokenId" | "scopes">;

/** Returns the conversations of a store, for runs that read and continue them. */
export function createConversations(options: {
  readonly store: Store;
  readonly random: Random;
  /** Tells whether messages of a configured channel are recorded under an id. Default: under no id. */
  readonly isChannel?: ((id: string) => boolean) | undefined;
}): Conversations {
  const { store, random, isChannel = () => false } = options;
  const enter = async (id: string, caller: ConversationCaller) => {
    const stored = await CONVERSATIONS.read(store, id);
    const owner = stored === undefined ? null : stored.value.owner;
    checkConversation(caller, { owner, isChannel: isChannel(id) });
    return stored;
  };
  const copies = slidingWindow({ max: MAX_COPIED, windowMs: 60_000 });
  /** Attack: each small request for a branch copies a large history. @throws {HttpError} 429 rate_limited */
  const takeCopy = (messages: readonly Message[], { caller, now }: { caller: ConversationCaller; now: number }) => {
    const key = caller.tokenId ?? "";
    if (copies.isUsedUp(key, now)) {
      const way = "wait a minute, or go on after the last response of a conversation";
      const message =
        `Cannot begin another branch now: those of your token have copied 64 MiB of history in a minute; ${way}`;
      throw refuse("rate_limited", message, { param: "previous_response_id", headers: { "retry-after": "60" } });
    }
    for (let left = JSON.stringify(messages).length; left > 0; left -= COPY_BYTES) copies.take(key, now);
  };
  /** Tells whether a run has begun to go on behind another one, and is not lost. */
  const isTaken = async ({ continued, continued_by: by }: ConversationRecord, after: string, lostBefore: string) =>
    continued === after && (by === undefined || by.at >= lostBefore || await RUNS.read(store, by.run_id) !== undefined);
  const conversations: Conversations = {
    patient: (patience) => ({
      history: patiently(patience, conversations.history),
      summarized: patiently(patience, conversations.summarized),
      writes: patiently(patience, conversations.writes),
      giveBack: patiently(patience, conversations.giveBack),
    }),
    open(id) {
      if (beginsConversation({ conversationId: id })) return random.id("conv_");
      if (CONVERSATION_ID.test(id)) return id;
      throw refuse(
        "invalid_request",
        `Cannot use "${id.slice(0, 128)}" as conversation id: use 1 to 128 letters, digits, ".", "_", ":" or "-"`,
        { param: "conversation_id" },
      );
    },
    async check(id, caller) {
      const stored = await enter(id, caller);
      if (stored !== undefined) refuseUnbegun(stored.value, "conversation_id");
    },
    async history(id, caller) {
      const conversation = (await enter(id, caller))?.value;
      if (conversation === undefined) return NO_HISTORY;
      return await readHistory(id, conversation, store);
    },
    async goOnAfter(place, { caller, time, isBusy, lostBefore, ...next }) {
      const { conversationId, runId } = place;
      while (!isBusy) {
        const stored = await enter(conversationId, caller);
        if (stored === undefined || await isTaken(stored.value, runId, lostBefore)) break;
        const { messages } = stored.value;
        const end = await endOf(place, { from: messages - 1, to: messages }, store);
        if (end === 0 || end !== messages) break;
        const body = { ...stored.value, continued: runId, continued_by: { run_id: next.runId, at: time } };
        // A record of another version was changed meanwhile, and is read again
        if (await store.batch([CONVERSATIONS.putOver(conversationId, stored.version, body)])) return conversationId;
      }
      const branch = await conversations.upTo(place, caller);
      const id = random.id("conv_");
      takeCopy(branch.messages, { caller, now: Date.parse(time) });
      const copied = branch.messages.length;
      await store.batch(await conversations.writes(id, { ...branch, runId, isNew: true, copied, caller, time }));
      return id;
    },
    async upTo(place, caller) {
      const { conversationId: id } = place;
      const record = (await enter(id, caller))?.value;
      const length = record?.messages ?? 0;
      const messages = await endOf(place, { from: length - MAX_SEARCHED, to: length }, store);
      if (record === undefined || messages === 0) throw noHistory("it has said nothing that its conversation keeps");
      const summary = (record.summary?.covers ?? Infinity) <= messages ? record.summary : undefined;
      const history = await readHistory(id, { ...record, messages, summary }, store);
      if (history.firstSeq !== (summary?.covers ?? 0) + 1) {
        throw noHistory("the conversation before it has more than 1,000 messages or 16 MiB, or a damaged one");
      }
      // Attack: the conversation may have been deleted, and begun under its name by another token, while it was read
      await enter(id, caller);
      return { messages: withSummary(history), taint: history.taint, title: record.title };
    },
    async giveBack(id, { place, runId }) {
      for (;;) {
        const stored = await CONVERSATIONS.read(store, id);
        if (stored === undefined) return;
        const { version, value, value: { continued, continued_by: by, ...body } } = stored;
        const isBranch = id !== place.conversationId;
        const isTheirs = continued !== place.runId || (by !== undefined && by.run_id !== runId);
        // Others may have gone on in a branch
        if (isBranch ? !isUnbegun(value) : isTheirs) return;
        const writes: readonly Write[] = isBranch
          ? [CONVERSATIONS.check(id, version), ...conversationRemoval(id)]
          : [CONVERSATIONS.putOver(id, version, body)];
        // A record of another version was changed meanwhile, and is read again
        if (await store.batch(writes)) return;
      }
    },
    async summarized(id, { text, covers }, time) {
      const stored = await CONVERSATIONS.read(store, id);
      if (stored === undefined) return;
      const body = { ...stored.value, summary: { text, covers, made_at: time } };
      await store.batch([CONVERSATIONS.putOver(id, stored.version, body)]);
    },
    async writes(id, { runId, isNew = false, caller, messages, cut, taint, time, ...added }) {
      const conversation = isNew ? undefined : (await CONVERSATIONS.read(store, id))?.value;
      const { copied } = conversation ?? added;
      // A message of a channel makes the channel the owner: the caller that began the conversation reads it no longer
      const owner = conversation === undefined || caller.via === "channel" ? ownerFor(caller) : conversation.owner;
      const length = conversation?.messages ?? 0;
      const title = conversation === undefined ? added.title ?? firstWords(messages) : conversation.title;
      const body = {
        ...unknownFieldsOf(conversation),
        v: 1 as const,
        created_at: conversation?.created_at ?? time,
        updated_at: time,
        messages: length + messages.length,
        ...(copied === undefined ? {} : { copied }),
        ...(owner === undefined ? {} : { owner }),
        ...(title === undefined ? {} : { title }),
        ...taintField(joinTaints(conversation?.taint, taint)),
        ...(conversation?.summary === undefined ? {} : { summary: conversation.summary }),
      };
      return [
        CONVERSATIONS.put(id, body),
        {
          op: "append",
          stream: conversationStream(id),
          expectedSeq: length,
          records: messages.map((message, index) => ({
            v: 1,
            run_id: runId,
            message,
            ...(cut === undefined || index < messages.length - 1 ? {} : { cut }),
          })),
        },
      ];
    },
  };
  return conversations;
}

/** Returns the number of messages up to the last one of a run, looked for between two numbers; 0: there is none. */
async function endOf(
  { conversationId, runId }: ConversationPlace,
  { from, to }: { readonly from: number; readonly to: number },
  store: Store,
): Promise<number> {
  const stream = conversationStream(conversationId);
  let end = 0;
  for (let afterSeq = Math.max(0, from); afterSeq < to;) {
    const page = await store.read(stream, { afterSeq, limit: PAGE });
    if (page.length === 0) break;
    for (const stored of page) {
      afterSeq = stored.seq;
      if (tryEntry(store, stream, stored, parseConversationEntry)?.run_id === runId) end = stored.seq;
      else if (end > 0) return end;
    }
  }
  return end;
}

/** Returns the messages of a history, behind those that its summary stands for. */
export function withSummary({ summary, messages }: Pick<History, "summary" | "messages">): readonly Message[] {
  return summary === undefined
    ? messages
    : [...summaryMessages(`${summary.covers} messages`, summary.text), ...messages];
}

function noHistory(reason: string) {
  return refuse(
    "conflict",
    `Cannot go on after this response: ${reason}; name another response, or send the whole history as "input"`,
    { param: "previous_response_id", headers: { "x-should-retry": "false" } },
  );
}

/** Reads the newest messages that are not in the summary, up to the bounds. */
async function readHistory(
  id: string,
  { summary, messages: count, taint }: ConversationRecord,
  store: Store,
): Promise<History> {
  const kept: { readonly message: Message; readonly bytes: number }[] = [];
  let bytes = 0;
  const covered = summary?.covers ?? 0;
  let afterSeq = Math.max(covered, count - MAX_MESSAGES);
  let cut = afterSeq > covered;
  while (afterSeq < count) {
    const page = await store.read(conversationStream(id), { afterSeq, limit: Math.min(PAGE, count - afterSeq) });
    if (page.length === 0) break;
    for (const stored of page) {
      afterSeq = stored.seq;
      const found = tryEntry(store, conversationStream(id), stored, parseConversationEntry);
      if (found === undefined) {
        // Results of calls that are not there cannot be sent: the history goes on with the next turn
        kept.length = 0;
        bytes = 0;
        cut = true;
        continue;
      }
      const { message } = found;
      const entry = { message, bytes: JSON.stringify(message).length };
      kept.push(entry);
      bytes += entry.bytes;
    }
    while (bytes > MAX_BYTES && kept.length > 1) {
      bytes -= kept.shift()?.bytes ?? 0;
      cut = true;
    }
  }
  const messages = kept.map((entry) => entry.message);
  // A history that starts inside a turn could hold results of calls that are not there
  const start = cut ? messages.findIndex((message) => message.role === "user") : 0;
  const taken = start < 0 ? [] : messages.slice(start);
  return { summary, messages: taken, taint: taint ?? UNTAINTED, firstSeq: count - taken.length + 1 };
}

const MAX_TITLE_CHARACTERS = 80;

/** Returns the beginning of the first question as one line, to name a conversation by; undefined when nothing was asked in words. */
function firstWords(messages: readonly Message[]): string | undefined {
  const said = saidIn(messages.find(({ role }) => role === "user")?.content ?? null);
  const words = said.replace(/[\s\p{Cc}\p{Cf}]+/gu, " ").trim();
  const characters = [...words.slice(0, 4 * MAX_TITLE_CHARACTERS)];
  if (words === "") return undefined;
  return characters.length > MAX_TITLE_CHARACTERS
    ? `${characters.slice(0, MAX_TITLE_CHARACTERS - 3).join("").trimEnd()}...`
    : words;
}
