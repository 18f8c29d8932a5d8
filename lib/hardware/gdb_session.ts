import { cancelError } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { ToolError } from "../base/errors.ts";
import type { TcpConnection } from "../system/net/tcp.ts";
import { describeNetworkError } from "../system/net/network_error.ts";
import { encodePacket, type GdbMessage, PacketReader } from "./gdb_packet.ts";

/** The answer of a stub to one request. */
export interface GdbReply {
  /** A character up to U+00FF for each byte; empty: the stub does not know the request */
  readonly text: string;
  /** Text that the stub printed before the reply, for example the answer of a monitor command */
  readonly console: string;
}

/** The connection a session speaks over, and the clock of its time limits. */
export interface GdbSessionOptions {
  readonly connection: TcpConnection;
  readonly clock: Clock;
  /** Milliseconds that one reply may take */
  readonly replyMs: number;
  /** For messages: what cannot be done, such as `Cannot read board "bench"` */
  readonly action: string;
}

/** Times a packet is sent again, or asked for again, because it came damaged */
const MAX_REPEATS = 3;
/** Most bytes of one reply after expansion */
const MAX_PACKET_BYTES = 65_536;
/** Most bytes a stub may send in one session. A memory read and all descriptions stay far below */
const MAX_SESSION_BYTES = 4_194_304;
/** Packets and marks that answer nothing, for each request */
const MAX_STRAYS = 64;
const MAX_CONSOLE = 4096;

const STOPPED = /^[TSWX][0-9a-f]{2}/i;
const PRINTED = /^O((?:[0-9a-f]{2})+)$/i;
const ACKNOWLEDGE = Buffer.from("+");
const REFUSE = Buffer.from("-");

/**
 * Requests and replies of the GDB remote protocol, one at a time, over one connection.
 *
 * A request is sent again when the stub refuses it, never because of silence: over TCP nothing is lost, and the reply to the first
 * copy would be taken for that of the next request.
 * Source: GDB manual, appendix E.2 "Packet acknowledgment", E.3 "Stop reply packets"
 */
export class GdbSession {
  readonly #options: GdbSessionOptions;
  readonly #connection: TcpConnection;
  readonly #reader = new PacketReader({ maxBytes: MAX_PACKET_BYTES });
  #acknowledges = true;
  /** Bytes that the stub sent in this session */
  #received = 0;

  constructor(options: GdbSessionOptions) {
    this.#options = options;
    this.#connection = options.connection;
  }

  /**
   * @throws {ToolError} `board_timeout` no reply in time, `board_closed`, `board_protocol` what is not the protocol or too much of it
   * @throws {CancelError} when the signal aborts
   */
  async request(payload: string, signal: AbortSignal): Promise<GdbReply> {
    const { clock, replyMs } = this.#options;
    const limit = clock.timeoutSignal(replyMs);
    const either = AbortSignal.any([signal, limit.signal]);
    try {
      await this.#send(encodePacket(payload), either);
      return await this.#receive(payload, either);
    } catch (error) {
      if (signal.aborted) throw cancelError(signal);
      if (limit.signal.aborted) {
        throw this.#failure("board_timeout", `its GDB stub did not answer within ${replyMs} ms`);
      }
      if (error instanceof RangeError) throw this.#broken(`its GDB stub sends what is too large: ${error.message}`);
      if (error instanceof ToolError) throw error;
      throw this.#failure("board_closed", describeNetworkError(error));
    } finally {
      limit.clear();
    }
  }

  /** From now on neither side acknowledges packets */
  withoutAcknowledgments(): void {
    this.#acknowledges = false;
  }

  /** Returns once the stub has said that it got the packet. What the stub sends before belongs to earlier times. */
  async #send(packet: Uint8Array, signal: AbortSignal): Promise<void> {
    this.#connection.write(packet);
    if (!this.#acknowledges) return;
    for (let repeats = 0, strays = 0;;) {
      const { kind } = await this.#next(signal);
      if (kind === "acknowledged") return;
      if (kind === "refused") {
        if (++repeats > MAX_REPEATS) throw this.#broken("its GDB stub refuses every packet as damaged");
        this.#connection.write(packet);
      } else {
        if (++strays > MAX_STRAYS) throw this.#broken("its GDB stub sends what answers nothing");
        this.#connection.write(ACKNOWLEDGE);
      }
    }
  }

  async #receive(payload: string, signal: AbortSignal): Promise<GdbReply> {
    let console = "";
    for (let repeats = 0, strays = 0; strays <= MAX_STRAYS;) {
      const message = await this.#next(signal);
      if (message.kind === "corrupt") {
        if (!this.#acknowledges || ++repeats > MAX_REPEATS) throw this.#broken("its GDB stub sends damaged packets");
        this.#connection.write(REFUSE);
        continue;
      }
      strays++;
      if (message.kind !== "packet") continue;
      if (this.#acknowledges) this.#connection.write(ACKNOWLEDGE);
      const text = message.payload;
      const printed = PRINTED.exec(text)?.[1];
      if (printed === undefined && (payload === "?" || !STOPPED.test(text))) return { text, console };
      console = (console + Buffer.from(printed ?? "", "hex").toString("latin1")).slice(0, MAX_CONSOLE);
    }
    throw this.#broken("its GDB stub sends what answers nothing");
  }

  async #next(signal: AbortSignal): Promise<GdbMessage> {
    for (;;) {
      const message = this.#reader.next();
      if (message !== undefined) return message;
      const bytes = await this.#connection.read(signal);
      if (bytes === undefined) throw this.#failure("board_closed", "its GDB stub closed the connection");
      this.#received += bytes.length;
      if (this.#received > MAX_SESSION_BYTES) {
        throw this.#broken(`its GDB stub sent more than ${MAX_SESSION_BYTES} bytes`);
      }
      this.#reader.feed(bytes);
    }
  }

  #broken(reason: string): ToolError {
    return this.#failure("board_protocol", reason);
  }

  #failure(code: string, reason: string): ToolError {
    return new ToolError(code, `${this.#options.action}: ${reason}`);
  }
}
