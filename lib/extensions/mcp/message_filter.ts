import type { JSONRPCMessage } from "@modelcontextprotocol/client";
import { slidingWindow } from "../../access/sliding_window.ts";
import type { Clock } from "../../base/clock.ts";
import { isRecord, isShallow } from "../../base/json.ts";
import { FIELDS, type ListMethod } from "./read_lists.ts";

/** Levels of objects and arrays that a message may have. */
const MAX_DEPTH = 64;
/** Requests of a server that wait for an answer of ours at the same time. */
const MAX_ASKED = 32;
/** Entries of one array or object. The SDK writes an issue for each wrong one, and millions of issues take all the memory. */
const MAX_ENTRIES = 1_000;
/** Values of a message in all. */
const MAX_VALUES = 50_000;
/** Fields that the SDK hands on without a look: rows of a table are no attack */
const FREE_FIELDS: ReadonlySet<string> = new Set(["structuredContent"]);
/** Code of an error of the JSON-RPC protocol: something went wrong inside. */
const INTERNAL_ERROR = -32603;
/** Messages of a session that are of no use, as replies to nothing, after which it ends. */
const MAX_USELESS = 10_000;

/** Notifications of a server within this time, after which its session ends: each costs the gateway time. */
const MAX_NOTIFICATIONS = 10_000;
const WINDOW_MS = 5_000;

/** Function that mends the result of a method before the SDK checks it: see mendResult. */
export type MendResult = (
  method: string,
  result: Readonly<Record<string, unknown>>,
) => Readonly<Record<string, unknown>>;

/** Id of a request. */
type MessageId = string | number;

/** Data of the error that takes the place of a reply which the SDK must not see. No server can send this very object. */
export const BROKEN_REPLY: Readonly<Record<string, never>> = Object.freeze({});

/**
 * Messages of a server that may reach the SDK: well-formed, neither too deep nor too large, replies to open requests alone, each once.
 *
 * A reply that breaks the protocol becomes an error with the data `BROKEN_REPLY`, so that its request does not wait for its time to end.
 * A reply that nobody waits for is dropped: a server may answer a request that was cancelled meanwhile.
 */
export class MessageFilter {
  /** Requests of ours without a reply, with their methods */
  readonly #open = new Map<MessageId, string>();
  /** Requests of the server without an answer */
  readonly #asked = new Set<MessageId>();
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #mend: MendResult;
  #useless = 0;
  readonly #notifications = slidingWindow({ max: MAX_NOTIFICATIONS, windowMs: WINDOW_MS, maxKeys: 1 });

  constructor(clock: Pick<Clock, "monotonic">, mend: MendResult = (_method, result) => result) {
    this.#clock = clock;
    this.#mend = mend;
  }

  /** Notes a message of ours before it goes out. */
  sent(message: JSONRPCMessage): void {
    if (!("method" in message)) {
      if (message.id !== undefined) this.#asked.delete(message.id);
    } else if ("id" in message) this.#open.set(message.id, message.method);
    else if (message.method === "notifications/cancelled") this.#forget(message.params?.["requestId"]);
  }

  /**
   * Returns a value as a message. Undefined: it is dropped.
   * @throws {MessageFault} a value after which the session cannot go on
   */
  received(value: unknown): JSONRPCMessage | undefined {
    if (!isRecord(value) || value["jsonrpc"] !== "2.0") return this.#drop();
    const { id, method } = value;
    const hasId = typeof id === "string" || typeof id === "number";
    const isReply = typeof method !== "string";
    const asked = isReply && hasId ? this.#open.get(id) : undefined;
    if (isReply ? asked === undefined : id !== undefined && !hasId) return this.#drop();
    if (isReply && hasId) this.#open.delete(id);
    if (!isShallow(value, MAX_DEPTH)) {
      throw new MessageFault(`it sent a message nested deeper than ${MAX_DEPTH} levels`);
    }
    const fault = isReply && !hasAnswer(value) ? "neither a result nor an error" : faultOfSize(value, asked);
    if (fault !== undefined) return isReply && hasId ? brokenReply(id, fault) : this.#drop();
    if (!isReply && hasId) this.#ask(id);
    else if (!isReply) this.#countNotification();
    const { result } = value;
    const mended = asked === undefined || !isRecord(result) ? value : { ...value, result: this.#mend(asked, result) };
    // The parts that the SDK tells messages apart by were just checked
    return mended as unknown as JSONRPCMessage;
  }

  /** Notes something that is no message, as a line of text. @throws {MessageFault} */
  useless(): void {
    this.#drop();
  }

  #forget(id: unknown): void {
    if (typeof id === "string" || typeof id === "number") this.#open.delete(id);
  }

  #ask(id: MessageId): void {
    this.#asked.add(id);
    if (this.#asked.size > MAX_ASKED) throw new MessageFault(`it asks more than ${MAX_ASKED} things at the same time`);
  }

  #countNotification(): void {
    if (this.#notifications.take("", this.#clock.monotonic()).allowed) return;
    throw new MessageFault(`it sent more than ${MAX_NOTIFICATIONS} notifications within ${WINDOW_MS / 1000} s`);
  }

  #drop(): undefined {
    this.#useless++;
    if (this.#useless > MAX_USELESS) throw new MessageFault(`it sent more than ${MAX_USELESS} messages of no use`);
    return undefined;
  }
}

/** Error of a message after which a session ends. The message is the rest of a sentence about the server. */
export class MessageFault extends Error {
  override readonly name = "MessageFault";
}

function brokenReply(id: MessageId, fault: string): JSONRPCMessage {
  return {
    jsonrpc: "2.0",
    id,
    error: { code: INTERNAL_ERROR, message: `it answered with ${fault}`, data: BROKEN_REPLY },
  };
}

/**
 * Returns the bound that a message breaks, as the rest of a sentence.
 * @param asked method that it answers. The entries of a list are looked at one by one when it is mended
 */
function faultOfSize(message: Readonly<Record<string, unknown>>, asked = ""): string | undefined {
  const list = Object.hasOwn(FIELDS, asked) ? FIELDS[asked as ListMethod] : undefined; // the table has it
  const waiting: unknown[] = [message];
  let values = 0;
  for (let value = waiting.pop(); value !== undefined; value = waiting.pop()) {
    if (value === null || typeof value !== "object") continue;
    const entries = Array.isArray(value) ? value : Object.entries(value).flatMap(([name, entry]) => {
      const isRead = name === list && value === message["result"];
      return isRead || FREE_FIELDS.has(name) ? [] : [entry];
    });
    if (entries.length > MAX_ENTRIES) return `more than ${MAX_ENTRIES} entries in one place`;
    values += entries.length;
    if (values > MAX_VALUES) return `more than ${MAX_VALUES} values`;
    waiting.push(...entries);
  }
  return undefined;
}

function hasAnswer(value: Readonly<Record<string, unknown>>): boolean {
  if (isRecord(value["result"])) return !("error" in value);
  const { error } = value;
  return isRecord(error) && typeof error["code"] === "number" && typeof error["message"] === "string";
}
