import type {
  AuthProvider,
  FetchLike,
  JSONRPCMessage,
  OAuthClientProvider,
  StreamableHTTPClientTransport,
  Transport,
  TransportSendOptions,
} from "@modelcontextprotocol/client";
import { type Clock, type Timer, withTimeout } from "../../base/clock.ts";
import type { McpClientSdk } from "./load_sdk.ts";
import { mendResult } from "./mend_reply.ts";
import { MessageFault, MessageFilter } from "./message_filter.ts";

/** Server by `url`, for whoever signs in to it. */
export interface RemoteServer {
  /** Name of the server in the configuration */
  readonly name: string;
  readonly url: URL;
  /** Fetch that reaches the server, and others by the rules of `[url_access]` */
  readonly fetch: FetchLike;
}

/** Sign-in to servers by `url`. */
export interface ServerSignIn {
  /** Returns what gives a server its tokens. Undefined: requests go without */
  provider(server: RemoteServer): Promise<AuthProvider | OAuthClientProvider | undefined>;
  /** Returns a text that changes with the account that is signed in, and says nothing about it. Undefined without one */
  credential(name: string): Promise<string | undefined>;
}

/** Options of an HttpTransport. */
export interface HttpTransportOptions extends RemoteServer {
  readonly sdk: McpClientSdk;
  readonly clock: Clock;
  readonly auth: AuthProvider | OAuthClientProvider | undefined;
}

/** Code and message of the answer that stands for a stream that ended without one. */
export const STREAM_ENDED = { code: -32_098, message: "The stream of the request ended without an answer" };

/** Milliseconds for the server to end its session. */
const END_MS = 2_000;
/** Milliseconds before a stream is opened again, whatever the server says. */
const MIN_RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;
/** Times that a session opens a stream again. */
const MAX_RETRIES = 100;
/** First revision of the new era, which has no stream of GET and no event ids. */
const MODERN = "2026-07-28";

type SendOptions = NonNullable<Parameters<StreamableHTTPClientTransport["send"]>[1]>;

/** Messages to and from a server by `url`: the SDK's transport, behind a filter. */
export class HttpTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: (message: JSONRPCMessage) => void;
  /** The SDK cancels a request of the new era by closing its stream. */
  readonly hasPerRequestStream = true;
  readonly #inner: StreamableHTTPClientTransport;
  readonly #clock: Clock;
  readonly #filter: MessageFilter;
  #isModern = false;
  #retries = 0;
  /** Pauses before streams are opened again: the SDK ends the last of them alone */
  readonly #pauses = new Set<Timer>();
  #closing: Promise<void> | undefined;
  #isClosed = false;
  #fault: string | undefined;

  constructor({ url, fetch: reach, sdk, clock, auth }: HttpTransportOptions) {
    this.#clock = clock;
    this.#filter = new MessageFilter(clock, (method, result) => mendResult(method, result, sdk.isSpecType));
    this.#inner = new sdk.StreamableHTTPClientTransport(url, {
      fetch: async (input, init) => {
        const isStream = this.#isModern && init?.method === "GET" && new URL(input).href === url.href;
        return isStream ? new Response(null, { status: 405 }) : await reach(input, init);
      },
      reconnectionScheduler: (reconnect, delayMs) => {
        if (this.#isClosed || ++this.#retries > MAX_RETRIES) return () => {};
        return this.#afterPause(delayMs, reconnect);
      },
      ...(auth === undefined ? {} : { authProvider: auth }),
    });
    this.#inner.onmessage = (message) => this.#take(message);
    this.#inner.onerror = (error) => this.onerror?.(error);
    this.#inner.onclose = () => this.#tellClosed();
  }

  /** Reason of the end as the rest of a sentence about the server. Undefined while it runs, and when the gateway ended it. */
  get fault(): string | undefined {
    return this.#fault;
  }

  get sessionId(): string {
    // The SDK takes a session without an id for one that is new, and its types have no room for that
    return this.#inner.sessionId as string;
  }

  setProtocolVersion(version: string): void {
    this.#isModern = version >= MODERN;
    this.#inner.setProtocolVersion(version);
  }

  async start(): Promise<void> {
    await this.#inner.start();
  }

  async send(message: JSONRPCMessage, options: TransportSendOptions = {}): Promise<void> {
    this.#filter.sent(message);
    const { onRequestStreamEnd = () => this.#streamEnded(message) } = options;
    // The types of the two sides differ in fields that are undefined
    await this.#inner.send(message, { ...options, onRequestStreamEnd } as SendOptions);
  }

  /** Ends the session at the server, and everything that is open. */
  close(): Promise<void> {
    return this.#closing ??= this.#close();
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    for (const pause of this.#pauses) pause.clear();
    const ended = this.#inner.terminateSession().catch(() => {});
    await withTimeout(ended, { ms: END_MS, clock: this.#clock });
    await this.#inner.close();
  }

  /** Opens a stream again after a pause. @param wantedMs what the server, or the SDK, asks for. @returns what ends the pause */
  #afterPause(wantedMs: number, reconnect: () => void): () => void {
    const ms = Math.min(Math.max(wantedMs, MIN_RETRY_MS), MAX_RETRY_MS);
    const pause = this.#clock.after(ms, () => {
      this.#pauses.delete(pause);
      reconnect();
    });
    this.#pauses.add(pause);
    return () => {
      this.#pauses.delete(pause);
      pause.clear();
    };
  }

  /** Answers a request whose stream ended: nobody else does before its time is over. */
  #streamEnded(message: JSONRPCMessage): void {
    if ("method" in message && "id" in message) this.#take({ jsonrpc: "2.0", id: message.id, error: STREAM_ENDED });
  }

  #take(message: JSONRPCMessage): void {
    if (this.#isClosed) return;
    try {
      const kept = this.#filter.received(message);
      if (kept !== undefined) this.onmessage?.(kept);
    } catch (error) {
      if (!(error instanceof MessageFault)) throw error;
      this.#fault = error.message;
      void this.close();
      this.#tellClosed();
    }
  }

  #tellClosed(): void {
    const { onclose } = this;
    delete this.onclose;
    onclose?.();
  }
}
