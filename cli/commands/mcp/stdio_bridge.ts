import { Buffer } from "node:buffer";
import type { Clock } from "../../../lib/base/clock.ts";
import { messageOf, systemCodeOf } from "../../../lib/base/errors.ts";
import { EventStreamDecoder } from "../../../lib/system/net/event_stream_decoder.ts";
import { type GatewayClient, GatewayClientError, type GatewayStream } from "../../../lib/system/net/gateway_client.ts";
import { BridgeOutput, type BridgeOutputOptions } from "./bridge_output.ts";
import {
  answers,
  type BridgedMessage,
  type BridgedSession,
  GatewayRefusal,
  headersOf,
  isRequest,
  RPC_ERRORS,
  toHeaders,
  toRefusal,
  versionOf,
} from "./bridged_message.ts";

/** Options of `StdioBridge`. */
export interface StdioBridgeOptions extends BridgeOutputOptions {
  readonly client: GatewayClient;
  /** Finds the gateway again, after one that was found does not answer any more */
  readonly reach: () => Promise<GatewayClient>;
  /** Tells the person about something that no message can carry */
  readonly warn: (message: string) => void;
  readonly clock: Clock;
}

/** Longest message in either direction, in bytes. The gateway refuses long before. */
const MAX_BYTES = 67_108_864;
/** Requests that may wait for their answers at once. */
const MAX_REQUESTS = 256;
/** Time that calls get to end after the end of the input, in milliseconds. */
const END_MS = 2_000;
/** Pause before the stream of notifications is opened again, in milliseconds. */
const REOPEN_MS = 1_000;

/**
 * Passes messages between a client of MCP on standard input and output and `/mcp` of the gateway, in both eras of the protocol.
 *
 * The gateway may be started again meanwhile: the session is then opened again, and nothing is sent twice that the old one may have got.
 * A client that does not read holds everything up: nothing is read from the gateway and from the client until it does.
 */
export class StdioBridge {
  readonly #options: StdioBridgeOptions;
  readonly #output: BridgeOutput;
  readonly #closing = new AbortController();
  /** Requests that wait for their answer, by the JSON of their id */
  readonly #waiting = new Map<string, AbortController>();
  readonly #work = new Set<Promise<void>>();
  #client: Promise<GatewayClient>;
  #opening: Promise<void> | undefined = undefined;
  #initialize: BridgedMessage | undefined = undefined;
  #session: BridgedSession | undefined = undefined;

  constructor(options: StdioBridgeOptions) {
    this.#options = options;
    this.#output = new BridgeOutput(options);
    this.#client = Promise.resolve(options.client);
  }

  /** Reads messages, one a line, until the input ends. */
  async read(input: AsyncIterable<Uint8Array>): Promise<void> {
    let parts: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of input) {
      let rest = chunk;
      for (let end = rest.indexOf(LINE_FEED); end >= 0; end = rest.indexOf(LINE_FEED)) {
        if (bytes + end > MAX_BYTES) {
          await this.#refuse(null, RPC_ERRORS.invalidRequest, "Cannot take a message over 64 MiB");
        } else await this.#take(Buffer.concat([...parts, rest.subarray(0, end)]).toString("utf8"));
        await this.#output.room();
        parts = [];
        bytes = 0;
        rest = rest.subarray(end + 1);
      }
      bytes += rest.length;
      // The rest of a line that is too long is read and forgotten
      if (bytes <= MAX_BYTES) parts.push(rest);
      else parts = [];
    }
    await this.#settle();
  }

  /** Ends the session and everything that waits. */
  async close(): Promise<void> {
    this.#closing.abort();
    const session = this.#session;
    if (session === undefined) return;
    this.#session = undefined;
    const client = await this.#client.catch(() => undefined);
    const ending = client?.request({ method: "DELETE", path: "/mcp", headers: headersOf(session) });
    const limit = this.#options.clock.timeoutSignal(END_MS);
    await Promise.race([ending?.catch(() => {}), aborted(limit.signal)]);
    limit.clear();
  }

  /** Gives calls at work a moment to end: a script may close the input right after its last message. */
  async #settle(): Promise<void> {
    const limit = this.#options.clock.timeoutSignal(END_MS);
    await Promise.race([Promise.all(this.#work), aborted(limit.signal)]);
    limit.clear();
  }

  /** Takes a message. A request goes on by itself; the next message waits for everything else, which the gateway takes at once. */
  async #take(line: string): Promise<void> {
    if (line.trim() === "") return;
    let message: BridgedMessage;
    try {
      message = JSON.parse(line);
    } catch {
      return await this.#refuse(null, RPC_ERRORS.parse, "Cannot read the message: it is no JSON");
    }
    if (typeof message !== "object" || message === null || Array.isArray(message)) {
      return await this.#refuse(null, RPC_ERRORS.invalidRequest, "Cannot take the message: it is no object");
    }
    if (!isRequest(message)) return await this.#pass(message, line);
    if (this.#work.size >= MAX_REQUESTS) {
      const reason = `Cannot take the request: ${MAX_REQUESTS} others wait for their answers already`;
      return await this.#refuse(message.id, RPC_ERRORS.internal, reason, { code: "overloaded" });
    }
    const work = this.#pass(message, line);
    this.#work.add(work);
    void work.finally(() => this.#work.delete(work));
  }

  async #pass(message: BridgedMessage, line: string): Promise<void> {
    const isNew = versionOf(message) !== undefined;
    if (message.method === "notifications/cancelled") {
      this.#waiting.get(JSON.stringify(message.params?.["requestId"]))?.abort();
      // Without a session, the end of its connection cancels a request
      if (this.#session === undefined) return;
    }
    try {
      if (message.method === "initialize" && !isNew) {
        this.#initialize = message;
        const opening = this.#exchange(message, line);
        this.#opening = opening.catch(() => {});
        return await opening;
      }
      await this.#opening;
      await this.#exchange(message, line);
    } catch (error) {
      await this.#fail(message, error);
    }
  }

  /** Sends a message and writes what comes back. @param again set for the second try */
  async #exchange(message: BridgedMessage, line: string, again = false): Promise<void> {
    const wantsAnswer = isRequest(message);
    const key = JSON.stringify(message.id);
    const leaving = new AbortController();
    if (wantsAnswer) this.#waiting.set(key, leaving);
    try {
      const reply = await this.#send(message, line, leaving.signal);
      if (!again && (reply === undefined || isStale(reply, this.#session))) {
        await drain(reply);
        await this.#reopen();
        return await this.#exchange(message, line, true);
      }
      if (reply === undefined) throw new Error("Cannot reach the gateway: it takes no connection");
      if (message.method === "initialize") this.#note(reply);
      const isAnswered = await this.#relay(reply, message);
      if (wantsAnswer && !isAnswered && !leaving.signal.aborted) {
        throw new GatewayClientError("Cannot finish the request: the gateway ended the stream; the outcome is unknown");
      }
      if (message.method === "notifications/initialized" && this.#session !== undefined) {
        void this.#listen(this.#session);
      }
    } catch (error) {
      if (!leaving.signal.aborted && !this.#closing.signal.aborted) throw error;
    } finally {
      if (this.#waiting.get(key) === leaving) this.#waiting.delete(key);
    }
  }

  /** Sends a message. @returns undefined where no gateway took it, so that it may be sent again */
  async #send(message: BridgedMessage, line: string, signal: AbortSignal): Promise<GatewayStream | undefined> {
    const client = await this.#client;
    try {
      return await client.stream({
        method: "POST",
        path: "/mcp",
        headers: { ...ACCEPT, ...toHeaders(message, this.#session) },
        raw: { type: "application/json", bytes: Buffer.from(line) },
        signal: AbortSignal.any([signal, this.#closing.signal]),
      });
    } catch (error) {
      if (error instanceof GatewayClientError && isRefused(error.cause)) return undefined;
      throw error;
    }
  }

  /** Finds the gateway again, and opens the client's session there. */
  async #reopen(): Promise<void> {
    const lost = this.#session;
    this.#client = this.#options.reach();
    await this.#client;
    if (lost === undefined || this.#initialize === undefined) return;
    this.#session = undefined;
    const message = { ...this.#initialize, id: "postern-reopen" };
    const reply = await this.#send(message, JSON.stringify(message), this.#closing.signal);
    if (reply === undefined || reply.status !== 200) throw new Error("the gateway opens no session again");
    this.#note(reply);
    await drain(reply);
    const told = { jsonrpc: "2.0", method: "notifications/initialized" };
    await drain(await this.#send(told, JSON.stringify(told), this.#closing.signal));
    this.#options.warn("The gateway was started again: the session goes on");
    if (this.#session !== undefined) void this.#listen(this.#session);
  }

  #note({ headers }: GatewayStream): void {
    const id = headers["mcp-session-id"];
    if (typeof id === "string") this.#session = { id };
  }

  /** Writes the messages of a reply. @returns whether the answer to the message was among them */
  async #relay(reply: GatewayStream, { id }: BridgedMessage): Promise<boolean> {
    const isStream = String(reply.headers["content-type"]).startsWith("text/event-stream");
    if (!isStream) return await this.#output.inTurn(() => this.#relayWhole(reply));
    let isAnswered = false;
    const decoder = new EventStreamDecoder({ maxBytes: MAX_BYTES });
    for await (const bytes of reply.body) {
      for (const data of decoder.push(bytes)) {
        if (data === "") continue;
        await this.#output.write(data);
        isAnswered ||= answers(data, id);
      }
    }
    return isAnswered;
  }

  async #relayWhole(reply: GatewayStream): Promise<boolean> {
    const text = await textOf(reply);
    if (reply.status >= 400) throw toRefusal(text, reply.status);
    if (text === "") return false;
    await this.#output.write(text);
    return true;
  }

  /** Passes notifications of a session on, until it ends. */
  async #listen(session: BridgedSession): Promise<void> {
    const { signal } = this.#closing;
    while (this.#session === session && !signal.aborted) {
      try {
        const client = await this.#client;
        const reply = await client.stream({
          method: "GET",
          path: "/mcp",
          headers: { accept: "text/event-stream", ...headersOf(session) },
          signal,
        });
        if (reply.status >= 400) return await drain(reply);
        await this.#relay(reply, {});
      } catch {
        // The next message finds out where the gateway is
      }
      await this.#options.clock.sleep(REOPEN_MS, signal).catch(() => {});
    }
  }

  async #fail({ id, method }: BridgedMessage, error: unknown): Promise<void> {
    const reason = messageOf(error);
    if (id === undefined || typeof method !== "string") return this.#options.warn(`A message was not taken: ${reason}`);
    if (error instanceof GatewayRefusal) return await this.#refuse(id, error.rpcCode, reason, error.data);
    await this.#refuse(id, RPC_ERRORS.internal, reason);
  }

  async #refuse(id: unknown, code: number, message: string, data?: unknown): Promise<void> {
    const error = { code, message, ...(data === undefined ? {} : { data }) };
    await this.#output.write(JSON.stringify({ jsonrpc: "2.0", id, error }));
  }
}

const LINE_FEED = 10;
const ACCEPT = { accept: "application/json, text/event-stream" };

/** Tells whether a reply says that the gateway was started again: it knows neither the token nor the session. */
function isStale({ status }: GatewayStream, session: BridgedSession | undefined): boolean {
  return status === 401 || (status === 404 && session !== undefined);
}

function isRefused(cause: unknown): boolean {
  return systemCodeOf(cause) === "ECONNREFUSED";
}

async function textOf({ body }: GatewayStream): Promise<string> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of body) {
    bytes += part.length;
    if (bytes > MAX_BYTES) throw new RangeError("the answer is longer than 64 MiB");
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}

async function drain(reply: GatewayStream | undefined): Promise<void> {
  if (reply !== undefined) await textOf(reply).catch(() => {});
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
