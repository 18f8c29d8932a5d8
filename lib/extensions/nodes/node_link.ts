import { type CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { isLonger } from "../../base/text.ts";
import {
  CLOSE,
  type GatewayFrame,
  type HelloFrame,
  type InvokeFrame,
  MAX_FRAME_BYTES,
  MAX_IN_FLIGHT,
  type NodeFrame,
  parseNodeFrame,
  PROTOCOL_VERSION,
  type ResultFrame,
  type ToolOffer,
} from "./protocol.ts";

/** The socket beneath a link. */
export interface LinkPeer {
  /** @returns false when the other side is too slow, or gone */
  send(text: string): boolean;
  close(code: number, reason: string): void;
  /** Ends the connection without a handshake */
  terminate(): void;
}

/** Timeouts and bounds of a link, from `[gateway.node_control]`. */
export interface LinkSettings {
  /** Between two pings */
  readonly heartbeatMs: number;
  /** Without a frame for so long the link is broken */
  readonly silenceMs: number;
  /** Longest frame that is read, in bytes */
  readonly maxFrameBytes: number;
}

/** Peer, settings and callbacks of the gateway's side of a link. */
export interface GatewayLinkOptions {
  readonly nodeId: string;
  readonly peer: LinkPeer;
  readonly clock: Clock;
  readonly settings: LinkSettings;
  /** The node has said who it is: the link counts from now on. Its welcome is sent afterwards */
  readonly onHello: (hello: HelloFrame) => void;
  readonly onTools: (tools: readonly ToolOffer[]) => void;
  /** Once: nothing is sent or heard any more */
  readonly onEnd: (reason: string) => void;
}

/** Until the node has said hello. Milliseconds */
const HELLO_TIMEOUT_MS = 10_000;
const DESCRIBE_TIMEOUT_MS = 10_000;
/** Asks that were given up and may still be answered */
const MAX_GIVEN_UP = 1024;
const TOO_BIG = 1009;
const UNSUPPORTED = 1003;
/** Close code after which a node connects again. */
export const TRY_AGAIN_LATER = 1013;

type ToolsFrame = Extract<NodeFrame, { type: "tools" }>;
type Answer = ResultFrame | ToolsFrame;
type AskFrame = Extract<GatewayFrame, { type: "invoke" | "describe" }>;

interface Waiting {
  readonly expects: Answer["type"];
  readonly what: string;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

/** The answer that an ask expects, its name in errors, and the signal that gives it up. */
type Ask = Pick<Waiting, "expects" | "what"> & { readonly signal: AbortSignal };

/** The gateway's end of a link, with what it can ask. A frame that breaks the protocol ends the link. What its socket calls never throws. */
export class GatewayLink {
  readonly #options: GatewayLinkOptions;
  /** Asks that the node has not answered yet, by id */
  readonly #waiting = new Map<string, Waiting>();
  /** Ids of asks that were given up and may still be answered */
  readonly #givenUp = new Set<string>();
  readonly #hello: Timer;
  readonly #heartbeat: Timer;
  #state: "new" | "open" | "ended" = "new";
  /** Monotonic time of the last frame of the node */
  #lastHeard: number;
  /** Asks so far: the last one's id */
  #asked = 0;
  /** Pings so far: the last one's number */
  #pings = 0;

  constructor(options: GatewayLinkOptions) {
    const { clock, settings } = options;
    this.#options = options;
    this.#lastHeard = clock.monotonic();
    this.#hello = clock.after(HELLO_TIMEOUT_MS, () => this.close(CLOSE.protocol, "No hello came"));
    this.#heartbeat = clock.every(settings.heartbeatMs, () => this.#beat());
  }

  /** Number of calls at work on the node. */
  get inFlight(): number {
    return this.#waiting.size;
  }

  /**
   * Makes a call, at most once.
   * @throws {ToolError} `node_lost` (the outcome is unknown), `node_timeout` (as well), `node_overloaded`, `input_too_large`;
   *   {CancelError} when the signal aborts; the node is told to stop
   */
  async invoke(call: Omit<InvokeFrame, "type" | "id">, signal: AbortSignal): Promise<ResultFrame> {
    const frame = { type: "invoke", id: String(++this.#asked), ...call } as const;
    // #answer compares the type with what is expected
    return await this.#ask(frame, { expects: "result", what: call.tool, signal }) as ResultFrame;
  }

  /** Returns the tools that the node has now. @throws as `invoke` */
  async describe(signal: AbortSignal): Promise<readonly ToolOffer[]> {
    const limit = this.#options.clock.timeoutSignal(DESCRIBE_TIMEOUT_MS);
    try {
      const frame = { type: "describe", id: String(++this.#asked) } as const;
      const both = AbortSignal.any([limit.signal, signal]);
      // #answer compares the type with what is expected
      return (await this.#ask(frame, { expects: "tools", what: "describe", signal: both }) as ToolsFrame).tools;
    } finally {
      limit.clear();
    }
  }

  text(text: string): void {
    if (this.#state === "ended") return;
    const { clock, settings: { maxFrameBytes } } = this.#options;
    this.#lastHeard = clock.monotonic();
    if (isLonger(text, maxFrameBytes)) return this.close(TOO_BIG, `Frame over ${maxFrameBytes} bytes`);
    const parsed = parseNodeFrame(text);
    if (parsed.ok) this.#take(parsed.frame);
    else this.close(CLOSE.protocol, `Cannot read it: ${parsed.reason}`.slice(0, 100));
  }

  /** A frame that no side of this protocol sends */
  binary(): void {
    this.close(UNSUPPORTED, "Cannot read a binary frame: send text");
  }

  /** The connection is gone */
  closed(): void {
    this.#end("the connection closed");
  }

  close(code: number, reason: string): void {
    if (this.#state === "ended") return;
    this.#end(reason);
    this.#options.peer.close(code, reason);
  }

  /** Ends a link that is silent. Pings any other node. */
  #beat(): void {
    const { clock, settings, peer } = this.#options;
    if (clock.monotonic() - this.#lastHeard >= settings.silenceMs) {
      this.#end("nothing was heard from it");
      return peer.terminate();
    }
    if (this.#state === "open") this.#send({ type: "ping", n: ++this.#pings });
  }

  #end(reason: string): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#hello.clear();
    this.#heartbeat.clear();
    const lost = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { what, reject } of lost) reject(linkBroke(this.#options.nodeId, what));
    this.#options.onEnd(reason);
  }

  #send(frame: GatewayFrame, text = JSON.stringify(frame)): void {
    if (this.#options.peer.send(text) || this.#state === "ended") return;
    this.close(TRY_AGAIN_LATER, "It reads too slowly");
  }

  #ask(frame: AskFrame, { expects, what, signal }: Ask): Promise<Answer> {
    if (signal.aborted) throw cancelError(signal);
    const text = this.#checkedText(frame, what);
    return new Promise((resolve, reject) => {
      const giveUp = () => this.#giveUp(frame, cancelError(signal));
      const settle = () => signal.removeEventListener("abort", giveUp);
      this.#waiting.set(frame.id, {
        expects,
        what,
        resolve(answer) {
          settle();
          resolve(answer);
        },
        reject(error) {
          settle();
          reject(error);
        },
      });
      signal.addEventListener("abort", giveUp, { once: true });
      this.#send(frame, text);
    });
  }

  /** Returns the text of a frame that may be sent now. @throws {ToolError} */
  #checkedText(frame: AskFrame, what: string): string {
    const { nodeId } = this.#options;
    if (this.#state !== "open") throw notConnected(nodeId, what);
    if (this.#waiting.size >= MAX_IN_FLIGHT) {
      throw new ToolError(
        "node_overloaded",
        `Cannot call "${what}" on node "${nodeId}": ${MAX_IN_FLIGHT} calls are at work there; try again after one has ended`,
      );
    }
    const text = JSON.stringify(frame);
    if (!isLonger(text, MAX_FRAME_BYTES)) return text;
    throw new ToolError(
      "input_too_large",
      `Cannot call "${what}" on node "${nodeId}": the input is longer than ${MAX_FRAME_BYTES} bytes; shorten it`,
    );
  }

  /** Ends the wait for an answer, and tells the node to stop the call. */
  #giveUp(frame: AskFrame, error: CancelError): void {
    const ask = this.#waiting.get(frame.id);
    if (ask === undefined) return;
    this.#waiting.delete(frame.id);
    this.#givenUp.add(frame.id);
    ask.reject(error.reason === "timeout" ? timedOut(this.#options.nodeId, ask.what) : error);
    if (this.#givenUp.size > MAX_GIVEN_UP) return this.close(CLOSE.protocol, "It leaves too much unanswered");
    if (frame.type === "invoke") this.#send({ type: "cancel", id: frame.id });
  }

  #take(frame: NodeFrame): void {
    if (frame.type === "hello") return this.#greet(frame);
    if (this.#state === "new") return this.close(CLOSE.protocol, "It did not say hello first");
    switch (frame.type) {
      case "pong":
        return frame.n > this.#pings ? this.close(CLOSE.protocol, "It answers a ping nobody sent") : undefined;
      case "tools":
        this.#options.onTools(frame.tools);
        return this.#answer(frame.id, frame);
      case "result":
        return this.#answer(frame.id, frame);
    }
  }

  #greet(frame: HelloFrame): void {
    if (this.#state !== "new") return this.close(CLOSE.protocol, "It says hello twice");
    if (frame.v !== PROTOCOL_VERSION) {
      return this.close(CLOSE.version, `The gateway speaks version ${PROTOCOL_VERSION} of the protocol`);
    }
    const { settings, onHello } = this.#options;
    this.#hello.clear();
    this.#state = "open";
    onHello(frame);
    this.#send({
      type: "welcome",
      v: PROTOCOL_VERSION,
      heartbeat_ms: settings.heartbeatMs,
      silence_ms: settings.silenceMs,
      max_frame_bytes: settings.maxFrameBytes,
    });
  }

  #answer(id: string, frame: Answer): void {
    if (this.#givenUp.delete(id)) return;
    const ask = this.#waiting.get(id);
    if (ask === undefined || ask.expects !== frame.type) {
      return this.close(CLOSE.protocol, "It answers what nobody asked");
    }
    this.#waiting.delete(id);
    ask.resolve(frame);
  }
}

/** Returns the error for a node that is away: nothing was asked of it. @param what the tool, or what else was wanted */
export function notConnected(nodeId: string, what: string): ToolError {
  return new ToolError("node_lost", `Cannot call "${what}" on node "${nodeId}": it is not connected; nothing was sent`);
}

/** Returns the error for a call whose outcome is unknown. */
export function linkBroke(nodeId: string, what: string): ToolError {
  return new ToolError(
    "node_lost",
    `Cannot finish "${what}" on node "${nodeId}": the link broke while it was at work, so whether it took effect is ` +
      "unknown; look before you call it again",
  );
}

/** Returns the error for a call that was given up. */
export function timedOut(nodeId: string, what: string): ToolError {
  return new ToolError(
    "node_timeout",
    `Cannot finish "${what}" on node "${nodeId}": it did not answer in time and was told to stop; whether it took ` +
      "effect is unknown",
  );
}
