import { type CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { isLonger } from "../../base/text.ts";
import type { LinkPeer, NodeLink } from "./nodes.ts";
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

/** The gateway's end of the link, with what it can ask. */
export interface GatewayLink extends NodeLink {
  readonly inFlight: () => number;
  /**
   * Makes a call, at most once.
   * @throws {ToolError} `node_lost` (the outcome is unknown), `node_timeout` (as well), `node_overloaded`, `input_too_large`;
   *   {CancelError} when the signal aborts; the node is told to stop
   */
  invoke(call: Omit<InvokeFrame, "type" | "id">, signal: AbortSignal): Promise<ResultFrame>;
  /** The tools it has now. @throws as `invoke` */
  describe(signal: AbortSignal): Promise<readonly ToolOffer[]>;
}

/** Until the node has said hello. Milliseconds */
const HELLO_TIMEOUT_MS = 10_000;
const DESCRIBE_TIMEOUT_MS = 10_000;
/** Asks that were given up and may still be answered */
const MAX_GIVEN_UP = 1024;
const TOO_BIG = 1009;
const UNSUPPORTED = 1003;
const TRY_AGAIN_LATER = 1013;

type Answer = Extract<NodeFrame, { type: "result" | "tools" }>;

interface Waiting {
  readonly expects: Answer["type"];
  readonly what: string;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

/** Opens the gateway's side of a link. A frame that breaks the protocol ends the link. */
export function createGatewayLink(options: GatewayLinkOptions): GatewayLink {
  const { nodeId, peer, clock, settings } = options;
  const waiting = new Map<string, Waiting>();
  const givenUp = new Set<string>();
  let state: "new" | "open" | "ended" = "new";
  let lastHeard = clock.monotonic();
  let asked = 0;
  let pings = 0;

  const hello = clock.after(HELLO_TIMEOUT_MS, () => close(CLOSE.protocol, "No hello came"));
  const heartbeat = clock.every(settings.heartbeatMs, () => {
    if (clock.monotonic() - lastHeard >= settings.silenceMs) {
      end("nothing was heard from it");
      return peer.terminate();
    }
    if (state === "open") send({ type: "ping", n: ++pings });
  });

  function end(reason: string): void {
    if (state === "ended") return;
    state = "ended";
    hello.clear();
    heartbeat.clear();
    const lost = [...waiting.values()];
    waiting.clear();
    for (const { what, reject } of lost) reject(linkBroke(what));
    options.onEnd(reason);
  }

  function linkBroke(what: string): ToolError {
    return new ToolError(
      "node_lost",
      `Cannot finish "${what}" on node "${nodeId}": the link broke while it was at work, so whether it took effect is ` +
        "unknown; look before you call it again",
    );
  }

  function close(code: number, reason: string): void {
    if (state === "ended") return;
    end(reason);
    peer.close(code, reason);
  }

  function send(frame: GatewayFrame, text = JSON.stringify(frame)): void {
    if (!peer.send(text) && state !== "ended") close(TRY_AGAIN_LATER, "It reads too slowly");
  }

  function ask(
    frame: GatewayFrame & { readonly id: string },
    { expects, what, signal }: Pick<Waiting, "expects" | "what"> & { readonly signal: AbortSignal },
  ): Promise<Answer> {
    if (signal.aborted) throw cancelError(signal);
    if (state !== "open") throw notConnected(nodeId, what);
    if (waiting.size >= MAX_IN_FLIGHT) {
      throw new ToolError(
        "node_overloaded",
        `Cannot call "${what}" on node "${nodeId}": ${MAX_IN_FLIGHT} calls are at work there; try again after one has ended`,
      );
    }
    const text = JSON.stringify(frame);
    if (isLonger(text, MAX_FRAME_BYTES)) {
      throw new ToolError(
        "input_too_large",
        `Cannot call "${what}" on node "${nodeId}": the input is longer than ${MAX_FRAME_BYTES} bytes; shorten it`,
      );
    }
    return new Promise((resolve, reject) => {
      const { id } = frame;
      const settle = () => signal.removeEventListener("abort", abort);
      const abort = () => {
        if (!waiting.delete(id)) return;
        givenUp.add(id);
        settle();
        reject(stopped(what, cancelError(signal)));
        if (givenUp.size > MAX_GIVEN_UP) return close(CLOSE.protocol, "It leaves too much unanswered");
        if (frame.type === "invoke") send({ type: "cancel", id });
      };
      waiting.set(id, {
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
      signal.addEventListener("abort", abort, { once: true });
      send(frame, text);
    });
  }

  function stopped(what: string, error: CancelError): Error {
    if (error.reason !== "timeout") return error;
    return new ToolError(
      "node_timeout",
      `Cannot finish "${what}" on node "${nodeId}": it did not answer in time and was told to stop; whether it took ` +
        "effect is unknown",
    );
  }

  function take(frame: NodeFrame): void {
    if (frame.type === "hello") return greet(frame);
    if (state === "new") return close(CLOSE.protocol, "It did not say hello first");
    switch (frame.type) {
      case "pong":
        return frame.n > pings ? close(CLOSE.protocol, "It answers a ping nobody sent") : undefined;
      case "tools":
        options.onTools(frame.tools);
        return answer(frame.id, frame);
      case "result":
        return answer(frame.id, frame);
    }
  }

  function greet(frame: HelloFrame): void {
    if (state !== "new") return close(CLOSE.protocol, "It says hello twice");
    if (frame.v !== PROTOCOL_VERSION) {
      return close(CLOSE.version, `The gateway speaks version ${PROTOCOL_VERSION} of the protocol`);
    }
    hello.clear();
    state = "open";
    options.onHello(frame);
    send({
      type: "welcome",
      v: PROTOCOL_VERSION,
      heartbeat_ms: settings.heartbeatMs,
      silence_ms: settings.silenceMs,
      max_frame_bytes: settings.maxFrameBytes,
    });
  }

  function answer(id: string, frame: Answer): void {
    if (givenUp.delete(id)) return;
    const call = waiting.get(id);
    if (call === undefined || call.expects !== frame.type) {
      return close(CLOSE.protocol, "It answers what nobody asked");
    }
    waiting.delete(id);
    call.resolve(frame);
  }

  return {
    inFlight: () => waiting.size,
    close,
    async invoke(call, signal) {
      const frame = { type: "invoke", id: String(++asked), ...call } as const;
      // `answer` compares the type with what is expected
      return await ask(frame, { expects: "result", what: call.tool, signal }) as ResultFrame;
    },
    async describe(signal) {
      const limit = clock.timeoutSignal(DESCRIBE_TIMEOUT_MS);
      try {
        const frame = { type: "describe", id: String(++asked) } as const;
        const both = AbortSignal.any([limit.signal, signal]);
        const { tools } = await ask(frame, { expects: "tools", what: "describe", signal: both }) as Extract<
          Answer,
          { type: "tools" }
        >;
        return tools;
      } finally {
        limit.clear();
      }
    },
    text(text) {
      if (state === "ended") return;
      lastHeard = clock.monotonic();
      if (isLonger(text, settings.maxFrameBytes)) return close(TOO_BIG, `Frame over ${settings.maxFrameBytes} bytes`);
      const parsed = parseNodeFrame(text);
      if (parsed.ok) take(parsed.frame);
      else close(CLOSE.protocol, `Cannot read it: ${parsed.reason}`.slice(0, 100));
    },
    binary: () => close(UNSUPPORTED, "Cannot read a binary frame: send text"),
    closed: () => end("the connection closed"),
  };
}

/** Why nothing was asked of a node that is away. @param what the tool, or what else was wanted */
export function notConnected(nodeId: string, what: string): ToolError {
  return new ToolError("node_lost", `Cannot call "${what}" on node "${nodeId}": it is not connected; nothing was sent`);
}
