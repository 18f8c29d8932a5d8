import { cancelError } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { ToolError } from "../base/errors.ts";
import type { connectTcp, TcpAddress, TcpConnection } from "../system/net/tcp.ts";
import { describeNetworkError } from "../system/net/network_error.ts";
import { GdbSession } from "./gdb_session.ts";
import { type MemoryRegion, parseMemoryMap } from "./memory_map.ts";
import { readTargetDescription, type TargetDescription } from "./target_description.ts";

/** The program that speaks for a target. */
export interface GdbStub {
  /** Kind, by what it answers; `other`: OpenOCD, probe-rs, a monitor in the firmware and the like */
  readonly kind: "qemu" | "gdbserver" | "other";
  /** Features the stub announces, for example `qXfer:features:read`; at most 256 */
  readonly features: readonly string[];
  /** Bytes of the largest packet it takes */
  readonly packetBytes: number;
  readonly acknowledges: boolean;
  /** True when the target was halted before the attach; undefined when the stub does not tell */
  readonly haltedBefore: boolean | undefined;
  /** Reason why the target is halted now, for example `signal 5`; undefined when the stub does not say */
  readonly stopped: string | undefined;
}

/** The board to attach to, and the means to reach it. */
export interface AttachOptions {
  readonly board: string;
  readonly address: TcpAddress;
  readonly connect: typeof connectTcp;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** Milliseconds */
const CONNECT_MS = 3000;
const REPLY_MS = 3000;
const ATTACHED_MS = 20_000;
const DETACH_MS = 1000;

const DEFAULT_PACKET_BYTES = 400;
const [MIN_PACKET_BYTES, MAX_PACKET_BYTES] = [64, 16_384];
/** Share of a packet kept for its frame and for escapes, in bytes */
const FRAME_BYTES = 16;
const MAX_DOCUMENT_BYTES = 262_144;
const MAX_FEATURES = 256;

/**
 * Connects to a board's stub, works with it, and lets it go; attached for 20 s at most.
 *
 * Most stubs halt their target when somebody connects, and resume it on `D`, detach: that is how it ends here, on every path. Two
 * stubs are known to hold a target that stood still before, and there the connection is closed without `D`, which leaves it so:
 * QEMU with `-S` or stopped by a fault, where its monitor says more than `paused`, and gdbserver, whose program only runs for a
 * debugger. Nothing else is sent that could change the target; breakpoints that an earlier debugger left in a stub may be gone.
 * @throws {ToolError} `board_unreachable`, and what GdbSession throws; {CancelError} when the signal aborts
 * Source: GDB manual, appendix E; QEMU, gdbstub
 */
export async function attachTarget<T>(options: AttachOptions, work: (target: GdbTarget) => Promise<T>): Promise<T> {
  const { board, clock, signal } = options;
  const action = `Cannot use board "${board}"`;
  const connection = await open(options, action);
  const session = new GdbSession({ connection, clock, replyMs: REPLY_MS, action });
  const limit = clock.timeoutSignal(ATTACHED_MS);
  const either = AbortSignal.any([signal, limit.signal]);
  let haltedBefore: boolean | undefined;
  try {
    // A cancelled call waits for this: how the board must be left is only known afterwards
    const offer = await greet(session, limit.signal);
    const kind = await findKind(session, offer.features, limit.signal);
    haltedBefore = kind.haltedBefore;
    // Asked always, since gdbserver reads no memory before
    const stopped = stopReason((await session.request("?", either)).text);
    const stub = { ...offer, ...kind, stopped };
    return await work(new GdbTarget({ session, stub, action, signal: either }));
  } catch (error) {
    if (signal.aborted) throw cancelError(signal);
    if (limit.signal.aborted) throw new ToolError("board_timeout", `${action}: it took longer than ${ATTACHED_MS} ms`);
    throw error;
  } finally {
    limit.clear();
    if (haltedBefore !== true) await detach(session, clock);
    connection.close();
  }
}

async function open({ address, connect, clock, signal }: AttachOptions, action: string): Promise<TcpConnection> {
  const limit = clock.timeoutSignal(CONNECT_MS);
  try {
    return await connect(address, AbortSignal.any([signal, limit.signal]));
  } catch (error) {
    if (signal.aborted) throw cancelError(signal);
    const reason = limit.signal.aborted ? `no answer within ${CONNECT_MS} ms` : describeNetworkError(error);
    throw new ToolError("board_unreachable", `${action}: its GDB server is not there, ${reason}; is it running?`);
  } finally {
    limit.clear();
  }
}

type Offer = Pick<GdbStub, "features" | "packetBytes" | "acknowledges">;

async function greet(session: GdbSession, signal: AbortSignal): Promise<Offer> {
  const offered = (await session.request("qSupported:xmlRegisters=i386", signal)).text.split(";");
  const features = offered.filter((feature) => /^[\w-]{1,64}(:[\w-]{1,64}){0,2}\+$/.test(feature))
    .slice(0, MAX_FEATURES).map((feature) => feature.slice(0, -1));
  const packetSize = offered.map((feature) => /^PacketSize=([0-9a-f]{1,8})$/i.exec(feature)?.[1]).find(Boolean);
  const packetBytes = packetSize === undefined ? DEFAULT_PACKET_BYTES : Number.parseInt(packetSize, 16);
  let acknowledges = true;
  if (features.includes("QStartNoAckMode") && (await session.request("QStartNoAckMode", signal)).text === "OK") {
    session.withoutAcknowledgments();
    acknowledges = false;
  }
  return {
    features,
    packetBytes: Math.min(Math.max(packetBytes, MIN_PACKET_BYTES), MAX_PACKET_BYTES),
    acknowledges,
  };
}

function stopReason(reply: string): string | undefined {
  const [, kind = "", code = ""] = /^([TSWX])([0-9a-f]{2})/i.exec(reply) ?? [];
  if (kind === "") return undefined;
  return `${kind === "W" ? "exited with" : kind === "X" ? "ended by signal" : "signal"} ${Number.parseInt(code, 16)}`;
}

async function findKind(
  session: GdbSession,
  features: readonly string[],
  signal: AbortSignal,
): Promise<Pick<GdbStub, "kind" | "haltedBefore">> {
  if (features.includes("QStartupWithShell")) return { kind: "gdbserver", haltedBefore: true };
  if (!/^sstep/.test((await session.request("qqemu.Supported", signal)).text)) {
    return { kind: "other", haltedBefore: undefined };
  }
  const reply = await session.request(`qRcmd,${Buffer.from("info status").toString("hex")}`, signal);
  // Attaching pauses a machine that runs; any other state was there before
  const state = /^VM status: (\w+)( \([\w-]+\))?/.exec(reply.console);
  return { kind: "qemu", haltedBefore: state?.[2] === undefined ? undefined : true };
}

/** On a broken connection there is nothing left to be done. */
async function detach(session: GdbSession, clock: Clock): Promise<void> {
  const limit = clock.timeoutSignal(DETACH_MS);
  await session.request("D", limit.signal).catch(() => {});
  limit.clear();
}

interface TargetParts {
  readonly session: GdbSession;
  readonly stub: GdbStub;
  readonly action: string;
  readonly signal: AbortSignal;
}

/** A target that somebody is attached to. Every call throws what GdbSession does, and `board_refused` with the stub's own error. */
export class GdbTarget {
  readonly stub: GdbStub;
  readonly #parts: TargetParts;

  constructor(parts: TargetParts) {
    this.stub = parts.stub;
    this.#parts = parts;
  }

  /** Reads the target's description of itself; undefined when its stub offers none */
  async description(): Promise<TargetDescription | undefined> {
    if (!this.stub.features.includes("qXfer:features:read")) return undefined;
    return await this.#parsed(() => readTargetDescription((annex) => this.#readDocument("features", annex)));
  }

  /** Reads the target's memory map; undefined when its stub offers none */
  async memoryMap(): Promise<readonly MemoryRegion[] | undefined> {
    if (!this.stub.features.includes("qXfer:memory-map:read")) return undefined;
    return await this.#parsed(async () => parseMemoryMap(await this.#readDocument("memory-map", "")));
  }

  /** All registers as the stub has them, hexadecimal, `x` for unknown digits; undefined when it gives none */
  async registers(): Promise<string | undefined> {
    const reply = await this.#ask("g", "its registers");
    if (reply === "") return undefined;
    if (!/^([0-9a-f]{2}|xx)*$/i.test(reply)) throw this.#broken("its GDB stub sent registers that are not hexadecimal");
    return reply.toLowerCase();
  }

  /** The whole of `length` bytes, or an error that names the first address which cannot be read */
  async readMemory(address: bigint, length: number): Promise<Uint8Array> {
    const bytes = new Uint8Array(length);
    const most = (this.stub.packetBytes - FRAME_BYTES) >> 1;
    for (let done = 0; done < length;) {
      const wanted = Math.min(length - done, most);
      const part = await this.#readPart(address + BigInt(done), wanted);
      bytes.set(part, done);
      done += part.length;
    }
    return bytes;
  }

  /** Reads the bytes of one reply, which may be fewer than `wanted`. */
  async #readPart(address: bigint, wanted: number): Promise<Uint8Array> {
    const place = address.toString(16);
    const hex = await this.#ask(`m${place},${wanted.toString(16)}`, `to read memory at 0x${place}`);
    if (hex === "") throw this.#broken(`its GDB stub does not read memory at 0x${place}`);
    if (hex.length % 2 !== 0 || hex.length > wanted * 2 || !/^[0-9a-f]*$/i.test(hex)) {
      throw this.#broken(`its GDB stub answered ${wanted} bytes at 0x${place} with something else`);
    }
    return Buffer.from(hex, "hex");
  }

  async #readDocument(object: string, annex: string): Promise<string> {
    const parts: string[] = [];
    for (let size = 0;;) {
      const chunk = (this.stub.packetBytes - FRAME_BYTES).toString(16);
      const reply = await this.#ask(`qXfer:${object}:read:${annex}:${size.toString(16)},${chunk}`, `"${object}"`);
      const part = reply.slice(1);
      parts.push(part);
      size += part.length;
      if (size > MAX_DOCUMENT_BYTES) throw this.#broken(`"${object}" is larger than ${MAX_DOCUMENT_BYTES} bytes`);
      if (reply[0] === "l") return Buffer.from(parts.join(""), "latin1").toString("utf8");
      if (reply[0] !== "m" || part === "") {
        throw this.#broken(`its GDB stub answered "${object}" with what is no part of it`);
      }
    }
  }

  /** Reports a malformed document as an error of the board. */
  async #parsed<T>(parse: () => Promise<T>): Promise<T> {
    try {
      return await parse();
    } catch (error) {
      if (error instanceof ToolError || this.#parts.signal.aborted || !(error instanceof Error)) throw error;
      throw this.#broken(error.message);
    }
  }

  async #ask(payload: string, what: string): Promise<string> {
    const { session, signal, action } = this.#parts;
    const { text } = await session.request(payload, signal);
    const refusal = /^E([0-9a-f]{2}|\..{0,200})$/is.exec(text)?.[1];
    if (refusal === undefined) return text;
    const reason = refusal.replace(/[^\x20-\x7e]/g, "?").replace(/^\./, "");
    throw new ToolError("board_refused", `${action}: its GDB stub refused ${what} with error ${reason}`);
  }

  #broken(reason: string): ToolError {
    return new ToolError("board_protocol", `${this.#parts.action}: ${reason}`);
  }
}
