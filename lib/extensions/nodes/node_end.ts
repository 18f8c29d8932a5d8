import { CancelError } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
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

const WELCOME_TIMEOUT_MS = 10_000;
/** Bounds of the heartbeat and the silence that a gateway may ask for */
const MIN_MS = 1000;
const MAX_MS = 7_200_000;
/** Unsent bytes above which the gateway is left: it asks and does not read */
const MAX_UNSENT_BYTES = 16_777_216;

/**
 * The node's end of one connection. Says hello at once, and answers what the gateway asks. A gateway that breaks the protocol is left.
 * None of the methods throws.
 */
export class NodeEnd {
  readonly #options: NodeEndOptions;
  /** Calls at work, by id */
  readonly #calls = new Map<string, AbortController>();
  /** Waits for the welcome */
  readonly #welcome: Timer;
  /** Watches for silence, from the welcome on */
  #watch: Timer | undefined;
  #state: "new" | "open" | "finishing" | "ended" = "new";
  /** Bytes of the longest frame that the gateway reads */
  #maxFrameBytes = MAX_FRAME_BYTES;
  /** Monotonic time of the last frame of the gateway */
  #lastHeard: number;
  /** Runs when the last call at work has ended */
  #onIdle = () => {};

  constructor(options: NodeEndOptions) {
    const { clock, version, platform, work } = options;
    this.#options = options;
    this.#lastHeard = clock.monotonic();
    this.#welcome = clock.after(WELCOME_TIMEOUT_MS, () => this.close(CLOSE.protocol, "No welcome came"));
    this.#send({ type: "hello", v: PROTOCOL_VERSION, version, platform, tools: [...work.tools()] });
  }

  text(text: string): void {
    if (this.#state === "ended") return;
    this.#lastHeard = this.#options.clock.monotonic();
    if (isLonger(text, MAX_FRAME_BYTES)) return this.close(CLOSE.protocol, `Frame over ${MAX_FRAME_BYTES} bytes`);
    const parsed = parseGatewayFrame(text);
    if (parsed.ok) this.#take(parsed.frame);
    else this.close(CLOSE.protocol, `Cannot read it: ${parsed.reason}`.slice(0, 100));
  }

  binary(): void {
    this.close(CLOSE.protocol, "Cannot read a binary frame: send text");
  }

  /** Takes the end of the connection: calls at work are stopped, and what they give is not sent. */
  closed(): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#welcome.clear();
    this.#watch?.clear();
    for (const controller of this.#calls.values()) controller.abort(new CancelError("client_gone"));
    this.#onIdle();
  }

  /** Takes no more calls; resolves when those at work have ended. */
  finish(): Promise<void> {
    if (this.#state === "open") this.#state = "finishing";
    if (this.#calls.size === 0 || this.#state === "ended") return Promise.resolve();
    return new Promise((resolve) => (this.#onIdle = resolve));
  }

  close(code: number, reason: string): void {
    if (this.#state === "ended") return;
    this.closed();
    this.#options.log.debug("The node leaves the gateway", { code, reason });
    this.#options.socket.close(code, reason);
  }

  #send(frame: NodeFrame): void {
    if (this.#state === "ended") return;
    const { socket } = this.#options;
    try {
      socket.send(JSON.stringify(frame));
    } catch {
      // The socket went at this moment: its close follows
    }
    if (socket.unsent() > MAX_UNSENT_BYTES) this.close(CLOSE.protocol, "It does not read what it asked for");
  }

  #take(frame: GatewayFrame): void {
    if (frame.type === "welcome") return this.#begin(frame);
    if (this.#state === "new") return this.close(CLOSE.protocol, "It did not say welcome first");
    switch (frame.type) {
      case "ping":
        return this.#send({ type: "pong", n: frame.n });
      case "describe":
        return this.#send({ type: "tools", id: frame.id, tools: [...this.#options.work.tools()] });
      case "cancel":
        return this.#calls.get(frame.id)?.abort(new CancelError("cancelled"));
      case "invoke":
        return void this.#answer(frame);
    }
  }

  #begin(frame: WelcomeFrame): void {
    if (this.#state !== "new") return this.close(CLOSE.protocol, "It says welcome twice");
    if (frame.v !== PROTOCOL_VERSION) {
      return this.close(CLOSE.version, `The node speaks version ${PROTOCOL_VERSION} of the protocol`);
    }
    const { clock, onWelcome } = this.#options;
    this.#welcome.clear();
    this.#state = "open";
    this.#maxFrameBytes = Math.min(this.#maxFrameBytes, frame.max_frame_bytes);
    const silenceMs = bounded(frame.silence_ms);
    this.#watch = clock.every(bounded(frame.heartbeat_ms), () => {
      if (clock.monotonic() - this.#lastHeard < silenceMs) return;
      this.close(CLOSE.protocol, "Nothing was heard from the gateway");
    });
    onWelcome();
  }

  async #answer(frame: InvokeFrame): Promise<void> {
    const { id } = frame;
    if (this.#calls.has(id)) return this.close(CLOSE.protocol, "It uses the id of a call that is at work");
    if (this.#state === "finishing") return this.#refuse(frame, "the node is stopping");
    if (this.#calls.size >= MAX_IN_FLIGHT) {
      return this.#refuse(frame, `${MAX_IN_FLIGHT} calls are at work on the node`);
    }
    const controller = new AbortController();
    this.#calls.set(id, controller);
    try {
      this.#send(await this.#call(frame, controller.signal));
    } finally {
      this.#calls.delete(id);
      if (this.#calls.size === 0) this.#onIdle();
    }
  }

  /** Makes a call, and logs how it ended. @returns the answer */
  async #call(frame: InvokeFrame, signal: AbortSignal): Promise<ResultFrame> {
    const { work, clock, log } = this.#options;
    const { id, tool, call_id } = frame;
    const begun = clock.monotonic();
    const note = (outcome: "ok" | "error" | "not_run" | "stopped") =>
      log.info("Call of the gateway", {
        tool,
        call_id,
        outcome,
        duration_ms: Math.round((clock.monotonic() - begun) * 1000) / 1000,
      });
    try {
      const result = await work.call(frame, signal);
      note(signal.aborted ? "stopped" : !result.ran ? "not_run" : result.is_error ? "error" : "ok");
      return fitting({ type: "result", id, ...result }, this.#maxFrameBytes);
    } catch (error) {
      const stopped = error instanceof CancelError;
      if (stopped) note("stopped");
      else log.error("A call of the gateway failed", { tool, call_id, error });
      const why = stopped ? "it was stopped" : "an internal error, which the node's log has";
      return { type: "result", id, output: `Cannot finish "${tool}": ${why}`, is_error: true, ran: true };
    }
  }

  #refuse({ id, tool }: InvokeFrame, why: string): void {
    this.#send({ type: "result", id, output: `Cannot call "${tool}": ${why}`, is_error: true, ran: false });
  }
}

/** Returns a result that the gateway reads: the executor bounds output and data, and the gateway may read less than both together. */
function fitting(frame: ResultFrame, maxFrameBytes: number): ResultFrame {
  if (!isLonger(JSON.stringify(frame), maxFrameBytes)) return frame;
  const { data: _, ...plain } = frame;
  if (!isLonger(JSON.stringify(plain), maxFrameBytes)) return plain;
  const output =
    `Cannot send the output: it is longer than the ${maxFrameBytes} bytes that the gateway reads; ask for less`;
  return { ...plain, output, is_error: true };
}

function bounded(ms: number): number {
  return Math.min(MAX_MS, Math.max(MIN_MS, ms));
}
