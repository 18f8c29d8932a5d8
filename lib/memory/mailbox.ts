import { Buffer } from "node:buffer";
import * as v from "valibot";
import { storedObject } from "../base/records/stored_object.ts";
import type { Clock } from "../base/clock.ts";
import { ConfigError, ToolError } from "../base/errors.ts";
import { lazily } from "../base/lazily.ts";
import type { Random } from "../base/random.ts";
import { taintField } from "../base/taint.ts";
import { type ChangingRecord, Collection } from "../storage/read_records.ts";
import { OtherKeyError, type RecordCipher, SealError } from "../storage/record_cipher.ts";
import type { SealedCollection } from "../storage/rekey_records.ts";
import type { Store, Write } from "../storage/store.ts";

const sealedSchema = storedObject({ key: v.string(), nonce: v.string(), data: v.string() });

const entrySchema = storedObject({
  id: v.string(),
  /** Counts up within a mailbox */
  seq: v.number(),
  from: v.string(),
  /** Bytes that the message takes in a tool result */
  bytes: v.number(),
  /** Payload, time and sender */
  sealed: sealedSchema,
});
/** A message as its mailbox stores it: the envelope in plain text, the content sealed. */
export type MailboxEntry = v.InferOutput<typeof entrySchema>;

const bodySchema = storedObject({ v: v.literal(1), entries: v.array(entrySchema) });

const contentSchema = v.object({
  payload: v.string(),
  timestamp: v.string(),
  sender: v.string(),
  taint: v.optional(v.array(v.string())),
});

/** The sealed part of a message. `timestamp` is ISO 8601. */
export type MailboxContent = v.InferOutput<typeof contentSchema>;

/** Collection of the mailboxes. The key is the receiver's name. Older versions are upcast here and nowhere else. */
export const MAILBOXES = new Collection(
  "mailboxes",
  v.pipe(bodySchema, v.transform(({ entries }): readonly MailboxEntry[] => entries)),
);

/** Returns the body to store, in the newest version. */
export function toMailboxBody(entries: readonly MailboxEntry[]): v.InferOutput<typeof bodySchema> {
  return { v: 1, entries: [...entries] };
}

/** Parses the opened text of a message. @throws {v.ValiError} for a text that no version sealed */
export function parseContent(text: string): MailboxContent {
  return v.parse(contentSchema, JSON.parse(text));
}

/** Bounds of a mailbox and of all of them. */
export const MAILBOX_LIMITS = {
  nameCharacters: 128,
  payloadBytes: 64 * 1024,
  /** Messages in one mailbox */
  messages: 1_000,
  /** Bytes of one mailbox as JSON: the whole mailbox fits into one tool result */
  bytes: 240 * 1024,
  mailboxes: 1_000,
  /** Messages of one list */
  list: 1_000,
} as const;

/** A message between agents. */
export interface MailboxMessage {
  readonly from: string;
  readonly to: string;
  readonly payload: string;
  /** ISO 8601 */
  readonly timestamp: string;
  /** Sender as the gateway knows it: `subagent:<id>`, `http:<token id>`, `cli` ... */
  readonly sender: string;
  /** Origins of outside content that the payload was made from. Absent: none */
  readonly taint?: string[] | undefined;
}

/** Selects messages. A field that is not given matches all. */
export interface MailboxFilter {
  readonly to?: string | undefined;
  readonly from?: string | undefined;
}

/** Services that the mailboxes use. */
export interface MailboxOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  /** Returns the cipher, whose key is opened at the first use. @throws {ConfigError} a key that cannot be used */
  readonly cipher: () => Promise<RecordCipher>;
}

const DEFAULT_LIST = 100;
const MAX_ATTEMPTS = 50;

/** Mailboxes, for a change of their key. */
export const SEALED_MAILBOXES: SealedCollection = {
  collection: MAILBOXES.name,
  key: "agents_ipc.key",
  rewrite({ key, body }, reseal) {
    const entries = MAILBOXES.parse(body);
    return toMailboxBody(
      entries.map((entry) => ({ ...entry, sealed: { ...reseal(entry.sealed, boundTo(key, entry)) } })),
    );
  },
};

/**
 * Mailboxes between agents, one per receiver, encrypted in the store.
 *
 * Every method throws ToolError: `invalid_input` for a value out of bounds, naming the field; `mailbox_key` when the key cannot be
 * used; `mailbox_altered` for a message that does not open, which no method passes on.
 */
export class Mailbox {
  readonly #options: MailboxOptions;
  readonly #keptCipher: () => Promise<RecordCipher>;

  constructor(options: MailboxOptions) {
    this.#options = options;
    this.#keptCipher = lazily(options.cipher);
  }

  /** Adds a message to the mailbox of its receiver. @throws {ToolError} `mailbox_full` */
  async send({ from, to, payload, sender, taint = [] }: Omit<MailboxMessage, "timestamp">): Promise<MailboxMessage> {
    const { clock, random } = this.#options;
    checkName("from", from);
    checkName("to", to);
    checkPayload(payload);
    const opened = await this.#openCipher();
    const timestamp = new Date(clock.now()).toISOString();
    const message: MailboxMessage = { from, to, payload, timestamp, sender, ...taintField(taint) };
    const bytes = Buffer.byteLength(JSON.stringify(message)) + 1;
    await this.#change(to, async (entries) => {
      requireSpace(to, { entries, bytes });
      const writer = await opened.writer();
      const place = { id: random.id("msg_"), seq: (entries.at(-1)?.seq ?? 0) + 1, from, bytes };
      const content: MailboxContent = { payload, timestamp, sender, ...taintField(taint) };
      const sealed = writer.seal(JSON.stringify(content), boundTo(to, place));
      return { entries: [...entries, { ...place, sealed }], value: undefined, also: writer.also };
    });
    return message;
  }

  /** Removes and returns all messages for `to`, in order. Two callers at once never get the same message. Removes nothing when it throws */
  async receive(to: string): Promise<readonly MailboxMessage[]> {
    checkName("to", to);
    const opened = await this.#openCipher();
    return await this.#change(to, (entries) => ({ entries: [], value: openAll(to, { entries, cipher: opened }) }));
  }

  /** Returns messages by receiver and in order, as many as one tool result holds. Removes nothing. @param limit 1-1000. Default 100 */
  async list(
    { limit = DEFAULT_LIST, ...filter }: MailboxFilter & { readonly limit?: number | undefined },
  ): Promise<readonly MailboxMessage[]> {
    if (filter.from !== undefined) checkName("from", filter.from);
    const { store } = this.#options;
    const opened = await this.#openCipher();
    const messages: MailboxMessage[] = [];
    const closed: string[] = [];
    let otherKey: ToolError | undefined;
    let bytes = 0;
    for await (const found of this.#mailboxes(filter)) {
      const wanted = entriesOf(found.key, found).filter((entry) => matches(entry, filter));
      const entries = wanted.slice(0, limit - messages.length)
        .filter((entry) => (bytes += entry.bytes) <= MAILBOX_LIMITS.bytes);
      try {
        messages.push(...openAll(found.key, { entries, cipher: opened }));
      } catch (error) {
        if (filter.to !== undefined || !(error instanceof ToolError)) throw error;
        if (error.cause instanceof OtherKeyError) otherKey ??= error;
        closed.push(found.key);
      }
      if (messages.length >= limit || bytes > MAILBOX_LIMITS.bytes) break;
    }
    // When nothing opens, the key is wrong and the mailboxes are undamaged: nobody may remove them as damaged
    if (messages.length === 0 && otherKey !== undefined) throw otherKey;
    for (const key of closed) {
      store.unreadable.add({ collection: MAILBOXES.name, key, reason: "a message in it was altered" });
    }
    return messages;
  }

  /** Removes messages without opening them, altered messages too. @returns how many there were */
  async clear(filter: MailboxFilter): Promise<number> {
    if (filter.from !== undefined) checkName("from", filter.from);
    let cleared = 0;
    for await (const { key } of this.#mailboxes(filter)) {
      if (filter.from === undefined) {
        const taken = await this.#options.store.takeOnce(MAILBOXES.name, key);
        cleared += taken === undefined ? 0 : countOf(taken.body);
        continue;
      }
      cleared += await this.#change(key, (entries) => {
        const kept = entries.filter((entry) => !matches(entry, filter));
        return { entries: kept, value: entries.length - kept.length };
      });
    }
    return cleared;
  }

  async #openCipher(): Promise<RecordCipher> {
    try {
      return await this.#keptCipher();
    } catch (cause) {
      if (cause instanceof ConfigError) throw new ToolError("mailbox_key", cause.message, { cause });
      throw cause;
    }
  }

  /** Reads, changes and writes back. A concurrent change makes it start again. An empty mailbox is removed. */
  async #change<T>(
    to: string,
    apply: (entries: readonly MailboxEntry[]) => MailboxChange<T> | Promise<MailboxChange<T>>,
  ): Promise<T> {
    const { store } = this.#options;
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      const found = await MAILBOXES.readForChange(store, to);
      const before = entriesOf(to, found);
      const { entries, value, also = [] } = await apply(before);
      if (entries.length === before.length) return value;
      if (found.version === 0) await this.#requireRoom(to);
      if (await store.batch([...writesOf(to, { version: found.version, entries }), ...also])) return value;
    }
    throw new ToolError("mailbox_busy", `Cannot use the mailbox "${to}": it is being changed by others; try again`);
  }

  async #requireRoom(to: string): Promise<void> {
    if (await this.#options.store.count(MAILBOXES.name) < MAILBOX_LIMITS.mailboxes) return;
    const most = `${MAILBOX_LIMITS.mailboxes} mailboxes hold messages already`;
    throw new ToolError("mailbox_full", `Cannot send to "${to}": ${most}; receive or clear some first`);
  }

  async *#mailboxes({ to }: MailboxFilter): AsyncGenerator<FoundMailbox & { readonly key: string }> {
    const { store } = this.#options;
    // A mailbox that was altered, and so cannot be read, holds up no other
    if (to === undefined) return yield* MAILBOXES.all(store);
    const found = await MAILBOXES.readForChange(store, checkName("to", to));
    if (found.version > 0) yield { key: to, ...found };
  }
}

type FoundMailbox = ChangingRecord<readonly MailboxEntry[]>;

interface MailboxChange<T> {
  readonly entries: readonly MailboxEntry[];
  readonly value: T;
  /** Writes that go into the batch with the change. Default: none */
  readonly also?: readonly Write[];
}

function writesOf(
  to: string,
  { version, entries }: { readonly version: number; readonly entries: readonly MailboxEntry[] },
): readonly Write[] {
  const changed = MAILBOXES.putOver(to, version, toMailboxBody(entries));
  if (version === 0) return [changed];
  // A removal has no precondition of its own: the write before it in the same transaction is its condition
  return entries.length > 0 ? [changed] : [changed, MAILBOXES.remove(to)];
}

/** Returns the text that a message is bound to. A message that was moved to another receiver, sender or place does not open. */
function boundTo(to: string, { id, seq, from, bytes }: Omit<MailboxEntry, "sealed">): string {
  return JSON.stringify(["mailbox", 1, id, seq, to, from, bytes]);
}

function entriesOf(to: string, { value, version }: FoundMailbox): readonly MailboxEntry[] {
  if (version === 0) return [];
  if (value !== undefined) return value;
  throw new ToolError(
    "mailbox_altered",
    `Cannot read the mailbox "${to}": its record was altered; op "clear" with this "to" removes it`,
  );
}

/** Counts the messages of a record. A damaged record counts as one message. */
function countOf(body: unknown): number {
  try {
    return MAILBOXES.parse(body).length;
  } catch {
    return 1;
  }
}

function openAll(
  to: string,
  { entries, cipher }: { readonly entries: readonly MailboxEntry[]; readonly cipher: RecordCipher },
): readonly MailboxMessage[] {
  let last = 0;
  return entries.map((entry) => {
    try {
      if (entry.seq <= last) throw new SealError("it is not in its place");
      last = entry.seq;
      return { from: entry.from, to, ...parseContent(cipher.open(entry.sealed, boundTo(to, entry))) };
    } catch (cause) {
      if (!(cause instanceof SealError)) throw cause;
      throw new ToolError(
        "mailbox_altered",
        `Cannot read message ${entry.seq} from "${entry.from}" to "${to}": ${cause.message}; nothing was removed. ` +
          `op "clear" with this "to" and "from" removes it unread`,
        { cause },
      );
    }
  });
}

function matches(entry: MailboxEntry, { from }: MailboxFilter): boolean {
  return from === undefined || entry.from === from;
}

function requireSpace(
  to: string,
  { entries, bytes }: { readonly entries: readonly MailboxEntry[]; readonly bytes: number },
): void {
  const used = entries.reduce((sum, entry) => sum + entry.bytes, 0);
  const full = entries.length >= MAILBOX_LIMITS.messages
    ? `${MAILBOX_LIMITS.messages} messages wait there already`
    : used + bytes > MAILBOX_LIMITS.bytes
    ? `${used} bytes wait there already, and a mailbox holds ${MAILBOX_LIMITS.bytes}`
    : undefined;
  if (full !== undefined) {
    throw new ToolError("mailbox_full", `Cannot send to "${to}": ${full}; its owner has to receive them first`);
  }
}

function checkName(field: string, name: string): string {
  const { length } = name;
  if (length >= 1 && length <= MAILBOX_LIMITS.nameCharacters && name.isWellFormed() && !name.includes("\0")) {
    return name;
  }
  throw invalid(field, `it must be 1-${MAILBOX_LIMITS.nameCharacters} characters of valid Unicode without NUL`);
}

function checkPayload(payload: string): void {
  const bytes = Buffer.byteLength(payload);
  if (!payload.isWellFormed()) throw invalid("payload", "it must be valid Unicode");
  if (bytes <= MAILBOX_LIMITS.payloadBytes) return;
  throw invalid("payload", `it must be at most ${MAILBOX_LIMITS.payloadBytes} bytes, and has ${bytes}`);
}

function invalid(field: string, reason: string): ToolError {
  return new ToolError("invalid_input", `Cannot use "${field}": ${reason}`);
}
