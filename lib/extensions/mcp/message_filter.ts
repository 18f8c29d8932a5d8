import type { JSONRPCMessage } from "@modelcontextprotocol/client";
import { isShallow } from "../../base/json.ts";

/** Levels of objects and arrays that a message may have. */
const MAX_DEPTH = 64;
/** Requests of a server that wait for an answer of ours at the same time. */
const MAX_ASKED = 32;
/** Messages of a session that are of no use, as replies to nothing, after which it ends. */
const MAX_USELESS = 10_000;

/** Id of a request. */
type MessageId = string | number;

/**
 * Messages of a server that may reach the SDK: well-formed, not too deep, replies to open requests alone, each once.
 *
 * A reply that nobody waits for is dropped: a server may answer a request that was cancelled meanwhile.
 */
export class MessageFilter {
  /** Requests of ours without a reply */
  readonly #open = new Set<MessageId>();
  /** Requests of the server without an answer */
  readonly #asked = new Set<MessageId>();
  #useless = 0;

  /** Notes a message of ours before it goes out. */
  sent(message: JSONRPCMessage): void {
    if (!("method" in message)) {
      if (message.id !== undefined) this.#asked.delete(message.id);
    } else if ("id" in message) this.#open.add(message.id);
    else if (message.method === "notifications/cancelled") this.#forget(message.params?.["requestId"]);
  }

  /**
   * Returns a value as a message. Undefined: it is dropped.
   * @throws {MessageFault} a value after which the session cannot go on
   */
  received(value: unknown): JSONRPCMessage | undefined {
    if (!isTable(value) || value["jsonrpc"] !== "2.0") return this.#drop();
    const { id, method } = value;
    const hasId = typeof id === "string" || typeof id === "number";
    if (typeof method === "string") {
      if (hasId) this.#ask(id);
      else if (id !== undefined) return this.#drop();
    } else if (!hasId || !this.#open.delete(id) || !isReply(value)) return this.#drop();
    if (!isShallow(value, MAX_DEPTH)) {
      throw new MessageFault(`it sent a message nested deeper than ${MAX_DEPTH} levels`);
    }
    // The parts that the SDK tells messages apart by were just checked
    return value as unknown as JSONRPCMessage;
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

function isReply(value: Readonly<Record<string, unknown>>): boolean {
  if (isTable(value["result"])) return !("error" in value);
  const { error } = value;
  return isTable(error) && typeof error["code"] === "number" && typeof error["message"] === "string";
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
