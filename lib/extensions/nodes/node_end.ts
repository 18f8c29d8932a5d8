import { CancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { isLonger } from "../../base/text.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import {
  CLOSE,
  type GatewayFrame,
  type InvokeFrame,
  MAX_FRAME_BYTES,
  MAX_IN_FLIGHT,
  type NodeFrame,
  parseGatewayFrame,
  PROTOCOL_VERSION,
  type ResultFrame,
  type ToolOffer,
  type WelcomeFrame,
} from "./protocol.ts";

/** The tools that a node offers, and the way it makes a call: by its own executor, under its own policy. */
export interface NodeWork {
  tools(): readonly ToolOffer[];
  /** Never rejects with anything but a CancelError */
  call(frame: InvokeFrame, signal: AbortSignal): Promise<Pick<ResultFrame, "output" | "is_error" | "ran" | "data">>;
}

/** Socket, work and clock of the node's end of a connection. */
export interface NodeEndOptions {
  /** `unsent`: bytes that wait to be read by the other side */
  readonly socket: { send(text: string): void; unsent(): number; close(code: number, reason: string): void };
  readonly work: NodeWork;
  readonly version: string;
  readonly platform: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onWelcome: () => void;
}

/** The node's end of one connection. None of its methods throws. */
export interface NodeEnd {
  text(text: string): void;
  binary(): void;
  /** The connection is gone: calls at work are stopped, and what they give is not sent */
  closed(): void;
  /** Takes no more calls; resolves when those at work have ended */
  finish(): Promise<void>;
  close(code: number, reason: string): void;
}

const WELCOME_TIMEOUT_MS = 10_000;
/** Bounds of the heartbeat and the silence that a gateway may ask for */
const MIN_MS = 1000;
const MAX_MS = 7_200_000;
/** Unsent bytes above which the gateway is left: it asks and does not read */
const MAX_UNSENT_BYTES = 16_777_216;

/** Says hello at once, and answers what the gateway asks. A gateway that breaks the protocol is left. */
export function createNodeEnd(options: NodeEndOptions): NodeEnd {
  const { socket, work, clock, log } = options;
  const calls = new Map<string, AbortController>();
  let state: "new" | "open" | "finishing" | "ended" = "new";
  let maxFrameBytes = MAX_FRAME_BYTES;
  let lastHeard = clock.monotonic();
  let idle = () => {};
  const welcome = clock.after(WELCOME_TIMEOUT_MS, () => close(CLOSE.protocol, "No welcome came"));
  let watch = welcome;
  const { version, platform } = options;
  send({ type: "hello", v: PROTOCOL_VERSION, version, platform, tools: [...work.tools()] });

  function end(): void {
    if (state === "ended") return;
    state = "ended";
    welcome.clear();
    watch.clear();
    for (const controller of calls.values()) controller.abort(new CancelError("client_gone"));
    idle();
  }

  function close(code: number, reason: string): void {
    if (state === "ended") return;
    end();
    log.debug("The node leaves the gateway", { code, reason });
    socket.close(code, reason);
  }

  function send(frame: NodeFrame): void {
    if (state === "ended") return;
    try {
      socket.send(JSON.stringify(frame));
    } catch {
      // The socket went at this moment: its close follows
    }
    if (socket.unsent() > MAX_UNSENT_BYTES) close(CLOSE.protocol, "It does not read what it asked for");
  }

  function take(frame: GatewayFrame): void {
    if (frame.type === "welcome") return begin(frame);
    if (state === "new") return close(CLOSE.protocol, "It did not say welcome first");
    switch (frame.type) {
      case "ping":
        return send({ type: "pong", n: frame.n });
      case "describe":
        return send({ type: "tools", id: frame.id, tools: [...work.tools()] });
      case "cancel":
        return calls.get(frame.id)?.abort(new CancelError("cancelled"));
      case "invoke":
        return void answer(frame);
    }
  }

  function begin(frame: WelcomeFrame): void {
    if (state !== "new") return close(CLOSE.protocol, "It says welcome twice");
    if (frame.v !== PROTOCOL_VERSION) {
      return close(CLOSE.version, `The node speaks version ${PROTOCOL_VERSION} of the protocol`);
    }
    welcome.clear();
    state = "open";
    maxFrameBytes = Math.min(maxFrameBytes, frame.max_frame_bytes);
    const silenceMs = bounded(frame.silence_ms);
    watch = clock.every(bounded(frame.heartbeat_ms), () => {
      if (clock.monotonic() - lastHeard >= silenceMs) close(CLOSE.protocol, "Nothing was heard from the gateway");
    });
    options.onWelcome();
  }

  async function answer(frame: InvokeFrame): Promise<void> {
    const { id, tool } = frame;
    if (calls.has(id)) return close(CLOSE.protocol, "It uses the id of a call that is at work");
    if (state === "finishing") return refuse(frame, "the node is stopping");
    if (calls.size >= MAX_IN_FLIGHT) return refuse(frame, `${MAX_IN_FLIGHT} calls are at work on the node`);
    const controller = new AbortController();
    calls.set(id, controller);
    const begun = clock.monotonic();
    const note = (outcome: "ok" | "error" | "not_run" | "stopped") =>
      log.info("Call of the gateway", {
        tool,
        call_id: frame.call_id,
        outcome,
        duration_ms: Math.round((clock.monotonic() - begun) * 1000) / 1000,
      });
    try {
      const result = await work.call(frame, controller.signal);
      note(controller.signal.aborted ? "stopped" : !result.ran ? "not_run" : result.is_error ? "error" : "ok");
      send(fitting({ type: "result", id, ...result }));
    } catch (error) {
      const stopped = error instanceof CancelError;
      if (stopped) note("stopped");
      else log.error("A call of the gateway failed", { tool, call_id: frame.call_id, error });
      const why = stopped ? "it was stopped" : "an internal error, which the node's log has";
      send({ type: "result", id, output: `Cannot finish "${tool}": ${why}`, is_error: true, ran: true });
    } finally {
      calls.delete(id);
      if (calls.size === 0) idle();
    }
  }

  function refuse({ id, tool }: InvokeFrame, why: string): void {
    send({ type: "result", id, output: `Cannot call "${tool}": ${why}`, is_error: true, ran: false });
  }

  /** The executor bounds output and data; a gateway may read less than both together. */
  function fitting(frame: ResultFrame): ResultFrame {
    if (!isLonger(JSON.stringify(frame), maxFrameBytes)) return frame;
    const { data: _, ...plain } = frame;
    if (!isLonger(JSON.stringify(plain), maxFrameBytes)) return plain;
    const output =
      `Cannot send the output: it is longer than the ${maxFrameBytes} bytes that the gateway reads; ask for less`;
    return { ...plain, output, is_error: true };
  }

  return {
    close,
    closed: end,
    text(text) {
      if (state === "ended") return;
      lastHeard = clock.monotonic();
      if (isLonger(text, MAX_FRAME_BYTES)) return close(CLOSE.protocol, `Frame over ${MAX_FRAME_BYTES} bytes`);
      const parsed = parseGatewayFrame(text);
      if (parsed.ok) take(parsed.frame);
      else close(CLOSE.protocol, `Cannot read it: ${parsed.reason}`.slice(0, 100));
    },
    binary: () => close(CLOSE.protocol, "Cannot read a binary frame: send text"),
    finish() {
      if (state === "open") state = "finishing";
      if (calls.size === 0 || state === "ended") return Promise.resolve();
      return new Promise((resolve) => (idle = resolve));
    },
  };
}

function bounded(ms: number): number {
  return Math.min(MAX_MS, Math.max(MIN_MS, ms));
}
